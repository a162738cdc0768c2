"""Hashed words weighted by rarity: an encoder that needs no log, and takes its weights from the prompts as they come.

A word w that occurs f times adds s(w) (1 + ln f) to dimension h(w); h and the sign s come from the CRC-32 of the word
(Weinberger et al. 2009), so that every process gives equal vectors to equal texts. Each dimension is then weighted by
idf = ln((1 + n) / (1 + n_d)) + 1, where n_d of n texts have the dimension, and the vector is scaled to length 1. The
weights change the length of dimensions only, so that a vector under one set of weights gives that under another one
without its text: `converted`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self, cast
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from wiserouter.errors import InvalidInput
from wiserouter.prompts.encoders.base import Settings, State, tail, unit
from wiserouter.prompts.encoders.words import words_as_bytes
from wiserouter.types import Embedding
from wiserouter.validation import check_count

_SIGN = 0x80000000
_LARGEST = 1e3


class HashingTfidf:
    """Words hashed to a fixed number of dimensions, and weighted by rarity once prompts were seen.

    Parameters
    ----------
    dim : int, default 512
        Number of dimensions.
    max_chars : int, default 1,000
        Characters to read from the end of a text (see `tail`).

    Notes
    -----
    At first all weights are 1. A fitted encoder never changes: `refitted` returns another one, so that vectors of one
    encoder can be compared with each other.

    Examples
    --------
    >>> encoder = HashingTfidf()
    >>> france, spain, sort = encoder.encode_many(["capital of France", "capital of Spain", "sort a list"])
    >>> bool(france @ spain > france @ sort)
    True
    """

    spec = "hashing"

    def __init__(self, dim: int = 512, max_chars: int = 1_000) -> None:
        self._dim = check_count("dim", dim, least=1)
        self._max_chars = check_count("max_chars", max_chars, least=1)
        self._idf: Embedding = np.ones(dim, dtype=np.float32)

    def fit(self, texts: Sequence[str]) -> Self:
        """Learn the weights from `texts`.

        Raises
        ------
        InvalidInput
            If there is no text.
        """
        if len(texts) == 0:
            raise InvalidInput("texts must hold at least one text, got none: fit the encoder on a log", value=texts)
        self._idf = _idf(self.encode_many(texts))
        return self

    def encode(self, text: str) -> Embedding:
        """Return the unit vector of `text`, or zeros if it has no word; shape (dim,)."""
        counts: dict[bytes, int] = {}
        for word in words_as_bytes(tail(text, self._max_chars)):
            counts[word] = counts.get(word, 0) + 1
        dim = self._dim
        sums = np.zeros(dim)
        cells = cast("memoryview[float]", sums.data)  # in which adding to a cell is quick
        for word, times in counts.items():
            hashed = crc32(word)
            weight = 1.0 if times == 1 else 1.0 + math.log(times)
            cells[hashed % dim] += -weight if hashed & _SIGN else weight
        return unit(sums.astype(np.float32) * self._idf)

    def encode_many(self, texts: Sequence[str]) -> Embedding:
        """Return the vectors of `texts`, each as `encode` gives it; shape (n, dim)."""
        rows = np.zeros((len(texts), self._dim), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[:] = self.encode(text)
        return rows

    def refitted(self, vectors: Embedding) -> Self:
        """Return the encoder with the weights of the texts that have these vectors, of shape (n, dim)."""
        encoder = type(self)(self._dim, self._max_chars)
        encoder._idf = _idf(vectors)
        return encoder

    def converted(self, vectors: Embedding, into: Self) -> Embedding:
        """Return the vectors that `into` gives to the texts of these; shape (n, dim)."""
        rows = vectors * (into._idf / self._idf)
        length = np.sqrt(np.einsum("nd,nd->n", rows, rows))[:, np.newaxis]
        return np.asarray(rows / np.where(length > 0, length, 1.0), dtype=np.float32)

    def state(self) -> State:
        """Return the weights, of shape (dim,)."""
        return {"idf": self._idf}

    def settings(self) -> Settings:
        """Return the arguments of the constructor."""
        return {"dim": self._dim, "max_chars": self._max_chars}

    @classmethod
    def restore(cls, settings: Settings, arrays: State) -> Self:
        """Return the encoder whose `settings()` and `state()` these are."""
        encoder = cls(**settings)  # type: ignore[arg-type]  # checked by the constructor
        encoder._idf = _checked(arrays["idf"], encoder._dim)
        return encoder


def _idf(vectors: Embedding) -> Embedding:
    """Return the weight of each dimension by the number of texts that have it."""
    known = np.count_nonzero(vectors, axis=0)
    return np.asarray(np.log((1 + len(vectors)) / (1 + known)) + 1, dtype=np.float32)


def _checked(idf: NDArray[np.generic], dim: int) -> Embedding:
    """Return weights read from a file; raise `ValueError` unless each is a number that a weight can be."""
    weights = np.asarray(idf, dtype=np.float32)
    if weights.shape != (dim,) or not ((weights >= 1.0) & (weights <= _LARGEST)).all():
        raise ValueError(f"idf must hold {dim} weights from 1 to {_LARGEST:g}, got an array of shape {weights.shape}")
    return weights
