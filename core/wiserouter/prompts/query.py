"""From a query to what deciding needs of it: its context, and its length in tokens."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.errors import InvalidInput
from wiserouter.learning.residuals import QueryResiduals
from wiserouter.pricing.pool import Pool
from wiserouter.prompts.contexts import Contexts
from wiserouter.prompts.encoders import Encoder
from wiserouter.types import NO_CONTEXT, Embedding
from wiserouter.validation import check_count

_SHORT = 4_000  # characters; the tokens of a shorter text are counted in well under a millisecond


class Query(NamedTuple):
    """A query as the router sees it.

    Attributes
    ----------
    context : int
        The context that it falls into.
    input_tokens : int or None
        Its length, where limits or prices need it.
    embedding : ndarray of shape (dim,) or None
        Where its own reward is estimated.
    length_tokens : int or None
        The best count of its length, where its own cost is estimated.
    """

    context: int
    input_tokens: int | None
    embedding: Embedding | None = None
    length_tokens: int | None = None


class QueryReader:
    """Encodes queries and counts their tokens, no more than is needed.

    Parameters
    ----------
    contexts : Contexts
        Where queries are placed.
    encoder : Encoder or None
        Turns text into an embedding.
    pool : Pool
        Whose limits and prices say whether tokens are needed.
    finer : QueryResiduals, optional
        What judges queries one by one, by embedding or length.
    grows : bool, default False
        Whether contexts are fitted on the queries: an embedding then says more than a context that was found earlier.
    """

    def __init__(
        self,
        contexts: Contexts,
        encoder: Encoder | None,
        pool: Pool,
        finer: QueryResiduals | None = None,
        *,
        grows: bool = False,
    ) -> None:
        self._contexts, self._encoder, self._pool, self._grows = contexts, encoder, pool, grows
        self._keeps_embedding = grows or (finer is not None and finer.residual is not None)
        self._keeps_length = finer is not None and finer.length is not None

    def is_quick(self, text: str | None) -> bool:
        """Return whether reading takes well under a millisecond: nothing to encode, little to count."""
        encodes = self._contexts.n_contexts > 1 or self._keeps_embedding
        return text is None or (not encodes and len(text) < _SHORT)

    def read(
        self,
        text: str | None,
        embedding: ArrayLike | None,
        input_tokens: int | None,
        context: int | None = None,
        *,
        hard: bool,
    ) -> Query:
        """Return context and length of a query; under a hard limit the length is a sound upper bound.

        Raises
        ------
        InvalidInput
            If there is neither text, embedding nor context where one is needed, or one of them is no good.
        EncoderError
            If the encoder fails.
        """
        if self._keeps_embedding and embedding is None and context is None and text is not None and self._encoder:
            embedding = self._encoder.encode(text)
        if self._grows and embedding is not None:
            context = None
        placed = self._context(text, embedding) if context is None else self._known(context)
        tokens = self._tokens(text, input_tokens, hard=hard)
        if not (self._keeps_embedding or self._keeps_length):
            return Query(placed, tokens)
        return Query(placed, tokens, self._kept(embedding), self._length(text, input_tokens))

    def _kept(self, embedding: ArrayLike | None) -> Embedding | None:
        if embedding is None or not self._keeps_embedding:
            return None
        x = np.asarray(embedding, dtype=np.float32)
        dim = self._contexts.dim or x.size  # one context for all has none of its own
        if x.shape != (dim,) or not np.isfinite(x).all():
            raise InvalidInput(f"embedding must be finite and of shape ({dim},), got shape {x.shape}")
        return x

    def _length(self, text: str | None, input_tokens: int | None) -> int | None:
        if input_tokens is not None or text is None or not self._keeps_length:
            return input_tokens if self._keeps_length else None
        from wiserouter.pricing.tokens import count_tokens  # loaded by those who need it

        return count_tokens(text).tokens

    def _known(self, context: int) -> int:
        if context != NO_CONTEXT and not 0 <= context < self._contexts.n_contexts:
            raise InvalidInput(
                f"context must be NO_CONTEXT or in 0..{self._contexts.n_contexts - 1}, got {context!r}", value=context
            )
        return context

    def _context(self, text: str | None, embedding: ArrayLike | None) -> int:
        if embedding is not None:
            return self._contexts.assign(embedding)
        if self._contexts.n_contexts == 1:
            return 0
        if text is None:
            raise InvalidInput("decide needs text or embedding, got neither")
        if self._encoder is None:
            raise InvalidInput("decide needs an embedding, or a router with an encoder, to place text in a context")
        return self._contexts.assign(self._encoder.encode(text))

    def _tokens(self, text: str | None, input_tokens: int | None, *, hard: bool) -> int | None:
        if input_tokens is not None:
            return check_count("input_tokens", input_tokens)
        if text is None or not self._pool.needs_tokens(hard=hard):
            return None
        from wiserouter.pricing.tokens import count_tokens  # loaded by those who need it

        count = count_tokens(text)
        return count.at_most if hard else count.tokens
