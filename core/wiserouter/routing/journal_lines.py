"""The lines of a journal read back: within a limit, and only those that hold every field that readers use."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import IO, Any, get_args

from wiserouter.learning.source_scores import is_source
from wiserouter.planning.policies import Rule

MAX_LINE_CHARS = 2**23
"""Most characters of a line; a longer one is skipped."""

MAX_NUMBER = 1e30
"""Largest magnitude of a number in a line, so that sums and products of them stay finite."""

_RULES = frozenset(get_args(Rule))
_LAST_S = datetime.max.replace(tzinfo=UTC).timestamp() - 86_400.0
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


def journal_lines(file: IO[str]) -> Iterator[str]:
    """Yield the lines of a file, of one that is too long only its first characters."""
    begins = True
    while part := file.readline(MAX_LINE_CHARS):
        if begins:
            yield part
        begins = part.endswith("\n")


def event_of(line: str) -> dict[str, Any] | None:
    """Return the event of a line, or None if it is damaged: no JSON object, or one that lacks a field of its kind."""
    try:
        event = json.loads(line, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and is_complete(event) else None


def is_complete(event: dict[str, Any]) -> bool:
    """Return True if an event has every field that readers use, each of its type; other kinds of events are complete.

    Examples
    --------
    >>> is_complete({"event": "reward", "id": "a", "reward": 1.0}), is_complete({"event": "reward", "id": "a"})
    (True, False)
    """
    kind = event.get("event")
    if not isinstance(kind, str | None) or not _agrees(event, _FIELDS.get(kind, {})):
        return False
    if kind != "decision":
        return True
    models, context = event["models"], event["context"]
    if not all(isinstance(model, dict) and _agrees(model, _MODEL) for model in models):
        return False
    return _agrees(context, _CONTEXT) and event["model"] in {"", *(model["name"] for model in models)}


def _agrees(value: dict[str, Any], fields: dict[str, _Check]) -> bool:
    return all((name in value or name in _OPTIONAL) and right(value.get(name)) for name, right in fields.items())


_Check = Callable[[Any], bool]


def _or_none(check: _Check) -> _Check:
    """Return a check that None passes, too."""
    return lambda value: value is None or check(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) <= MAX_NUMBER


def _is_amount(value: Any) -> bool:
    return _is_number(value) and not isinstance(value, bool) and value >= 0


def _is_time(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= _LAST_S


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and 0.0 <= value <= 1.0 + 1e-6


def _are_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(type(one) is int and 0 <= one < 2**53 for one in value.values())


def _is_context(value: Any) -> bool:
    return isinstance(value, int) and abs(value) < 2**31


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not _HALF_CHARACTER.search(value)


def _is_source(value: Any) -> bool:
    return isinstance(value, str) and is_source(value)


def _is_rule(value: Any) -> bool:
    return isinstance(value, str) and value in _RULES


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _finite(text: str) -> float:
    value = float(text)
    if math.isfinite(value):
        return value
    raise ValueError(f"a number must be finite, got {text}")


_NUMBER_OR_NONE, _TEXT_OR_NONE = _or_none(_is_number), _or_none(_is_text)
_OPTIONAL = (
    "decided_at",
    "optimistic_reward",
    "conversation",
    "visit",
    "run_id",
    "unspent",
    "source",
    "weight",
    "counted",
    "tokens",
    "call_id",
    "unit",
    "value",
)
_CONTEXT: dict[str, _Check] = {"id": _is_context, "share": _is_share}
_MODEL: dict[str, _Check] = {
    "name": _is_text,
    "on_envelope": _is_flag,
    "probability": _is_share,
    "expected_reward": _NUMBER_OR_NONE,
    "expected_cost_usd": _NUMBER_OR_NONE,
    "optimistic_reward": _NUMBER_OR_NONE,
    "worth": _NUMBER_OR_NONE,
    "labels": _is_number,
    "calls": _is_number,
    "worst_case_usd": _NUMBER_OR_NONE,
    "excluded_by": _TEXT_OR_NONE,
}
_FIELDS: dict[Any, dict[str, _Check]] = {
    "decision": {
        "id": _is_text,
        "model": _is_text,
        "scope": _is_text,
        "rule": _is_rule,
        "context": _is_object,
        "skip_probability": _is_share,
        "rate_usd": _is_number,
        "shadow_price": _NUMBER_OR_NONE,
        "left_usd": _NUMBER_OR_NONE,
        "requests_left": _is_number,
        "room_usd": _NUMBER_OR_NONE,
        "expected_cost_usd": _is_number,
        "expected_reward": _is_number,
        "reserved_usd": _is_number,
        "ask_feedback": _is_flag,
        "models": lambda value: isinstance(value, list),
        "conversation": _TEXT_OR_NONE,
        "visit": _TEXT_OR_NONE,
        "run_id": _TEXT_OR_NONE,
        "unspent": _TEXT_OR_NONE,
        "decided_at": _or_none(_is_time),
        "value": _NUMBER_OR_NONE,
    },
    "charge": {"id": _is_text, "cost_usd": _is_amount, "model": _is_text, "tokens": _or_none(_are_counts)},
    "release": {"id": _is_text},
    "presume": {"id": _is_text, "cost_usd": _is_amount},
    "reward": {
        "id": _is_text,
        "reward": _is_share,
        "source": _or_none(_is_source),
        "weight": _NUMBER_OR_NONE,
        "counted": _NUMBER_OR_NONE,
    },
    "change": {
        "what": _is_text,
        "by": _is_text,
        "before": _is_object,
        "after": _is_object,
    },
    "shadow": {
        "id": _is_text,
        "acts": _is_flag,
        "share": _is_share,
        "incumbent": _TEXT_OR_NONE,
        "would_be": _is_text,
        "call_id": _TEXT_OR_NONE,
        "unit": _TEXT_OR_NONE,
    },
}
