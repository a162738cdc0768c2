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
    "contexts": "contexts; as many as the rarest allows, where the gaps are given",
    "cost_gap": "least difference of two costs in one context, as a share of the dearest call",
    "ratio_gap": "least difference of two ratios of reward to cost",
    "min_freq": "frequency of the rarest context",
    "separation": "L, cost gap squared x ratio gap",
    "delta": "by what share a context may fall short of its frequency",
    "length": "requests that suffice to order all ratios rightly",
    "default_length": f"requests that epsilon-first explores by default, {PER_PAIR} per context and model",
    "horizon": "requests in all",
}


def exploration_length(
    artifact: Annotated[Path | None, typer.Argument(help="What `wiserouter fit` wrote; or give the gaps.")] = None,
    horizon: Annotated[int, typer.Option(help="Number of requests in all.")] = 10_000,
    delta: Annotated[float | None, typer.Option(help="Of the lemma, in (0, 1); the best one by default.")] = None,
    no_skip: Annotated[bool, typer.Option("--no-skip", help="Leave out the null action.")] = False,
    cost_gap: Annotated[float | None, typer.Option(help="Least cost difference, the dearest call being 1.")] = None,
    ratio_gap: Annotated[float | None, typer.Option(help="Least difference of two ratios, likewise.")] = None,
    min_freq: Annotated[float | None, typer.Option(help="Frequency of the rarest context.")] = None,
    models: Annotated[int | None, typer.Option(help="Number of models.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show how many exploration requests suffice for the right order of all ratios (paper, Lemma 1).

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
    """Return the figures at the means that the router plans with; costs are shares of the largest known bound."""
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
    """Return in words what the figures come to."""
    length, default, horizon = (figures[name] for name in ("length", "default_length", "horizon"))
    by_default = f"The default explores {default:,} ({default / horizon:.1%} of the horizon)."
    if length <= horizon:
        return f"{_figure(length)} requests suffice, {length / horizon:.1%} of the horizon. {by_default}"
    return (
        f"The guarantee asks for {_figure(length)} requests, more than the horizon of {horizon:,}: it is out of reach, "
        f"as it usually is. It is a worst case: close costs make it long, yet to confuse close models costs little.\n"
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
    """Return a number with four figures, a count up to 10^15 with all of them."""
    return f"{value:,}" if isinstance(value, int) and value < 10**15 else f"{value:.4g}"
