"""The budgets of `wiserouter replay`: in all, or per query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wiserouter.errors import InvalidInput
from wiserouter.validation import check_amount


class ReplayedBudget(NamedTuple):
    """A budget in USD, for all queries or for each."""

    amount_usd: float
    per_query: bool

    def total_usd(self, n_queries: int) -> float:
        """Return the amount for a number of queries."""
        return self.amount_usd * n_queries if self.per_query else self.amount_usd


def replayed_budgets(totals: Sequence[float] | None, per_query: Sequence[float] | None) -> list[ReplayedBudget]:
    """Return the budgets of both options, those in all first.

    Raises
    ------
    InvalidInput
        If there is none, or one buys nothing.
    """
    budgets = [ReplayedBudget(amount, per_query=False) for amount in totals or ()]
    budgets += [ReplayedBudget(amount, per_query=True) for amount in per_query or ()]
    if not budgets:
        raise InvalidInput("replay needs --budget (USD for all test queries) or --budget-per-query, got neither")
    for one in budgets:
        check_amount("--budget-per-query" if one.per_query else "--budget", one.amount_usd)
    if any(one.amount_usd == 0 for one in budgets):
        raise InvalidInput("a budget to replay must be above 0, got 0: nothing can be bought with it", value=0)
    return budgets
