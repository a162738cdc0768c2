"""`wiserouter plan`: the expected quality of each budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from wiserouter.cli.output import out, picture_file, print_json, shares, table
from wiserouter.errors import InfeasibleBudget, InvalidInput
from wiserouter.planning.plan import Plan
from wiserouter.pricing.amounts import usd
from wiserouter.router import WiseRouter
from wiserouter.routing.status import what_if
from wiserouter.validation import check_amount


def plan(
    artifact: Annotated[Path, typer.Argument(help="An artifact.")],
    budget: Annotated[float | None, typer.Option(help="Show this budget (USD) too, for --requests.")] = None,
    requests: Annotated[int, typer.Option(help="Number of requests that budgets are for.", min=1)] = 1_000,
    points: Annotated[int, typer.Option(help="Number of budgets to show.", min=2)] = 10,
    plot: Annotated[Path | None, typer.Option(help="Save a picture (png, svg, pdf).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the what-if curve: budget, expected quality, model shares, and the reward of one more dollar.

    Example: wiserouter plan support.wise --requests 100000 --budget 50 --plot curve.png
    """
    if budget is not None:
        check_amount("--budget", budget)
    plot = plot and picture_file(plot)
    router = WiseRouter.load(artifact)
    fitted = router.plan
    if fitted is None:
        raise InvalidInput(f"{artifact}: there are no estimates yet, so there is no plan: fit it on a log")
    try:
        rows = [_row(fitted, rate, requests, router.pool.names) for rate in rates(fitted, points, budget, requests)]
    except InfeasibleBudget as error:
        rule = f"--budget must be at least {fitted.floor_usd * requests:.6g} USD for {requests:,} requests"
        got = f"each to its cheapest model, got {budget:g}"
        raise InvalidInput(f"{rule}, {got}: raise it, or give fewer --requests", value=budget) from error
    if plot is not None:
        from wiserouter.evaluation.plots import plot_plan

        plot_plan(fitted, router.pool.names, plot, None if budget is None else budget / requests)
    if as_json:
        return print_json({"requests": requests, "models": router.pool.names, "budgets": rows})
    cells = [
        (
            usd(row["budget_usd"]),
            f"{row['quality']:.4f}",
            f"{row['shadow_price']:,.4g}",
            shares(row["models"]),
        )
        for row in rows
    ]
    title = f"Budgets for {requests:,} requests"
    out.print(table(title, ("budget", "quality", "reward per extra USD", "models"), cells, left=0))
    if plot is not None:
        out.print(f"\nPicture: {plot}", highlight=False)
    return None


def rates(fitted: Plan, points: int, budget_usd: float | None, requests: int) -> list[float]:
    """Return rates from the floor to the ceiling, evenly spaced on a log scale, and that of the given budget."""
    low = max(fitted.floor_usd, fitted.ceiling_usd * 1e-3)
    spaced = np.geomspace(low, fitted.ceiling_usd, points).tolist() if low > 0 else [0.0]
    given = [] if budget_usd is None else [budget_usd / requests]
    spaced[0] = max(spaced[0], fitted.floor_usd)
    return sorted({*spaced, *given})


def _row(fitted: Plan, rate_usd: float, requests: int, names: tuple[str, ...]) -> dict[str, Any]:
    bought = what_if(fitted, rate_usd, names)
    return {
        "budget_usd": rate_usd * requests,
        "rate_usd": rate_usd,
        "quality": bought.expected_reward,
        "shadow_price": bought.shadow_price,
        "models": bought.mix,
    }
