"""A safe unpickler: every global that a pickle names becomes a record of its arguments, and no code of it is run.

Unpickling runs any code that the file names (Python manual, "Restricting Globals"). Here `find_class` knows only the
names with which pandas and numpy write a table, and maps each to a class that stores its arguments and does nothing: no
function of pandas or numpy is called, pandas need not be installed, and any other name is refused before its object is
created. `pandas_frame` interprets the records.

Before that every opcode is checked: those that reach objects in other ways (extension codes, persistent ids, external
buffers) are refused, and so are memo indices beyond the entries of the file, which would only reserve memory.
"""

from __future__ import annotations

import io
import pickle  # the C unpickler, with every global replaced
import pickletools
import warnings
from pathlib import Path
from typing import Any, NoReturn, Self

from wiserouter.errors import LogError
from wiserouter.evaluation.errors import ForbiddenPickle


class PickledObject:
    """An object that the pickle describes: `args` are its constructor arguments, `state` the state set afterwards."""

    __slots__ = ("args", "state")

    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any) -> Self:
        """Keep the arguments."""
        made = super().__new__(cls)
        made.args, made.state = args, None
        return made

    def __setstate__(self, state: Any) -> None:
        """Keep the state."""
        self.state = state


class Frame(PickledObject):
    """pandas.DataFrame."""


class Manager(PickledObject):
    """The blocks of a frame and its axes."""


class Block(PickledObject):
    """Columns of one type: values, their positions in the frame, number of dimensions."""


class PartialBlock(PickledObject):
    """`functools.partial(new_block, ndim=...)` as written by pandas 1.3: a block when called."""

    def __call__(self, *args: Any) -> Block:
        """Return the block; only `new_block` is allowed."""
        if self.args != (Block,):
            _refuse("functools", "partial")
        return Block(*args)


class Index(PickledObject):
    """The class of an axis."""


class NewIndex(PickledObject):
    """An axis: its class, and a dict with its `data`."""


class Array(PickledObject):
    """The class numpy.ndarray."""


class NewArray(PickledObject):
    """An array whose shape, type and data are its state."""


class Buffer(PickledObject):
    """An array from a buffer: data, type, shape, order."""


class DType(PickledObject):
    """The type of an array."""


class Scalar(PickledObject):
    """A numpy number: type and bytes."""


class Encoded(PickledObject):
    """Bytes that an early protocol writes as text: text and encoding, or no arguments for no bytes."""


class Slice(PickledObject):
    """Start, stop, step."""


class Reconstructed(PickledObject):
    """An object as an early protocol writes it: class, base, base's state."""


class Object(PickledObject):
    """The class `object`."""


_NAMES: dict[type[PickledObject], tuple[str, ...]] = {
    Frame: ("pandas.core.frame DataFrame", "pandas DataFrame"),
    Manager: ("pandas.core.internals.managers BlockManager",),
    Block: ("pandas._libs.internals _unpickle_block", "pandas.core.internals.blocks new_block"),
    PartialBlock: ("functools partial",),
    NewIndex: ("pandas.core.indexes.base _new_Index",),
    Index: (
        "pandas.core.indexes.base Index",
        "pandas.core.indexes.range RangeIndex",
        "pandas.core.indexes.numeric Int64Index",
        "pandas Index",
        "pandas RangeIndex",
    ),
    Array: ("numpy ndarray",),
    NewArray: ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"),
    Buffer: ("numpy.core.numeric _frombuffer", "numpy._core.numeric _frombuffer"),
    DType: ("numpy dtype",),
    Scalar: ("numpy.core.multiarray scalar", "numpy._core.multiarray scalar"),
    Encoded: ("_codecs encode", "builtins bytes", "__builtin__ bytes"),
    Slice: ("builtins slice", "__builtin__ slice"),
    Reconstructed: ("copyreg _reconstructor", "copy_reg _reconstructor"),
    Object: ("builtins object", "__builtin__ object"),
}
ALLOWED = {name: stand_in for stand_in, names in _NAMES.items() for name in names}
"""The names that a pickle may contain ("module name"), with their stand-ins."""

_BYPASSING_OPCODES = frozenset({"EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID", "NEXT_BUFFER", "READONLY_BUFFER"})
"""Opcodes that reach objects without a name; all others arrange content of the file, or call `find_class`."""

_PUTS = ("PUT", "BINPUT", "LONG_BINPUT")
_MALFORMED = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    MemoryError,
)


def load(payload: bytes, file: Path | None = None) -> Any:
    r"""Return the content of a pickle: numbers, text, bytes, tuples, lists, dicts and `PickledObject`s.

    Parameters
    ----------
    payload : bytes
        The whole pickle, at any protocol.
    file : Path, optional
        File name for errors.

    Raises
    ------
    ForbiddenPickle
        If it names a global outside `ALLOWED`, or uses an opcode that bypasses them.
    LogError
        If it is damaged.

    Examples
    --------
    >>> import pickle
    >>> load(pickle.dumps({"a": [1.5, None]}))
    {'a': [1.5, None]}
    >>> load(b"cposix\nsystem\n(S'true'\ntR.")
    Traceback (most recent call last):
    wiserouter.evaluation.errors.ForbiddenPickle: a pickled table must not name posix.system: ...
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the text of early protocols
            _check_opcodes(payload)
            return _Unpickler(io.BytesIO(payload)).load()
    except ForbiddenPickle as error:
        raise ForbiddenPickle(error.refused, file=file) from None
    except _MALFORMED as error:
        raise LogError(f"the pickle is damaged: {error}: get the file again", file=file) from error


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> type[PickledObject]:
        stand_in = ALLOWED.get(f"{module_name} {global_name}")
        return stand_in if stand_in is not None else _refuse(module_name, global_name)


def _check_opcodes(payload: bytes) -> None:
    """Refuse opcodes that bypass `find_class`, and memo indices beyond the entries put there."""
    puts = 0
    for opcode, argument, _ in pickletools.genops(payload):
        if opcode.name in _BYPASSING_OPCODES:
            raise ForbiddenPickle(f"use opcode {opcode.name}" + ("" if argument is None else f" {argument!r:.80}"))
        if opcode.name in _PUTS:
            puts += 1
            if argument is None or argument > puts:
                raise ValueError(f"memo place {argument} after {puts} entries")


def _refuse(module_name: str, global_name: str) -> NoReturn:
    raise ForbiddenPickle(f"name {module_name:.80}.{global_name:.80}")
