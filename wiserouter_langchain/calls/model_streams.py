"""The stream of a chosen model: closed early, it ends the model's run at once.

The streams of LangChain are generators. A model that implements `stream` itself may return any iterable, which need not
have a method to close it.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, aclosing, closing, nullcontext
from typing import Any

from wiserouter_langchain.calls.dropped_streams import prepare_for_drops


def closed_at_end(chunks: Iterable[Any]) -> AbstractContextManager[Any]:
    """Return the block at whose end a stream is closed, if it can be.

    Examples
    --------
    >>> with closed_at_end(iter(["a", "b"])) as chunks:
    ...     list(chunks)
    ['a', 'b']
    """
    prepare_for_drops()
    return closing(chunks) if hasattr(chunks, "close") else nullcontext(chunks)


def aclosed_at_end(chunks: AsyncIterable[Any]) -> AbstractAsyncContextManager[Any]:
    """Return the asynchronous block at whose end a stream is closed, if it can be."""
    return aclosing(chunks) if hasattr(chunks, "aclose") else nullcontext(chunks)
