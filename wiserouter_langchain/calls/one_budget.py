"""What keeps a router's budget one: copies share it, and what would start it again is refused."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NoReturn, Self, get_args

from langchain_core.runnables.utils import AnyConfigurableField

from wiserouter import Budget
from wiserouter.errors import InvalidInput
from wiserouter.integration import Unit
from wiserouter_langchain.calls.rated_chat_model import RatedChatModel

_UNITS = get_args(Unit)


class OneBudget(RatedChatModel):
    """A chat model that delegates its calls, and of which there is no second one with the same budget."""

    def __init__(self, **fields: Any) -> None:
        known = type(self).model_fields
        for name in fields.keys() - known.keys():  # LangChain passes every chat model a temperature and the like
            if meant := get_close_matches(name, known, n=1, cutoff=0.8):
                raise InvalidInput(f"the router has no field {name!r}: do you mean {meant[0]!r}?", value=name)
        budget, unit = fields.get("budget"), fields.get("unit")
        if budget is not None and not isinstance(budget, Budget | Mapping):  # pydantic makes one of a mapping
            example = "Budget(amount_usd=50, horizon=10_000)"
            raise InvalidInput(f"budget must be a Budget, such as {example}, got {budget!r}", value=budget)
        if unit is not None and unit not in _UNITS:
            raise InvalidInput(f"unit must be one of {', '.join(map(repr, _UNITS))}, got {unit!r}", value=unit)
        super().__init__(**fields)

    def configurable_fields(self, **kwargs: AnyConfigurableField) -> NoReturn:
        """Refuse: LangChain would make a router with a new budget for each call.

        Raises
        ------
        InvalidInput
            Always.
        """
        raise InvalidInput(
            f"the fields of a router cannot be configured by call, got {', '.join(kwargs)}, for each call would start "
            "its budget again: bind what differs to the models, or use preferring, paid_by, worth or deciding_by"
        )

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Return a copy on the same budget, estimates and models."""
        return self.model_copy()

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "a router whose budget runs cannot be pickled: save what it learned by llm.core.save(file), and build it "
            "in the other process with router=WiseRouter.load(file, store=...): a shared store keeps one budget"
        )
