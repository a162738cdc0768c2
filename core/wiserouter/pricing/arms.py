"""Arms: one model with different parameters, such as several reasoning efforts, and the notation of their names.

An arm is written `model@effort`, as in `gpt-5@low`, with further parameters after it: `gpt-5@low,max_tokens=2000`.
Other parameters alone are written `model@name=value`, those within an object with a dot:
`claude@thinking.type=disabled`. A name whose last part is no such list, as the date in `claude-sonnet-4@20250514`, is
that of a model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from wiserouter.errors import InvalidInput

Params = Mapping[str, Any]
"""Parameters of a call by name, as JSON values."""

EFFORT = "reasoning_effort"
"""The parameter that a name holds without saying so."""

EFFORTS = frozenset({"none", "disable", "minimal", "low", "medium", "high", "xhigh", "max"})
"""The efforts that a name may hold by themselves."""

OUTPUT_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""The parameters that limit the output of a call."""

_PAIR = re.compile(r"(?P<name>[A-Za-z_][\w.]*)=(?P<value>[^,=@]+)")
_WORD = re.compile(r"[A-Za-z][\w.:+ -]*")
_CONSTANTS = frozenset({"true", "false", "null", "NaN", "Infinity"})


class ArmName(NamedTuple):
    """What a name says: the model, and the parameters with which it is called."""

    model: str
    params: dict[str, Any]


def arm_name(model: str, params: Params) -> str:
    """Return the name of an arm; that of the model where there are no parameters.

    Parameters
    ----------
    model : str
        The model's name.
    params : mapping of str to JSON value
        Words, numbers, truth values, null, and objects of these.

    Raises
    ------
    InvalidInput
        If a value has no place in a name.

    Examples
    --------
    >>> arm_name("gpt-5", {"reasoning_effort": "low"})
    'gpt-5@low'
    >>> arm_name("gpt-5", {"max_tokens": 500, "reasoning_effort": "high"})
    'gpt-5@high,max_tokens=500'
    """
    if not params:
        return model
    effort = params.get(EFFORT)
    bare = isinstance(effort, str) and effort in EFFORTS
    pairs = sorted(_pairs({name: value for name, value in params.items() if not (bare and name == EFFORT)}))
    return f"{model}@{','.join([str(effort)] * bare + [f'{name}={text}' for name, text in pairs])}"


def split_arm(name: str) -> ArmName:
    """Return the model and the parameters that a name says; no parameters where it is not in the notation.

    Examples
    --------
    >>> split_arm("gpt-5@low,max_tokens=500")
    ArmName(model='gpt-5', params={'reasoning_effort': 'low', 'max_tokens': 500})
    >>> split_arm("claude-sonnet-4@20250514").params
    {}
    """
    model, mark, text = name.rpartition("@")
    first, *others = text.split(",")
    params: dict[str, Any] = {EFFORT: first} if first in EFFORTS else {}
    pairs = [_PAIR.fullmatch(item) for item in (others if params else [first, *others])]
    if not mark or not model or not all(pairs):
        return ArmName(name, {})
    for pair in pairs:
        if pair is not None:
            _put(params, pair["name"].split("."), _value_of(pair["value"]))
    return ArmName(model, params)


def checked_params(params: object) -> dict[str, Any]:
    """Return a copy of some parameters; raise `InvalidInput` unless they are JSON values by name."""
    names = list(params) if isinstance(params, Mapping) else [None]
    if not all(isinstance(name, str) and name for name in names):
        raise InvalidInput(f"params must be a dictionary of parameters by name, got {params!r:.80}", value=params)
    try:
        copy: dict[str, Any] = json.loads(json.dumps(params, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"params must hold JSON values only, got {params!r:.80}: {error}", value=params) from error
    return copy


def output_limit(params: Params) -> int | None:
    """Return the largest limit of the output that some parameters set; None where they set none."""
    limits = [limit for name in OUTPUT_LIMITS if isinstance(limit := params.get(name), int) and limit > 0]
    return max(limits, default=None)


def family_numbers(families: Sequence[str]) -> list[int]:
    """Return a number for each model: equal ones for the arms of one family, in order of appearance.

    Examples
    --------
    >>> family_numbers(["gpt-5", "mini", "gpt-5"])
    [0, 1, 0]
    """
    number: dict[str, int] = {}
    return [number.setdefault(family, len(number)) for family in families]


def _pairs(params: Params, within: str = "") -> Iterator[tuple[str, str]]:
    """Yield names and values as a name holds them, those of objects after a dot."""
    for name, value in params.items():
        if isinstance(value, Mapping) and value:
            yield from _pairs(value, f"{within}{name}.")
        else:
            pair = f"{within}{name}", _text_of(value)
            is_plain = not isinstance(value, list | Mapping) and "." not in name
            if not is_plain or _PAIR.fullmatch("=".join(pair)) is None or _value_of(pair[1]) != value:
                raise InvalidInput(
                    f"a parameter of an arm must have a word, a number or a truth value to be part of its name, got "
                    f"{within}{name}={value!r:.60}: name the arm yourself and say family=...",
                    value=value,
                )
            yield pair


def _text_of(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _value_of(text: str) -> object:
    if _WORD.fullmatch(text) and text not in _CONSTANTS:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _put(params: dict[str, Any], path: Iterable[str], value: object) -> None:
    """Set a value in nested objects, made where they are missing."""
    *outer, last = path
    for name in outer:
        inner = params.setdefault(name, {})
        params = inner if isinstance(inner, dict) else {}
    params[last] = value
