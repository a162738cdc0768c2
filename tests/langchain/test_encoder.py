"""LangChain embeddings as the router's encoder, sync and async, paid from the same budget."""

import asyncio

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings

from support.chat_stub import PRICES, StubChat, cost_usd
from wiserouter import Budget, RoutingLog, WiseRouter
from wiserouter.errors import EncoderError, InvalidInput
from wiserouter_langchain import EmbeddingsEncoder, RunnableWiseRouter

TOKEN_USD = 1e-6


class Kinds(Embeddings):
    """Embeds code and chat in two directions."""

    def __init__(self):
        self.asked, self.fails, self.slow = [], False, 0.0

    def embed_documents(self, texts):
        self.asked += texts
        if self.fails:
            raise RuntimeError("down")
        return [[1.0, 0.0] if "code" in text else [0.0, 1.0] for text in texts]

    def embed_query(self, text):
        return self.embed_documents([text])[0]

    async def aembed_documents(self, texts):
        await asyncio.sleep(self.slow)
        return self.embed_documents(texts)


def routed(kinds, **fields):
    log = RoutingLog.from_arrays(
        ["fix this code", "let us chat"] * 30, [[0.1, 0.9], [0.9, 0.1]] * 30, [[1e-4, 2e-4]] * 60, ["small", "large"]
    )
    router = WiseRouter.fit(log, encoder=EmbeddingsEncoder(kinds, token_usd=TOKEN_USD), n_contexts=2, seed=0)
    models = {name: StubChat(model=f"stub-{name}") for name in ("small", "large")}
    kinds.asked.clear()
    return RunnableWiseRouter(models=models, router=router, prices=PRICES, budget=Budget(10.0, 100), **fields)


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_the_embedding_decides_and_is_paid(way):
    kinds = Kinds()
    llm = routed(kinds)
    served = []
    for text in ("some code", "hello", "some code"):
        answer = llm.invoke(text) if way == "invoke" else asyncio.run(llm.ainvoke(text))
        served.append(answer.response_metadata["wise_router"]["model"])
    assert served == ["large", "small", "large"]
    assert kinds.asked == ["some code", "hello"]
    calls = 2 * cost_usd("large", 5, 11) + cost_usd("small", 4, 11)
    assert llm.core.status().spent_usd - calls == pytest.approx(TOKEN_USD * 3, abs=2.01e-6)


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_an_encoder_that_fails_degrades(way):
    kinds = Kinds()
    llm = routed(kinds)
    kinds.fails = True
    before = llm.core.estimates.calls.copy()
    answer = llm.invoke("new code") if way == "invoke" else asyncio.run(llm.ainvoke("new code"))
    assert answer.response_metadata["wise_router"]["context"] == -1
    assert np.array_equal(llm.core.estimates.calls, before)


def test_an_encoder_that_is_slow_degrades_in_time():
    kinds = Kinds()
    llm = routed(kinds, encoder_timeout_s=0.05)
    kinds.slow = 5.0
    answer = asyncio.run(asyncio.wait_for(llm.ainvoke("new code"), 3))
    assert answer.response_metadata["wise_router"]["context"] == -1


def test_failures_carry_their_name_and_contexts_need_an_encoder():
    kinds = Kinds()
    kinds.fails = True
    with pytest.raises(EncoderError, match="embedding with Kinds failed: RuntimeError"):
        EmbeddingsEncoder(kinds).encode("x")
    llm = routed(Kinds())
    without = WiseRouter(llm.core.pool.models, llm.core.contexts)
    with pytest.raises(InvalidInput, match="2 contexts and needs an encoder"):
        RunnableWiseRouter(models=llm.models, router=without, prices=PRICES)


def test_the_embedding_reaches_the_router_where_it_estimates_single_queries():
    kinds = Kinds()
    log = RoutingLog.from_arrays(
        ["code", "chat"] * 30, [[0.1, 0.9], [0.9, 0.1]] * 30, [[1e-4, 2e-4]] * 60, ["small", "large"]
    )
    router = WiseRouter.fit(log, encoder=kinds.embed_documents, n_contexts=1, estimator="ridge", seed=0)
    models = {name: StubChat(model=f"stub-{name}") for name in ("small", "large")}
    llm = RunnableWiseRouter(models=models, router=router, prices=PRICES, budget=Budget(10.0, 100))
    served = [llm.invoke(text).response_metadata["wise_router"]["model"] for text in ("code", "chat")]
    assert served == ["large", "small"]
