"""What shows only when a call is sent: compactions, whose length no limit bounds, searches, and no deployment."""

import litellm
import pytest
import respx

from support.billing_stub import billing_stub
from support.groups import HI, llms
from support.providers import URL, deployment
from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter_litellm import attach

USAGE = {"input_tokens": 20, "output_tokens": 500, "total_tokens": 520}
BODY = {"id": "resp_1", "object": "response.compaction", "created_at": 1, "output": [], "usage": USAGE}


@pytest.fixture
def provider():
    with respx.mock(assert_all_called=False) as mock:
        mock.post(f"{URL}/responses/compact").respond(200, json=BODY)
        yield mock


def attached(budget):
    router, litellm_router = WiseRouter([Model("small", Price(1e-6, 2e-6))], seed=0), llms(deployment("small"))
    attach(litellm_router, "wise", router=router, budget=budget)
    return router, litellm_router


async def test_a_hard_budget_refuses_a_compaction_before_it_is_sent(provider, settled):
    router, litellm_router = attached(Budget(10.0, 100, limit="hard"))
    with pytest.raises(litellm.BadRequestError, match="compactions to a group without a hard budget"):
        await litellm_router.acompact_responses(model="wise", input="hello there")
    await settled(lambda: router.status().in_flight == 0)
    assert (len(provider.calls), router.status().spent_usd, router.status().presumed) == (0, 0.0, 0)


async def test_an_expected_budget_is_charged_for_it(provider, settled):
    router, litellm_router = attached(Budget(10.0, 100))
    await litellm_router.acompact_responses(model="wise", input="hello there")
    await settled(lambda: router.status().in_flight == 0)
    assert router.status().spent_usd == pytest.approx(20e-6 + 500 * 2e-6)


async def send_tool(stub, provider, tool, settled, limit="hard"):
    """Send one call of `/v1/messages` with a tool, and return its error and the calls that came out of flight."""
    url = stub.root if provider == "anthropic" else stub.url
    router = WiseRouter([Model("small", Price(1e-6, 2e-6))], seed=0)
    litellm_router = llms(deployment("small", url=url, model=f"{provider}/small"))
    attach(litellm_router, "wise", router=router, budget=Budget(10.0, 100, limit=limit))
    error = ""
    try:
        await litellm_router.aanthropic_messages(model="wise", messages=HI, max_tokens=20, tools=[tool])
    except litellm.BadRequestError as caught:
        error = str(caught)
    await settled(lambda: router.status().in_flight == 0)
    return error, router.status()


OWN = {"name": "web_search", "input_schema": {"type": "object"}}
CUSTOM = {"type": "custom", **OWN}
BARE = {"name": "web_search"}


@pytest.mark.parametrize(("provider", "tool"), [("openai", OWN), ("openai", CUSTOM), ("hosted_vllm", BARE)])
async def test_a_tool_that_litellm_would_send_as_a_search_of_the_provider_is_refused(provider, tool, settled):
    with billing_stub() as stub:
        error, status = await send_tool(stub, provider, tool, settled)
        assert "give the tool another name" in error
        assert (stub.calls, status.spent_usd, status.released) == ([], 0.0, 1)


@pytest.mark.parametrize("provider", ["anthropic", "hosted_vllm"])
async def test_a_tool_of_that_name_that_stays_one_of_the_caller_passes(provider, settled):
    with billing_stub() as stub:
        error, status = await send_tool(stub, provider, OWN, settled)
        assert (error, len(stub.calls), status.charged) == ("", 1, 1)


async def test_an_expected_limit_lets_the_search_pass(settled):
    with billing_stub() as stub:
        await send_tool(stub, "openai", OWN, settled, limit="expected")
        assert [tool["type"] for tool in stub.calls[0].body["tools"]] == ["web_search_preview"]


async def test_a_pass_through_call_that_is_refused_is_not_sent_with_the_credentials_of_the_environment(monkeypatch):
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", f"{URL}/environment")
    monkeypatch.setattr(litellm, "disable_aiohttp_transport", True)
    litellm.in_memory_llm_clients_cache.flush_cache()
    name = "hosted_vllm/small"
    litellm_router = llms(deployment("small", name, model=name))
    attach(litellm_router, name, budget=Budget(10.0, 100, limit="hard"))
    call = {"method": "POST", "endpoint": "/chat/completions", "json": {"model": name, "messages": HI}}
    with respx.mock(assert_all_called=False) as mock:
        mock.route().respond(200, json={})
        with pytest.raises(litellm.BadRequestError, match="only calls with text can be bounded"):
            await litellm_router.allm_passthrough_route(model=name, litellm_metadata={}, **call)
    assert not mock.calls
