"""What a call of a service tier is charged: its configured price, whatever calls LiteLLM has seen before it."""

from dataclasses import replace
from datetime import datetime

import pytest
from litellm.types.utils import ModelResponse, Usage

from support.billing_stub import billing_stub
from support.groups import HI, fitted, llms
from support.providers import INPUT_USD, OUTPUT_USD, deployment
from wiserouter import Budget
from wiserouter_litellm import attach
from wiserouter_litellm.billing import bill as billing
from wiserouter_litellm.billing.bill import bill_of, is_understated
from wiserouter_litellm.deployments.registry import DeploymentRegistry

USAGE = {"stream": True, "stream_options": {"include_usage": True}}
STREAM = {"stream": True}
SURFACES = {
    "chat": lambda r, **kw: r.acompletion(model="wise", messages=HI, max_tokens=60, **kw),
    "chat stream": lambda r, **kw: r.acompletion(model="wise", messages=HI, max_tokens=60, **USAGE, **kw),
    "text": lambda r, **kw: r.atext_completion(model="wise", prompt="hello there", max_tokens=60, **kw),
    "text stream": lambda r, **kw: r.atext_completion(model="wise", prompt="hello there", max_tokens=60, **USAGE, **kw),
    "responses": lambda r, **kw: r.aresponses(model="wise", input="hello there", max_output_tokens=60, **kw),
    "responses stream": lambda r, **kw: r.aresponses(
        model="wise", input="hello there", max_output_tokens=60, **STREAM, **kw
    ),
    "messages": lambda r, **kw: r.aanthropic_messages(model="wise", messages=HI, max_tokens=60, **kw),
    "messages stream": lambda r, **kw: r.aanthropic_messages(model="wise", messages=HI, max_tokens=60, **STREAM, **kw),
}


@pytest.fixture
def stub(monkeypatch):
    monkeypatch.setattr("litellm.drop_params", True)
    with billing_stub() as stub:
        yield stub


def tiers_of(name):
    return {
        "input_cost_per_token_priority": 2 * INPUT_USD[name],
        "output_cost_per_token_priority": 2 * OUTPUT_USD[name],
    }


def attached(stub, limit="hard"):
    """Return a LiteLLM router whose deployments have prices of a priority tier, and the router of their budget."""
    rows = [
        deployment(name, url=stub.url, **tiers_of(name), info={"id": f"the-{name}", "wiserouter_model": name})
        for name in ("small", "large")
    ]
    litellm_router, router = llms(*rows), fitted()
    callback = attach(litellm_router, "wise", router=router, budget=Budget(10.0, 100, limit=limit))
    return litellm_router, router, callback.groups["wise"]


async def ask(call):
    answer = await call
    if hasattr(answer, "__aiter__"):
        async for _ in answer:
            pass


@pytest.mark.parametrize("limit", ["hard", "expected"])
@pytest.mark.parametrize("before", ["chat", "text", "responses", "messages"])
async def test_a_tier_is_charged_at_its_price_after_calls_of_every_surface(stub, settled, before, limit):
    litellm_router, router, _ = attached(stub, limit)
    for surface, tier in [(surface, tier) for surface in SURFACES for tier in ({"service_tier": "priority"}, {})]:
        for call in (SURFACES[before](litellm_router), SURFACES[surface](litellm_router, **tier)):
            done = router.status().charged
            await ask(call)
            await settled(lambda done=done: router.status().charged == done + 1)
        assert router.status().spent_usd == pytest.approx(stub.ledger_usd), (surface, tier)


async def test_a_cost_that_litellm_understates_is_told(stub, settled, monkeypatch):
    litellm_router, router, group = attached(stub)
    await ask(SURFACES["chat"](litellm_router, service_tier="priority"))
    await settled(lambda: router.status().charged == 1)
    assert group.faults["understated_costs"] == 0
    monkeypatch.setattr(billing, "reported_usd", lambda kwargs: 0.0)  # as LiteLLM does after some calls, not always
    await ask(SURFACES["chat"](litellm_router, service_tier="priority"))
    await settled(lambda: group.faults["understated_costs"] == 1)
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd)


@pytest.fixture
def info():
    """A deployment with prices of two tiers and of long prompts."""
    prices = {**tiers_of("small"), "input_cost_per_token_flex": 5e-7, "input_cost_per_token_above_1k_tokens": 3e-6}
    registry = DeploymentRegistry("wise")
    return registry.register([deployment("small", **prices)])[0]


def event(reported_usd, tier=None, provider="openai"):
    optional = {"service_tier": tier} if tier else {}
    return {"response_cost": reported_usd, "optional_params": optional, "custom_llm_provider": provider}


def answer(inputs=100, outputs=10, **fields):
    usage = Usage(prompt_tokens=inputs, completion_tokens=outputs, total_tokens=inputs + outputs)
    return ModelResponse(usage=usage, choices=[{"message": {"content": "yes"}}], **fields)


@pytest.mark.parametrize(
    ("asked", "served", "cost_usd"),
    [
        ("priority", None, 240e-6),
        ("fast", None, 240e-6),
        ("priority", "priority", 240e-6),
        ("priority", "default", 120e-6),
        ("auto", "priority", 240e-6),
        (None, None, 120e-6),
        ("flex", "flex", 70e-6),
    ],
)
def test_the_tier_that_served_a_call_is_billed(info, asked, served, cost_usd):
    response = answer(**({"service_tier": served} if served else {}))
    assert bill_of(event(0.0, asked), response, info).cost_usd == pytest.approx(cost_usd)
    assert bill_of(event(1e-6, asked), response, info).cost_usd == pytest.approx(cost_usd)


@pytest.mark.parametrize(
    ("asked", "traffic", "cost_usd"),
    [("priority", "ON_DEMAND", 120e-6), (None, "ON_DEMAND_PRIORITY", 240e-6), ("flex", "ON_DEMAND_FLEX", 70e-6)],
)
def test_geminis_traffic_type_is_the_tier_that_served_a_call(info, asked, traffic, cost_usd):
    response = answer()
    response._hidden_params["provider_specific_fields"] = {"traffic_type": traffic}
    assert bill_of(event(0.0, asked, "gemini"), response, info).cost_usd == pytest.approx(cost_usd)


def test_the_tier_is_looked_up_only_where_prices_differ_by_it(info, monkeypatch):
    looked_up = []
    monkeypatch.setattr(billing, "billed_tier", lambda *event: looked_up.append(event) or "")
    plain = info._replace(rate_card=replace(info.rate_card, tier_prices=()))
    assert bill_of(event(0.0, "priority"), answer(), plain).cost_usd == pytest.approx(120e-6)
    assert not looked_up
    bill_of(event(0.0, "priority"), answer(), info)
    assert len(looked_up) == 1


def test_a_fee_that_no_token_price_holds_stays_in_the_bill(info):
    assert bill_of(event(0.5, "priority"), answer(), info).cost_usd == 0.5


def test_a_long_prompt_is_billed_at_the_price_of_its_length(info):
    assert bill_of(event(None), answer(1_001), info).cost_usd == pytest.approx(1_001 * 3e-6 + 10 * 2e-6)


def test_a_tier_that_litellm_does_not_send_is_not_billed(info):
    kwargs = event(240e-6, "priority", "text-completion-openai")
    assert bill_of(kwargs, answer(), info).cost_usd == pytest.approx(120e-6)


def test_a_discount_that_litellm_is_set_to_stays(info, monkeypatch):
    monkeypatch.setattr("litellm.cost_discount_config", {"openai": 0.25})
    assert bill_of(event(90e-6), answer(), info).cost_usd == pytest.approx(90e-6)


@pytest.mark.parametrize("discounts", [{"openai/large": 0.25}, {"openai": 0.25, "openai/l*": 0.5}], ids=["one", "some"])
async def test_a_discount_on_models_of_a_provider_is_that_of_litellm(stub, settled, monkeypatch, discounts):
    litellm_router, router, group = attached(stub)
    monkeypatch.setattr("litellm.cost_discount_config", discounts)  # LiteLLM 1.106 reads the names of providers only
    reply = await SURFACES["chat"](litellm_router)
    await settled(lambda: router.status().charged == 1)
    assert router.status().spent_usd == pytest.approx(reply._hidden_params["response_cost"])
    assert group.faults["understated_costs"] == 0


def test_a_call_that_started_before_its_deployment_changed_is_billed_by_litellm(info):
    changed = info._replace(changed_at_s=1_000.0)
    by_start = {at_s: {**event(90e-6), "start_time": datetime.fromtimestamp(at_s)} for at_s in (999.0, 1_001.0)}
    bills = {at_s: bill_of(call, answer(), changed) for at_s, call in by_start.items()}
    assert {at_s: bill.cost_usd for at_s, bill in bills.items()} == pytest.approx({999.0: 90e-6, 1_001.0: 120e-6})
    assert [is_understated(by_start[at_s], bill, changed) for at_s, bill in bills.items()] == [False, True]


def test_prices_that_hold_by_the_hour_leave_the_bill_to_litellm():
    by_hour = {"off_peak_pricing": {"input_cost_per_token": 1e-7}}
    off_peak = DeploymentRegistry("wise").register([deployment("small", info=by_hour)])[0]
    assert bill_of(event(1e-6), answer(), off_peak).cost_usd == 1e-6


def test_prices_of_litellms_map_leave_the_bill_to_litellm():
    row = {"model_name": "wise", "litellm_params": {"model": "openai/gpt-4o-mini"}, "model_info": {"id": "mini"}}
    assert bill_of(event(1e-9), answer(), DeploymentRegistry("wise").register([row])[0]).cost_usd == 1e-9
