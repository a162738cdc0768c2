"""What a failed call costs: the ledger of a provider against the account, for every way in which a call ends."""

import asyncio
import gc
import time

import litellm
import pytest

from support.billing_stub import Behaviour, billing_stub
from support.groups import HI, fitted, llms
from support.ports import free_port
from support.providers import deployment
from wiserouter import Budget
from wiserouter_litellm import attach
from wiserouter_litellm.groups import attempts

HARD = Budget(10.0, 100, limit="hard")
EXPECTED = Budget(10.0, 100)
LIMITS = pytest.mark.parametrize("budget", [HARD, EXPECTED], ids=["hard", "expected"])


@pytest.fixture
def stub():
    with billing_stub() as stub:
        yield stub


@pytest.fixture(autouse=True)
def little_grace(monkeypatch):
    monkeypatch.setattr(attempts, "GRACE_S", 0.05)


@pytest.fixture(params=["httpx", "aiohttp"])
def transport(request, monkeypatch):
    monkeypatch.setattr(litellm, "disable_aiohttp_transport", request.param == "httpx")
    litellm.in_memory_llm_clients_cache.flush_cache()


def attached(stub, budget=HARD, url=None, **settings):
    """Return a LiteLLM router over the provider, and the router that keeps its budget."""
    deployments = [deployment(name, url=url or stub.url) for name in ("small", "large")]
    litellm_router, router = llms(*deployments, allowed_fails=1_000, **settings), fitted()
    attach(litellm_router, "wise", router=router, budget=budget)
    return litellm_router, router


def outcomes(router):
    status = router.status()
    return {name: n for name in ("charged", "presumed", "released", "in_flight") if (n := getattr(status, name))}


SURFACES = {
    "chat": lambda r, **kw: r.acompletion(model="wise", messages=HI, max_tokens=60, **kw),
    "stream": lambda r, **kw: r.acompletion(model="wise", messages=HI, max_tokens=60, stream=True, **kw),
    "text": lambda r, **kw: r.atext_completion(model="wise", prompt="hello there", max_tokens=60, **kw),
    "responses": lambda r, **kw: r.aresponses(model="wise", input="hello there", max_output_tokens=60, **kw),
    "messages": lambda r, **kw: r.aanthropic_messages(model="wise", messages=HI, max_tokens=60, **kw),
}


@pytest.mark.parametrize("surface", SURFACES)
@LIMITS
async def test_a_call_that_times_out_is_presumed(stub, settled, transport, budget, surface):
    litellm_router, router = attached(stub, budget)
    stub.behaviour = Behaviour(delay_s=0.5)
    with pytest.raises(litellm.Timeout):
        await SURFACES[surface](litellm_router, timeout=0.2)
    await settled(lambda: outcomes(router) == {"presumed": 1})
    await settled(lambda: stub.billed == 1)
    status = router.status()
    assert status.spent_usd == status.presumed_usd > 0
    if budget is HARD:
        assert status.spent_usd >= stub.ledger_usd


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 429])
@pytest.mark.parametrize("surface", SURFACES)
async def test_a_call_that_is_refused_is_released(stub, settled, surface, status):
    litellm_router, router = attached(stub)
    stub.behaviour = Behaviour(status=status)
    with pytest.raises(Exception, match="out of order"):
        await SURFACES[surface](litellm_router)
    await settled(lambda: outcomes(router) == {"released": 1})
    assert router.status().spent_usd == stub.ledger_usd == 0.0


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504, 529])
@LIMITS
async def test_a_server_error_may_come_after_generation(stub, settled, budget, status):
    litellm_router, router = attached(stub, budget)
    stub.behaviour = Behaviour(status=status, bills_failures=True)
    with pytest.raises(Exception, match="out of order"):
        await SURFACES["chat"](litellm_router)
    await settled(lambda: outcomes(router) == {"presumed": 1})
    if budget is HARD:
        assert router.status().spent_usd >= stub.ledger_usd > 0


@pytest.mark.parametrize("surface", SURFACES)
async def test_a_connection_lost_after_the_request_is_presumed(stub, settled, transport, surface):
    litellm_router, router = attached(stub)
    stub.behaviour = Behaviour(drops=True)
    with pytest.raises((litellm.InternalServerError, litellm.APIConnectionError)):
        await SURFACES[surface](litellm_router)
    await settled(lambda: outcomes(router) == {"presumed": 1})


@pytest.mark.parametrize("surface", SURFACES)
async def test_a_connection_that_is_refused_is_released(stub, settled, transport, surface):
    litellm_router, router = attached(stub, url=f"http://127.0.0.1:{free_port()}/v1")
    with pytest.raises((litellm.InternalServerError, litellm.APIConnectionError)):
        await SURFACES[surface](litellm_router)
    await settled(lambda: outcomes(router) == {"released": 1})


@LIMITS
async def test_a_retry_that_succeeds_does_not_cancel_the_cost_of_the_attempt_before(stub, settled, budget):
    litellm_router, router = attached(stub, budget, num_retries=2)
    stub.behaviours["large"] = Behaviour(delay_s=2.5)
    await SURFACES["chat"](litellm_router, timeout=1.5)
    await settled(lambda: outcomes(router) == {"charged": 1, "presumed": 1})
    await settled(lambda: stub.billed == 2)
    if budget is HARD:
        assert router.status().spent_usd >= stub.ledger_usd


async def test_each_retry_is_reserved_and_presumed_by_itself(stub, settled):
    litellm_router, router = attached(stub, num_retries=3)
    stub.behaviour = Behaviour(delay_s=1.0)
    with pytest.raises(litellm.Timeout):
        await SURFACES["chat"](litellm_router, timeout=0.5)
    await settled(lambda: outcomes(router) == {"presumed": 4})
    await settled(lambda: stub.billed == 4)
    assert router.status().spent_usd >= stub.ledger_usd


async def test_retries_stop_where_the_budget_bears_no_further_presumption(stub, settled):
    worst_usd = (60 + 60) * 3e-5
    litellm_router, router = attached(stub, Budget(worst_usd, 10, limit="hard"), num_retries=3)
    stub.behaviour = Behaviour(delay_s=0.5)
    with pytest.raises((litellm.Timeout, litellm.RateLimitError)):
        await SURFACES["chat"](litellm_router, timeout=0.2)
    await asyncio.sleep(0.6)
    assert stub.ledger_usd <= router.status().spent_usd <= worst_usd


async def test_a_refusal_after_a_timeout_is_released_and_the_timeout_stays_presumed(stub, settled):
    litellm_router, router = attached(stub, num_retries=1)
    stub.behaviours = {"large": Behaviour(delay_s=2.5), "small": Behaviour(status=429)}
    with pytest.raises(litellm.RateLimitError):
        await SURFACES["chat"](litellm_router, timeout=1.5)
    await settled(lambda: outcomes(router) == {"presumed": 1, "released": 1})


async def test_a_timeout_after_a_refusal_is_presumed_although_the_errors_are_chained(stub, settled):
    litellm_router, router = attached(stub, num_retries=1)
    stub.behaviours = {"large": Behaviour(status=429), "small": Behaviour(delay_s=2.5)}
    with pytest.raises(litellm.Timeout):
        await SURFACES["chat"](litellm_router, timeout=1.5)
    await settled(lambda: outcomes(router) == {"presumed": 1, "released": 1})


async def test_an_error_in_a_200_after_a_refusal_is_presumed(stub, settled):
    litellm_router, router = attached(stub, num_retries=1)
    stub.behaviours = {"large": Behaviour(status=429), "small": Behaviour(error_in_200=True)}
    with pytest.raises(litellm.APIError):
        await SURFACES["chat"](litellm_router)
    await settled(lambda: outcomes(router) == {"presumed": 1, "released": 1})
    assert router.status().spent_usd >= stub.ledger_usd > 0


@pytest.mark.parametrize("surface", SURFACES)
async def test_a_cancelled_call_is_presumed_at_once(stub, settled, transport, surface):
    litellm_router, router = attached(stub)
    stub.behaviour = Behaviour(delay_s=0.5)
    call = asyncio.create_task(SURFACES[surface](litellm_router))
    await settled(lambda: stub.received == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    del call
    await settled(lambda: gc.collect() >= 0 and outcomes(router) == {"presumed": 1}, 20.0)
    await settled(lambda: stub.billed == 1)
    assert router.status().spent_usd >= stub.ledger_usd


@pytest.mark.parametrize("surface", ["chat", "text", "responses", "messages"])
@LIMITS
async def test_a_stream_whose_reader_leaves_is_presumed(stub, settled, transport, budget, surface):
    litellm_router, router = attached(stub, budget)
    stub.behaviour = Behaviour(pieces=6, piece_delay_s=0.05, finishes_abandoned=True)
    stream = await SURFACES[surface](litellm_router, stream=True)
    async for _ in stream:
        break
    del stream, _
    await settled(lambda: gc.collect() >= 0 and outcomes(router) == {"presumed": 1}, 20.0)
    if budget is HARD:
        await settled(lambda: stub.billed == 1)
        assert router.status().spent_usd >= stub.ledger_usd


async def test_a_bill_that_comes_after_the_presumption_replaces_it(stub, settled):
    litellm_router, router = attached(stub)
    callback = litellm_router._wiserouter_callback
    await SURFACES["chat"](litellm_router)
    await settled(lambda: outcomes(router) == {"charged": 1})
    decision = router.decide(context=0, worst_case_usd={"small": 0.1, "large": 0.1})
    callback.groups["wise"].presume(decision.id)
    assert outcomes(router) == {"charged": 1, "presumed": 1}
    router.charge(decision, 1e-6)
    assert outcomes(router) == {"charged": 2}
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd + 1e-6)


async def test_nothing_is_kept_of_attempts_that_are_settled(stub, settled):
    litellm_router, router = attached(stub, num_retries=1)
    stub.behaviours["large"] = Behaviour(status=429)
    for _ in range(5):
        await SURFACES["chat"](litellm_router)
    await settled(lambda: outcomes(router) == {"charged": 5, "released": 5})
    assert litellm_router._wiserouter_callback.attempts == {}


def wait(condition, timeout_s=30.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        (Behaviour(delay_s=0.5), "presumed"),
        (Behaviour(status=500), "presumed"),
        (Behaviour(drops=True), "presumed"),
        (Behaviour(error_in_200=True), "presumed"),
        (Behaviour(status=400), "released"),
        (Behaviour(status=429), "released"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_synchronous_call_ends_alike(stub, behaviour, expected):
    litellm_router, router = attached(stub)
    stub.behaviour = behaviour
    with pytest.raises(litellm.exceptions.openai.OpenAIError):
        litellm_router.completion(model="wise", messages=HI, max_tokens=60, timeout=0.2)
    wait(lambda: outcomes(router) == {expected: 1})
