"""Checks of numbers and paths that callers give; each error names the rule, the value and the argument."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.errors import InvalidInput
from wiserouter.types import FloatArray

_OPEN = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
"""The path of an open file of this process, by its number."""

_STREAMS = {"/dev/stdout": "/dev/fd/1", "/dev/stderr": "/dev/fd/2"}

_NUMBER = int | float | np.integer | np.floating


def check_amount(name: str, value: float) -> float:
    """Return `value` as a float if it is finite and at least 0, else raise `InvalidInput` naming `name`."""
    number = _finite(value)
    if number is None or number < 0.0:
        raise InvalidInput(f"{name} must be a finite number of at least 0, got {value!r}", value=value)
    return number


def check_positive(name: str, value: object) -> None:
    """Raise `InvalidInput` naming `name` if `value` is not a finite number above 0; True and False are none."""
    number = None if isinstance(value, bool) else _finite(value)
    if number is None or number <= 0.0:
        raise InvalidInput(f"{name} must be a finite number above 0, got {value!r}", value=value)


def check_replaceable(path: Path) -> None:
    """Raise `InvalidInput` if a file to replace as a whole is there and no regular one: a folder, a device, a pipe."""
    if path.exists() and not path.is_file():
        raise InvalidInput(f"{path} must be a regular file, got a folder, a device or a pipe: name a file", value=path)


def check_folder(path: Path) -> None:
    """Raise `FileNotFoundError` with the remedy if the folder of a file to write is missing."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent}: no such folder: make it, or name another one")


def read_text(path: Path) -> str:
    """Return the text of a file, without a byte order mark; raise `InvalidInput` if it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        got = f"byte 0x{error.object[error.start]:02x} at {error.start:,}"
        raise InvalidInput(f"{path} must be text in UTF-8, got {got}: save it so, or name another file") from error


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file, in place of an earlier one at once or not at all, with the permissions of that.

    A device or a pipe is written as it is, and so is a file in a folder that takes no other one; under a name such as
    /dev/stdout, what this process has open there is written on.
    """
    data = content.encode() if isinstance(content, str) else content
    is_open = _OPEN.fullmatch(_STREAMS.get(str(path), str(path)))
    if is_open and path.exists():
        sys.stdout.flush()  # what was printed before comes before
        with os.fdopen(os.dup(int(is_open[1])), "wb") as file:
            file.write(data)
        return
    target = path.resolve()
    places = [target.parent, target] if target.is_file() else [target.parent]
    is_other = path.exists() and not path.is_file()  # by its own name: that of a pipe leads to one that is nowhere
    if is_other or not all(os.access(place, os.W_OK) for place in places):
        path.write_bytes(data)
        return
    draft = target.with_name(f".{target.name}.{os.urandom(8).hex()}.draft")
    try:
        draft.touch()
        if target.exists():
            draft.chmod(target.stat().st_mode)
        draft.write_bytes(data)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def check_reward(value: float, name: str = "reward") -> float:
    """Return `value` as a float if it lies in [0, 1], else raise `InvalidInput` naming `name`."""
    if type(value) is float and 0.0 <= value <= 1.0:
        return value
    if not (isinstance(value, _NUMBER | np.bool_) and 0.0 <= value <= 1.0):
        raise InvalidInput(f"{name} must lie in [0, 1], got {value!r}: rescale the score", value=value)
    return float(value)


def check_delta(name: str, value: float) -> float:
    """Return `value` as a float if it lies between 0 and 1, both left out, else raise `InvalidInput`."""
    if not (isinstance(value, _NUMBER) and 0.0 < value < 1.0):
        raise InvalidInput(f"{name} must lie between 0 and 1, both left out, got {value!r}", value=value)
    return float(value)


def check_count(name: str, value: int, *, least: int = 0) -> int:
    """Return `value` as an int if it is a whole number of at least `least`, else raise `InvalidInput`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least or _finite(value) is None:
        raise InvalidInput(f"{name} must be a whole number of at least {least}, got {value!r}", value=value)
    return int(value)


def check_finite(name: str, value: float) -> float:
    """Return `value` as a float if it is a finite number, else raise `InvalidInput` naming `name`."""
    number = _finite(value)
    if number is None:
        raise InvalidInput(f"{name} must be a finite number, got {value!r}", value=value)
    return number


def check_resource(name: str) -> str:
    """Return the name of a resource; raise `InvalidInput` if it is none."""
    if not (isinstance(name, str) and name.isidentifier()) or name.endswith("_usd"):
        raise InvalidInput(
            f"a resource must have a name such as 'latency_s', and USD are limited by the budget, got {name!r}",
            value=name,
        )
    return name


def check_uses(uses: Mapping[str, float]) -> dict[str, float]:
    """Return the uses of resources by a call, or those expected; raise `InvalidInput` if one is no amount."""
    check_mapping("resources", uses)
    return {check_resource(name): check_amount(name, use) for name, use in uses.items()}


def checked_names(name: str, values: Iterable[str]) -> tuple[str, ...]:
    """Return names as a tuple; raise `InvalidInput` naming `name` if they are a single text, or not all texts."""
    if isinstance(values, Iterable) and not isinstance(values, str):
        names = tuple(values)
        if all(isinstance(each, str) for each in names):
            return names
    raise InvalidInput(f'{name} must be a list of names, such as ["small"], got {values!r}', value=values)


def check_function(name: str, value: object, arguments: str) -> None:
    """Raise `InvalidInput` naming `name`, and what it is called with, if `value` cannot be called."""
    if not callable(value):
        raise InvalidInput(f"{name} must be a function of {arguments}, got {value!r}", value=value)


def check_kind(name: str, value: object, kind: type, example: str) -> None:
    """Raise `InvalidInput` naming `name` and an example if `value` is no `kind`."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        raise InvalidInput(f"{name} must be {article} {kind.__name__}, such as {example}, got {value!r}", value=value)


def seeded(seed: int | None) -> np.random.Generator:
    """Return NumPy's generator of a seed; raise `InvalidInput` if the seed is no whole number of at least 0."""
    try:
        return np.random.default_rng(seed)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"seed must be a whole number of at least 0, got {seed!r}", value=seed) from error


def check_table(name: str, values: ArrayLike) -> FloatArray:
    """Return numbers as an array; raise `InvalidInput` naming `name` if they are none, or rows differ in length."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        got = "rows of different lengths" if "inhomogeneous" in str(error) else str(error)
        rule = f"{name} must be a table of numbers, a row for each query and a column for each model"
        raise InvalidInput(f"{rule}, got {got}: put NaN where nothing was observed") from error


def check_mapping(name: str, value: object) -> None:
    """Raise `InvalidInput` naming `name` if `value` is no mapping."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{name} must be a mapping of names to numbers, got {value!r}", value=value)


def _finite(value: object) -> float | None:
    """Return a finite number as a float; None for all else, also for whole numbers beyond the range of floats."""
    try:
        return float(value) if isinstance(value, _NUMBER) and math.isfinite(value) else None
    except OverflowError:
        return None
