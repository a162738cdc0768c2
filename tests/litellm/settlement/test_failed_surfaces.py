"""Calls that nothing bounds and that fail: counted as uncounted where the provider may have billed them."""

import asyncio

import litellm
import openai
import pytest

from support.billing_stub import Behaviour, billing_stub
from support.groups import fitted
from support.providers import deployment
from wiserouter import Budget
from wiserouter_litellm import attach

BILLED = {
    "500": Behaviour(status=500, bills_failures=True),
    "an error in a 200": Behaviour(error_in_200=True),
    "no answer": Behaviour(drops=True),
    "too late": Behaviour(delay_s=1.0),
}
CALLS = {
    "embedding": lambda r: r.aembedding(model="wise", input=["a"]),
    "synchronous": lambda r: asyncio.to_thread(r.embedding, model="wise", input=["a"]),
    "one deployment": lambda r: r.aembedding(model="large", input=["a"]),
}
NOT_SENT = {
    "a number": lambda r: r.acompletion(model="wise", messages=7),
    "a text": lambda r: r.acompletion(model="wise", messages="hello"),
    "an object": lambda r: r.acompletion(model="wise", messages={"role": "user"}),
    "responses": lambda r: r.aresponses(model="wise", input=7),
}


@pytest.fixture(autouse=True)
def hurried_client(monkeypatch):
    """Let OpenAI's client, which sends an embedding up to three times, not pause in between."""
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.0)


@pytest.fixture(scope="module")
def stub():
    with billing_stub() as running:
        yield running


@pytest.fixture
def group(stub):
    stub.reset()
    rows = [deployment(name, url=stub.url) for name in ("small", "large")]
    llms = litellm.Router(rows, num_retries=0, timeout=0.5, allowed_fails=1_000)
    callback = attach(llms, "wise", router=fitted(), budget=Budget(10.0, 1_000))
    return callback.groups["wise"], llms


async def failed(call, llms):
    with pytest.raises(Exception) as caught:
        await call(llms)
    return caught.value


@pytest.mark.parametrize("fault", BILLED)
@pytest.mark.parametrize("call", CALLS)
async def test_a_call_that_the_provider_has_billed_is_counted_once(stub, group, settled, call, fault):
    group, llms = group
    stub.behaviour = BILLED[fault]
    assert isinstance(await failed(CALLS[call], llms), openai.APIError)
    stub.finish()
    assert stub.ledger_usd > 0
    await settled(lambda: group.faults["uncounted_calls"] == 1)
    assert group.router.status().in_flight == 0


async def test_an_image_that_the_provider_has_billed_is_counted(stub, group, settled):
    group, llms = group
    stub.behaviour = Behaviour(status=500, bills_failures=True)
    await failed(lambda r: r.aimage_generation(model="wise", prompt="a cat"), llms)
    await settled(lambda: group.faults["uncounted_calls"] == 1)


@pytest.mark.parametrize("status", [400, 429])
@pytest.mark.parametrize("call", CALLS)
async def test_a_call_that_the_provider_refuses_is_not_counted(stub, group, flushed, call, status):
    group, llms = group
    stub.behaviour = Behaviour(status=status)
    await failed(CALLS[call], llms)
    await flushed()
    assert (stub.ledger_usd, group.faults.total()) == (0.0, 0)


@pytest.mark.parametrize("call", NOT_SENT)
async def test_a_call_that_was_never_sent_is_not_counted(stub, group, flushed, call):
    group, llms = group
    await failed(NOT_SENT[call], llms)
    await flushed()
    assert (stub.received, group.faults.total()) == (0, 0)


async def test_each_retry_is_counted_by_its_own_error(stub, flushed):
    stub.reset()
    stub.behaviours = {"small": Behaviour(status=500, bills_failures=True), "large": Behaviour(status=400)}
    rows = [deployment("small", url=stub.url), deployment("large", "other", url=stub.url)]
    llms = litellm.Router(rows, num_retries=0, fallbacks=[{"wise": ["other"]}], allowed_fails=1_000)
    callback = attach(llms, "wise", router=fitted(), budget=Budget(10.0, 1_000))
    await failed(lambda r: r.aembedding(model="wise", input=["a"]), llms)
    await flushed()
    assert {call.model for call in stub.calls} == {"small", "large"}
    assert callback.groups["wise"].faults["uncounted_calls"] == 1
