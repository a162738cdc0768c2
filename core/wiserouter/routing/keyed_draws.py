"""Draws that follow from a key: calls with equal keys get equal numbers, in every worker.

The numbers are those of a Philox generator (Salmon et al. 2011) whose key is a hash, so that over many keys they are as
good as fresh ones: each model is drawn as often as the plan says, and the probabilities of decisions stay right.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wiserouter.errors import InvalidInput

CONTEXT_BLOCK_S = 3600.0
"""The time for which the calls of one context share a draw."""

_LOSSLESS = "surrogatepass"
_NOT_DRAWING = frozenset({"__dict__", "__class__"})
_WORDS = 4  # of 64 bits, in the counter of a Philox generator


class _LateGenerator(np.random.Generator):
    """A generator that takes up its numbers when it is first used: most turns of a conversation draw none.

    Its attribute `begin` is called once, before the next use.
    """

    def __getattribute__(self, name: str) -> Any:
        """Return an attribute, such as a method that draws, after the beginning."""
        if name not in _NOT_DRAWING:
            own = vars(self)
            begin, own["begin"] = own.get("begin"), None
            if begin is not None:
                begin()
        return super().__getattribute__(name)


class KeyedDraws:
    """The random numbers of keys.

    Parameters
    ----------
    seed : int or None
        Routers of equal seeds draw alike; None is 0, so that workers without a seed agree.

    Examples
    --------
    >>> first, second = KeyedDraws(7), KeyedDraws(7)
    >>> first.generator("a", "default", 0.0).random() == second.generator("a", "default", 0.0).random()
    True
    """

    def __init__(self, seed: int | None = None) -> None:
        self._salt = blake2b(str(seed or 0).encode()).digest()
        self._prefix, self._hashed = ("", 0.0), self._started("", 0.0)
        self._of = ("", "", 0.0)
        self._philox = np.random.Philox(key=0)
        self._generator = _LateGenerator(self._philox)
        self._late: dict[str, Callable[[], None] | None] = vars(self._generator)
        self._start = np.zeros(_WORDS, dtype=np.uint64)
        self._exploring = np.array([0, 0, 0, 1], dtype=np.uint64)
        self._key = np.zeros(2, dtype=np.uint64)

    def generator(self, key: str, scope: str, epoch_s: float) -> np.random.Generator:
        """Return the generator of a key, which serves until the next one is asked for.

        Parameters
        ----------
        key : str
            What the calls that are to agree have in common.
        scope : str
            The scope that pays: each has a plan of its own.
        epoch_s : float, seconds
            The start of the epoch; in another one the same key has other numbers.
        """
        self._of = (key, scope, epoch_s)
        self._late["begin"] = self._begin
        return self._generator

    def _started(self, scope: str, epoch_s: float) -> blake2b:
        """Return the hash of what the keys of a scope and an epoch have in common."""
        prefix = f"{epoch_s}:{len(scope)}:{scope}"
        return blake2b(prefix.encode("utf-8", _LOSSLESS), digest_size=16, key=self._salt)

    def exploring(self) -> np.random.Generator:
        """Return the generator of the same key for uniform exploration, whose numbers do not depend on the others."""
        self._hash()
        self._late["begin"] = None
        self._set(self._exploring)
        return self._generator

    def _begin(self) -> None:
        """Start the numbers of the key that was asked for last."""
        self._hash()
        self._set(self._start)

    def _hash(self) -> None:
        key, scope, epoch_s = self._of
        if self._prefix != (scope, epoch_s):
            self._prefix, self._hashed = (scope, epoch_s), self._started(scope, epoch_s)
        hashed = self._hashed.copy()
        hashed.update(key.encode("utf-8", _LOSSLESS))
        self._key = np.frombuffer(hashed.digest(), dtype=np.uint64)

    def _set(self, counter: NDArray[np.uint64]) -> None:
        self._philox.state = {
            "bit_generator": "Philox",
            "state": {"counter": counter, "key": self._key},
            "buffer": self._start,
            "buffer_pos": _WORDS,
            "has_uint32": 0,
            "uinteger": 0,
        }


def context_key(context: int, now_s: float) -> str:
    """Return the draw key that the calls of one context share for a block of time.

    Calls of one context get the same model within a block, and so do paraphrases that are placed alike. The mix holds
    over blocks instead of calls: each block draws once per context, independently of what its queries say.

    Examples
    --------
    >>> context_key(3, 10.0) == context_key(3, 3_599.0), context_key(3, 10.0) == context_key(3, 3_600.0)
    (True, False)
    """
    return f"context {context} {CONTEXT_BLOCK_S:g} {int(now_s // CONTEXT_BLOCK_S)}"


def check_draw_key(key: object) -> None:
    """Raise `InvalidInput` unless a key is a text that can tell calls apart."""
    if not isinstance(key, str) or not key:
        raise InvalidInput(f"draw_key must be a text of at least 1 character, or None, got {key!r}", value=key)
