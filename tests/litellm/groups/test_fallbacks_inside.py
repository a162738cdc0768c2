"""Calls that LiteLLM sends on from one of our groups are paid by the budget that the request was made under."""

import asyncio

import litellm
import pytest
from litellm.exceptions import RateLimitError

from support.billing_stub import Behaviour, billing_stub
from support.groups import HI, fitted, llms
from support.providers import INPUT_USD, OUTPUT_USD, deployment
from wiserouter import Budget
from wiserouter.errors import InvalidInput
from wiserouter_litellm import BudgetRefused, WiseRoutingStrategy, attach

OTHERS = dict.fromkeys(("rescue", "huge"), (1e-6, 2e-6))
PRICES = {name: (INPUT_USD[name], OUTPUT_USD[name]) for name in INPUT_USD} | OTHERS
RICH = {limit: Budget(10.0, 100, limit=limit) for limit in ("hard", "expected")}
DOWN = Behaviour(status=429)  # proof that nothing was billed
CHAT = {"model": "wise", "messages": HI, "max_tokens": 60}


@pytest.fixture
def stub():
    with billing_stub(prices=dict(PRICES)) as running:
        running.behaviours = {"small": DOWN, "large": DOWN}
        yield running


def serving(stub, *others, **settings):
    """Return a LiteLLM router with the group `wise`, and other deployments."""
    others = others or (deployment("rescue", "other", url=stub.url),)
    return llms(deployment("small", url=stub.url), deployment("large", url=stub.url), *others, **settings)


def is_settled(router, stub, charged=1):
    def check():
        status = router.status()
        return status.charged == charged and status.in_flight == 0

    return check


def holds(router, stub):
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd, abs=1e-12)
    assert stub.ledger_usd > 0


SURFACES = {
    "chat": lambda r: r.acompletion(**CHAT),
    "text": lambda r: r.atext_completion(model="wise", prompt="hello there", max_tokens=60),
    "responses": lambda r: r.aresponses(model="wise", input="hello there", max_output_tokens=60),
    "messages": lambda r: r.aanthropic_messages(model="wise", messages=HI, max_tokens=60),
}


@pytest.mark.parametrize("limit", ["hard", "expected"])
@pytest.mark.parametrize("surface", SURFACES)
async def test_a_fallback_to_another_group_is_charged(stub, settled, surface, limit):
    router = fitted()
    llm = serving(stub, fallbacks=[{"wise": ["other"]}])
    callback = attach(llm, "wise", router=router, budget=RICH[limit])
    await SURFACES[surface](llm)
    await settled(is_settled(router, stub))
    holds(router, stub)
    assert [call.model for call in stub.calls][-1] == "rescue"
    assert callback.groups["wise"].faults == {}


async def test_it_is_refused_where_the_budget_does_not_bear_it(stub, settled):
    router = fitted()
    llm = serving(stub, fallbacks=[{"wise": ["other"]}])
    attach(llm, "wise", router=router, budget=Budget(0.0001, 10, limit="hard"))
    with pytest.raises(BudgetRefused):
        await llm.acompletion(**CHAT | {"max_tokens": 1_000})
    assert stub.calls == []


async def test_after_the_budget_is_used_up_a_cheaper_group_may_still_fit(stub, settled):
    router = fitted()
    stub.prices["rescue"] = (1e-9, 2e-9)
    cheap = deployment("rescue", "other", url=stub.url, input_cost_per_token=1e-9, output_cost_per_token=2e-9)
    llm = serving(stub, cheap, fallbacks=[{"wise": ["other"]}])
    attach(llm, "wise", router=router, budget=Budget(1e-5, 10, limit="hard"))
    await llm.acompletion(**CHAT)
    await settled(is_settled(router, stub))
    holds(router, stub)
    assert stub.ledger_usd <= 1e-5


async def test_an_endless_chain_of_fallbacks_never_exceeds_a_hard_budget(stub, settled):
    router, amount_usd = fitted(), 20 * 2e-4
    llm = serving(stub, fallbacks=[{"wise": ["other"]}])
    attach(llm, "wise", router=router, budget=Budget(amount_usd, 10, limit="hard"))
    done = await asyncio.gather(*[llm.acompletion(**CHAT) for _ in range(80)], return_exceptions=True)
    answered = sum(not isinstance(each, Exception) for each in done)
    await settled(is_settled(router, stub, answered))
    holds(router, stub)
    assert 0 < answered < 80
    assert stub.ledger_usd <= amount_usd


async def test_fallbacks_that_the_request_names_are_charged_with_its_own_parameters(stub, settled):
    router, callback = fitted(), None
    llm = serving(stub)
    callback = attach(llm, "wise", router=router, budget=RICH["hard"], cap_output_tokens=50)
    entry = {"model": "other", "max_tokens": None, "n": "3"}
    await llm.acompletion(model="wise", messages=HI, fallbacks=[entry])
    await settled(is_settled(router, stub))
    holds(router, stub)
    last = stub.calls[-1].body
    assert (last["model"], last["max_tokens"], last["n"]) == ("rescue", 50, 3)
    assert callback.groups["wise"].faults == {}


async def test_default_fallbacks_are_charged(stub, settled):
    router = fitted()
    llm = serving(stub, default_fallbacks=["other"])
    attach(llm, "wise", router=router, budget=RICH["hard"])
    await llm.acompletion(**CHAT)
    await settled(is_settled(router, stub))
    holds(router, stub)


async def test_a_context_window_fallback_is_charged(stub, settled):
    router = fitted()
    huge = deployment("huge", "other", url=stub.url, info={"max_input_tokens": 100_000})
    llm = serving(stub, huge, context_window_fallbacks=[{"wise": ["other"]}])
    stub.max_input_tokens = 100_000
    attach(llm, "wise", router=router, budget=RICH["hard"])
    await llm.acompletion(**CHAT | {"messages": [{"role": "user", "content": "many words " * 10_000}]})
    await settled(is_settled(router, stub))
    holds(router, stub)


async def test_a_content_policy_fallback_is_charged(stub, settled):
    router = fitted()
    llm = serving(stub, content_policy_fallbacks=[{"wise": ["other"]}])
    attach(llm, "wise", router=router, budget=RICH["hard"])
    await llm.acompletion(**CHAT, mock_testing_content_policy_fallbacks=True)
    await settled(is_settled(router, stub))
    holds(router, stub)


STREAMS = {
    "chat": lambda r: r.acompletion(**CHAT, stream=True, stream_options={"include_usage": True}),
    "responses": lambda r: r.aresponses(model="wise", input="hello there", max_output_tokens=60, stream=True),
}


@pytest.mark.parametrize("alias", [False, True])
@pytest.mark.parametrize("surface", STREAMS)
async def test_a_fallback_after_a_stream_that_broke_is_charged(stub, settled, monkeypatch, surface, alias):
    """The provider ends the stream before its first piece, so LiteLLM sends the request on."""
    stub.behaviours = {}
    router = fitted()
    llm = serving(stub, fallbacks=[{"wise": ["other"]}], model_group_alias={"clever": "wise"})
    attach(llm, "wise", router=router, budget=RICH["hard"])
    broken = broken_streams(monkeypatch, surface)
    call = STREAMS[surface]
    stream = await (call(_Renamed(llm, "clever")) if alias else call(llm))
    assert [event async for event in stream]
    assert broken == ["broken"]
    await settled(lambda: router.status().charged >= 1)
    assert [call.model for call in stub.calls][-1] == "rescue"
    rescued = stub.calls[-1].cost_usd
    assert router.status().spent_usd >= rescued > 0


class _Renamed:
    """A router whose calls ask for another model."""

    def __init__(self, llm, model):
        self._llm, self._model = llm, model

    def __getattr__(self, name):
        return lambda **call: getattr(self._llm, name)(**{**call, "model": self._model, "fallbacks": ["other"]})


def broken_streams(monkeypatch, surface):
    """Let the first stream fail before its first piece, and return the list that notes it."""
    from litellm.exceptions import MidStreamFallbackError
    from litellm.litellm_core_utils.streaming_handler import CustomStreamWrapper
    from litellm.responses.streaming_iterator import ResponsesAPIStreamingIterator

    broken = []
    kind = {"chat": CustomStreamWrapper, "responses": ResponsesAPIStreamingIterator}[surface]
    original = kind.__anext__

    async def failing(self):
        if broken:
            return await original(self)
        broken.append("broken")
        raise MidStreamFallbackError(
            message="the connection was lost", model="large", llm_provider="openai", is_pre_first_chunk=True
        )

    monkeypatch.setattr(kind, "__anext__", failing)
    return broken


@pytest.mark.parametrize("limit", ["hard", "expected"])
async def test_a_fallback_to_the_id_of_a_deployment_is_charged(stub, settled, limit):
    router = fitted()
    llm = serving(stub, fallbacks=[{"wise": ["rescue"]}])
    callback = attach(llm, "wise", router=router, budget=RICH[limit])
    await llm.acompletion(**CHAT)
    await settled(is_settled(router, stub))
    holds(router, stub)
    assert callback.groups["wise"].faults == {}


def with_strategy(llm, group, **settings):
    strategy = WiseRoutingStrategy(llm, group, **settings)
    strategy.install()
    return strategy.callback


DOORS = {"attach": attach, "strategy": with_strategy}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("surface", SURFACES)
async def test_a_call_to_the_id_of_a_deployment_of_the_group_is_charged(stub, settled, surface, door):
    stub.behaviours = {}
    router = fitted()
    llm = serving(stub)
    DOORS[door](llm, "wise", router=router, budget=RICH["hard"])
    await SURFACES[surface](_Named(llm, "large"))
    await settled(is_settled(router, stub))
    holds(router, stub)


class _Named(_Renamed):
    def __getattr__(self, name):
        return lambda **call: getattr(self._llm, name)(**{**call, "model": self._model})


@pytest.mark.parametrize("door", DOORS)
async def test_a_call_to_an_id_that_does_not_fit_is_refused_and_the_deployment_stays_healthy(stub, door):
    stub.behaviours = {}
    router = fitted()
    llm = serving(stub, allowed_fails=0)
    DOORS[door](llm, "wise", router=router, budget=Budget(0.001, 10, limit="hard"))
    with pytest.raises(BudgetRefused):
        await llm.acompletion(model="large", messages=HI, max_tokens=1_000)
    assert stub.calls == []
    assert (await llm.acompletion(model="large", messages=HI, max_tokens=5)).choices
    assert len(stub.calls) == 1


@pytest.mark.parametrize("target", ["other", "rescue"])
async def test_a_fallback_of_a_synchronous_call_is_charged(stub, settled, target):
    router = fitted()
    llm = serving(stub, fallbacks=[{"wise": [target]}])
    attach(llm, "wise", router=router, budget=RICH["hard"])
    await asyncio.to_thread(llm.completion, **CHAT)
    await settled(is_settled(router, stub))
    holds(router, stub)


@pytest.mark.parametrize("target", ["other", "rescue"])
async def test_a_fallback_of_a_custom_strategy_is_charged(stub, settled, target):
    router = fitted()
    llm = serving(stub, fallbacks=[{"wise": [target]}])
    with_strategy(llm, "wise", router=router, budget=RICH["hard"])
    await llm.acompletion(**CHAT)
    await settled(is_settled(router, stub))
    holds(router, stub)


async def test_a_strategy_leaves_the_selection_of_an_attached_group_alone(stub, settled):
    stub.behaviours = {}
    router = fitted()
    llm = serving(stub)
    with_strategy(llm, "other", budget=RICH["hard"])
    attach(llm, "wise", router=router, budget=RICH["hard"])
    await llm.acompletion(**CHAT)
    await settled(is_settled(router, stub))
    holds(router, stub)


async def test_a_mirrored_call_is_charged_and_leaves_the_other_alone(stub, settled):
    stub.behaviours = {}
    router = fitted()
    mirrored = deployment("large", url=stub.url, silent_model="other")
    llm = llms(deployment("small", url=stub.url), mirrored, deployment("rescue", "other", url=stub.url))
    attach(llm, "wise", router=router, budget=RICH["hard"])
    await llm.acompletion(**CHAT)
    await settled(is_settled(router, stub, 2))
    holds(router, stub)
    assert router.status().released == 0


async def test_a_fallback_to_another_of_our_groups_is_paid_by_the_first(stub, settled):
    first = fitted()
    llm = serving(stub, fallbacks=[{"wise": ["other"]}])
    attach(llm, "wise", router=first, budget=RICH["hard"])
    second = attach(llm, "other", budget=RICH["hard"]).groups["other"].router
    await llm.acompletion(**CHAT)
    await llm.acompletion(**CHAT | {"model": "other"})
    await settled(lambda: first.status().charged == second.status().charged == 1)
    assert first.status().spent_usd + second.status().spent_usd == pytest.approx(stub.ledger_usd)


async def test_refused_fallbacks_are_not_sent(stub, caplog):
    caplog.set_level("ERROR")
    router = fitted()
    llm = serving(stub, fallbacks=[{"wise": ["other", "rescue"]}])
    callback = attach(llm, "wise", router=router, budget=RICH["hard"], fallback_policy="refuse")
    with pytest.raises(litellm.RateLimitError):
        await llm.acompletion(**CHAT)
    assert {call.model for call in stub.calls} == {"large"}
    assert "fallback_policy is refuse" in caplog.text
    assert callback.groups["wise"].faults == {"refused_fallbacks": 2}


@pytest.mark.parametrize("target", ["other", "rescue"])
async def test_calls_outside_the_budget_are_counted(stub, settled, target):
    router = fitted()
    llm = serving(stub, fallbacks=[{"wise": [target]}])
    callback = attach(llm, "wise", router=router, budget=RICH["hard"], fallback_policy="outside")
    await llm.acompletion(**CHAT)
    await settled(lambda: router.status().in_flight == 0)
    assert [call.model for call in stub.calls][-1] == "rescue"
    assert router.status().spent_usd == 0.0
    assert callback.groups["wise"].faults == {"outside_calls": 1}


@pytest.mark.parametrize(("policy", "headers"), [("outside", {}), ("inside", {"x-should-retry": "false"})])
async def test_a_client_may_send_again_where_a_fallback_outside_of_the_budget_has_failed(stub, policy, headers):
    stub.behaviours = {"rescue": Behaviour(status=500)}
    llm = serving(stub, fallbacks=[{"wise": ["other"]}], num_retries=0)
    attach(llm, "wise", router=fitted(), budget=Budget(1e-9, 10, limit="hard"), fallback_policy=policy)
    with pytest.raises(BudgetRefused) as refused:
        await llm.acompletion(**CHAT)
    assert refused.value.headers == headers


async def test_outside_the_budget_another_of_our_groups_pays_for_itself(stub, settled):
    first = fitted()
    llm = serving(stub, fallbacks=[{"wise": ["other"]}])
    callback = attach(llm, "wise", router=first, budget=RICH["hard"], fallback_policy="outside")
    second = attach(llm, "other", budget=RICH["hard"]).groups["other"].router
    await llm.acompletion(**CHAT)
    await settled(is_settled(second, stub))
    assert first.status().spent_usd == 0.0
    assert second.status().spent_usd == pytest.approx(stub.ledger_usd)
    assert callback.groups["wise"].faults == {"outside_calls": 1}


@pytest.mark.parametrize("limit", ["hard", "expected"])
async def test_a_fallback_without_a_price_is_refused(stub, limit, caplog):
    unpriced = {
        "model_name": "other",
        "litellm_params": {"model": "openai/unheard-of", "api_base": stub.url, "api_key": "x"},
        "model_info": {"id": "unpriced"},
    }
    router = fitted()
    llm = serving(stub, unpriced, fallbacks=[{"wise": ["other"]}])
    callback = attach(llm, "wise", router=router, budget=RICH[limit])
    with pytest.raises(litellm.RateLimitError):
        await llm.acompletion(**CHAT)
    assert {call.model for call in stub.calls} == {"large"}
    assert callback.groups["wise"].faults == {"refused_fallbacks": 1}
    assert "has no price" in caplog.text


async def test_a_fallback_that_nothing_bounds_is_refused_by_a_hard_budget(stub):
    row = deployment("rescue", "other", url=stub.url)
    row["model_info"] = {"id": "endless"}
    llm = serving(stub, row, fallbacks=[{"wise": ["other"]}])
    attach(llm, "wise", router=fitted(), budget=RICH["hard"])
    with pytest.raises(litellm.RateLimitError):
        await llm.acompletion(model="wise", messages=HI)
    assert {call.model for call in stub.calls} == {"large"}


async def test_a_model_of_the_fallback_with_another_price_is_another_model(stub, settled):
    router = fitted()
    stub.prices["twin"] = (7e-6, 8e-6)
    row = deployment("twin", "other", url=stub.url, input_cost_per_token=7e-6, output_cost_per_token=8e-6)
    row["model_info"]["wiserouter_model"] = "small"
    llm = serving(stub, row, fallbacks=[{"wise": ["other"]}])
    attach(llm, "wise", router=router, budget=RICH["hard"])
    await llm.acompletion(**CHAT)
    await settled(is_settled(router, stub))
    holds(router, stub)
    assert router.pool.names == ("small", "large", "small (other)")


async def test_a_client_cannot_charge_its_call_to_another_group(stub, settled):
    stub.behaviours = {}
    router = fitted()
    llm = serving(stub)
    callback = attach(llm, "wise", router=router, budget=RICH["hard"])
    forged = {"owner": callback.owner, "group": "wise", "trace": "guess", "uncounted": []}
    metadata = {"wiserouter_group": forged, "original_model_group": "wise"}
    await llm.acompletion(**CHAT | {"model": "other"}, metadata=dict(metadata), fallback_depth=1)
    await settled(lambda: len(stub.calls) == 1)
    assert router.status().decided == 0


async def test_requests_that_share_their_metadata_are_told_apart(stub, settled):
    stub.behaviours = {}
    router, metadata = fitted(), {"tenant": "a"}
    llm = serving(stub)
    attach(llm, "wise", router=router, budget=RICH["hard"])
    await llm.acompletion(**CHAT, metadata=metadata)
    await llm.acompletion(**CHAT | {"model": "other"}, metadata=metadata)
    await settled(is_settled(router, stub))
    assert router.status().spent_usd == pytest.approx(stub.calls[0].cost_usd)


def test_an_unknown_policy_is_refused(stub):
    with pytest.raises(InvalidInput, match="fallback_policy must be one of inside, refuse, outside, got 'inisde'"):
        attach(serving(stub), "wise", router=fitted(), budget=RICH["hard"], fallback_policy="inisde")


def test_the_refusal_is_a_rate_limit_error():
    from wiserouter_litellm.errors import FallbackRefused

    error = FallbackRefused("wise", "other")
    assert isinstance(error, RateLimitError)
    assert "group 'wise': its budget does not pay for a fallback to 'other'" in str(error)


async def test_a_fallback_of_an_embedding_is_charged_under_an_expected_limit(stub, settled):
    router = fitted()
    llm = serving(stub, fallbacks=[{"wise": ["other"]}])
    callback = attach(llm, "wise", router=router, budget=RICH["expected"])
    await llm.aembedding(model="wise", input=["hello there"])
    await settled(lambda: router.status().spent_usd > 0)
    assert [call.model for call in stub.calls][-1] == "rescue"
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd)
    assert callback.groups["wise"].faults.get("uncounted_calls", 0) == 0


async def test_an_embedding_does_not_fall_back_from_a_hard_budget(stub):
    llm = serving(stub, fallbacks=[{"wise": ["other", "rescue"]}])
    attach(llm, "wise", router=fitted(), budget=RICH["hard"])
    with pytest.raises(litellm.BadRequestError):
        await llm.aembedding(model="wise", input=["hello there"])
    assert stub.calls == []
