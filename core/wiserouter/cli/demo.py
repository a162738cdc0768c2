"""`wiserouter demo`: a synthetic workload, routed under a budget."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.progress import Progress, TaskID

from wiserouter.budgets.budget import Budget
from wiserouter.cli.output import err, out, picture_file, print_json, progress, reporter, shares, table
from wiserouter.errors import InvalidInput, MissingExtra
from wiserouter.evaluation.datasets.synthetic import make_table
from wiserouter.evaluation.outcome import Outcome, outcome_of
from wiserouter.evaluation.reference_policies import always, best_model, cheapest_model
from wiserouter.evaluation.table import Table
from wiserouter.fitting.log import RoutingLog
from wiserouter.learning.estimates import Means
from wiserouter.pricing.amounts import usd
from wiserouter.router import WiseRouter
from wiserouter.types import IntArray

Serve = Callable[[WiseRouter, Table, Callable[[int], None]], IntArray]
"""Serves every query of a table and returns the models; adapters register theirs under "wiserouter.demo"."""

_HISTORY = 1_500  # queries of the log that the demo learns from


def demo(
    queries: Annotated[int, typer.Option(help="Length of the workload.", min=10)] = 3_000,
    budget: Annotated[
        float | None, typer.Option(help="USD for the workload; by default a fifth of the cost of always-best.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the workload and the router.", min=0)] = 0,
    plot: Annotated[Path, typer.Option(help="The picture to save.")] = Path("wiserouter-demo.png"),
    via: Annotated[
        str, typer.Option(help="How the calls are made: python, or an installed adapter: litellm.")
    ] = "python",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Route a synthetic workload under a budget: no key, no network, a few seconds.

    Example: wiserouter demo --queries 5000 --budget 2
    """
    plot = picture_file(plot)
    serve = _serve if via == "python" else _adapter(via)
    rng = np.random.default_rng(seed)
    history, live = make_table(_HISTORY, rng), make_table(queries, rng)
    with progress(quiet=as_json) as bars:
        router = WiseRouter.fit(RoutingLog.from_arrays(*history), n_contexts=12, seed=seed, progress=reporter(bars))
        means = router.estimates.means(shrink=False)  # before serving adds observations
        amount = _round(0.2 * history.cost_usd[:, -1].mean() * queries) if budget is None else budget
        router.start(Budget(amount_usd=amount, horizon=queries, on_exhausted="cheapest"))
        chosen = serve(router, live, _ticker(router, bars, bars.add_task("routing", total=queries)))
    outcomes = _outcomes(router, means, live, chosen, amount, seed)
    picture = _picture(router, outcomes, plot)
    if as_json:
        rows = [each.as_dict() for each in outcomes]
        return print_json({**rows[0], "naive": {str(row["method"]): row for row in rows[1:]}, "plot": picture})
    _show(outcomes, picture)
    return None


def _adapter(via: str) -> Serve:
    """Return the serving function that an adapter registers as an entry point."""
    adapters = {entry.name: entry for entry in entry_points(group="wiserouter.demo")}
    if via not in adapters:
        raise InvalidInput(f"via must be one of {', '.join(['python', *sorted(adapters)])}, got {via!r}", value=via)
    serve: Serve = adapters[via].load()
    return serve


def _ticker(router: WiseRouter, bars: Progress, bar: TaskID) -> Callable[[int], None]:
    """Return a callback that shows progress and spend every 50 queries."""

    def tick(done: int) -> None:
        if done % 50 == 0:
            status = router.status()
            spent = f"routing, {usd(status.spent_usd)} of {usd(status.amount_usd)} spent"
            bars.update(bar, completed=done, description=spent)

    return tick


def _serve(router: WiseRouter, live: Table, tick: Callable[[int], None]) -> IntArray:
    """Route every query as an application does: decide, call the model, charge the cost, reward the answer."""
    chosen = np.empty(len(live.prompts), dtype=np.int64)
    for i, prompt in enumerate(live.prompts):
        decision = router.decide(prompt)
        chosen[i] = model = router.pool.index(decision.model)
        router.charge(decision, float(live.cost_usd[i, model]))
        router.reward(decision, float(live.reward[i, model]))
        tick(i)
    return chosen


def _outcomes(
    router: WiseRouter, means: Means, live: Table, chosen: IntArray, budget_usd: float, seed: int
) -> list[Outcome]:
    freq = router.contexts.freq
    n = len(live.prompts)
    best, cheapest = best_model(means, freq), cheapest_model(means, freq)
    picks = {
        "WISERouter": chosen,
        f"always {live.models[best]} (best)": always(best, n),
        f"always {live.models[cheapest]} (cheapest)": always(cheapest, n),
    }
    return [
        outcome_of(method, pick, live.reward, live.cost_usd, models=live.models, budget_usd=budget_usd, seed=seed)
        for method, pick in picks.items()
    ]


def _picture(router: WiseRouter, outcomes: list[Outcome], plot: Path) -> str | None:
    from wiserouter.evaluation.plots import plot_outcomes

    try:
        plot_outcomes(outcomes, plot, "Cost of the workload and share of correct answers", router.plan)
    except MissingExtra as error:
        err.print(f"no picture: {error}", highlight=False)
        return None
    return str(plot)


def _show(outcomes: list[Outcome], picture: str | None) -> None:
    ours, best, cheapest = outcomes
    rows = [
        (
            one.method,
            usd(one.spend_usd),
            f"{one.quality:.1%}",
            usd(1_000 * one.spend_usd / max(one.quality * one.queries, 1)),
            shares(one.models),
        )
        for one in outcomes
    ]
    title = f"{ours.queries:,} queries, budget {usd(ours.budget_usd)}"
    out.print(table(title, ("policy", "cost", "correct", "per 1,000 correct", "models"), rows))
    kept = ours.quality / best.quality
    out.print(
        f"\nWISERouter spent {_spent(ours)}. It got {kept:.0%} of the best model's correct "
        f"answers for {ours.spend_usd / best.spend_usd:.0%} of its cost; the cheapest model alone gets "
        f"{cheapest.quality / best.quality:.0%}.",
        highlight=False,
    )
    if picture:
        out.print(f"Picture: {picture}", highlight=False)
    out.print("Next: wiserouter fit YOUR_LOG.parquet -o router.wise", highlight=False)


def _spent(ours: Outcome) -> str:
    """Return the spend as a share of the budget, or as an amount where the budget is 0."""
    if ours.budget_usd:
        return f"{ours.spend_ratio:.1%} of the budget"
    return f"{usd(ours.spend_usd)} on a budget of {usd(0.0)}"


def _round(amount_usd: float) -> float:
    """Return the amount rounded to two significant digits."""
    return float(f"{amount_usd:.2g}")
