"""Keys of queries: 64 bits of a hash in place of an id of any length, and pseudo-random ranks.

A key needs no table of earlier ids, so that a log of any length is read in the same memory. Any two of `n` ids share a
key with probability `n^2 / 2^65`: 1 in 1.5 million for five million queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from wiserouter.types import IntArray

Ranks = NDArray[np.uint64]


def query_keys(names: Sequence[str]) -> IntArray:
    """Return the key of each id, the same in every process.

    Examples
    --------
    >>> query_keys(["a", "b", "a"])
    array([3405396810240292928, 8453121595177857668, 3405396810240292928])
    """
    digests = b"".join(blake2b(name.encode(), digest_size=8).digest() for name in names)
    return np.frombuffer(digests, dtype="<i8").astype(np.int64)


def ranks(keys: IntArray, salt: int) -> Ranks:
    """Return a number for each key, uniform over 64 bits and different for each salt.

    Notes
    -----
    The finalizer of SplitMix64 (Steele, Lea and Flood 2014): a bijection, so that different keys have different ranks.
    """
    z = keys.astype(np.uint64) + np.uint64(salt)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
