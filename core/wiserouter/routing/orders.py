"""The orders of administrators for the models and the mode of a router, as all workers of its store read them.

Orders state what shall be, not what shall change: a worker that reads the latest version needs no earlier one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from wiserouter.errors import InvalidInput, StoreUnavailable
from wiserouter.pricing.pool import Model
from wiserouter.pricing.prices import Price
from wiserouter.routing.shadow import Shadow
from wiserouter.validation import check_amount

if TYPE_CHECKING:
    from wiserouter.stores.base import Store

MOST_MODELS = 1_000
"""The most models that orders name."""

MOST_ANSWERS = 100
"""The most answers to requests with an idempotency key that are kept with the orders."""

MOST_ATTEMPTS = 20
"""How often orders are written again because others have changed them meanwhile."""

ANSWER_TTL_S = 86_400.0
"""How long such an answer is kept."""


@dataclass(frozen=True, slots=True)
class ModelOrder:
    """What an administrator has set for one model; None leaves it to the configuration.

    Parameters
    ----------
    price : Price, optional
        Its price.
    retired : bool, optional
        Whether it receives no more queries.
    max_share : float, optional
        The most of the decisions that it receives, in [0, 1].

    Raises
    ------
    InvalidInput
        If the share is not in [0, 1].
    """

    price: Price | None = None
    retired: bool | None = None
    max_share: float | None = None

    def __post_init__(self) -> None:
        if self.max_share is not None and not 0.0 <= check_amount("max_share", self.max_share) <= 1.0:
            raise InvalidInput(f"max_share must lie in [0, 1], got {self.max_share!r}", value=self.max_share)

    def applied(self, model: Model) -> Model:
        """Return a model as it is under this order."""
        price = model.price if self.price is None else self.price
        return replace(model, price=price, retired=model.retired if self.retired is None else self.retired)


class OrderAnswer(NamedTuple):
    """The answer to an order: what was set before and after; `replayed` where it answers an earlier request."""

    what: str
    before: dict[str, Any]
    after: dict[str, Any]
    replayed: bool = False


class Orders(NamedTuple):
    """All orders that hold.

    Attributes
    ----------
    models : mapping of str to ModelOrder
        By name.
    mode : Shadow, "route" or None
        Shadow mode with its share, or none; None leaves it to the configuration.
    answers : tuple of (str, str, float, tuple)
        Token, request, time and answer of the latest orders with an idempotency key.
    """

    models: Mapping[str, ModelOrder] = {}
    mode: Shadow | Literal["route"] | None = None
    answers: tuple[tuple[str, str, float, list[Any]], ...] = ()

    def to_text(self) -> str:
        """Return the orders as text."""
        models = {name: asdict(order) for name, order in self.models.items()}
        mode = [self.mode.share, self.mode.salt] if isinstance(self.mode, Shadow) else self.mode
        return json.dumps({"models": models, "mode": mode, "answers": self.answers})

    @classmethod
    def from_text(cls, text: str) -> Orders:
        """Return the orders that `to_text` was called on; none where it is empty.

        Raises
        ------
        InvalidInput
            If the text cannot be read.
        """
        if not text:
            return NO_ORDERS
        try:
            fields = json.loads(text)
            models = {str(name): _order(given) for name, given in fields["models"].items()}
            mode = Shadow(*fields["mode"]) if isinstance(fields["mode"], list) else fields["mode"]
            return cls(
                models,
                mode if isinstance(mode, Shadow) or mode == "route" else None,
                tuple([tuple(one) for one in fields["answers"]]),
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidInput(f"text must be that of orders, and cannot be read: {error}") from error

    def answer(self, token: str, request: str, now_s: float) -> OrderAnswer | None:
        """Return the answer to an earlier request with a token; raise `InvalidInput` if that was another request."""
        for known, asked, at_s, answer in self.answers:
            if token and known == token and now_s < at_s + ANSWER_TTL_S:
                if asked != request:
                    raise InvalidInput("the idempotency key was used for another order: give each a key of its own")
                return OrderAnswer(*answer)._replace(replayed=True)
        return None

    def with_answer(self, token: str, request: str, now_s: float, answer: OrderAnswer) -> Orders:
        """Return the orders with the answer to a request."""
        kept = [one for one in self.answers if now_s < one[2] + ANSWER_TTL_S][-MOST_ANSWERS + 1 :]
        mine = [(token, request, now_s, list(answer[:3]))] if token else []
        return self._replace(answers=(*kept, *mine))

    def with_model(self, name: str, order: ModelOrder) -> Orders:
        """Return the orders with another one for a model."""
        rest = {known: one for known, one in self.models.items() if known != name}
        models = rest if order == ModelOrder() else {**rest, name: order}
        if len(models) > MOST_MODELS:
            raise InvalidInput(f"orders name at most {MOST_MODELS} models, got one more: take others back")
        return self._replace(models=models)


NO_ORDERS = Orders()


def keep_order(
    store: Store, ordered: Callable[[Orders], tuple[Orders, OrderAnswer]], request: str, token: str
) -> tuple[Orders | None, OrderAnswer]:
    """Keep new orders in a store, once for each token; return them, or None with the answer to an earlier request.

    Parameters
    ----------
    store : Store
        Keeps the orders.
    ordered : callable
        Makes the new orders, and the answer, from the present ones; called again where others were faster.
    request, token : str
        What is asked for, and the name of the request; "" for none.
    """
    for _ in range(MOST_ATTEMPTS):
        orders, now_s = Orders.from_text(store.read_orders()), store.now()
        known = orders.answer(token, request, now_s)
        if known is not None:
            return None, known
        new, answer = ordered(orders)
        new = new.with_answer(token, request, now_s, answer)
        if store.keep_orders(new.to_text()):
            return new, answer
    raise StoreUnavailable("others give orders at the same time: try again later", store="the store")


def figures_of_model(model: Model, order: ModelOrder) -> dict[str, Any]:
    """Return the terms of a model under an order, as JSON values."""
    now = order.applied(model)
    price = None if now.price is None else asdict(now.price)
    return {"model": model.name, "price": price, "retired": now.retired, "max_share": order.max_share}


def _order(given: Mapping[str, Any]) -> ModelOrder:
    price = given["price"]
    return ModelOrder(None if price is None else Price(**price), given["retired"], given["max_share"])


def figures_of_mode(shadow: Shadow | None) -> dict[str, Any]:
    """Return a mode as JSON values."""
    return {"mode": "route" if shadow is None else "shadow", "share": 1.0 if shadow is None else shadow.share}
