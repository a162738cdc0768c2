"""The warning that a budget is too small for its horizon."""

from __future__ import annotations

import logging

from wiserouter.budgets.budget import Budget
from wiserouter.budgets.ledger import ROUNDING
from wiserouter.planning.plan import Plan

logger = logging.getLogger("wiserouter")


def warn_if_short(budget: Budget, plan: Plan | None) -> None:
    """Log a warning if a budget cannot pay the cheapest models for its whole horizon."""
    if plan is not None and budget.rate_usd is not None and budget.rate_usd < plan.floor_usd * (1.0 - ROUNDING):
        logger.warning(
            "the budget gives %.3g USD per request, the cheapest models cost %.3g: it will last for about %d of %d",
            budget.rate_usd,
            plan.floor_usd,
            int(budget.amount_usd / plan.floor_usd),
            budget.horizon,
        )
