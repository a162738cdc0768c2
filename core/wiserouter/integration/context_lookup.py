"""Lookup of a question's context, off the event loop and within a time limit; it degrades where the encoder fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol, cast, runtime_checkable

from wiserouter.errors import EncoderError
from wiserouter.prompts.contexts import Contexts
from wiserouter.prompts.encoders import Encoder
from wiserouter.prompts.encoders.base import QUICK
from wiserouter.types import NO_CONTEXT, Embedding
from wiserouter.validation import check_amount

logger = logging.getLogger("wiserouter")


class ContextSource(Protocol):
    """The router, as far as contexts go: these and the encoder may change while it serves."""

    @property
    def contexts(self) -> Contexts:
        """The contexts that queries are assigned to."""
        ...

    @property
    def encoder(self) -> Encoder | None:
        """The encoder of text; None where one context needs none."""
        ...

    @property
    def needs_embedding(self) -> bool:
        """True if the embedding of a query is passed on to the router."""
        ...


@runtime_checkable
class AsyncEncoder(Protocol):
    """An encoder that waits for the network instead of computing."""

    async def aencode(self, text: str) -> Embedding:
        """Return the vector of one text, of shape (d,)."""
        ...


class ContextAssignment(NamedTuple):
    """The context of a question, and its embedding where the router estimates single queries."""

    context: int
    embedding: Embedding | None = None


class ContextLookup:
    """Finds the context of questions.

    Parameters
    ----------
    router : ContextSource
        The contexts to choose from, and the encoder that turns text into an embedding.
    timeout_s : float, default 1
        The longest time that a question waits for its embedding before it is routed without a context.

    Attributes
    ----------
    failures : int
        The number of questions routed without a context.
    needs_question : bool
        Whether the text of a question bears on its context.
    """

    def __init__(self, router: ContextSource, timeout_s: float = 1.0) -> None:
        self._router, self._timeout_s = router, check_amount("encoder_timeout_s", timeout_s)
        self._keeps_embedding = router.needs_embedding and router.encoder is not None
        self.needs_question = router.contexts.n_contexts > 1 or self._keeps_embedding
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="wiserouter-encode")
        self.failures = 0

    async def alook_up(self, question: str) -> ContextAssignment:
        """Return the context of a question, or `NO_CONTEXT` where the encoder fails or is too slow."""
        if not self.needs_question:
            return ContextAssignment(0)
        encoder = self._router.encoder
        if isinstance(encoder, AsyncEncoder):
            return await self._awaited(encoder.aencode(question))
        if self._is_quick:
            return self._assigned(lambda: self._encode(question))
        return await self._awaited(asyncio.wrap_future(self._threads.submit(self._encode, question)))

    def look_up(self, question: str) -> ContextAssignment:
        """Do what `alook_up` does, in a thread that may wait."""
        if not self.needs_question:
            return ContextAssignment(0)
        if self._is_quick:
            return self._assigned(lambda: self._encode(question))
        future: Future[Embedding] = self._threads.submit(self._encode, question)
        return self._assigned(lambda: future.result(self._timeout_s))

    @property
    def _is_quick(self) -> bool:
        return getattr(self._router.encoder, "spec", "") in QUICK

    def _encode(self, question: str) -> Embedding:
        return cast("Encoder", self._router.encoder).encode(question)

    async def _awaited(self, embedding: Awaitable[Embedding]) -> ContextAssignment:
        try:
            vector = await asyncio.wait_for(embedding, self._timeout_s)
        except (EncoderError, TimeoutError) as error:
            return self._without(error)
        return self._assigned(lambda: vector)

    def _assigned(self, embedding: Callable[[], Embedding]) -> ContextAssignment:
        try:
            vector = embedding()
            return ContextAssignment(self._router.contexts.assign(vector), vector if self._keeps_embedding else None)
        except (EncoderError, TimeoutError) as error:
            return self._without(error)

    def _without(self, error: Exception) -> ContextAssignment:
        self.failures += 1
        report = logger.warning if self.failures == 1 else logger.debug
        report(
            "the encoder failed (%s: %s): routing by the averages over all contexts",
            type(error).__name__,
            error or f"no embedding within {self._timeout_s} s",
        )
        return ContextAssignment(NO_CONTEXT)
