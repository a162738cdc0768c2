"""The protocol of an encoder, and the functions that all encoders share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wiserouter.errors import EncoderError
from wiserouter.types import Embedding

State = dict[str, NDArray[np.generic]]
Settings = dict[str, str | int | float | bool | None]


QUICK = frozenset({"tfidf", "hashing"})
"""Encoders that need about 0.1 ms: less than a switch to another thread and back."""


@runtime_checkable
class Encoder(Protocol):
    """Turns texts into vectors of one length.

    Attributes
    ----------
    spec : str
        Its name in `open_encoder` and in artifacts: "hashing", "tfidf", "minilm" or "custom".

    Notes
    -----
    `state` holds arrays only and `settings` JSON values only, so that an artifact needs no pickle; together they
    restore the encoder through `encoder_from_state`. `encode` may be called from many threads at once.
    """

    spec: str

    def fit(self, texts: Sequence[str]) -> Self:
        """Learn from `texts`; does nothing where the encoder is pretrained."""
        ...

    def encode(self, text: str) -> Embedding:
        """Return the vector of one text, of shape (d,)."""
        ...

    def encode_many(self, texts: Sequence[str]) -> Embedding:
        """Return the vectors of many texts, of shape (n, d)."""
        ...

    def state(self) -> State:
        """Return the fitted state, as arrays."""
        ...

    def settings(self) -> Settings:
        """Return the keyword arguments that build an equal encoder."""
        ...


@runtime_checkable
class EncodesItsSample(Protocol):
    """An encoder that encodes the texts that it learns from in less time than after learning from them."""

    def fit_encode(self, texts: Sequence[str]) -> Embedding:
        """Learn from `texts`, and return their vectors, bit for bit those of `encode_many`."""
        ...


@runtime_checkable
class RefittableEncoder(Encoder, Protocol):
    """An encoder that is fitted while serving, on the vectors of recent texts: the texts need not be kept."""

    def refitted(self, vectors: Embedding) -> Self:
        """Return another encoder, fitted on texts by the vectors that this one gave them."""
        ...

    def converted(self, vectors: Embedding, into: Self) -> Embedding:
        """Return the vectors that `into` gives to the texts that have these vectors here."""
        ...


def tail(text: str, max_chars: int) -> str:
    """Return the last `max_chars` characters of `text`.

    The end rather than the start: few-shot prompts, system prompts and agent transcripts begin alike and end with the
    query. In RouterBench the first 1,000 characters of a prompt are worked examples shared by the whole task.

    Examples
    --------
    >>> tail("Here are five examples ... Question: 1 + 1?", 16)
    'Question: 1 + 1?'
    """
    return text[-max_chars:]


def unit(vector: Embedding) -> Embedding:
    """Return `vector` scaled to length 1; a zero vector stays zero.

    Examples
    --------
    >>> unit(np.array([3.0, 4.0], dtype=np.float32))
    array([0.6, 0.8], dtype=float32)
    """
    length = math.sqrt(vector.dot(vector))
    return vector / np.float32(length) if length > 0 else vector


def check_embeddings(array: ArrayLike, n: int) -> Embedding:
    """Return `array` as float32 of shape (n, d) if it is that and finite.

    Raises
    ------
    EncoderError
        If it is not numeric, not of shape (n, d) with d >= 1, or holds NaN or infinity.

    Examples
    --------
    >>> check_embeddings([[1, 2], [3, 4]], n=2)
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    rows = _as_float32(array)
    if rows.ndim != 2 or rows.shape[0] != n or rows.shape[1] == 0:
        raise EncoderError(f"embeddings must have shape ({n}, d) with d >= 1, got {rows.shape}: return a row per text")
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if bad.size:
        raise EncoderError(f"embeddings must be finite, got NaN or infinity in row {bad[0]}: correct or drop that text")
    return rows


def _as_float32(array: ArrayLike) -> Embedding:
    """Return `array` as float32; an overflow becomes infinite, for `check_embeddings` to refuse."""
    try:
        with np.errstate(over="ignore"):
            return np.asarray(array, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise EncoderError(f"embeddings must be rows of numbers of one length, got {type(array).__name__}") from error
