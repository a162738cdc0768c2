"""The orders of administrators on a running router: they are kept in its store, and hold over the configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal

from wiserouter.errors import InvalidInput, UnknownModel
from wiserouter.planning.share_caps import ShareCaps
from wiserouter.pricing.pool import Model, Pool
from wiserouter.pricing.prices import Price
from wiserouter.routing.orders import NO_ORDERS, ModelOrder, OrderAnswer, Orders, figures_of_model, keep_order
from wiserouter.routing.run_time_changes import RouterChanges, hashed
from wiserouter.validation import check_function

if TYPE_CHECKING:
    from wiserouter.routing.decider import Decider

logger = logging.getLogger("wiserouter")

KEEP: Literal["keep"] = "keep"
"""Leaves a part of an order as it is."""

Setting = Literal["keep"]


class RouterOrders(RouterChanges):
    """The methods that order what models are used for, on all workers of the router's store."""

    _lock: RLock
    _decider: Decider

    def __init__(self) -> None:
        super().__init__()
        self._orders: Orders = NO_ORDERS
        self._configured: dict[str, Model] = {}
        self._order_listeners: tuple[Callable[[Orders], object], ...] = ()

    @property
    def orders(self) -> Orders:
        """The orders that hold, as far as this worker has read them."""
        return self._orders

    def change_model(
        self,
        name: str,
        *,
        price: Price | Setting | None = KEEP,
        retired: bool | Setting | None = KEEP,
        max_share: float | Setting | None = KEEP,
        by: str = "",
        key: str = "",
    ) -> OrderAnswer:
        """Change price, service or largest share of a model: every worker of the store follows within a second.

        An order stays when workers restart, until it is taken back with None.

        Parameters
        ----------
        name : str
            A model of the pool.
        price : Price or None, optional
            Its price; the costs of its calls so far are restated at it.
        retired : bool or None, optional
            Whether it receives no more queries; its estimates are kept.
        max_share : float or None, optional
            The most of the decisions that it receives: where it is worth most, and in no case more than that of about
            the last 1,000 decisions of a worker. A query that only it can take goes to it nevertheless.
        by, key : str
            As in `change_budget`.

        Raises
        ------
        UnknownModel
            If there is none of this name.
        InvalidInput
            If no model would be left in service, or a value is out of range. Nothing is changed.
        StoreUnavailable, StoreDamaged
            If the store cannot be reached or read.

        Examples
        --------
        >>> from wiserouter import Budget, Model, Price, WiseRouter
        >>> router = WiseRouter([Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))], seed=0)
        >>> router.start(Budget(amount_usd=10.0, horizon=100))
        >>> router.change_model("large", retired=True).after["retired"]
        True
        >>> router.decide("What is the capital of France?").model
        'small'
        """
        if name not in self._learner.pool.by_name:
            raise UnknownModel(name, self._learner.pool.names)
        asked = {"price": price, "retired": retired, "max_share": max_share}
        given: dict[str, Any] = {field: value for field, value in asked.items() if value != KEEP}
        if not given:
            raise InvalidInput("an order for a model needs price, retired or max_share, got none of them")

        def ordered(orders: Orders) -> tuple[Orders, OrderAnswer]:
            former = orders.models.get(name, ModelOrder())
            order = replace(former, **given)
            model = self._configured.get(name, self._learner.pool.by_name[name])
            new = orders.with_model(name, order)
            self._check(new)
            return new, OrderAnswer("model", figures_of_model(model, former), figures_of_model(model, order))

        return self._order(ordered, hashed(repr(("model", name, given))), by, key)

    def follow_orders(self, listener: Callable[[Orders], object]) -> None:
        """Call a listener with the orders that hold whenever these change; it must not wait."""
        check_function("listener", listener, "orders")
        self._order_listeners = (*self._order_listeners, listener)

    def _order(
        self, ordered: Callable[[Orders], tuple[Orders, OrderAnswer]], request: str, by: str, key: str
    ) -> OrderAnswer:
        """Keep new orders in the store, once for each idempotency key, and follow them here."""
        new, answer = keep_order(self._store, ordered, request, hashed(key) if key else "")
        if new is not None:
            self._take_orders(new)
            self.audit(answer.what, by, answer.before, answer.after)
        return answer

    def _read_orders(self) -> None:
        """Follow the orders in the store, before a budget is started."""
        text = self._store.read_orders()
        if text:
            self._take_text(text)

    def _hear_orders(self, text: str) -> None:
        """Let the next decision follow later orders."""
        self._learner.news = partial(self._take_text, text, waits=False)

    def _take_text(self, text: str, *, waits: bool = True) -> None:
        try:
            self._take_orders(Orders.from_text(text), waits=waits)
        except InvalidInput as error:  # of a later version of WISERouter, or not for the models of this worker
            logger.error("orders of administrators are left alone: %s", error)

    def _take_orders(self, orders: Orders, *, waits: bool = True) -> None:
        """Follow orders with what this worker knows; it does not wait for the store unless the caller may."""
        with self._lock:
            for model in self._ordered_models(orders):
                self._learner.update_model(model)
            self._orders = orders
            positions = self._learner.pool.positions
            most = {
                positions[name]: order.max_share
                for name, order in orders.models.items()
                if order.max_share is not None and name in positions
            }
            if most != (self._decider.caps.most if self._decider.caps is not None else {}):
                self._decider.caps = ShareCaps(most) if most else None
            for listener in self._order_listeners:
                listener(orders)

    def _ordered_models(self, orders: Orders) -> list[Model]:
        """Return the models that are others under some orders, those in service first."""
        found = []
        for name in {*self._configured, *orders.models} & self._learner.pool.by_name.keys():
            present = self._learner.pool.by_name[name]
            configured = self._configured.setdefault(name, present)
            model = orders.models.get(name, ModelOrder()).applied(configured)
            if name not in orders.models:
                del self._configured[name]
            if model != present:
                found.append(model)
        return sorted(found, key=lambda model: model.retired)

    def _check(self, orders: Orders) -> None:
        """Raise `InvalidInput` if orders leave no model in service."""
        pool = self._learner.pool
        base = [self._configured.get(model.name, model) for model in pool.models]
        Pool([orders.models.get(model.name, ModelOrder()).applied(model) for model in base])
