"""`wiserouter simulate`: every method on the same simulated requests, with known true means."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from wiserouter.cli import simulate_conversations as conversations
from wiserouter.cli import simulate_fleet as fleet
from wiserouter.cli.fit import names
from wiserouter.cli.output import out, picture_file, print_json, progress, table
from wiserouter.cli.parallel_options import AddressOption, BackendOption, Jobs, workers
from wiserouter.errors import InvalidInput
from wiserouter.evaluation import simulation
from wiserouter.evaluation.simulation import MethodSummary, Study, slopes, summarise
from wiserouter.parallel.backends import parallel_backend
from wiserouter.pricing.amounts import usd

_COLUMNS = ("method", "reward\nratio", "\ns.e.", "\nregret", "spend\nratio", "\nmost", "\nserved")

SEEDS = 40
"""By default, of requests; conversations have fewer."""


def simulate(
    environment: Annotated[
        str, typer.Option(help="paper, or routerbench: a wider range of costs; agents, or chats; or fleet.")
    ] = "paper",
    horizon: Annotated[
        list[int] | None,
        typer.Option(help="Number of requests; repeatable. 1500 by default. Of agents and chats: conversations, 200."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds, each with its own environment: 40; agents and chats 3.", min=1)
    ] = None,
    first_seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
    fraction: Annotated[
        float | None,
        typer.Option(
            help="Budget between always the cheapest (0) and always the most expensive model (1); by default 0.5 in "
            "paper, 0.02 in routerbench, five budgets in agents and chats."
        ),
    ] = None,
    limit: Annotated[str, typer.Option(help="expected, or hard: through the router, with worst cases.")] = "expected",
    accounting: Annotated[
        str, typer.Option(help="actual, or paper: true costs, or the mean cost of each pair.")
    ] = "actual",
    methods: Annotated[str | None, typer.Option(help="Only these methods, separated by commas.")] = None,
    credit: Annotated[
        str,
        typer.Option(
            help="agents: a run that models share is worth their mean by share (linear) or the worst of them."
        ),
    ] = "linear",
    shards: Annotated[
        list[int] | None, typer.Option(help="fleet: Redis servers among which scopes are divided; repeatable.", min=1)
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="fleet: NAME=VALUE, such as workers=100 or event_s=3e-5; repeatable."),
    ] = None,
    jobs: Jobs = None,
    backend: BackendOption = None,
    address: AddressOption = None,
    plot: Annotated[Path | None, typer.Option(help="Save a picture of the longest horizon (png, svg, pdf).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare all methods on the same requests: reward and spend against the oracle, and regret.

    Methods: optimistic, random, epsilon-greedy, linucb, oracle, epsilon-first-N,
    which explores N requests, and epsilon-first-known-N, which is given the true
    costs. The reward ratio is the expected reward of the choices over that of the
    linear program at the true means; the spend ratio is spend over budget.

    Example: wiserouter simulate --horizon 1500 --seeds 40 --plot regret.png

    With --environment agents or chats: units of decision on conversations over
    providers with prompt caches. Methods: call (each call alone), pinned (the
    model of the first call), never-switch (one per conversation, text unread),
    conversation (each turn with its cache), run (one decision per conversation)
    and oracle (a bound). docs/agents_simulation.md has the setup.

    Example: wiserouter simulate --environment agents --plot agents.png

    With --environment fleet: workers that share a budget through Redis, as a
    discrete-event simulation of their exchanges, for each number of --shards.
    docs/scale.md has its settings and figures.

    Example: wiserouter simulate --environment fleet --limit hard --shards 64

    JSON: {"methods": [{"method", "horizon", "seeds", "reward_ratio", "regret",
    "spend_ratio", "served", "reward_ratio_se", "regret_se", "spend_ratio_max",
    "budget_usd", "per_seed": {"seed": [...], ...}, "curves": {"step": [...],
    "amortized_regret": [...], "spend_usd": [...]}, "regret_slope"}]}, one for
    each horizon and method. regret_slope is that of log regret per request over
    log horizon; null with one horizon. Of agents and chats: {"environment",
    "conversations", "reference", "policies": [{"policy", "budget_usd": [...],
    "quality", "at_budget", "spend_ratio", "waste", "switches", "gain":
    {"by_budget", "mean", "se"}, "per_seed", ...}]}, lists by budget. Of fleet: {"environment", "fleets":
    [{"shards", "requests", "served", "amount_usd", "spent_usd",
    "overspend_usd", "idle_usd", "stranded_usd", "exchanges_per_s", "busy",
    "reply_p50_s", "reply_p99_s", "refused_away", "forgotten_usd"}]}.
    """
    plot = plot and picture_file(plot)
    if environment == fleet.ENVIRONMENT:
        _check_no_study(accounting, horizon, seeds, fraction, methods, plot)
        return fleet.compare_fleets(shards or (1, 16, 64), limit, settings or (), seed=first_seed, as_json=as_json)
    if shards or settings:
        raise InvalidInput(f"--shards and --set are options of the fleet, got {environment!r}", value=environment)
    n_jobs = workers(jobs, backend, 1)
    chosen = None if methods is None else tuple(names(methods) or ())
    with parallel_backend(backend, address):
        if environment in conversations.ENVIRONMENTS:
            _check_unused(environment, limit, accounting, horizon)
            asked = conversations.study_of(environment, chosen, horizon[0] if horizon else None, credit, fraction)
            each = range(first_seed, first_seed + (seeds or conversations.SEEDS))
            return conversations.compare_units(asked, each, jobs=n_jobs, plot=plot, as_json=as_json)
        study: Study = Study(_known(environment), chosen, limit, accounting, fraction)  # type: ignore[arg-type]
        each = range(first_seed, first_seed + (seeds or SEEDS))
        return _compare_methods(study, sorted(set(horizon or (1_500,))), each, n_jobs, plot, as_json)


def _compare_methods(
    study: Study, horizons: Sequence[int], seeds: Sequence[int], n_jobs: int | None, plot: Path | None, as_json: bool
) -> None:
    """Run every method on single calls, and print tables or JSON."""
    environment = study.environment
    with progress(quiet=as_json) as bars:
        bar = bars.add_task("simulating", total=len(seeds) * len(horizons))
        scores = simulation.simulate(study, horizons, seeds, jobs=n_jobs, tick=partial(bars.advance, bar))
    summaries = summarise(scores)
    if plot is not None:
        from wiserouter.evaluation.plots import plot_simulation

        longest = [each for each in summaries if each.horizon == horizons[-1]]
        plot_simulation(longest, plot, _title(environment, longest))
    if as_json:
        print_json({"methods": _figures(summaries)})
        return
    for T in horizons:
        of_horizon = [each for each in summaries if each.horizon == T]
        out.print(table(_title(environment, of_horizon), _COLUMNS, map(_row, of_horizon)), "")
    if len(horizons) > 1:
        out.print(_slopes(summaries))
        out.print(
            "Slope of regret per request; -0.5: regret grows as the square root of the horizon, -1: not at all.\n"
        )
    if plot is not None:
        out.print(f"Picture: {plot}", highlight=False)


_ENVIRONMENTS = ("paper", "routerbench")
"""Those of single calls."""


def _known(environment: str) -> str:
    """Return the name of an environment of single calls; raise `InvalidInput` for any other."""
    if environment not in _ENVIRONMENTS:
        known = ", ".join((*_ENVIRONMENTS, *conversations.ENVIRONMENTS, fleet.ENVIRONMENT))
        raise InvalidInput(f"--environment must be one of {known}, got {environment!r}", value=environment)
    return environment


def _check_unused(environment: str, limit: str, accounting: str, horizon: list[int] | None) -> None:
    """Raise `InvalidInput` for an option that simulated conversations do not have."""
    if (limit, accounting) != ("expected", "actual"):
        raise InvalidInput(
            f"{environment} are simulated under an expected limit with actual costs, got {limit!r} and {accounting!r}"
        )
    if horizon is not None and len(horizon) > 1:
        raise InvalidInput(f"{environment} take one --horizon, got {len(horizon)}", value=horizon)


def _check_no_study(
    accounting: str,
    horizon: list[int] | None,
    seeds: int | None,
    fraction: float | None,
    methods: str | None,
    plot: Path | None,
) -> None:
    """Raise `InvalidInput` for an option that a simulated fleet does not have."""
    given = {"--horizon": horizon, "--seeds": seeds, "--fraction": fraction, "--methods": methods, "--plot": plot}
    unused = [name for name, value in given.items() if value is not None]
    unused += ["--accounting"] * (accounting != "actual")
    if unused:
        raise InvalidInput(f"a fleet has no {', '.join(unused)}: --set horizon_s=10 sets its time")


def _figures(summaries: Sequence[MethodSummary]) -> list[dict[str, Any]]:
    slope = slopes(summaries)
    return [{**each.as_dict(), "regret_slope": slope[each.method]} for each in summaries]


def _title(environment: str, summaries: Sequence[MethodSummary]) -> str:
    first = summaries[0]
    n = len(first.scores)
    budget = f"{usd(first.budget_usd)}{' on average' if n > 1 else ''}"
    return f"{environment}: {first.horizon:,} requests, {budget}, {n} seed{'s' * (n > 1)}"


def _row(summary: MethodSummary) -> tuple[str, ...]:
    error = summary.standard_error("reward_ratio")
    return (
        summary.method,
        f"{summary.mean('reward_ratio'):.4f}",
        "" if error is None else f"{error:.4f}",
        f"{summary.mean('regret'):,.1f}",
        f"{summary.mean('spend_ratio'):.3f}",
        f"{summary.of('spend_ratio').max():.3f}",
        f"{summary.mean('served'):.1%}",
    )


def _slopes(summaries: Sequence[MethodSummary]) -> Any:
    rows = [(method, "-" if slope is None else f"{slope:.3f}") for method, slope in slopes(summaries).items()]
    return table("Log-log slope", ("method", "slope"), rows)
