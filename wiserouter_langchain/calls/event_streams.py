"""Event streams of version 3: the chosen model's own stream, whose end settles the call."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.runnables import RunnableConfig

from wiserouter_langchain.calls.call_environment import RoutingChatModel
from wiserouter_langchain.calls.call_scope import arouted, routed
from wiserouter_langchain.calls.dropped_streams import when_dropped


def stream_events_v3(
    llm: RoutingChatModel, input: LanguageModelInput, config: RunnableConfig | None, kwargs: dict[str, Any]
) -> Any:
    """Return the event stream of the chosen model."""
    with routed(llm, input, config, kwargs) as scope:
        call = scope.end_with_stream()
        stream = call.runnable.stream_events(call.messages, call.config, version="v3", **call.kwargs)
        when_dropped(stream, scope.end_dropped_stream)
        return stream


async def astream_events_v3(
    llm: RoutingChatModel, input: LanguageModelInput, config: RunnableConfig | None, kwargs: dict[str, Any]
) -> Any:
    """Return the asynchronous event stream of the chosen model."""
    async with arouted(llm, input, config, kwargs) as scope:
        call = scope.end_with_stream()
        stream = await call.runnable.astream_events(call.messages, call.config, version="v3", **call.kwargs)
        when_dropped(stream, scope.end_dropped_stream)
        return stream
