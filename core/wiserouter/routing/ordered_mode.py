"""The mode of a running router by order of administrators: it routes, observes, or acts on a share of the traffic."""

from __future__ import annotations

import logging
from threading import Thread
from typing import TYPE_CHECKING, Literal

from wiserouter.budgets.budget import Budget
from wiserouter.budgets.changes import ChangeRefused, used_figures
from wiserouter.errors import InvalidInput, NotStarted, StoreError
from wiserouter.routing.ordered_models import RouterOrders
from wiserouter.routing.orders import OrderAnswer, Orders, figures_of_mode
from wiserouter.routing.run_time_changes import hashed
from wiserouter.routing.shadow import Shadow, observed_scope
from wiserouter.validation import check_kind

if TYPE_CHECKING:
    from wiserouter.routing.conversation_calls import ConversationCalls

logger = logging.getLogger("wiserouter")


class RouterMode(RouterOrders):
    """The method that orders the mode, and the division of the budgets that goes with it."""

    _calls: ConversationCalls | None

    def __init__(self) -> None:
        super().__init__()
        self._configured_shadow: Shadow | None = None
        self._started: dict[str, tuple[Budget, str | None]] = {}

    def change_mode(
        self, mode: Literal["route", "shadow"] | None, *, share: float = 0.0, by: str = "", key: str = ""
    ) -> OrderAnswer:
        """Route, or go into shadow mode with a share of the traffic: every worker of the store follows within seconds.

        The budgets are divided as the configuration has them between the calls that the router acts on and those that
        it observes; what administrators have changed in their amounts before is over. A budget that was ended stays so.

        Parameters
        ----------
        mode : {"route", "shadow"} or None
            The mode; None takes an order back.
        share : float, default 0
            In shadow mode: the share of the traffic that it acts on.
        by, key : str
            As in `change_budget`.

        Raises
        ------
        ChangeRefused
            If a part of a budget with a hard limit is less than what is used of it.
        InvalidInput
            If the router decides by conversations or runs, or the share is not in [0, 1].
        StoreUnavailable, StoreDamaged
            If the store cannot be reached or read.

        Examples
        --------
        >>> from wiserouter import Model, Price, WiseRouter
        >>> router = WiseRouter([Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))], seed=0)
        >>> router.start(Budget(amount_usd=10.0, horizon=100))
        >>> router.change_mode("shadow", share=0.2).after
        {'mode': 'shadow', 'share': 0.2}
        >>> router.budget().amount_usd
        2.0
        """
        if mode not in ("route", "shadow", None):
            raise InvalidInput(f"mode must be 'route', 'shadow' or None, got {mode!r}", value=mode)
        if share and mode != "shadow":
            raise InvalidInput(f"share is for mode 'shadow', got {share!r} with {mode!r}", value=share)
        ordered_mode = Shadow(share) if mode == "shadow" else mode

        def ordered(orders: Orders) -> tuple[Orders, OrderAnswer]:
            new = orders._replace(mode=ordered_mode)
            shadow = self._shadow_under(new)
            self._check_mode(shadow)
            before = figures_of_mode(self._shadow_under(orders))
            return new, OrderAnswer("mode", before, figures_of_mode(shadow))

        return self._order(ordered, hashed(repr(("mode", mode, share))), by, key)

    def _open(self, budget: Budget, scope: str, parent: str | None, *, restart: bool) -> None:
        """Open the account of a scope, in shadow mode divided into those of the acted and the observed calls."""
        check_kind("scope", scope, str, "'team-a'")
        self._divide(budget, scope, parent, self._shadow, restart=restart)
        self._started[scope] = budget, parent

    def _divide(
        self, budget: Budget, scope: str, parent: str | None, shadow: Shadow | None, *, restart: bool = False
    ) -> None:
        """Open the two accounts of a scope; what an administrator has ended stays ended."""
        if shadow:
            scopes = [None if one is None else observed_scope(one) for one in (scope, parent)]
            observed = shadow.observed(budget)
            self._store.open(scopes[0] or "", observed, parent=scopes[1], restart=restart, whole=budget)
        acted = shadow.acted(budget) if shadow else budget
        self._store.open(scope, acted, parent=parent, restart=restart, whole=budget)

    def _shadow_under(self, orders: Orders) -> Shadow | None:
        """Return the mode under some orders."""
        if orders.mode is None:
            return self._configured_shadow
        return orders.mode if isinstance(orders.mode, Shadow) else None

    def _check_mode(self, shadow: Shadow | None) -> None:
        """Raise the error of a mode that this router cannot have."""
        if shadow is not None and self._calls is not None:
            raise InvalidInput("shadow mode decides each call alone: it needs unit 'call'")
        for scope, (budget, _) in self._started.items():
            acted = budget if shadow is None else shadow.acted(budget)
            self._check_part(scope, acted)

    def _check_part(self, scope: str, acted: Budget) -> None:
        try:
            ledgers = self._store.ledger(scope).each
        except NotStarted:
            return
        for ledger, part in zip(ledgers, acted.each, strict=False):  # those that enclose it are scopes of their own
            used_usd = ledger.spent_usd + ledger.reserved_usd + ledger.leased_usd
            if ledger.hard and part.amount_usd + ledger.carried_usd < used_usd:
                raise ChangeRefused(
                    f"the hard budget of scope {scope!r} must cover what is used: its part of "
                    f"{part.amount_usd:.6g} USD is less than {used_usd:.6g}: choose a larger share, or wait until it "
                    f"renews",
                    used_figures(ledger),
                )

    def _take_orders(self, orders: Orders, *, waits: bool = True) -> None:
        """Follow orders; the budgets are divided at once where the caller may wait, else in a thread."""
        super()._take_orders(orders)
        shadow = self._shadow_under(orders)
        if shadow == self._shadow:
            return
        if waits:
            self._follow_mode(shadow)
        else:
            Thread(target=self._follow_mode, args=(shadow,), name="wiserouter-mode", daemon=True).start()

    def _follow_mode(self, shadow: Shadow | None) -> None:
        """Divide the budgets, and decide in the mode from then on."""
        try:
            self._check_mode(shadow)
            if shadow is not None:  # observed calls need their account first
                self._divide_all(shadow)
            self._shadow, self._has_observed = shadow, self._has_observed or shadow is not None
            if shadow is None:
                self._divide_all(None)
        except (ChangeRefused, InvalidInput, StoreError) as error:
            logger.error("an order for the mode is left alone: %s", error)
            return
        for listener in self._order_listeners:
            listener(self._orders)

    def _divide_all(self, shadow: Shadow | None) -> None:
        for scope in sorted(self._started, key=self._depth):  # a scope opens within its parent
            budget, parent = self._started[scope]
            self._divide(budget, scope, parent, shadow)

    def _depth(self, scope: str) -> int:
        """Return the number of scopes that enclose one."""
        parent = self._started[scope][1]
        return 0 if parent not in self._started else 1 + self._depth(parent)
