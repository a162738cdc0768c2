"""`wiserouter replay`: the outcome of the router on a log, next to the reference policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from wiserouter.budgets.budget import Budget
from wiserouter.cli.fit import arm_names, names, read_models, used_prices
from wiserouter.cli.log_options import (
    CostColumn,
    EffortColumn,
    Joined,
    LogArgument,
    ModelColumn,
    PromptColumn,
    RewardColumn,
    ScaleOption,
    read_log,
)
from wiserouter.cli.output import (
    OUTCOME_COLUMNS,
    err,
    out,
    outcome_row,
    picture_file,
    print_json,
    progress,
    table,
)
from wiserouter.cli.replayed_budgets import ReplayedBudget, replayed_budgets
from wiserouter.cli.sparse_replay import check_dense_only, replay_sparse
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.outcome import Outcome
from wiserouter.evaluation.replay import (
    Replay,
    ReplaySetup,
    complete_queries,
    open_log,
    prepare,
    prepare_with,
    run,
    table_of,
)
from wiserouter.evaluation.table import Table
from wiserouter.learning.residuals.model_selection import MEANS, SMOOTHED
from wiserouter.planning.policies import Offline
from wiserouter.pricing.amounts import usd
from wiserouter.router import WiseRouter


def replay(
    log: LogArgument,
    budget: Annotated[list[float] | None, typer.Option(help="Budget in USD for all test queries; repeatable.")] = None,
    budget_per_query: Annotated[list[float] | None, typer.Option(help="Budget in USD per query; repeatable.")] = None,
    router: Annotated[Path | None, typer.Option(help="Replay the whole log with this artifact.")] = None,
    models: Annotated[str | None, typer.Option(help="Keep only these models, separated by commas.")] = None,
    prices: Annotated[Path | None, typer.Option(help="JSON: model -> Model fields; costs of token counts.")] = None,
    prompt: PromptColumn = None,
    model: ModelColumn = None,
    effort: EffortColumn = None,
    reward: RewardColumn = None,
    cost: CostColumn = None,
    scale: ScaleOption = None,
    joined: Joined = None,
    encoder: Annotated[str, typer.Option(help="tfidf, or minilm (extra).")] = "tfidf",
    contexts: Annotated[int, typer.Option(help="Number of contexts J.")] = 16,
    accounting: Annotated[str, typer.Option(help="actual, or paper: debit true or estimated costs.")] = "actual",
    estimator: Annotated[
        str, typer.Option(help="smoothed means, means, ridge, or auto: the best on held-out queries.")
    ] = "smoothed",
    limit: Annotated[
        str, typer.Option(help="expected, or hard: the worst case is the model's most expensive call.")
    ] = "expected",
    off_policy: Annotated[
        bool,
        typer.Option("--off-policy", help="Judge the plan by the log's calls; by itself if most queries lack models."),
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the split, the clusters and the draws.", min=0)] = 0,
    seeds: Annotated[int, typer.Option(help="Number of seeds, from --seed on.", min=1)] = 1,
    plot: Annotated[Path | None, typer.Option(help="Save a picture of the last run (png, svg, pdf).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per run, one per line.")] = False,
) -> None:
    """Split a log 50:50, learn from one half, and route the other under a budget.

    A dense log has the score and the cost of every model on every query.
    With a column `conversation`, the calls of one are replayed as one run: one
    decision, the cost of all its calls, their mean score. Where most queries have
    the answers of some models only, the outcome of the plan is estimated from these.

    Example: wiserouter replay calls.parquet --budget 2.50 --plot replay.png
    """
    plot = plot and picture_file(plot)
    budgets = replayed_budgets(budget, budget_per_query)
    options = _ReplayOptions(
        _one_of("limit", limit, ("expected", "hard")),
        _one_of("accounting", accounting, ("actual", "paper")),
        estimator,
        budgets[0].amount_usd if len(budgets) == 1 and budgets[0].per_query else None,
    )
    loaded = WiseRouter.load(router) if router else None
    priced = read_models(prices) if prices else None
    source = read_log(
        log,
        models=names(models),
        prompt=prompt,
        model=model,
        effort=effort,
        reward=reward,
        cost=cost,
        scale=scale,
        joined=joined,
        prices={one.name: one.price for one in priced or () if one.price is not None},
        read=open_log,
    )
    found = table_of(source)
    each_seed = range(seed, seed + seeds)
    if off_policy or found.complete.mean() < 0.5:
        check_dense_only(
            limit=limit != "expected",
            accounting=accounting != "actual",
            estimator=estimator not in {SMOOTHED, MEANS},
            plot=bool(plot),
        )
        known = priced and used_prices(priced, arm_names(found.models), "log")
        return replay_sparse(source, found, budgets, each_seed, loaded, encoder, contexts, known, as_json=as_json)
    full, dropped = complete_queries(found)
    if dropped:
        err.print(f"left out {dropped} of {len(found.prompts)} queries without a score or a cost: try --off-policy")
    runs: list[list[Replay]] = [[] for _ in budgets]
    with progress(quiet=as_json) as bars:
        for each in each_seed:
            setup = _prepare(full, loaded, each, encoder, contexts, options)
            bar = bars.add_task(f"routing, seed {each}", total=len(setup.test.prompts) * len(budgets))
            for done, one in zip(runs, _play(setup, budgets, options, partial(bars.advance, bar)), strict=True):
                done.append(one)
                if as_json:
                    print_json(one.as_dict())
    return _finish(runs, setup, source.name, plot, as_json=as_json)


class _ReplayOptions(NamedTuple):
    limit: Any
    accounting: Any
    estimator: str
    rate_usd: float | None


def _play(
    setup: ReplaySetup, budgets: list[ReplayedBudget], options: _ReplayOptions, tick: Callable[[int], None]
) -> Iterator[Replay]:
    n = len(setup.test.prompts)
    for budget in budgets:
        yield run(setup, Budget(budget.total_usd(n), n, limit=options.limit), tick)


def _prepare(
    full: Table, loaded: WiseRouter | None, seed: int, encoder: str, contexts: int, options: _ReplayOptions
) -> ReplaySetup:
    if loaded is not None:
        return prepare_with(loaded, full, seed=seed)
    return prepare(
        full,
        seed=seed,
        encoder=encoder,
        n_contexts=contexts,
        policy=Offline(accounting=options.accounting),
        estimator=options.estimator,
        rate_usd=options.rate_usd,
    )


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise InvalidInput(f"--{name} must be one of {', '.join(choices)}, got {value!r}", value=value)
    return value


def _finish(runs: list[list[Replay]], setup: ReplaySetup, title: str, plot: Path | None, *, as_json: bool) -> None:
    """Save the picture of the last run, and print the tables."""
    if plot is not None:
        from wiserouter.evaluation.plots import plot_outcomes

        last = runs[-1][-1]
        heading = f"{title} under {usd(last.outcome.budget_usd)}"
        plot_outcomes([last.outcome, *last.references], plot, heading, setup.router.plan)
    if not as_json:
        _show(runs, title, plot)


def _show(runs: list[list[Replay]], title: str, plot: Path | None) -> None:
    for done in runs:
        first = done[0].outcome
        per_query = usd(first.budget_usd / first.queries)
        heading = f"{title}: {usd(first.budget_usd)} for {first.queries:,} queries ({per_query} each)"
        if len(done) == 1:
            rows = [outcome_row(each) for each in (first, *done[0].references)]
            out.print(table(heading, OUTCOME_COLUMNS, rows))
        else:
            columns = ("method", "quality", "sd", "spend/budget", "lowest", "highest", "served")
            rows = [_spread([one.outcome for one in done])]
            rows += [_spread([one.references[i] for one in done]) for i in range(len(done[0].references))]
            out.print(table(f"{heading}, {len(done)} seeds", columns, rows))
        out.print()
    if plot is not None:
        out.print(f"Picture: {plot}", highlight=False)


def _spread(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Return the mean and spread of one method over seeds."""
    quality = np.array([one.quality for one in outcomes])
    ratio = np.array([one.spend_ratio for one in outcomes])
    served = np.mean([one.served / one.queries for one in outcomes])
    return (
        outcomes[0].method,
        f"{quality.mean():.4f}",
        f"{quality.std(ddof=1):.4f}",
        f"{ratio.mean():.4f}",
        f"{ratio.min():.4f}",
        f"{ratio.max():.4f}",
        f"{served:.1%}",
    )
