"""The part of `wiserouter replay` for logs in which queries have the answers of some models only."""

from __future__ import annotations

from collections.abc import Sequence

from wiserouter.cli.output import err, out, print_json, progress, shares, table
from wiserouter.cli.replayed_budgets import ReplayedBudget
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.errors import ThinOverlap
from wiserouter.evaluation.sparse_replay import (
    ROUTER,
    Estimated,
    Result,
    SparseReplay,
    estimate,
    judged,
    judged_halves,
    queries_with_calls,
)
from wiserouter.evaluation.table import Table
from wiserouter.fitting.log import RoutingLog
from wiserouter.pricing.amounts import usd
from wiserouter.pricing.pool import Model
from wiserouter.router import WiseRouter


def replay_sparse(
    source: RoutingLog,
    found: Table,
    budgets: Sequence[ReplayedBudget],
    seeds: range,
    loaded: WiseRouter | None,
    encoder: str,
    n_contexts: int,
    models: Sequence[Model] | None,
    *,
    as_json: bool,
) -> None:
    """Print the estimates of each budget and seed from the queries of a log.

    Raises
    ------
    ThinOverlap
        If the log shows too little of the plan at every budget.
    """
    called = queries_with_calls(found, runs=source.layout.of_runs)
    n, left_out = len(found.prompts), len(found.prompts) - len(called.prompts)
    if left_out:
        err.print(f"left out {left_out:,} of {n:,} queries: runs of several models, or without score and cost")
    done: list[SparseReplay] = []
    with progress(quiet=as_json) as bars:
        for seed in bars.track(seeds, description="learning and estimating"):
            if loaded is None:
                parts = judged_halves(called, seed=seed, encoder=encoder, n_contexts=n_contexts, models=models)
            else:
                parts = [judged(loaded, called)]
            done += [estimate(parts, budget.total_usd(len(called.prompts)), seed) for budget in budgets]
    results = [one for run in done for one in run.targets[ROUTER].values()]
    refusals = [one for one in results if isinstance(one, ThinOverlap)]
    if refusals and not any(isinstance(one, Estimated) for one in results):
        if loaded is None and n_contexts > 1:
            err.print("fewer --contexts need fewer calls")
        raise refusals[0]
    if not as_json:
        complete = f"{int(found.complete.sum()):,} of {n:,} queries have a score and a cost of every model"
        rows = "" if source.layout.query_id else " (a column query_id would say which rows are of one query)"
        out.print(f"{complete}{rows}: the plan is judged by the calls of the log.\n", highlight=False)
    for run in done:
        print_json(run.as_dict()) if as_json else _show(run, source.name)


def check_dense_only(**options: bool) -> None:
    """Raise `InvalidInput` if an option is given that only whole runs have."""
    for name, given in options.items():
        if given:
            raise InvalidInput(
                f"--{name} needs queries with a score and a cost of every model: from the calls of this log the "
                f"outcome of the plan is estimated, and nothing is run: leave it out"
            )


def _show(run: SparseReplay, title: str) -> None:
    each = usd(run.budget_usd / run.queries)
    heading = f"{title}: {usd(run.budget_usd)} for {run.queries:,} queries ({each} each), seed {run.seed}"
    columns = ("method", "quality", "95 % interval", "USD each", "95 % interval", "worth", "models")
    rows = [
        (
            name,
            *_cells(found["reward"], digits=".4f"),
            *_cells(found["cost_usd"], digits=".4g"),
            f"{min((one.overlap.effective for one in found.values() if isinstance(one, Estimated)), default=0):,.0f}",
            shares(run.models) if name == ROUTER else "",
        )
        for name, found in run.targets.items()
    ]
    out.print(table(heading, columns, rows))
    for name, found in run.targets.items():
        refusal = next((one for one in found.values() if isinstance(one, ThinOverlap)), None)
        if refusal is not None:
            out.print(f"\n{name}: {refusal}; fewer --contexts need fewer calls", highlight=False, soft_wrap=True)
    out.print()


def _cells(result: Result, *, digits: str) -> tuple[str, str]:
    """Return an estimate and its interval."""
    if not isinstance(result, Estimated):
        return ("" if result is None else "refused"), ""
    mean, low, high, _ = result.mean
    return f"{mean:{digits}}", f"{low:{digits}} to {high:{digits}}"
