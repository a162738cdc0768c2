"""`wiserouter evaluate`: what another budget, pool or model would have bought, told by the journal of what was done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from wiserouter.cli.output import err, out, print_json, table, usd
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.errors import ThinOverlap
from wiserouter.evaluation.off_policy import (
    Decisions,
    Estimate,
    Evaluation,
    always,
    at_known_then,
    at_plan,
    check_contexts,
    evaluate,
    read_decisions,
)
from wiserouter.evaluation.off_policy.evaluate import OutcomeName
from wiserouter.router import WiseRouter
from wiserouter.routing.journal_reader import JournalReader
from wiserouter.types import FloatArray

LOGGED = "as logged"


def evaluate_journal(
    journal: Annotated[Path, typer.Argument(help="What `journal_to` wrote.")],
    budget: Annotated[list[float] | None, typer.Option(help="USD for --requests; repeatable.")] = None,
    budget_per_query: Annotated[list[float] | None, typer.Option(help="The same, per query; repeatable.")] = None,
    artifact: Annotated[
        Path | None, typer.Option(help="The plan to follow, in the log's contexts; else that of each moment.")
    ] = None,
    without: Annotated[list[str] | None, typer.Option(help="A model to do without; repeatable.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Everything to this model alone; repeatable.")] = None,
    requests: Annotated[int | None, typer.Option(help="Requests of the totals; as many as logged.", min=1)] = None,
    explored: Annotated[bool, typer.Option("--explored", help="Look at the exploration phase alone.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Estimate what another budget, pool or model would have bought, or say that the journal cannot tell.

    Example: wiserouter evaluate decisions.jsonl --artifact support.wise --budget-per-query 0.002 --without opus
    """
    reading = JournalReader(journal)
    decisions = read_decisions(reading)
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
    asked = [(LOGGED, decisions.logged), *_targets(decisions, router, rates, without or [], only or [])]
    found = [_TargetResult(name, {one: _told(decisions, target, one) for one in _OUTCOMES}) for name, target in asked]
    _check_any(found)
    if as_json:
        return print_json(_as_json(journal, reading, decisions, n, found))
    return _show(journal, reading, decisions, n, found)


class _TargetResult(NamedTuple):
    """A target with its evaluation per outcome: None where there is no such outcome, the error where it was refused."""

    name: str
    outcomes: dict[OutcomeName, Evaluation | ThinOverlap | None]


_OUTCOMES: tuple[OutcomeName, ...] = ("reward", "cost_usd")


def _targets(
    decisions: Decisions, router: WiseRouter | None, rates: list[float], without: list[str], only: list[str]
) -> Iterator[tuple[str, FloatArray]]:
    less = f" without {', '.join(without)}" if without else ""
    for rate in rates:
        name = f"{usd(rate)} per query{less}"
        if router is None:
            yield name, at_known_then(decisions, rate, without)
            continue
        plan, pool = router.plan, router.pool
        if plan is None:
            raise InvalidInput("the artifact has learned nothing yet, so it has no plan: leave --artifact out")
        retired = [model.name for model in pool.models if model.retired]
        yield name, at_plan(decisions, plan, pool.names, rate, [*without, *retired])
    for model in only:
        yield f"{model} alone", always(decisions, model)


def _told(decisions: Decisions, target: FloatArray, outcome: OutcomeName) -> Evaluation | ThinOverlap | None:
    if not decisions.tells(outcome):
        return None
    try:
        return evaluate(decisions, target, outcome)
    except ThinOverlap as refusal:
        return refusal


def _check_any(found: list[_TargetResult]) -> None:
    """Raise the first refusal where every target but the log itself was refused."""
    told = [one for each in found if each.name != LOGGED for one in each.outcomes.values()]
    refusals = [one for one in told if isinstance(one, ThinOverlap)]
    if refusals and not any(isinstance(one, Evaluation) for one in told):
        raise refusals[0]


def _as_json(
    journal: Path, reading: JournalReader, decisions: Decisions, n: int, found: list[_TargetResult]
) -> dict[str, object]:
    return {
        "journal": str(journal),
        "decisions": decisions.n,
        "left_out": decisions.left_out,
        "skipped_lines": reading.skipped,
        "requests": n,
        "level": 0.95,
        "targets": [
            {"target": each.name, **{name: _fields(one, n) for name, one in each.outcomes.items()}} for each in found
        ],
    }


def _fields(told: Evaluation | ThinOverlap | None, n: int) -> dict[str, Any] | None:
    if told is None:
        return None
    if isinstance(told, ThinOverlap):
        return {"refused": str(told)}
    figures = {name: getattr(told, name) for name in ("ips", "snips", "dr")}
    return {
        "overlap": told.overlap._asdict(),
        **{name: {**one._asdict(), "total": one.total(n)[:3]} for name, one in figures.items()},
    }


def _show(journal: Path, reading: JournalReader, decisions: Decisions, n: int, found: list[_TargetResult]) -> None:
    for count, what in (
        (reading.skipped, "lines that are cut short or damaged"),
        (decisions.left_out, "decisions from before contexts were fitted anew"),
    ):
        if count:
            err.print(f"{journal}: skipped {count} {what}", highlight=False)
    rows = [
        (each.name, *_cells(name, told, n))
        for each in found
        for name, told in each.outcomes.items()
        if isinstance(told, Evaluation)
    ]
    title = f"{journal.name}: {decisions.n:,} decisions, means per query with 95 % intervals"
    columns = ("target", "of", "IPS", "SNIPS", "doubly robust", f"{n:,} queries", "worth", "weight", "left out")
    out.print(table(title, columns, rows, left=2))
    for each in found:
        for told in each.outcomes.values():
            if isinstance(told, ThinOverlap):
                out.print(f"\n{each.name}: {told}", highlight=False, markup=False, soft_wrap=True)


def _cells(name: OutcomeName, told: Evaluation, n: int) -> tuple[str, ...]:
    total, overlap = told.dr.total(n), told.overlap
    return (
        _NAMES[name],
        *(_interval(one, name) for one in (told.ips, told.snips, told.dr)),
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
