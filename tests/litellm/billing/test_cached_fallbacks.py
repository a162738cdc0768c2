"""LiteLLM's response cache beside its retries and fallbacks: what is charged is what the provider has billed."""

import asyncio

import litellm
import pytest

from support.billing_rules import PRICES
from support.billing_stub import Behaviour, billing_stub
from support.groups import HI, fitted
from support.providers import deployment
from wiserouter import Budget
from wiserouter_litellm import attach

CHAT = {"model": "wise", "messages": HI, "max_tokens": 60}
STREAM = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
NO_CACHE = {"cache": {"no-cache": True}}


async def streamed(llms, **terms):
    return [piece async for piece in await llms.acompletion(**STREAM, **terms)]


CALLS = {
    "chat": lambda r, **terms: r.acompletion(**CHAT, **terms),
    "synchronous": lambda r, **terms: asyncio.to_thread(r.completion, **CHAT, **terms),
    "stream": streamed,
    "synchronous stream": lambda r, **terms: asyncio.to_thread(lambda: list(r.completion(**STREAM, **terms))),
    "responses": lambda r, **terms: r.aresponses(model="wise", input="hello", max_output_tokens=60, **terms),
    "messages": lambda r, **terms: r.aanthropic_messages(**CHAT, **terms),
    "embedding": lambda r, **terms: r.aembedding(model="wise", input=["a"], **terms),
    "synchronous embedding": lambda r, **terms: asyncio.to_thread(r.embedding, model="wise", input=["a"], **terms),
}
REFUSED = Behaviour(status=429)
SETTINGS = {
    "plain": ({}, {}),
    "retry": ({"num_retries": 1, "retry_after": 0}, {"large": REFUSED}),
    "fallback": ({"fallbacks": [{"wise": ["rescue"]}]}, {"small": REFUSED, "large": REFUSED}),
    "shadow traffic": ({"silent_model": "rescue"}, {}),
}


@pytest.fixture(scope="module")
def stub():
    with billing_stub(prices={**PRICES, "rescue": PRICES["small"]}) as running:
        yield running


def llms_with(stub, silent_model=None, **settings):
    beside = {} if silent_model is None else {"silent_model": silent_model}
    rows = [deployment(name, url=stub.url, **beside) for name in ("small", "large")]
    rows.append(deployment("rescue", "rescue", url=stub.url))
    terms = {"num_retries": 0, "allowed_fails": 1_000, "cooldown_time": 0.001, **settings}
    return litellm.Router(rows, cache_responses=True, **terms)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "call"),
    [(limit, call) for call in CALLS for limit in ("expected", "hard") if limit == "expected" or "embed" not in call],
)
@pytest.mark.parametrize("terms", SETTINGS)
async def test_what_is_charged_is_what_the_provider_has_billed(stub, settled, terms, call, limit):
    settings, behaviours = SETTINGS[terms]
    stub.reset()
    stub.behaviours = dict(behaviours)
    if terms == "retry" and "embedding" in call:  # no order keeps an embedding from the same one
        stub.behaviours = {}
    litellm.cache = litellm.Cache(type="local")
    router = fitted()
    callback = attach(llms_with(stub, **settings), "wise", router=router, budget=Budget(10.0, 1_000, limit=limit))
    for options in ({}, {}, NO_CACHE, {}):
        await CALLS[call](callback._router, **options)
        await settled(lambda: router.status().in_flight == 0)
    stub.finish()
    await settled(lambda: router.status().spent_usd == pytest.approx(stub.ledger_usd, rel=1e-9))
    assert stub.billed in {2, 4}  # the first call and the one past the cache, each perhaps with its shadow
    assert callback.groups["wise"].faults.total() == 0
    assert router.status().presumed == 0
    if "embedding" not in call and terms in {"plain", "retry"}:
        assert router.estimates.calls.sum() == 100 + stub.billed


@pytest.mark.parametrize("call", ["embedding", "synchronous embedding"])
async def test_an_embedding_of_the_cache_for_a_fallback_is_not_uncounted(stub, settled, flushed, call):
    stub.reset()
    stub.behaviours = {"small": REFUSED, "large": REFUSED}
    litellm.cache = litellm.Cache(type="local")
    router = fitted()
    llms = llms_with(stub, fallbacks=[{"wise": ["rescue"]}])
    callback = attach(llms, "wise", router=router, budget=Budget(10.0, 1_000))
    for _ in range(2):
        await CALLS[call](llms)
        await flushed()
    assert stub.billed == 1
    await settled(lambda: router.status().spent_usd == pytest.approx(stub.ledger_usd, rel=1e-9))
    assert callback.groups["wise"].faults.total() == 0


async def test_of_an_embedding_with_some_texts_in_the_cache_the_others_are_charged(stub, settled):
    stub.reset()
    litellm.cache = litellm.Cache(type="local")
    router = fitted()
    callback = attach(llms_with(stub), "wise", router=router, budget=Budget(10.0, 1_000))
    for texts in (["one"], ["one", "two"], ["two", "one"]):
        await callback._router.aembedding(model="wise", input=texts)
        await settled(lambda: router.status().spent_usd == pytest.approx(stub.ledger_usd, rel=1e-9))
    assert [call.body["input"] for call in stub.calls] == [["one"], ["two"]]
