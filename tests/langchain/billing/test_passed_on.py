"""A chat model that asks another one within its own run: an answer that it passes on is billed once."""

import asyncio
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from support.chat_calls import DOORS
from support.chat_stub import PRICES, StubChat, cost_usd
from wiserouter import Budget
from wiserouter_langchain import RunnableWiseRouter


class Guarded(StubChat):
    """Asks the model within it `asks` times, and passes its last answer on."""

    inner: Any
    asks: int = 1

    def _generate(self, messages, stop=None, run_manager=None, **kw):
        answers = [self.inner.invoke(messages, **kw) for _ in range(self.asks)]
        return ChatResult(generations=[ChatGeneration(message=answers[-1])])

    def _stream(self, messages, stop=None, run_manager=None, **kw):
        for chunk in self.inner.stream(messages, **kw):
            yield ChatGenerationChunk(message=chunk)


class Billed(StubChat):
    """Keeps what it has billed."""

    ledger: Any

    def _answer(self, messages, **kw):
        answer = super()._answer(messages, **kw)
        tokens = answer.usage_metadata
        self.ledger.append(cost_usd("small", tokens["input_tokens"], tokens["output_tokens"]))
        return answer


def _router(model, limit="hard"):
    budget = Budget(1.0, horizon=100, limit=limit)
    return RunnableWiseRouter(models={"small": model}, prices={"small": PRICES["small"]}, budget=budget)


@pytest.mark.parametrize("limit", ["hard", "expected"])
@pytest.mark.parametrize("door", DOORS)
def test_an_answer_that_a_model_passes_on_is_charged_once(door, limit):
    ledger: list[float] = []
    llm = _router(Guarded(inner=Billed(ledger=ledger), max_tokens=20), limit)
    DOORS[door](llm, "hello")
    status = llm.core.status()
    assert (len(ledger), status.charged, status.reserved_usd) == (1, 1, 0.0)
    assert status.spent_usd == pytest.approx(sum(ledger))


def test_every_answer_behind_the_one_that_is_passed_on_is_charged():
    ledger: list[float] = []
    llm = _router(Guarded(inner=Billed(ledger=ledger), asks=3, max_tokens=20), "expected")
    llm.invoke("hello")
    assert len(ledger) == 3
    assert llm.core.status().spent_usd == pytest.approx(sum(ledger))


def test_an_answer_from_a_cache_that_is_passed_on_is_free():
    ledger: list[float] = []
    llm = _router(Guarded(inner=Billed(ledger=ledger, cache=InMemoryCache()), max_tokens=20))
    llm.invoke("hello")
    asyncio.run(llm.ainvoke("hello"))
    assert len(ledger) == 1
    assert llm.core.status().spent_usd == pytest.approx(sum(ledger))


def test_answers_of_one_name_that_follow_one_another_are_all_charged():
    class SameName(Billed):
        def _answer(self, messages, **kw):
            return super()._answer(messages, **kw).model_copy(update={"id": "answer"})

        def with_structured_output(self, schema, **kwargs):
            return self | (lambda answer: self.invoke("again") and answer)

    ledger: list[float] = []
    llm = _router(SameName(ledger=ledger, max_tokens=20))
    assert isinstance(llm.with_structured_output(dict).invoke("hello"), AIMessage)
    assert len(ledger) == 2
    assert llm.core.status().spent_usd == pytest.approx(sum(ledger))


def unwritten(writes_in="_get_request_payload"):
    """Return a model that cannot write its request, in the method in which one of LangChain's packages does so."""

    def write(self):
        raise TypeError("unknown type")

    def write_outside():
        raise TypeError("unknown type")

    class Unwritten(StubChat):
        def _generate(self, messages, stop=None, run_manager=None, **kw):
            return write_outside() if writes_in == "_messages_to_bedrock" else write(self)

    for each in (write, write_outside):
        each.__code__ = each.__code__.replace(co_name=writes_in)
    return Unwritten(max_tokens=20)


class Refining(Guarded):
    """Has asked a model unseen, before it asks the one within it."""

    first: Any

    def _generate(self, messages, stop=None, run_manager=None, **kw):
        self.first.invoke(messages, {"callbacks": []})
        return self.inner.invoke(messages, {"callbacks": []})


@pytest.mark.parametrize("limit", ["hard", "expected"])
def test_a_request_that_was_not_written_is_free_unless_a_model_around_it_may_have_sent_others(limit):
    ledger: list[float] = []
    refining = Refining(first=Billed(ledger=ledger), inner=unwritten(), max_tokens=20)
    for model, presumed in ((unwritten(), 0), (refining, 1)):
        llm = _router(model, limit)
        with pytest.raises(TypeError, match="unknown type"):
            llm.invoke("hello")
        status = llm.core.status()
        assert (status.released, status.presumed) == (1 - presumed, presumed)
        assert status.spent_usd >= sum(ledger)
    assert len(ledger) == 1


@pytest.mark.parametrize("limit", ["hard", "expected"])
@pytest.mark.parametrize(
    "writes_in",
    ["_create_message_dicts", "_chat_params", "_prepare_request", "_messages_to_bedrock", "_converse_params"],
)
def test_a_request_that_another_package_cannot_write_is_free_and_its_model_does_not_rest(writes_in, limit):
    llm = _router(unwritten(writes_in), limit)
    with pytest.raises(TypeError, match="unknown type"):
        llm.invoke("hello")
    status = llm.core.status()
    assert (status.released, status.presumed, status.spent_usd) == (1, 0, 0.0)
    assert not llm._environment.rests.any
