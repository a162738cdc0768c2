"""What an odd answer costs: usage that makes no sense, an error inside a 200, no choices: it was paid for."""

import asyncio
import gc
import logging
import math

import litellm
import pytest

from support.billing_stub import Behaviour, billing_stub
from support.groups import HI, fitted, llms
from support.providers import cost_usd, deployment
from wiserouter import Budget
from wiserouter_litellm import attach
from wiserouter_litellm.groups import attempts

HARD = Budget(10.0, 100, limit="hard")
EXPECTED = Budget(10.0, 100)

ODD = {
    **{
        f"usage {kind}": Behaviour(usage=kind)
        for kind in ("nan", "negative", "infinite", "text", "null", "zero", "none")
    },
    "an error in a 200": Behaviour(error_in_200=True),
    "no choices": Behaviour(empty=True),
    "no choices and no usage": Behaviour(empty=True, usage="none"),
    "no choices and usage 0": Behaviour(empty=True, usage="zero"),
}
SURFACES = {
    "chat": lambda r: r.acompletion(model="wise", messages=HI, max_tokens=60),
    "stream": lambda r: r.acompletion(
        model="wise", messages=HI, max_tokens=60, stream=True, stream_options={"include_usage": True}
    ),
    "text": lambda r: r.atext_completion(model="wise", prompt="hello there", max_tokens=60),
    "responses": lambda r: r.aresponses(model="wise", input="hello there", max_output_tokens=60),
    "messages": lambda r: r.aanthropic_messages(model="wise", messages=HI, max_tokens=60),
}


@pytest.fixture
def stub():
    with billing_stub() as stub:
        yield stub


@pytest.fixture(autouse=True)
def unreported_calls_end_at_once(monkeypatch):
    """LiteLLM reports no call of which it cannot log the usage; log records with tracebacks keep such a call alive."""
    monkeypatch.setattr(attempts, "GRACE_S", 0.01)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def is_settled(router):
    status = router.status()
    if status.in_flight:
        gc.collect()
    return status.charged + status.presumed == 1 and status.in_flight == 0


async def ask(call):
    """Make a call, and read its stream to the end; LiteLLM takes some of the answers for errors."""
    try:
        answer = await call
        if hasattr(answer, "__aiter__"):
            async for _ in answer:
                pass
    except Exception as error:
        return error
    return None


EVERYWHERE = [(odd, "chat") for odd in ODD] + [
    (odd, surface)
    for surface in ("stream", "text", "responses", "messages")
    for odd in ("usage nan", "usage negative", "an error in a 200", "no choices and no usage")
    if (odd, surface) != ("usage nan", "responses")  # LiteLLM fails to log it, and keeps it: it waits for its expiry
]


@pytest.mark.parametrize("budget", [HARD, EXPECTED], ids=["hard", "expected"])
@pytest.mark.parametrize(("odd", "surface"), EVERYWHERE)
async def test_an_odd_answer_costs_what_was_held_back_or_at_least_its_price(stub, settled, odd, surface, budget):
    router, litellm_router = fitted(), llms(*[deployment(name, url=stub.url) for name in ("small", "large")])
    attach(litellm_router, "wise", router=router, budget=budget)
    stub.behaviour = ODD[odd]
    await ask(SURFACES[surface](litellm_router))
    await settled(lambda: is_settled(router))
    spent_usd = router.status().spent_usd
    assert math.isfinite(spent_usd)
    if budget is HARD:
        assert spent_usd >= stub.ledger_usd > 0
    else:  # tokens counted here may differ from the provider's a little
        assert spent_usd >= 0.9 * min(stub.ledger_usd, cost_usd("large")) > 0


async def test_an_odd_answer_teaches_nothing(stub, settled):
    router, litellm_router = fitted(), llms(*[deployment(name, url=stub.url) for name in ("small", "large")])
    attach(litellm_router, "wise", router=router, budget=EXPECTED)
    calls = router.estimates.calls.sum()
    stub.behaviour = Behaviour(usage="negative")
    await asyncio.gather(*(ask(SURFACES["chat"](litellm_router)) for _ in range(3)))
    await settled(lambda: router.status().presumed == 3)
    assert router.estimates.calls.sum() == calls


async def test_an_answer_without_usage_whose_text_litellm_has_redacted_is_presumed(stub, settled, monkeypatch):
    monkeypatch.setattr(litellm, "turn_off_message_logging", True)
    stub.behaviour, router = Behaviour(output_tokens=400, usage="none"), fitted()
    llm = llms(*(deployment(name, url=stub.url) for name in ("small", "large")))
    attach(llm, "wise", router=router, budget=EXPECTED)
    await llm.acompletion(model="wise", messages=HI)
    await settled(lambda: is_settled(router))
    assert router.status().presumed == 1
    assert router.status().spent_usd == pytest.approx(cost_usd("large"))
