"""An embedding model of LiteLLM as the router's encoder: vectors, cache, and the bill in the same budget."""

import asyncio
import json
import threading

import httpx
import litellm
import numpy as np
import pytest
import respx

from support.groups import HI, llms
from support.providers import URL, answer, cost_usd
from wiserouter import Budget, RoutingLog, WiseRouter
from wiserouter.errors import EncoderError, InvalidInput, UnknownPrice
from wiserouter_litellm import BudgetRefused, LiteLLMEncoder, attach

TOKEN_USD = 1e-6
KINDS = {"code": [1.0, 0.0], "chat": [0.0, 1.0]}


def embed(request):
    body = json.loads(request.content)
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    rows = [
        {"object": "embedding", "index": i, "embedding": KINDS["code" if "code" in text else "chat"]}
        for i, text in enumerate(texts)
    ]
    tokens = 3 * len(texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return httpx.Response(200, json={"object": "list", "data": rows, "model": body["model"], "usage": usage})


@pytest.fixture
def provider():
    with respx.mock(assert_all_called=False) as mock:
        mock.post(f"{URL}/embeddings").mock(side_effect=embed)
        mock.route(url__startswith=URL).mock(side_effect=answer)
        yield mock


def encoder(**params) -> LiteLLMEncoder:
    return LiteLLMEncoder(
        "openai/embedder", api_base=URL, api_key="sk-x", **{"input_cost_per_token": TOKEN_USD, **params}
    )


def embedded(provider) -> int:
    return sum(call.request.url.path.endswith("/embeddings") for call in provider.calls)


def fitted(of: LiteLLMEncoder) -> WiseRouter:
    """Return a router that wants large for code and small for chat."""
    log = RoutingLog.from_arrays(
        ["fix this code", "let us chat"] * 30,
        [[0.1, 0.9], [0.9, 0.1]] * 30,
        [[cost_usd("small"), cost_usd("large")]] * 60,
        ["small", "large"],
    )
    return WiseRouter.fit(log, encoder=of, n_contexts=2, seed=0)


def ask(router_, text):
    return router_.acompletion(model="wise", messages=[{"role": "user", "content": text}])


def test_vectors_come_in_order_and_equal_texts_once(provider):
    of = encoder()
    rows = of.encode_many(["code a", "chat", "code a", "code b"])
    assert rows.tolist() == [[1, 0], [0, 1], [1, 0], [1, 0]]
    assert len(json.loads(provider.calls[0].request.content)["input"]) == 3
    assert of.encode("chat").tolist() == [0, 1]
    assert embedded(provider) == 1


async def test_the_embedding_decides_and_is_paid_from_the_budget(provider, settled):
    of = encoder()
    router = fitted(of)
    router_ = llms()
    attach(router_, "wise", router=router, budget=Budget(10.0, 100))
    served = [(await ask(router_, text))._hidden_params["model_id"] for text in ("code", "hello", "code")]
    assert served == ["large", "small", "large"]
    await settled(lambda: router.status().charged == 3)
    calls = 2 * cost_usd("large") + cost_usd("small")
    assert router.status().spent_usd == pytest.approx(calls + 2 * 3 * TOKEN_USD)  # the third was in the cache


async def test_the_sync_door_embeds_too(provider):
    router, router_ = fitted(encoder()), llms()
    attach(router_, "wise", router=router, budget=Budget(10.0, 100))
    response = await asyncio.to_thread(router_.completion, model="wise", messages=HI)
    assert response._hidden_params["model_id"] == "small"


async def test_an_encoder_that_fails_degrades_to_what_is_known_of_all_contexts(provider, settled, caplog):
    router, router_ = fitted(encoder()), llms()
    callback = attach(router_, "wise", router=router, budget=Budget(10.0, 100))
    provider.post(f"{URL}/embeddings").mock(return_value=httpx.Response(500, json={"error": {"message": "down"}}))
    before = router.estimates.calls.copy()
    for i in range(3):
        await ask(router_, f"new text {i}")
    await settled(lambda: router.status().charged == 3)
    assert callback.groups["wise"].lookup.failures == 3
    assert np.array_equal(router.estimates.calls, before)
    given_up_usd = 3 * len("new text 0") * TOKEN_USD  # LiteLLM was still trying again
    assert 0 < router.status().spent_usd <= 3 * cost_usd("large") + given_up_usd + 1e-12
    assert sum("the encoder failed" in r.message for r in caplog.records if r.levelname == "WARNING") == 1


async def test_an_encoder_that_is_too_slow_degrades_in_time(settled):
    async def slow(request):
        await asyncio.sleep(60)
        return embed(request)

    with respx.mock(assert_all_called=False) as mock:
        mock.post(f"{URL}/embeddings").mock(side_effect=embed)
        router = fitted(encoder())
        mock.post(f"{URL}/embeddings").mock(side_effect=slow)
        mock.route(url__startswith=URL).mock(side_effect=answer)
        router_ = llms()
        callback = attach(router_, "wise", router=router, budget=Budget(10.0, 100), encoder_timeout_s=0.05)
        await asyncio.wait_for(ask(router_, "new text"), 30)
        assert callback.groups["wise"].lookup.failures == 1
    await settled(lambda: router.status().charged == 1)
    bound = len("new text") * TOKEN_USD  # the provider may bill what was given up
    assert router.status().spent_usd - bound in (pytest.approx(cost_usd("small")), pytest.approx(cost_usd("large")))


@pytest.mark.parametrize("name", ["encoder_timeout_s", "max_wait_s"])
def test_no_time_is_negative(name):
    with pytest.raises(InvalidInput, match=f"{name} must be a finite number of at least 0, got -1.0"):
        attach(llms(), "wise", budget=Budget(10.0, 100), **{name: -1.0})


async def test_a_slow_callable_encoder_degrades_too(provider):
    go_on = threading.Event()
    go_on.set()

    def function(texts):
        assert go_on.wait(30.0)
        return [KINDS["code" if "code" in text else "chat"] for text in texts]

    log = RoutingLog.from_arrays(
        ["code", "chat"] * 20, [[0.1, 0.9], [0.9, 0.1]] * 20, [[1e-5, 1e-4]] * 40, ["small", "large"]
    )
    router = WiseRouter.fit(log, encoder=function, n_contexts=2, seed=0)
    go_on.clear()
    router_ = llms()
    callback = attach(router_, "wise", router=router, budget=Budget(10.0, 100), encoder_timeout_s=0.05)
    await asyncio.wait_for(ask(router_, "code"), 20.0)  # before the encoder goes on
    assert callback.groups["wise"].lookup.failures == 1
    go_on.set()


async def test_a_hard_budget_refuses_an_embedding_that_it_cannot_pay(provider):
    router, router_ = fitted(encoder()), llms()
    attach(router_, "wise", router=router, budget=Budget(1e-9, 100, limit="hard"))
    before = embedded(provider)
    with pytest.raises(BudgetRefused):
        await ask(router_, "a text that is embedded first")
    assert embedded(provider) == before
    assert router.status().spent_usd == 0.0


def test_what_is_paid_beforehand_is_given_back_but_for_the_cost(provider):
    of, paid = encoder(), []
    of.pay = paid.append
    of.encode("some code")
    assert paid[0] >= 3 * TOKEN_USD
    assert sum(paid) == pytest.approx(3 * TOKEN_USD)
    of.encode("some code")
    assert len(paid) == 2


@pytest.mark.parametrize("async_", [False, True])
async def test_a_failure_is_an_encoder_error_and_free(provider, async_):
    of, paid = encoder(), []
    of.pay = paid.append
    provider.post(f"{URL}/embeddings").mock(return_value=httpx.Response(400, json={"error": {"message": "no"}}))
    with pytest.raises(EncoderError, match="embedding with openai/embedder failed"):
        await of.aencode("x") if async_ else of.encode("x")
    assert sum(paid) == 0.0


def test_the_cache_is_bounded_and_keeps_no_text(provider):
    of = encoder(cache_size=2)
    for i in range(5):
        of.encode(f"code {i}")
    assert len(of._cache) == 2
    assert all(isinstance(key, bytes) and len(key) == 16 for key in of._cache)


def test_a_price_is_needed(provider):
    with pytest.raises(UnknownPrice, match="openai/unheard-of"):
        LiteLLMEncoder("openai/unheard-of")
    assert LiteLLMEncoder("text-embedding-3-small")._token_usd == 2e-8


async def test_a_group_of_the_router_embeds(provider):
    rows = [{"model_name": "embed", "litellm_params": {"model": "openai/embedder", "api_base": URL, "api_key": "sk-x"}}]
    router_ = litellm.Router(rows)
    of = LiteLLMEncoder("embed", router=lambda: router_, input_cost_per_token=TOKEN_USD)
    assert (await of.aencode("code")).tolist() == [1, 0]


def test_an_artifact_needs_its_encoder_again(provider, tmp_path):
    fitted(encoder()).save(tmp_path / "x.wise")
    router = WiseRouter.load(tmp_path / "x.wise", encoder=encoder())
    router.start(Budget(10.0, 100))
    assert router.decide("code please").model == "large"


async def test_the_embedding_goes_on_where_queries_are_judged_one_by_one(provider):
    def function(texts):
        return [KINDS["code" if "code" in text else "chat"] for text in texts]

    log = RoutingLog.from_arrays(
        ["code", "chat"] * 30, [[0.1, 0.9], [0.9, 0.1]] * 30, [[1e-5, 1e-4]] * 60, ["small", "large"]
    )
    router = WiseRouter.fit(log, encoder=function, n_contexts=1, estimator="ridge", seed=0)
    router_ = llms()
    attach(router_, "wise", router=router, budget=Budget(10.0, 100))
    served = [(await ask(router_, text))._hidden_params["model_id"] for text in ("code", "chat")]
    assert served == ["large", "small"]
