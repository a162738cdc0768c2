"""Calls that LiteLLM makes itself with the results of tools that it has run: each is charged what it cost."""

import gc

import litellm
import pytest
from litellm.integrations.websearch_interception.handler import WebSearchInterceptionLogger
from litellm.responses.mcp.litellm_proxy_mcp_handler import LiteLLM_Proxy_MCP_Handler
from mcp.types import Tool

from support.billing_stub import Behaviour, billing_stub
from support.groups import HI, fitted, llms
from support.providers import deployment
from wiserouter import Budget
from wiserouter_litellm import attach
from wiserouter_litellm.groups import attempts

SEARCH = "litellm_web_search"
FUNCTION = {"name": SEARCH, "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}}
SEARCHES = {
    "chat": lambda r, **kw: r.acompletion(
        model="wise", messages=HI, max_tokens=20, tools=[{"type": "function", "function": FUNCTION}], **kw
    ),
    "responses": lambda r, **kw: r.aresponses(
        model="wise", input="hello there", max_output_tokens=20, tools=[{"type": "web_search"}], **kw
    ),
    "messages": lambda r, **kw: r.aanthropic_messages(
        model="wise", messages=HI, max_tokens=20, tools=[{"type": "web_search_20250305", "name": "web_search"}], **kw
    ),
}
MCP = {"type": "mcp", "server_url": "litellm_proxy", "server_label": "mcp", "require_approval": "never"}
MCP_CALLS = {
    "chat": lambda r, **kw: r.acompletion(model="wise", messages=HI, max_tokens=20, tools=[MCP], **kw),
    "responses": lambda r, **kw: r.aresponses(
        model="wise", input="hello there", max_output_tokens=20, tools=[MCP], **kw
    ),
}


@pytest.fixture
def stub():
    with billing_stub(behaviour=Behaviour(output_tokens=20, calls_tool=SEARCH)) as stub:
        yield stub


@pytest.fixture
def searching(monkeypatch):
    """Let LiteLLM run searches itself, as a callback that comes before ours."""

    async def found(*_, **__):
        return "it rains " * 100, None

    monkeypatch.setattr(WebSearchInterceptionLogger, "_execute_search", found)
    litellm.callbacks.append(WebSearchInterceptionLogger(enabled_providers=["openai", "anthropic"]))


@pytest.fixture
def serving_tools(monkeypatch):
    """Let LiteLLM find one tool of an MCP server, and run it."""

    async def tools(*_, **__):
        return [Tool(name=SEARCH, inputSchema=FUNCTION["parameters"])], {SEARCH: "mcp"}

    async def results(*_, **__):
        return [{"tool_call_id": "call_1", "result": "it rains " * 100, "name": SEARCH}]

    found = staticmethod(tools)
    monkeypatch.setattr(LiteLLM_Proxy_MCP_Handler, "process_mcp_tools_without_openai_transform", found)
    monkeypatch.setattr(LiteLLM_Proxy_MCP_Handler, "execute_tool_calls", staticmethod(results))
    monkeypatch.setattr(attempts, "GRACE_S", 0.05)


def attached(stub, provider="openai"):
    url = stub.root if provider == "anthropic" else stub.url
    rows = [deployment(name, url=url) for name in ("small", "large")]
    for row in rows:
        row["litellm_params"]["model"] = f"{provider}/{row['model_info']['id']}"
    router, llm = fitted(), llms(*rows)
    callback = attach(llm, "wise", router=router, budget=Budget(10.0, 100))
    return llm, router, callback.groups["wise"].faults


@pytest.mark.parametrize(
    ("surface", "provider", "stream"),
    [
        *(("chat", provider, stream) for provider in ("openai", "anthropic") for stream in (False, True)),
        *(("responses", "openai", False), ("responses", "anthropic", False)),
        *(("messages", "anthropic", False), ("messages", "anthropic", True)),
    ],
)
async def test_both_calls_around_a_search_of_litellm_are_charged(stub, searching, settled, surface, provider, stream):
    llm, router, faults = attached(stub, provider)
    answer = await SEARCHES[surface](llm, stream=stream)
    if hasattr(answer, "__aiter__"):  # LiteLLM 1.106 answers chats as a whole
        assert [piece async for piece in answer]
    await settled(lambda: router.status().charged == 2)
    assert len(stub.calls) == 2
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd)
    faults.pop("understated_costs", None)  # LiteLLM's own figure is 0 where another test has registered such a model
    assert (router.status().in_flight, router.status().presumed, dict(faults)) == (0, 0, {})


@pytest.mark.parametrize("surface", MCP_CALLS)
async def test_both_calls_around_a_tool_of_mcp_are_charged(stub, serving_tools, settled, surface):
    llm, router, faults = attached(stub)
    await MCP_CALLS[surface](llm)
    await settled(lambda: gc.collect() >= 0 and router.status().in_flight == 0)
    assert len(stub.calls) == 2
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd)
    assert (router.status().charged, router.status().presumed) == (2, 0)
    assert set(faults) <= {"duplicate_events"}  # the first call is charged as soon as the second begins


async def test_of_the_two_streams_around_a_tool_of_mcp_one_is_charged_and_one_presumed(stub, serving_tools, settled):
    llm, router, _ = attached(stub)
    stream = await MCP_CALLS["chat"](llm, stream=True, stream_options={"include_usage": True})
    assert [piece async for piece in stream]
    del stream
    await settled(lambda: gc.collect() >= 0 and router.status().in_flight == 0)
    assert (len(stub.calls), router.status().charged, router.status().presumed) == (2, 1, 1)
