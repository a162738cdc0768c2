"""One recorded call and one recorded score, as every importer yields them, and the fields of records."""

from __future__ import annotations

import json
import math
import warnings
from ast import literal_eval
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from wiserouter.prompts.messages import question_text

Recorded = Mapping[str, Any]
"""One object as the system that recorded it has it."""


class ImportedCall(NamedTuple):
    """One call of a model.

    Attributes
    ----------
    ids : tuple of str
        The names by which a score may mean this call, the closest first: its own, those of the steps that it is part
        of, that of its trace, that of its session.
    model : str
        The model.
    started_s : float or None
        The time of its start, in seconds since 1970.
    prompt : object
        A text or messages; None where they were not stored.
    input_tokens, output_tokens, cached_tokens : float or None
        Counts; cached tokens are part of the input.
    cost_usd : float or None, USD
        The cost, where it was recorded.
    latency_s : float or None, seconds
        From its start to its end.
    conversation : str
        The session; empty where it has none.
    group : str
        The name under which the caller asked for a model.
    failed : bool
        Whether it has no answer, or one from a cache of answers.
    parent : str or None
        The id of the step directly around it; empty where it has none, None where the system knows no steps.
    """

    ids: tuple[str, ...]
    model: str
    started_s: float | None = None
    prompt: object = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    cached_tokens: float | None = None
    cost_usd: float | None = None
    latency_s: float | None = None
    conversation: str = ""
    group: str = ""
    failed: bool = False
    parent: str | None = None


class ImportedScore(NamedTuple):
    """One score.

    Attributes
    ----------
    target : str
        The id of what it is about: a call, a step, a trace or a session.
    name : str
        The name of the metric.
    value : object
        A number, a boolean or a verdict.
    at_s : float or None
        The time of its last change, in seconds since 1970.
    """

    target: str
    name: str
    value: object
    at_s: float | None = None


def texts(values: Iterable[object]) -> tuple[str, ...]:
    """Return the values that are ids, as texts, each once.

    Examples
    --------
    >>> texts(["a", None, 7, "", "a"])
    ('a', '7')
    """
    return tuple(dict.fromkeys(text for value in values if (text := text_of(value))))


def text_of(value: object) -> str:
    """Return an id or a name as text; empty where it is none."""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def number_of(value: object) -> float | None:
    """Return a finite number, also from a text, which may begin with a dollar sign; None where it is none.

    Examples
    --------
    >>> number_of("$0.5"), number_of(True), number_of("nan")
    (0.5, None, None)
    """
    if isinstance(value, bool):
        return None
    try:
        number = float(value.strip().removeprefix("$") if isinstance(value, str) else value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def time_of(value: object) -> float | None:
    """Return a time as seconds since 1970: of a date, an ISO 8601 text, or seconds, milli-, micro- or nanoseconds.

    Examples
    --------
    >>> time_of("2026-11-01T00:00:00Z"), time_of("2026-11-01 00:00:00 UTC"), time_of("1793491200000000000")
    (1793491200.0, 1793491200.0, 1793491200.0)
    """
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    number = number_of(value)
    if number is not None:
        while abs(number) >= _LAST_SECOND:
            number /= 1000.0
        return number
    if not isinstance(value, str):
        return None
    try:
        return time_of(datetime.fromisoformat(value.removesuffix(" UTC").replace("Z", "+00:00")))
    except ValueError:
        return None


_LAST_SECOND = 1e11
"""Seconds since 1970 stay below this for another thousand years; larger numbers count smaller units."""


def mapping_of(value: object) -> Recorded:
    """Return an object, also one that is kept as a text of JSON; an empty one where it is none."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = json_of(value)
    return value if isinstance(value, Mapping) else {}


def list_of(value: object) -> Sequence[Any]:
    """Return a list; an empty one where the value is none."""
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()


def json_of(value: object) -> object:
    """Return the value of a text of JSON, or of the literal that pandas writes to csv; any other value as it is.

    Examples
    --------
    >>> json_of('[{"role": "user"}]') == json_of("[{'role': 'user'}]")
    True
    """
    if not isinstance(value, str) or value.lstrip()[:1] not in {"[", "{", '"'}:
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return _literal_of(value)


def prompt_of(value: object) -> object:
    """Return the prompt of a field: what a text of JSON or of a literal holds, or the text itself if that is no prompt.

    Examples
    --------
    >>> prompt_of('{"input": "hi"}'), prompt_of("{'city': 'Bonn'}")
    ({'input': 'hi'}, "{'city': 'Bonn'}")
    """
    found = json_of(value)
    return value if isinstance(value, str) and found and question_text(found) is None else found


def _literal_of(text: str) -> object:
    """Return an object of Python, or a list of them, that is written as a literal; any other text as it is."""
    if not text.lstrip().startswith(("{'", "[{'")) or len(text) > _LONGEST_LITERAL:
        return text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes
            found = literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text
    return found if isinstance(found, dict | list) else text


_LONGEST_LITERAL = 2**20
"""Longest literal that is read, in characters: its tree takes some hundred times its size."""


def first_number(record: Recorded, *names: str) -> float | None:
    """Return the first field that holds a number."""
    return next((number for name in names if (number := number_of(record.get(name))) is not None), None)


def first_time(record: Recorded, *names: str) -> float | None:
    """Return the first field that holds a time, in seconds since 1970; a zero stands for none."""
    return next((at_s for name in names if (at_s := time_of(record.get(name)))), None)


def first_filled(record: Recorded, *names: str) -> Any:
    """Return the first field that is neither None nor empty."""
    return next((value for name in names if (value := record.get(name)) not in (None, "", [], {})), None)


def seconds_between(start: float | None, end: float | None) -> float | None:
    """Return the time from a start to an end; None where one is unknown or they are the wrong way round."""
    return None if start is None or end is None or end < start else end - start
