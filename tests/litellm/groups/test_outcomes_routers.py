"""Several routers, several models, several accounts: each call is settled once, by the budget of its own router."""

import asyncio
import gc

import litellm
import pytest
from litellm.integrations.custom_logger import CustomLogger

from support.billing_stub import Behaviour, billing_stub
from support.groups import HI, RICH, asked, fitted, llms
from support.providers import cost_usd, deployment
from wiserouter import Budget
from wiserouter.errors import InvalidInput
from wiserouter_litellm import WiseRoutingStrategy, attach, detach
from wiserouter_litellm.groups import attempts

HARD = Budget(10.0, 1_000, limit="hard")
LIMITS = pytest.mark.parametrize("budget", [HARD, RICH], ids=["hard", "expected"])


@pytest.fixture
def stub():
    with billing_stub() as stub:
        yield stub


@pytest.fixture(autouse=True)
def little_grace(monkeypatch):
    monkeypatch.setattr(attempts, "GRACE_S", 0.05)


@LIMITS
async def test_two_routers_with_like_deployments_each_pay_for_their_own_calls(provider, settled, budget):
    ours, theirs = fitted(), fitted("small")
    rows = [{**row, "model_info": {"wiserouter_model": row["model_info"]["id"]}} for row in llms().model_list]
    rows = [{**row, "model_info": {**row["model_info"], "max_output_tokens": 1_000}} for row in rows]
    one, other = llms(*rows), llms(*rows)
    assert [row["model_info"]["id"] for row in one.model_list] == [row["model_info"]["id"] for row in other.model_list]
    attach(one, "wise", router=ours, budget=budget)
    attach(other, "wise", router=theirs, budget=budget)
    for _ in range(5):
        await one.acompletion(model="wise", messages=HI, max_tokens=60)
    await other.acompletion(model="wise", messages=HI, max_tokens=60)
    assert asked(provider) == 5 * ["large"] + ["small"]
    await settled(lambda: (ours.status().charged, theirs.status().charged) == (5, 1))
    assert ours.status().in_flight == theirs.status().in_flight == 0
    assert ours.status().spent_usd == pytest.approx(5 * cost_usd("large"))
    assert theirs.status().spent_usd == pytest.approx(cost_usd("small"))


async def test_after_detach_like_deployments_belong_to_the_other_router(provider, settled):
    ours, theirs = fitted(), fitted("small")
    one, other = llms(), llms()
    attach(one, "wise", router=ours, budget=RICH)
    attach(other, "wise", router=theirs, budget=RICH)
    detach(one)
    await other.acompletion(model="wise", messages=HI)
    await settled(lambda: theirs.status().charged == 1)
    assert ours.status().decided == 0


async def test_the_101st_router_has_its_budget(provider, settled):
    routers = []
    for i in range(101):
        router, litellm_router = (
            fitted(),
            llms(*[deployment(n, info={"id": f"{n}-{i}", "wiserouter_model": n}) for n in ("small", "large")]),
        )
        attach(litellm_router, "wise", router=router, budget=HARD)
        routers.append((litellm_router, router))
    assert len(litellm.callbacks) == 1
    litellm_router, last = routers[-1]
    await litellm_router.acompletion(model="wise", messages=HI, max_tokens=60)
    await settled(lambda: last.status().charged == 1)
    assert sum(router.status().decided for _, router in routers) == 1


def test_where_litellm_takes_no_further_callback_attach_says_so():
    for _ in range(litellm.constants.MAX_CALLBACKS):
        litellm.callbacks.append(CustomLogger())
    litellm_router = llms()
    with pytest.raises(InvalidInput, match="LiteLLM takes no further callback"):
        attach(litellm_router, "wise", router=fitted(), budget=RICH)
    with pytest.raises(InvalidInput, match="LITELLM_MAX_CALLBACKS"):
        WiseRoutingStrategy(litellm_router, "wise", router=fitted(), budget=RICH)
    del litellm.callbacks[-1]
    attach(litellm_router, "wise", router=fitted(), budget=RICH)
    detach(litellm_router)
    assert len(litellm.callbacks) == litellm.constants.MAX_CALLBACKS - 1


@LIMITS
async def test_a_batch_over_several_models_is_reserved_and_charged_call_by_call(stub, settled, budget):
    rows = [deployment(name, url=stub.url) for name in ("small", "large")]
    litellm_router, router = llms(*rows, deployment("rescue", "other", url=stub.url)), fitted()
    attach(litellm_router, "wise", router=router, budget=budget)
    answers = await litellm_router.abatch_completion(
        models=["wise", "wise", "other"], messages=HI, max_tokens=60, metadata={"shared": True}
    )
    assert len(answers) == 3
    await settled(lambda: router.status().charged == 2)
    assert router.status().in_flight == 0
    ours_usd = sum(call.cost_usd for call in stub.calls if call.model != "rescue")
    assert router.status().spent_usd == pytest.approx(ours_usd)


@LIMITS
async def test_of_the_fastest_response_the_others_are_presumed(stub, settled, budget):
    rows = [deployment(name, url=stub.url) for name in ("small", "large")]
    slow = [deployment(name, "slow", url=stub.url, info={"id": f"slow-{name}"}) for name in ("small", "large")]
    litellm_router, router, other = llms(*rows, *slow), fitted("small"), fitted()
    attach(litellm_router, "wise", router=router, budget=budget)
    attach(litellm_router, "slow", router=other, budget=budget)
    stub.behaviours |= {"small": Behaviour(delay_s=0.5), "large": Behaviour(delay_s=2.0)}  # both are sent by then
    await litellm_router.abatch_completion_fastest_response(model="wise, slow", messages=HI, max_tokens=60)
    await asyncio.sleep(0.05)
    await settled(lambda: gc.collect() >= 0 and router.status().charged == 1 and other.status().presumed == 1, 20.0)
    await settled(lambda: stub.billed == 2)
    if budget is HARD:
        assert router.status().spent_usd + other.status().spent_usd >= stub.ledger_usd


@LIMITS
async def test_a_call_with_a_key_of_the_client_is_settled(stub, settled, budget):
    litellm_router, router = llms(*[deployment(name, url=stub.url) for name in ("small", "large")]), fitted()
    callback = attach(litellm_router, "wise", router=router, budget=budget)
    for _ in range(3):
        await litellm_router.acompletion(model="wise", messages=HI, max_tokens=60, api_key="sk-of-the-client")
    await settled(lambda: router.status().charged == 3)
    assert router.status().in_flight == 0
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd)
    assert callback.groups["wise"].faults["lost_decisions"] == 0
    assert router.pool.names == ("small", "large")


@pytest.mark.parametrize("status", [429, 500])
async def test_a_failed_call_with_a_key_of_the_client_is_settled(stub, settled, status):
    litellm_router, router = llms(*[deployment(name, url=stub.url) for name in ("small", "large")]), fitted()
    attach(litellm_router, "wise", router=router, budget=HARD)
    stub.behaviour = Behaviour(status=status)
    with pytest.raises(litellm.exceptions.openai.APIStatusError):
        await litellm_router.acompletion(model="wise", messages=HI, max_tokens=60, api_key="sk-of-the-client")
    await settled(lambda: router.status().in_flight == 0)
    assert (router.status().released, router.status().presumed) == ((1, 0) if status == 429 else (0, 1))


@pytest.mark.parametrize(
    "name", ["api_base", "base_url", "api_version", "custom_llm_provider", "litellm_credential_name"]
)
async def test_under_a_hard_limit_a_call_goes_to_no_other_account(stub, name):
    litellm_router, router = llms(*[deployment(name, url=stub.url) for name in ("small", "large")]), fitted()
    attach(litellm_router, "wise", router=router, budget=HARD)
    with pytest.raises(litellm.BadRequestError, match=name):
        await litellm_router.acompletion(model="wise", messages=HI, max_tokens=60, **{name: stub.url})
    assert (stub.received, router.status().decided) == (0, 0)


async def test_under_an_expected_limit_a_call_to_an_address_of_the_client_is_settled(stub, settled):
    litellm_router, router = llms(*[deployment(name, url=stub.url) for name in ("small", "large")]), fitted()
    attach(litellm_router, "wise", router=router, budget=RICH)
    await litellm_router.acompletion(model="wise", messages=HI, max_tokens=60, api_base=stub.url, api_key="sk-x")
    await settled(lambda: router.status().charged == 1)
    assert router.status().in_flight == 0


async def test_a_request_not_to_be_logged_is_charged(stub, settled):
    """LiteLLM reports no call of a request with `no-log`, but shows its answer."""
    litellm_router, router = llms(*[deployment(name, url=stub.url) for name in ("small", "large")]), fitted()
    attach(litellm_router, "wise", router=router, budget=HARD)
    await litellm_router.acompletion(model="wise", messages=HI, max_tokens=60, **{"no-log": True})
    await asyncio.sleep(0.05)
    await settled(lambda: gc.collect() >= 0 and router.status().charged == 1, 20.0)
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd)
