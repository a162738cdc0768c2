"""LiteLLM's complexity router before a budgeted group: what it adds to each call neither stops nor unbounds it."""

import litellm
import pytest

from support.billing_stub import billing_stub
from support.groups import fitted
from support.providers import deployment
from wiserouter import Budget
from wiserouter_litellm import attach

HARD_WORDS = (
    "Think step by step, then prove: does this distributed algorithm's function `f(x)` converge? Then write code."
)
MESSAGES = [{"role": "user", "content": HARD_WORDS}]


async def streamed(llms):
    terms = {"stream": True, "stream_options": {"include_usage": True}}
    return [piece async for piece in await llms.acompletion(model="smart", messages=MESSAGES, **terms)]


CALLS = {
    "chat": lambda llms: llms.acompletion(model="smart", messages=MESSAGES),
    "stream": streamed,
    "responses": lambda llms: llms.aresponses(model="smart", input=HARD_WORDS),
    "messages": lambda llms: llms.aanthropic_messages(model="smart", messages=MESSAGES, max_tokens=60),
}


@pytest.fixture(scope="module")
def stub():
    with billing_stub() as running:
        yield running


def behind_rules(stub, limit, config=(), own=(), **marker):
    """Return a router whose rules send hard words to a budgeted group, and the router of that group."""
    stub.reset()
    tiers = {"SIMPLE": "plain", "MEDIUM": "plain", "COMPLEX": "wise", "REASONING": "wise"}
    rules = {"model": "auto_router/complexity_router", "complexity_router_config": {"tiers": tiers, **dict(config)}}
    rows = [{"model_name": "smart", "litellm_params": {**rules, **marker}}, deployment("small", "plain", url=stub.url)]
    for name in ("small", "large"):
        info = {"id": f"wise-{name}", "wiserouter_model": name}
        rows.append(deployment(name, url=stub.url, info=info, **dict(own)))
    llms, router = litellm.Router(rows, num_retries=0), fitted()
    attach(llms, "wise", router=router, budget=Budget(10.0, 1_000, limit=limit), cap_output_tokens=60)
    return llms, router


@pytest.mark.parametrize("limit", ["hard", "expected"])
@pytest.mark.parametrize("call", CALLS)
async def test_what_rules_send_to_a_budgeted_group_is_charged_to_it(stub, settled, call, limit):
    llms, router = behind_rules(stub, limit)
    await CALLS[call](llms)
    await settled(lambda: router.status().charged == 1)
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd, rel=1e-9)


@pytest.mark.parametrize(
    ("marker", "own", "sent"),
    [
        ({}, {}, 60),
        ({}, {"max_tokens": 900}, 60),
        ({"max_tokens": 30}, {"max_tokens": 900}, 30),
        ({"max_tokens": 900}, {"max_tokens": 30}, 900),
    ],
)
async def test_the_limit_that_is_reserved_is_the_one_that_is_sent(stub, settled, marker, own, sent):
    llms, router = behind_rules(stub, "hard", {"max_tokens_from_tier_model": False}, own, **marker)
    await CALLS["chat"](llms)
    await settled(lambda: router.status().charged == 1)
    assert [call.body["max_tokens"] for call in stub.calls] == [sent]
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "value"), [("use_litellm_proxy", True), ("_alias_marker_forwarded_params", ["max_tokens"])]
)
async def test_a_client_may_not_say_what_the_rules_add(stub, name, value):
    llms, _ = behind_rules(stub, "hard")
    with pytest.raises(litellm.BadRequestError, match=name):
        await llms.acompletion(model="wise", messages=MESSAGES, **{name: value})
    assert not stub.calls
