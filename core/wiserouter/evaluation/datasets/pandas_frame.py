"""The columns of a pickled pandas frame, read from its description (`safe_pickle`): pandas 1.1 to 3, any protocol.

A frame consists of blocks and two axes. A block is a matrix of columns of one type, of shape (n_columns, n_rows), with
the positions of these columns in the frame. The first axis holds the names. An array has a shape, a type and data:
bytes or a list of objects.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from wiserouter.errors import LogError
from wiserouter.evaluation.datasets import safe_pickle

Column = NDArray[Any] | list[Any]
"""Numbers, or objects: text, numbers, None."""

_MOST_ROWS = 2**31
_NUMBER = re.compile(r"[fiu][1248]|b1")


def columns_of(description: Any, file: Path | None = None) -> dict[str, Column]:
    """Return the columns of a pickled frame by name, in order.

    Parameters
    ----------
    description : object
        The result of `safe_pickle.load`.
    file : Path, optional
        File name for errors.

    Raises
    ------
    LogError
        If it is not a frame of plain columns.
    """
    try:
        return _columns(description)
    except _Unexpected as error:
        raise LogError(f"the pickle must hold one pandas frame of plain columns: {error}", file=file) from error


class _Unexpected(Exception):
    """The description is not that of a frame of plain columns."""


def _columns(description: Any) -> dict[str, Column]:
    state = _made(description, safe_pickle.Frame, "frame").state
    manager = _made(_entry(state, "_mgr", "_data"), safe_pickle.Manager, "block manager")
    blocks, axes = _blocks_and_axes(manager)
    names = _names(axes)
    found: dict[int, Column] = {}
    for values, places in blocks:
        filled, shape = _places(places, len(names)), _shape(values)
        if len(shape) != 2 or shape[0] != len(filled):
            _unexpected(f"a block of shape {shape} has {len(filled)} places")
        found |= zip(filled, _rows(values), strict=True)
    columns = {name: found[k] if k in found else _unexpected(f"{name!r} has no values") for k, name in enumerate(names)}
    lengths = {len(column): name for name, column in columns.items()}
    if len(lengths) > 1:
        _unexpected("its columns differ in length: " + ", ".join(f"{name!r} {n}" for n, name in lengths.items()))
    return columns


def _blocks_and_axes(manager: safe_pickle.PickledObject) -> tuple[list[tuple[Any, Any]], Any]:
    """Return (values, positions) of every block, and the axes."""
    if len(manager.args) == 2 and isinstance(manager.args[0], tuple):
        blocks = [_made(block, safe_pickle.Block, "block").args for block in manager.args[0]]
        if any(len(args) < 2 for args in blocks):
            _unexpected("a block needs values and places")
        return [(args[0], args[1]) for args in blocks], manager.args[1]
    if not (isinstance(manager.state, tuple) and len(manager.state) == 4):
        _unexpected("its blocks are not where pandas 1.1 to 3 puts them")
    before_1_3 = _entry(manager.state[3], "0.14.1")
    listed = _entry(before_1_3, "blocks")
    if not isinstance(listed, list):
        _unexpected("its blocks must be a list")
    return [(_entry(block, "values"), _entry(block, "mgr_locs")) for block in listed], _entry(before_1_3, "axes")


def _names(axes: Any) -> list[str]:
    if not (isinstance(axes, list) and len(axes) == 2):
        _unexpected("it needs two axes")
    new_index = _made(axes[0], safe_pickle.NewIndex, "axis of columns")
    names = _array(_entry(new_index.args[-1] if new_index.args else None, "data"))
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        _unexpected("the names of its columns must be text")
    for name, next_name in pairwise(sorted(names)):
        if name == next_name:
            _unexpected(f"column {name!r} comes twice")
    return names


def _places(places: Any, n_columns: int) -> list[int]:
    """Return the positions of a block's columns."""
    if isinstance(places, safe_pickle.Slice):
        bounds = [*places.args]
        if len(bounds) != 3 or not all(isinstance(bound, int) or bound is None for bound in bounds) or bounds[2] == 0:
            _unexpected("a block's places must be whole numbers")
        found = list(range(*slice(*bounds).indices(n_columns)))
    else:
        array = _array(places)
        if isinstance(array, list) or array.ndim != 1 or array.dtype.kind not in "iu":
            _unexpected("a block's places must be whole numbers")
        found = [int(place) for place in array]
    if any(not 0 <= place < n_columns for place in found):
        _unexpected(f"a block's places must lie below {n_columns}")
    return found


def _rows(values: Any) -> Iterator[Column]:
    """Yield the columns of a block."""
    n_columns, n_rows = _shape(values)
    array = _array(values)
    for k in range(n_columns):
        yield [_cell(one) for one in array[k * n_rows : (k + 1) * n_rows]] if isinstance(array, list) else array[k]


def _cell(value: Any) -> Any:
    """Return an object of a column, with a numpy number as a Python number."""
    if not isinstance(value, safe_pickle.Scalar) or len(value.args) != 2:
        return value
    return _numbers(value.args[0], value.args[1], (1,))[0].item()


def _shape(values: Any) -> tuple[int, ...]:
    shape: Any = None
    if isinstance(values, safe_pickle.Buffer) and len(values.args) == 4:
        shape = values.args[2]
    elif isinstance(values, safe_pickle.NewArray) and isinstance(values.state, tuple) and len(values.state) == 5:
        shape = values.state[1]
    if not (isinstance(shape, tuple) and all(isinstance(n, int) and 0 <= n < _MOST_ROWS for n in shape)):
        _unexpected(f"an array of numpy is wanted, got {_kind(values)}")
    return shape


def _array(values: Any) -> NDArray[Any] | list[Any]:
    """Return an array of numbers, or an array of objects as a flat list."""
    shape = _shape(values)
    if isinstance(values, safe_pickle.Buffer):
        data, dtype, _, order = values.args
        return _numbers(dtype, data, shape, fortran=order == "F")
    _, _, dtype, fortran, data = values.state
    if not isinstance(data, list):
        return _numbers(dtype, data, shape, fortran=bool(fortran))
    if len(data) != math.prod(shape):
        _unexpected(f"an array of shape {shape} must hold {math.prod(shape)} objects, got {len(data)}")
    return data


def _numbers(dtype: Any, data: Any, shape: tuple[int, ...], *, fortran: bool = False) -> NDArray[Any]:
    kind = _dtype(dtype)
    raw = _bytes(data)
    if len(raw) != math.prod(shape) * kind.itemsize:
        _unexpected(f"an array of shape {shape} must hold {math.prod(shape) * kind.itemsize} bytes, got {len(raw)}")
    return np.frombuffer(raw, kind).reshape(shape, order="F" if fortran else "C")


def _dtype(dtype: Any) -> np.dtype[Any]:
    made = _made(dtype, safe_pickle.DType, "type of numbers")
    name = made.args[0] if made.args else None
    if not (isinstance(name, str) and _NUMBER.fullmatch(name)):
        _unexpected(f"an array must hold numbers or objects, got type {name!r:.40}")
    order = made.state[1] if isinstance(made.state, tuple) and len(made.state) > 1 else None
    return np.dtype(name).newbyteorder(">" if order == ">" else "<")


def _bytes(data: Any) -> bytes:
    if isinstance(data, safe_pickle.Encoded) and isinstance(data.args[0] if data.args else "", str):
        try:
            return "".join(data.args[:1]).encode("latin1")
        except UnicodeEncodeError:
            _unexpected("the bytes of an array must be bytes")
    return bytes(data) if isinstance(data, bytes | bytearray) else _unexpected(f"bytes are wanted, got {_kind(data)}")


def _made(value: Any, kind: type[safe_pickle.PickledObject], name: str) -> safe_pickle.PickledObject:
    """Return the value if it is an object of this kind, written by any protocol."""
    early = isinstance(value, safe_pickle.Reconstructed) and value.args[:1] == (kind,)
    if not isinstance(value, safe_pickle.PickledObject) or not (early or isinstance(value, kind)):
        _unexpected(f"a {name} is wanted, got {_kind(value)}")
    return value


def _entry(value: Any, *names: str) -> Any:
    if not isinstance(value, dict):
        _unexpected(f"a dict with {names[0]!r} is wanted, got {_kind(value)}")
    there = [value[name] for name in names if name in value]
    return there[0] if there else _unexpected(f"{names[0]!r} is missing")


def _kind(value: Any) -> str:
    return type(value).__name__


def _unexpected(message: str) -> NoReturn:
    raise _Unexpected(message)
