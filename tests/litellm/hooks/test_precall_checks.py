"""LiteLLM's own pre-call checks beside our selection: whichever is last, a call is reserved for what it costs."""

import asyncio

import litellm
import pytest

from support.billing_stub import billing_stub
from support.groups import HI, fitted, llms
from support.providers import INPUT_USD, OUTPUT_USD, cost_usd, deployment
from wiserouter import Budget
from wiserouter_litellm import attach

PRICES = {name: (INPUT_USD[name], OUTPUT_USD[name]) for name in INPUT_USD}
CHECKS = ["session_affinity", "deployment_affinity", "responses_api_deployment_check", "prompt_caching"]
ORDERS = pytest.mark.parametrize("order", ["checks first", "checks last"])
LIMITS = pytest.mark.parametrize("limit", ["hard", "expected"])
LONG = "words of the system that every request repeats " * 200
CACHED = [
    {"role": "system", "content": [{"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}]},
    *HI,
]

PINNING = {
    "session_affinity": {"messages": HI, "metadata": {"session_id": "s1"}},
    "deployment_affinity": {"messages": HI, "metadata": {"user_api_key_hash": "a" * 64}},
    "prompt_caching": {"messages": CACHED},
}


@pytest.fixture
def stub():
    with billing_stub(prices=PRICES) as running:
        yield running


def checked(stub, order, checks, limit="hard", amount_usd=1_000.0):
    """Return a LiteLLM router with checks that were added before or after our callback, and the group's router."""
    rows = [deployment(name, url=stub.url) for name in ("small", "large")]
    router = fitted()
    llm = llms(*rows, optional_pre_call_checks=list(checks) if order == "checks first" else None)
    callback = attach(llm, "wise", router=router, budget=Budget(amount_usd, 100_000, limit=limit))
    if order == "checks last":
        llm.add_optional_pre_call_checks(list(checks))
    return llm, router, callback


def poor(router):
    """Let the budget suffice for the small model from now on."""
    status = router.status()
    router.set_budget(amount_usd=status.spent_usd + status.horizon_left * 1.01 * cost_usd("small"))


async def ask(llm, call):
    return await llm.acompletion(model="wise", max_tokens=50, **{**call, "metadata": dict(call.get("metadata", {}))})


@pytest.mark.parametrize("check", PINNING)
@LIMITS
@ORDERS
async def test_a_pinned_request_is_reserved_for_the_deployment_that_it_is_pinned_to(
    stub, settled, flushed, monkeypatch, order, limit, check
):
    llm, router, callback = checked(stub, order, [check], limit)
    made = []
    decide = router.decide
    monkeypatch.setattr(router, "decide", lambda **terms: made.append(decide(**terms)) or made[-1])
    await ask(llm, PINNING[check])
    await settled(lambda: router.status().charged == 1)
    await flushed()
    if limit == "expected":
        poor(router)
    for i in range(3):
        await ask(llm, PINNING[check])
        await settled(lambda i=i: router.status().charged == i + 2)
    assert [call.model for call in stub.calls] == ["large"] * 4
    assert [decision.model for decision in made] == ["large"] * 4
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd)
    assert router.status().in_flight == 0
    assert callback.groups["wise"].faults == {}


@pytest.mark.parametrize("check", ["session_affinity", "deployment_affinity"])
@ORDERS
async def test_a_pin_gives_way_where_the_budget_does_not_bear_it(stub, settled, order, check):
    llm, router, callback = checked(stub, order, [check])
    await ask(llm, PINNING[check])
    await settled(lambda: router.status().charged == 1)
    router.set_budget(amount_usd=router.status().spent_usd + 5e-4)
    for i in range(2):
        await ask(llm, PINNING[check])
        await settled(lambda i=i: router.status().charged == i + 2)
    assert [call.model for call in stub.calls] == ["large", "small", "small"]
    assert stub.ledger_usd <= router.status().amount_usd
    assert callback.groups["wise"].faults == {"moved_pins": 2}


@ORDERS
async def test_many_pinned_requests_at_once_never_exceed_a_hard_budget(stub, settled, order):
    llm, router, callback = checked(stub, order, CHECKS, amount_usd=0.004)
    callback.groups["wise"].max_wait_s = 0.0
    await ask(llm, PINNING["session_affinity"])
    calls = [ask(llm, PINNING[("session_affinity", "deployment_affinity")[i % 2]]) for i in range(60)]
    done = await asyncio.gather(*calls, return_exceptions=True)
    answered = 1 + sum(not isinstance(each, Exception) for each in done)
    await settled(lambda: router.status().charged == answered)
    assert 1 < answered < 61
    assert stub.ledger_usd <= 0.004
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd)


@LIMITS
@ORDERS
async def test_a_stored_response_and_its_check_agree(stub, settled, order, limit):
    llm, router, _ = checked(stub, order, CHECKS, limit)
    first = await llm.aresponses(model="wise", input="hello", max_output_tokens=50)
    await settled(lambda: router.status().charged == 1)
    if limit == "expected":
        poor(router)
    for _ in range(3):
        await llm.aresponses(model="wise", input="and then?", previous_response_id=first.id, max_output_tokens=50)
    await settled(lambda: router.status().charged == 4)
    assert {call.model for call in stub.calls} == {"large"}
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd)


@ORDERS
async def test_what_a_request_continues_comes_before_its_session(stub, settled, order):
    """A session that is pinned to one deployment continues a response that another one made."""
    llm, router, _ = checked(stub, order, ["session_affinity"], "expected")
    session = {"litellm_metadata": {"session_id": "s1"}}
    await llm.aresponses(model="wise", input="hello", max_output_tokens=50, **session)
    await settled(lambda: router.status().charged == 1)
    poor(router)
    other = await llm.aresponses(model="wise", input="hello", max_output_tokens=50)
    await settled(lambda: router.status().charged == 2)
    assert [call.model for call in stub.calls] == ["large", "small"]
    again = {"previous_response_id": other.id, "max_output_tokens": 50}
    await llm.aresponses(model="wise", input="and then?", litellm_metadata={"session_id": "s1"}, **again)
    assert stub.calls[-1].model == "small"


async def test_members_of_a_routing_group_are_not_pinned(stub, settled):
    """LiteLLM pins within one `model_name` only."""
    rows = [deployment(name, name, url=stub.url) for name in ("small", "large")]
    groups = [{"group_name": "wise", "models": ["small", "large"], "routing_strategy": "simple-shuffle"}]
    llm = llms(*rows, routing_groups=groups, optional_pre_call_checks=["session_affinity"])
    router = fitted()
    attach(llm, "wise", router=router, budget=Budget(1_000.0, 100_000))
    await ask(llm, PINNING["session_affinity"])
    await settled(lambda: router.status().charged == 1)
    poor(router)
    await ask(llm, PINNING["session_affinity"])
    assert [call.model for call in stub.calls] == ["large", "small"]


async def test_a_deployment_that_litellm_excludes_is_not_reserved(stub, settled, monkeypatch):
    llm, router, _ = checked(stub, "checks last", [])
    from litellm.router_strategy.budget_limiter import RouterBudgetLimiting

    limiter = RouterBudgetLimiting(llm.cache, None, model_list=[])

    async def without_large(self, model, healthy_deployments, *request, **named):
        return [each for each in healthy_deployments if each["model_info"]["id"] != "large"]

    monkeypatch.setattr(RouterBudgetLimiting, "async_filter_deployments", without_large)
    litellm.callbacks.append(limiter)
    await ask(llm, {"messages": HI})
    await settled(lambda: router.status().charged == 1)
    assert [call.model for call in stub.calls] == ["small"]
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd)
