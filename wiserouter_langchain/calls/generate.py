"""The body of `generate` and `agenerate`: each conversation of a batch is one routed call."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult, RunInfo
from langchain_core.runnables import RunnableConfig


def invoke_each(
    llm: BaseChatModel, messages: Sequence[list[BaseMessage]], configs: Sequence[RunnableConfig], **kwargs: Any
) -> LLMResult:
    """Route each conversation through `invoke`."""
    answers = [llm.invoke(one, config, **kwargs) for one, config in zip(messages, configs, strict=True)]
    return _result(answers, configs)


async def ainvoke_each(
    llm: BaseChatModel, messages: Sequence[list[BaseMessage]], configs: Sequence[RunnableConfig], **kwargs: Any
) -> LLMResult:
    """Route all conversations through `ainvoke`, at the same time."""
    calls = [llm.ainvoke(one, config, **kwargs) for one, config in zip(messages, configs, strict=True)]
    return _result(await asyncio.gather(*calls), configs)


def configs_of(n: int, run_id: uuid.UUID | None, **settings: Any) -> list[RunnableConfig]:
    """Return the configuration of each of `n` conversations: the settings given, and a run id."""
    given = {key: value for key, value in settings.items() if value is not None}
    ids = [run_id or uuid.uuid4(), *(uuid.uuid4() for _ in range(n - 1))]
    return [RunnableConfig(**given, run_id=each) for each in ids[:n]]  # type: ignore[typeddict-item]


def _result(answers: Sequence[BaseMessage], configs: Sequence[RunnableConfig]) -> LLMResult:
    runs = [RunInfo(run_id=config["run_id"]) for config in configs]  # type: ignore[arg-type]
    return LLMResult(generations=[[ChatGeneration(message=each)] for each in answers], llm_output={}, run=runs)
