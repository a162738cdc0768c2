"""An encoder from any callable of texts, such as a client of an embedding service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import iscoroutinefunction
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.errors import EncoderError, InvalidInput
from wiserouter.prompts.encoders.base import Settings, State, check_embeddings
from wiserouter.types import Embedding
from wiserouter.validation import check_count

EmbedFunction = Callable[[list[str]], ArrayLike]


class CallableEncoder:
    """An encoder that calls `function` with a list of texts and checks the result.

    Parameters
    ----------
    function : callable of (list of str) -> array-like of shape (n, d)
        Must give equal vectors to equal texts, and be safe to call from many threads if the router is.
    dim : int, optional
        The length d that every vector must have; that of the first call by default.

    Raises
    ------
    InvalidInput
        If `function` is not callable, or is a coroutine function.

    Notes
    -----
    A function cannot be stored in an artifact: pass it to `WiseRouter.load` again, as `encoder=`.

    Examples
    --------
    >>> encoder = CallableEncoder(lambda texts: [[len(text), text.count("?")] for text in texts])
    >>> encoder.encode("why?")
    array([4., 1.], dtype=float32)
    """

    spec = "custom"

    def __init__(self, function: EmbedFunction, dim: int | None = None) -> None:
        if not callable(function) or iscoroutinefunction(function):
            raise InvalidInput(
                f"function must be a plain callable of a list of texts, got {function!r}", value=function
            )
        self._function = function
        self._dim = None if dim is None else check_count("dim", dim, least=1)

    def fit(self, texts: Sequence[str]) -> Self:
        """Return the encoder as it is: the function is ready."""
        return self

    def encode(self, text: str) -> Embedding:
        """Return the vector of `text`, of shape (d,)."""
        row: Embedding = self.encode_many([text])[0]
        return row

    def encode_many(self, texts: Sequence[str]) -> Embedding:
        """Return the vectors of `texts` from one call of the function, of shape (n, d).

        Raises
        ------
        EncoderError
            If the function raises (the cause is chained), or returns a wrong shape, NaN or infinity.
        """
        if len(texts) == 0:
            return np.zeros((0, self._dim or 0), dtype=np.float32)
        rows = check_embeddings(self._call(list(texts)), len(texts))
        self._dim = self._dim or rows.shape[1]
        if rows.shape[1] != self._dim:
            raise EncoderError(f"embeddings must have {self._dim} columns as before, got {rows.shape[1]}")
        return rows

    def state(self) -> State:
        """Return an empty state: a function cannot be stored."""
        return {}

    def settings(self) -> Settings:
        """Return the length of the vectors; None before the first call."""
        return {"dim": self._dim}

    def _call(self, texts: list[str]) -> ArrayLike:
        try:
            return self._function(texts)
        except Exception as error:
            raise EncoderError(f"the encoder function failed on {len(texts)} texts: {error!r}") from error
