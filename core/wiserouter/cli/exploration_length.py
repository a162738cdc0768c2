"""`wiserouter paper exploration-length`: the exploration length that the paper's Lemma 1 guarantees to suffice."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wiserouter.cli.output import out, print_json, table
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.sufficient_exploration import length_of_gaps, sufficient_length
from wiserouter.planning.policies.epsilon_first import PER_PAIR
from wiserouter.router import WiseRouter

_MEANING = {
    "models": "models of the pool",
    "contexts": "contexts; with given gaps, as many as the rarest one's frequency allows",
    "cost_gap": "least difference of two costs in one context, as a share of the most expensive call",
    "ratio_gap": "least difference of two ratios of reward to cost",
    "min_freq": "frequency of the rarest context",
    "separation": "L, cost gap squared x ratio gap",
    "delta": "share by which a context may fall short of its frequency",
    "length": "requests that suffice to order all ratios correctly",
    "default_length": f"requests that epsilon-first explores by default, {PER_PAIR} per context and model",
    "horizon": "total requests",
}


def exploration_length(
    artifact: Annotated[Path | None, typer.Argument(help="An artifact; alternatively give the gaps.")] = None,
    horizon: Annotated[int, typer.Option(help="Total number of requests.")] = 10_000,
    delta: Annotated[float | None, typer.Option(help="Delta of the lemma, in (0, 1); the best one by default.")] = None,
    no_skip: Annotated[bool, typer.Option("--no-skip", help="Exclude the null action.")] = False,
    cost_gap: Annotated[float | None, typer.Option(help="Least cost difference over the largest cost.")] = None,
    ratio_gap: Annotated[float | None, typer.Option(help="Least difference of two ratios of such costs.")] = None,
    min_freq: Annotated[float | None, typer.Option(help="Frequency of the rarest context.")] = None,
    models: Annotated[int | None, typer.Option(help="Number of models.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Exploration requests that suffice for the correct order of all ratios (paper, Lemma 1).

    Example: wiserouter paper exploration-length support.wise --horizon 100000
    """
    given = {"cost_gap": cost_gap, "ratio_gap": ratio_gap, "min_freq": min_freq, "n_models": models}
    named = [value is not None for value in given.values()]
    complete = all(named) if artifact is None else not any(named)
    if not complete:
        raise InvalidInput("needs either an artifact, or --cost-gap, --ratio-gap, --min-freq and --models")
    figures = (
        of_gaps(given, horizon, delta)
        if artifact is None
        else of_router(WiseRouter.load(artifact), horizon, delta, allow_skip=not no_skip)
    )
    if as_json:
        return print_json(figures)
    cells = [(name.replace("_", " "), _figure(figures[name]), text) for name, text in _MEANING.items()]
    out.print(table("Sufficient exploration", ("figure", "value", "meaning"), cells))
    out.print(f"\n{verdict(figures)}", highlight=False)
    return None


def of_router(router: WiseRouter, horizon: int, delta: float | None, *, allow_skip: bool) -> dict[str, Any]:
    """Return the figures at the means of the router's plan, with costs as shares of the largest known bound."""
    reward, cost_usd = router.estimates.means()
    bounds = [model.max_cost_usd for model in router.pool.models if model.max_cost_usd is not None]
    found = sufficient_length(
        reward,
        cost_usd,
        router.contexts.freq,
        horizon,
        delta,
        cost_scale_usd=max(bounds, default=None),
        allow_skip=allow_skip,
    )
    return _figures(found._asdict(), horizon, *reward.shape)


def of_gaps(given: dict[str, Any], horizon: int, delta: float | None) -> dict[str, Any]:
    """Return the figures at given gaps, with as many contexts as the rarest one's frequency allows."""
    found = length_of_gaps(**given, horizon=horizon, delta=delta)
    return _figures(found._asdict(), horizon, int(1.0 / found.min_freq + 1e-9), given["n_models"])


def verdict(figures: dict[str, Any]) -> str:
    """Return the conclusion from the figures as text."""
    length, default, horizon = (figures[name] for name in ("length", "default_length", "horizon"))
    by_default = f"The default explores {default:,} ({default / horizon:.1%} of the horizon)."
    if length <= horizon:
        return f"{_figure(length)} requests suffice, {length / horizon:.1%} of the horizon. {by_default}"
    return (
        f"The guarantee requires {_figure(length)} requests, more than the horizon of {horizon:,}, as it usually does. "
        f"It is a worst case: similar costs make it long, although confusing similar models costs little.\n"
        f"{by_default}"
    )


def _figures(found: dict[str, Any], horizon: int, n_contexts: int, n_models: int) -> dict[str, Any]:
    return {
        "horizon": horizon,
        **found,
        "exceeds_horizon": found["length"] > horizon,
        "default_length": PER_PAIR * n_contexts * n_models,
        "contexts": n_contexts,
        "models": n_models,
    }


def _figure(value: float) -> str:
    """Return a number with four significant digits, a count up to 10^15 with all digits."""
    return f"{value:,}" if isinstance(value, int) and value < 10**15 else f"{value:.4g}"
