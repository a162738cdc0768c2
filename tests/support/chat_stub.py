"""A chat model that needs no provider and passes LangChain's standard suites: the control of the router's tests."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

from wiserouter import Budget, Contexts, Estimates, Model, Offline, Price, WiseRouter
from wiserouter_langchain import RunnableWiseRouter

PRICES = {"small": Price(1e-6, 2e-6, cache_read=1e-7), "large": Price(1e-5, 3e-5, cache_read=1e-6)}


def arguments(schema: dict, prompt: str) -> dict:
    quoted = re.findall(r"'([^']+)'", prompt)
    whole = re.search(r"\((\d+)\)", prompt)
    simple = {"integer": int(whole.group(1)) if whole else 1, "number": 1.0, "boolean": True, "array": []}
    return {
        name: simple.get(prop.get("type"), quoted[0] if quoted else f"some {name}")
        for name, prop in (schema.get("properties") or {}).items()
    }


class StubChat(BaseChatModel):
    """Calls the first tool it is given, else answers `text`; counts words as tokens."""

    model: str = "stub-small"
    temperature: float | None = None
    max_tokens: int | None = None
    stop: list[str] | None = None
    text: str = "Why did the cat sit on the mat? It was soft."
    fail: bool = False
    cached_tokens: int = 0
    stream_usage: bool = True
    token_delay: float = 0.0
    calls_forever: bool = False

    @property
    def _llm_type(self) -> str:
        return "stub-chat"

    @property
    def _identifying_params(self) -> dict:
        return {"model": self.model}

    def _answer(self, messages, **kw) -> AIMessage:
        if self.fail:
            raise RuntimeError(f"{self.model} is down")
        calls = self._calls(messages, kw.get("tools") or [], kw.get("tool_choice"))
        text = "" if calls else self.text
        n_in = sum(len(m.text.split()) for m in messages) + 3
        n_out = max(1, len(text.split()) + 5 * len(calls))
        usage: dict[str, Any] = {"input_tokens": n_in, "output_tokens": n_out, "total_tokens": n_in + n_out}
        if self.cached_tokens:
            usage["input_token_details"] = {"cache_read": min(self.cached_tokens, n_in)}
        metadata = {"model_name": kw.get("model", self.model), "model_provider": "stub"}
        return AIMessage(content=text, tool_calls=calls, usage_metadata=usage, response_metadata=metadata)

    def _calls(self, messages, tools, choice) -> list[dict]:
        done = choice in (None, "auto", "none") and isinstance(messages[-1], ToolMessage) and not self.calls_forever
        if not tools or done:
            return []
        functions = [self._function(tool) for tool in tools]
        wanted = choice["function"]["name"] if isinstance(choice, dict) else choice
        chosen = next((f for f in functions if f["name"] == wanted), functions[0])
        prompt = next((m.text for m in reversed(messages) if isinstance(m, HumanMessage)), "")
        given = arguments(chosen.get("parameters", {}), prompt)
        return [{"name": chosen["name"], "args": given, "id": f"call_{uuid.uuid4().hex[:8]}", "type": "tool_call"}]

    def _function(self, tool: dict) -> dict:
        return tool["function"]

    def _generate(self, messages, stop=None, run_manager=None, **kw) -> ChatResult:
        if self.token_delay:
            time.sleep(self.token_delay)
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages, **kw))])

    def _stream(self, messages, stop=None, run_manager=None, **kw) -> Iterator[ChatGenerationChunk]:
        answer = self._answer(messages, **kw)
        for token in re.findall(r"\S+\s*", answer.content):
            if self.token_delay:
                time.sleep(self.token_delay)
            yield ChatGenerationChunk(message=AIMessageChunk(content=token))
        for i, call in enumerate(answer.tool_calls):
            raw = json.dumps(call["args"], ensure_ascii=False)
            parts = [(call["name"], "", call["id"]), *((None, half, None) for half in (raw[:5], raw[5:]))]
            for name, args, call_id in parts:
                chunk = tool_call_chunk(name=name, args=args, id=call_id, index=i)
                yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[chunk]))
        last = AIMessageChunk(
            content="",
            chunk_position="last",
            usage_metadata=answer.usage_metadata if self.stream_usage else None,
            response_metadata=answer.response_metadata,
        )
        yield ChatGenerationChunk(message=last)

    def bind_tools(self, tools, *, tool_choice=None, **kwargs):
        kwargs.pop("strict", None)
        chosen = {"tool_choice": tool_choice} if tool_choice else {}
        return self.bind(tools=[self._formatted(tool) for tool in tools], **chosen, **kwargs)

    def _formatted(self, tool) -> dict:
        return convert_to_openai_tool(tool)


class OtherStub(StubChat):
    """A model with a tool format of its own."""

    def _formatted(self, tool) -> dict:
        function = convert_to_openai_tool(tool)["function"]
        return {"spec": {"title": function["name"], "schema": function.get("parameters", {})}}

    def _function(self, tool: dict) -> dict:
        return {"name": tool["spec"]["title"], "parameters": tool["spec"]["schema"]}


def core(prefer: str | None = "large", budget: Budget | None = None, *, starts: bool = True) -> WiseRouter:
    """Return a router that knows both models and, under a rich budget, prefers `prefer`; neither for None.

    Its budget runs unless `starts` is False.
    """
    estimates = Estimates(1, 2)
    for k, name in enumerate(("small", "large")):
        for _ in range(50):
            estimates.add_cost(0, k, 1e-4)
            estimates.add_reward(0, k, 0.9 if name == prefer else 0.1)
    models = [Model("small"), Model("large")]
    router = WiseRouter(models, Contexts.single(), estimates=estimates, policy=Offline(), seed=0)
    if starts:
        router.start(budget or Budget(10.0, 1_000))
    return router


def hard_core(amount_usd: float = 10.0) -> WiseRouter:
    """Return the same router with a hard budget and bounded models."""
    router = core()
    for name in ("small", "large"):
        router.update_model(Model(name, max_cost_usd=1.0))
    router.start(Budget(amount_usd, 1_000, limit="hard"))
    return router


def routed(prefer: str = "large", budget: Budget | None = None, models=None, **fields) -> RunnableWiseRouter:
    """Return a runnable router of two stubs."""
    models = models or {"small": StubChat(model="stub-small"), "large": StubChat(model="stub-large")}
    return RunnableWiseRouter(models=models, router=core(prefer, budget), prices=PRICES, **fields)


def cost_usd(name: str, words: int, said: int) -> float:
    price = PRICES[name]
    return words * price.input + said * price.output
