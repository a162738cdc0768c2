"""The reader of queries: the context of a query, and its length in tokens."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.errors import InvalidInput
from wiserouter.pricing.pool import Pool
from wiserouter.pricing.tokens import SHORT_TEXT_CHARS, count_tokens
from wiserouter.prompts.contexts import Contexts, as_numbers
from wiserouter.prompts.encoders import Encoder
from wiserouter.prompts.encoders.base import QUICK
from wiserouter.types import NO_CONTEXT, Embedding
from wiserouter.validation import check_count


class Query(NamedTuple):
    """A query as the router sees it.

    Attributes
    ----------
    context : int
        The context that it falls into.
    input_tokens : int or None
        Its length, where limits or prices need it.
    embedding : ndarray of shape (dim,) or None
        Kept where its own reward is estimated, or contexts are fitted on it.
    version : int
        The version of the contexts that it was read in.
    """

    context: int
    input_tokens: int | None
    embedding: Embedding | None = None
    version: int = 0


class QueryReader:
    """Reads the context and the length of queries, and encodes and counts only where that is needed.

    Parameters
    ----------
    contexts : Contexts
        The contexts that queries are assigned to.
    encoder : Encoder or None
        Turns text into an embedding.
    pool : Pool
        Its limits and prices decide whether tokens are needed.
    keeps_embedding : bool
        Whether a query keeps its embedding; text is then always encoded.
    reassigns : bool, default False
        Whether contexts are fitted while serving: an embedding then outranks a context that was found earlier, and a
        query without an embedding has no context once there are several.
    version : int, default 0
        The version of the contexts.

    Attributes
    ----------
    version : int
        As given.
    """

    def __init__(
        self,
        contexts: Contexts,
        encoder: Encoder | None,
        pool: Pool,
        *,
        keeps_embedding: bool,
        reassigns: bool = False,
        version: int = 0,
    ) -> None:
        self._contexts, self._encoder = contexts, encoder
        self._counts_tokens = {hard: pool.needs_tokens(hard=hard) for hard in (False, True)}
        self._n_contexts = contexts.n_contexts
        self._keeps_embedding, self._reassigns = keeps_embedding, reassigns
        self.version = version
        self._encodes_quickly = getattr(encoder, "spec", "") in QUICK

    def is_quick(self, text: str | None) -> bool:
        """Return True if reading takes well under a millisecond: little to encode, and little to count."""
        encodes = (self._n_contexts > 1 or self._keeps_embedding) and not self._encodes_quickly
        return not isinstance(text, str) or (not encodes and len(text) < SHORT_TEXT_CHARS)

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
            If neither text, embedding nor context is given where one is needed, or one of them is invalid.
        EncoderError
            If the encoder fails.
        """
        if text is not None and not isinstance(text, str):
            raise InvalidInput(f"text must be a string, got {type(text).__name__}", value=text)
        if self._keeps_embedding and embedding is None and context is None and text is not None and self._encoder:
            embedding = self._encoder.encode(text)
            if self._reassigns and embedding.size != self._contexts.dim and self._n_contexts > 1:
                embedding = None  # these contexts come from embeddings that the caller gave
        if self._reassigns:
            context = self._context_now(embedding, context)
        kept = self._kept(embedding, context) if self._keeps_embedding and embedding is not None else None
        if context is not None:
            assigned = self.checked_context(context)
        else:
            assigned = self._assigned(text, embedding if kept is None else kept)
        tokens = None if text is None and input_tokens is None else self._tokens(text, input_tokens, hard=hard)
        return tuple.__new__(Query, (assigned, tokens, kept, self.version))  # in half the time of a call

    def read_again(self, query: Query) -> Query:
        """Return a query that was read in other contexts, in those of this reader."""
        embedding = query.embedding
        if self._n_contexts > 1 and (embedding is None or embedding.size != self._contexts.dim):
            return query._replace(context=NO_CONTEXT, embedding=None, version=self.version)
        context = 0 if embedding is None else self._contexts.assign(embedding)
        return query._replace(context=context, version=self.version)

    def _context_now(self, embedding: ArrayLike | None, context: int | None) -> int | None:
        """Return the context to go by where contexts are fitted while serving; None for that of the embedding."""
        context = None if context is None else self._whole(context)
        if embedding is not None:
            return None
        return NO_CONTEXT if context is None and self._n_contexts > 1 else context

    def _kept(self, embedding: ArrayLike, context: int | None) -> Embedding:
        x = as_numbers(embedding)
        if self._n_contexts > 1 and context is None:
            return x  # checked when it is assigned
        dim = self._contexts.dim or x.size  # a single context needs no embedding and has no dimension
        if x.shape != (dim,) or not math.isfinite(x.dot(x)):
            raise InvalidInput(f"embedding must be finite and of shape ({dim},), got shape {x.shape}")
        return x

    def checked_context(self, context: int) -> int:
        """Return a context if there is one of this number, or it is `NO_CONTEXT`; raise `InvalidInput` otherwise."""
        context = self._whole(context)
        if context != NO_CONTEXT and not 0 <= context < self._n_contexts:
            raise self._no_context(context)
        return context

    def _whole(self, context: object) -> int:
        """Return a whole number as an int; True and 1.0 equal one, and would be its key in what is kept by context."""
        if isinstance(context, bool) or not isinstance(context, int | np.integer):
            raise self._no_context(context)
        return int(context)

    def _no_context(self, value: object) -> InvalidInput:
        return InvalidInput(f"context must be NO_CONTEXT or in 0..{self._n_contexts - 1}, got {value!r}", value=value)

    def _assigned(self, text: str | None, embedding: ArrayLike | None) -> int:
        if embedding is not None:
            return self._contexts.assign(embedding)
        if self._n_contexts == 1:
            return 0
        if text is None:
            raise InvalidInput("decide needs text or embedding, got neither")
        if self._encoder is None:
            raise InvalidInput("decide needs an embedding, or a router with an encoder, to place text in a context")
        return self._contexts.assign(self._encoder.encode(text))

    def _tokens(self, text: str | None, input_tokens: int | None, *, hard: bool) -> int | None:
        if input_tokens is not None:
            return check_count("input_tokens", input_tokens)
        if text is None or not self._counts_tokens[hard]:
            return None
        count = count_tokens(text)
        return count.at_most if hard else count.tokens
