"""The kept state of one conversation or run: the model that holds it, its spend and its warm prefixes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from wiserouter.errors import InvalidInput
from wiserouter.types import NO_CONTEXT

Unit = Literal["call", "conversation", "run"]

MAX_WARM = 8
"""Number of models whose prefix is kept; of more, those called longest ago are dropped."""

_FORMAT = 1


class Warm(NamedTuple):
    """The prefix that a model's provider has read: its tokens, and the time of the last call.

    Attributes
    ----------
    tokens : int
        Tokens of the prompt of the last call; what it answered is new to the cache.
    at_s : float, seconds
        The time of the last call.
    """

    tokens: int
    at_s: float


class Conversation(NamedTuple):
    """The state of a conversation or run between two of its calls; it has no text of it, and no id of a caller.

    Attributes
    ----------
    key : str
        Salted hash of the caller and the id; never the id itself.
    scope : str
        The scope whose budget pays.
    unit : {"call", "conversation", "run"}
        The unit of its decisions.
    model : str
        The model that holds it; "" before the first decision.
    first_model : str
        The model of its first decision.
    failed_model : str
        The model whose call failed last; "" where none did.
    context : int
        The last informative context.
    decision_id : str
        The decision that the reward of a run belongs to.
    shadow_price, expected_reward : float
        Those of the decision that chose the model; a shadow price of -1 stands for an infinite one.
    calls : int
        Number of calls decided.
    spent_usd : float, USD
        The amount charged so far.
    estimate_usd : float, USD
        Cost of the whole run as booked in the estimates; for runs only.
    rest_usd : float, USD
        Expected cost of the calls to come, committed in the budget; for runs only.
    prompt_tokens : int
        Tokens of the prompt of the last call.
    warm : mapping of str to Warm
        The prefixes that providers have read, by model; at most `MAX_WARM`.
    missed_usd : float, USD
        The amount paid for tokens of the prefix that a warm model would have read from its cache.
    sent_tokens, read_tokens : int
        Tokens of the prompts of all its calls, and those of them that were read from caches.
    parent : str
        Key of the parent run; "" without one.
    started_s, used_s : float, seconds
        The times of its first and its last call.
    contexts_version : int
        The version of the contexts that `context` is one of.
    contexts : str
        The name of these contexts, which workers with others do not have.
    version : int
        Version of the kept state; 0 where it was never kept.

    Examples
    --------
    >>> chat = Conversation("9f3a", "team", "conversation", model="small", calls=1)
    >>> chat.to_text()
    '{"format":1,"key":"9f3a","scope":"team","unit":"conversation","model":"small","calls":1}'
    >>> Conversation.from_text(chat.to_text()) == chat
    True
    """

    key: str
    scope: str
    unit: Unit
    model: str = ""
    first_model: str = ""
    failed_model: str = ""
    context: int = NO_CONTEXT
    decision_id: str = ""
    shadow_price: float = 0.0
    expected_reward: float = 0.0
    calls: int = 0
    spent_usd: float = 0.0
    estimate_usd: float = 0.0
    rest_usd: float = 0.0
    prompt_tokens: int = 0
    warm: Mapping[str, Warm] = MappingProxyType({})
    missed_usd: float = 0.0
    sent_tokens: int = 0
    read_tokens: int = 0
    parent: str = ""
    started_s: float = 0.0
    used_s: float = 0.0
    contexts_version: int = 0
    contexts: str = ""
    version: int = 0

    @property
    def is_shared(self) -> bool:
        """True if another model than the first one has served a call.

        Examples
        --------
        >>> run = Conversation("9f3a", "a", "run", model="small", first_model="small").warmed("small", 1200, at_s=5.0)
        >>> run.is_shared, run.warmed("large", 2400, at_s=9.0).is_shared
        (False, True)
        """
        return self.model != self.first_model or any(name != self.first_model for name in self.warm)

    def warmed(self, model: str, tokens: int, at_s: float) -> Conversation:
        """Return the state after `model` has read a prefix of `tokens` tokens at `at_s`."""
        return self._replace(warm=self.warm_after(model, tokens, at_s))

    def warm_after(self, model: str, tokens: int, at_s: float) -> dict[str, Warm]:
        """Return the warm prefixes after `model` has read one of `tokens` tokens at `at_s`.

        Examples
        --------
        >>> Conversation("9f3a", "team", "run").warm_after("small", 1200, at_s=5.0)
        {'small': Warm(tokens=1200, at_s=5.0)}
        """
        return _latest({**self.warm, model: Warm(tokens, at_s)})

    def decided(
        self, model: str, context: int, rest_usd: float, at_s: float, chosen: tuple[str, float, float] | None
    ) -> Conversation:
        """Return the state after a decision.

        Parameters
        ----------
        model, context : str and int
            Those of the decision.
        rest_usd : float, USD
            Expected cost of the calls to come.
        at_s : float, seconds
            The time of the decision.
        chosen : tuple of (str, float, float), or None
            Id, shadow price and expected reward of the decision, where it has chosen the model.

        Examples
        --------
        >>> after = Conversation("9f3a", "team", "run").decided("small", 2, 0.5, 7.0, ("d1", 1.5, 0.75))
        >>> after.model, after.first_model, after.calls, after.decision_id, after.used_s
        ('small', 'small', 1, 'd1', 7.0)
        """
        key, scope, unit, _, first, failed, _, decision_id, price, reward, calls, spent, estimate, _, *rest = self
        if chosen is not None:
            decision_id, price, reward = chosen
        prompt, warm, missed, sent, read, parent, started_s, _, *fitted, version = rest
        used_s = max(self.used_s, at_s)
        about = (key, scope, unit, model, first or model, failed, context, decision_id, price, reward, calls + 1)
        amounts = (spent, estimate, rest_usd, prompt, warm, missed, sent, read)
        fields = (*about, *amounts, parent, started_s, used_s, *fitted, version)
        return tuple.__new__(Conversation, fields)  # in two thirds of the time of `_replace`

    def next_version(self) -> Conversation:
        """Return the state as a store keeps it: of the next version."""
        return tuple.__new__(Conversation, (*self[:-1], self.version + 1))  # in two thirds of the time of `_replace`

    def to_text(self) -> str:
        """Return the state as compact JSON, without the fields that have their defaults."""
        kept = {name: getattr(self, name) for name, default in _DEFAULTS.items() if getattr(self, name) != default}
        return json.dumps({"format": _FORMAT, **kept}, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Conversation:
        """Return the state that `to_text` was called on; fields that a later version added are ignored.

        Raises
        ------
        InvalidInput
            If the text is damaged: it is not JSON, or lacks a field, or a field has another type or is not finite.
        """
        try:
            return cls(**_checked(json.loads(text)))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InvalidInput(f"text must be that of a conversation, and cannot be read: {error}") from error


_NEVER: Final = object()

_DEFAULTS: dict[str, Any] = {name: Conversation._field_defaults.get(name, _NEVER) for name in Conversation._fields}
"""The fields with their defaults; those without one have a value that equals no other."""

_UNITS = ("call", "conversation", "run")


def _checked(stored: Any) -> dict[str, Any]:
    """Return the known fields of a stored state; raise an error where one has the wrong type."""
    if stored["format"] < _FORMAT:
        raise ValueError(f"format {stored['format']!r}")
    found = {name: _value(name, stored[name], default) for name, default in _DEFAULTS.items() if name in stored}
    if found["unit"] not in _UNITS:
        raise ValueError(f"unit {found['unit']!r}")
    return found


def _value(name: str, value: Any, default: Any) -> Any:
    if name == "warm":
        return _latest({str(model): Warm(_int(tokens), _float(at_s)) for model, (tokens, at_s) in value.items()})
    if isinstance(default, float):
        return _float(value)
    return _int(value) if isinstance(default, int) else _str(value)


def _latest(warm: dict[str, Warm]) -> dict[str, Warm]:
    """Return the prefixes without those that were read longest ago, where they are too many."""
    if len(warm) <= MAX_WARM:
        return warm
    kept = sorted(warm, key=lambda model: warm[model].at_s)[-MAX_WARM:]
    return {model: warm[model] for model in kept}


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return float(value)


def _int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value
