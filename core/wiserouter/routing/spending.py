"""The methods of `WiseRouter` for costs that belong to no decision."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from wiserouter.routing.administration import RouterAdministration
from wiserouter.validation import check_finite

T = TypeVar("T")


class RouterSpending(RouterAdministration):
    """The methods that pay for other things than calls that the router has decided."""

    def spend(self, cost_usd: float, *, scope: str = "default", billed: bool = False) -> None:
        """Pay for something other than a call of the pool, such as an embedding, from the same budget.

        A hard limit refuses an amount that does not fit. Pay an upper bound in advance, and give the difference back
        with a negative amount. What is `billed` already is counted in any case, even beyond a hard limit.

        Raises
        ------
        NotStarted, BudgetExhausted
            If no budget pays for it. Nothing is changed.
        InvalidInput
            If the cost is not a finite number. Nothing is changed.
        """
        cost_usd = check_finite("cost_usd", cost_usd)
        self._store.spend(scope, cost_usd, billed=billed)
        self._days.spent(scope, cost_usd, self._store.now())
        for listener in self._listeners:
            listener()

    async def aspend(self, cost_usd: float, *, scope: str = "default", billed: bool = False) -> None:
        """Spend like `spend`, off the event loop if the store may have to be waited for."""
        await self._offload(scope, partial(self.spend, cost_usd, scope=scope, billed=billed))

    def check_left(self, *, scope: str = "default") -> None:
        """Raise what a decision would where nothing is left, before a call whose cost is known afterwards only.

        Raises
        ------
        BudgetPaused, BudgetExhausted, HorizonExhausted
            If the budget is paused, or used up and does not go on with the cheapest model.
        """
        budget = self._store.snapshot(scope)
        refusal = None if budget.funds.rate_usd > 0.0 else budget.account.refusal(0.0)
        if refusal is not None:
            raise refusal

    async def _offload(self, scope: str, step: Callable[[], T], decision_id: str | None = None) -> T:
        """Run a step, off the event loop if the store may have to be waited for."""
        keeps_conversations = self._calls is not None and self._store.durable
        if not keeps_conversations and not self._store.waits(scope, decision_id):
            return step()
        from wiserouter.stores.offload import offload  # callers without an event loop do not pay for asyncio

        return await offload(step)
