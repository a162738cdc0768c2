"""`wiserouter evaluate`: the outcome of another budget, pool or model, estimated from a journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from wiserouter.cli.output import err, out, print_json, table
from wiserouter.cli.parallel_options import AddressOption, BackendOption, Jobs, workers
from wiserouter.errors import InfeasibleBudget, InvalidInput
from wiserouter.evaluation.errors import ThinOverlap
from wiserouter.evaluation.off_policy import (
    Decisions,
    Estimate,
    Evaluation,
    always,
    at_logged_estimates,
    at_plan,
    check_contexts,
    evaluate_each,
    read_decisions,
)
from wiserouter.evaluation.off_policy.evaluate import OutcomeName
from wiserouter.parallel.backends import parallel_backend
from wiserouter.pricing.amounts import usd
from wiserouter.router import WiseRouter
from wiserouter.routing.journal_reader import JournalReader
from wiserouter.types import FloatArray

LOGGED = "as logged"


def evaluate_journal(
    journal: Annotated[Path, typer.Argument(help="A journal written by `journal_to`.")],
    budget: Annotated[list[float] | None, typer.Option(help="Budget in USD for --requests; repeatable.")] = None,
    budget_per_query: Annotated[list[float] | None, typer.Option(help="Budget in USD per query; repeatable.")] = None,
    artifact: Annotated[
        Path | None,
        typer.Option(help="Use the plan of this artifact; by default that of the logged estimates."),
    ] = None,
    without: Annotated[list[str] | None, typer.Option(help="A model to leave out; repeatable.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Every query to this model alone; repeatable.")] = None,
    requests: Annotated[int | None, typer.Option(help="Requests of the totals; by default as logged.", min=1)] = None,
    explored: Annotated[bool, typer.Option("--explored", help="Use the exploration phase alone.")] = False,
    jobs: Jobs = None,
    backend: BackendOption = None,
    address: AddressOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Estimate the outcome of another budget, pool or model from a journal, or refuse if the journal has too few data.

    Example: wiserouter evaluate decisions.jsonl --artifact support.wise --budget-per-query 0.002 --without opus
    """
    reader = JournalReader(journal)
    decisions = read_decisions(reader)
    decisions = decisions.where(decisions.explored) if explored else decisions
    if not decisions.n:
        raise InvalidInput("--explored needs decisions of an exploration phase, the journal has none")
    n = requests or decisions.n
    rates = [*(amount / n for amount in budget or ()), *(budget_per_query or ())]
    if not rates and not only:
        raise InvalidInput("evaluate needs --budget, --budget-per-query or --only, got none of them")
    router = None if artifact is None else WiseRouter.load(artifact)
    if router is not None:
        check_contexts(decisions, router.contexts)
        decisions = decisions.with_models(router.pool.names)
    try:
        targets = [(LOGGED, decisions.logged), *_targets(decisions, router, rates, without or [], only or [])]
    except InfeasibleBudget as error:
        rule = f"a budget must be at least {error.floor_usd:.6g} USD per query, each to its cheapest model"
        got = f"got {error.rate_usd:.6g}: raise it, or give fewer --requests for --budget"
        raise InvalidInput(f"{rule}, {got}", value=error.rate_usd) from error
    with parallel_backend(backend, address):
        found = evaluate_each(decisions, [target for _, target in targets], n_jobs=workers(jobs, backend, 1))
        results = [_TargetResult(name, outcomes) for (name, _), outcomes in zip(targets, found, strict=True)]
    _check_any(results)
    if as_json:
        return print_json(_as_json(journal, reader, decisions, n, results))
    return _show(journal, reader, decisions, n, results)


class _TargetResult(NamedTuple):
    """A target with its evaluation per outcome: None without such outcomes, the error if it was refused."""

    name: str
    outcomes: dict[OutcomeName, Evaluation | ThinOverlap | None]


def _targets(
    decisions: Decisions, router: WiseRouter | None, rates: list[float], without: list[str], only: list[str]
) -> Iterator[tuple[str, FloatArray]]:
    less = f" without {', '.join(without)}" if without else ""
    for rate in rates:
        name = f"{usd(rate)} per query{less}"
        if router is None:
            yield name, at_logged_estimates(decisions, rate, without)
            continue
        plan, pool = router.plan, router.pool
        if plan is None:
            raise InvalidInput("the artifact has learned nothing yet, so it has no plan: leave --artifact out")
        retired = [model.name for model in pool.models if model.retired]
        yield name, at_plan(decisions, plan, pool.names, rate, [*without, *retired])
    for model in only:
        yield f"{model} alone", always(decisions, model)


def _check_any(results: list[_TargetResult]) -> None:
    """Raise the first refusal if every target but the log itself was refused."""
    outcomes = [one for each in results if each.name != LOGGED for one in each.outcomes.values()]
    refusals = [one for one in outcomes if isinstance(one, ThinOverlap)]
    if refusals and not any(isinstance(one, Evaluation) for one in outcomes):
        raise refusals[0]


def _as_json(
    journal: Path, reader: JournalReader, decisions: Decisions, n: int, results: list[_TargetResult]
) -> dict[str, object]:
    return {
        "journal": str(journal),
        "decisions": decisions.n,
        "left_out": decisions.left_out,
        "skipped_lines": reader.skipped,
        "requests": n,
        "level": 0.95,
        "targets": [
            {"target": each.name, **{name: _fields(one, n) for name, one in each.outcomes.items()}} for each in results
        ],
    }


def _fields(evaluation: Evaluation | ThinOverlap | None, n: int) -> dict[str, Any] | None:
    if evaluation is None:
        return None
    if isinstance(evaluation, ThinOverlap):
        return {"refused": str(evaluation)}
    figures = {name: getattr(evaluation, name) for name in ("ips", "snips", "dr")}
    return {
        "overlap": evaluation.overlap._asdict(),
        **{name: {**one._asdict(), "total": one.total(n)[:3]} for name, one in figures.items()},
    }


def _show(journal: Path, reader: JournalReader, decisions: Decisions, n: int, results: list[_TargetResult]) -> None:
    for count, kind in (
        (reader.skipped, "lines that are truncated or damaged"),
        (decisions.left_out, "decisions from before the last refit of the contexts"),
    ):
        if count:
            err.print(f"{journal}: skipped {count} {kind}", highlight=False)
    rows = [
        (each.name, *_cells(name, one, n))
        for each in results
        for name, one in each.outcomes.items()
        if isinstance(one, Evaluation)
    ]
    title = f"{journal.name}: {decisions.n:,} decisions, means per query with 95 % intervals"
    columns = ("target", "of", "IPS", "SNIPS", "doubly robust", f"{n:,} queries", "worth", "weight", "left out")
    out.print(table(title, columns, rows, left=2))
    for each in results:
        for one in each.outcomes.values():
            if isinstance(one, ThinOverlap):
                out.print(f"\n{each.name}: {one}", highlight=False, soft_wrap=True)


def _cells(name: OutcomeName, evaluation: Evaluation, n: int) -> tuple[str, ...]:
    total, overlap = evaluation.dr.total(n), evaluation.overlap
    return (
        _NAMES[name],
        *(_interval(one, name) for one in (evaluation.ips, evaluation.snips, evaluation.dr)),
        _interval(total, name, total=True),
        f"{overlap.effective:,.0f}",
        f"{overlap.largest_weight:,.3g}",
        f"{overlap.left_out:.2%}",
    )


_NAMES: dict[OutcomeName, str] = {"reward": "reward", "cost_usd": "USD"}


def _interval(estimate: Estimate, name: OutcomeName, *, total: bool = False) -> str:
    mean, low, high = (_figure(value, name, total=total) for value in estimate[:3])
    return f"{mean} [{low}, {high}]"


def _figure(value: float, name: OutcomeName, *, total: bool) -> str:
    if name == "reward":
        return f"{value:,.0f}" if total else f"{value:.4f}"
    return f"{value:,.2f}" if total and value >= 1.0 else f"{value:.4g}"
