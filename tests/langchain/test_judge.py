"""A judge of LangChain answers: a chat model or a function, its budget, and calls that never wait for it."""

import threading

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from wiserouter import Budget, Price
from wiserouter.errors import InvalidInput, UnknownPrice
from wiserouter_langchain import RunnableWiseRouter

PRICES = {"small": Price(1e-7, 4e-7), "large": Price(3e-6, 1.5e-5)}
USAGE = {"input_tokens": 100, "output_tokens": 2, "total_tokens": 102}


def llm_with(judge, **fields):
    models = {"small": FakeListChatModel(responses=["4"]), "large": FakeListChatModel(responses=["four"])}
    budget = Budget(amount_usd=10.0, horizon=1_000)
    fields["judge_terms"] = {"first_scores": 0, **fields.get("judge_terms", {})}
    return RunnableWiseRouter(models=models, prices=PRICES, budget=budget, judge=judge, judge_share=1.0, **fields)


def replying(*texts):
    """Return a chat model that replies with these texts in turn, at the cost of `USAGE`."""
    return GenericFakeChatModel(messages=iter([AIMessage(text, usage_metadata=USAGE) for text in texts]))


def judged(llm):
    assert llm.core.judge.flush()
    figures = llm.core.status().judge
    llm.core.stop_judging()
    return figures


async def test_every_way_to_call_is_judged_by_its_texts():
    seen = []
    llm = llm_with(lambda prompt, answer: seen.append((prompt, answer)) or 1.0)
    llm.invoke("what is 2 + 2?")
    await llm.ainvoke("what is 2 + 2?")
    assert list(llm.stream("what is 2 + 2?"))
    assert [chunk async for chunk in llm.astream("what is 2 + 2?")]
    llm.batch(["what is 2 + 2?"] * 2)
    assert judged(llm).judged == 6
    assert {prompt for prompt, _ in seen} == {"human: what is 2 + 2?"}
    assert {answer for _, answer in seen} <= {"4", "four"}
    assert llm.core.estimates.labels.sum() == 6.0


def test_a_chat_model_judges_on_its_own_budget():
    price = Price(1e-6, 1e-5)
    each_usd = 100 * 1e-6 + 2 * 1e-5
    llm = llm_with(
        replying("0.5", "1", "0", "good"),
        judge_budget_usd=1.0,
        judge_terms={"price": price, "attempts": 1, "weight": 1.0},
    )
    for _ in range(4):
        llm.invoke("what is 2 + 2?")
        assert llm.core.judge.flush()
    account = llm.core.status("judge:default")
    figures = judged(llm)
    assert (figures.judged, figures.failed) == (3, 1)
    assert account.spent_usd == pytest.approx(4 * each_usd)
    assert llm.core.estimates.reward.sum() == 1.5


def test_a_judge_that_hangs_or_fails_holds_nothing_up():
    gate = threading.Event()
    llm = llm_with(lambda prompt, answer: gate.wait(10.0) and 1 / 0, judge_terms={"attempts": 1, "concurrency": 1})
    assert [llm.invoke("what is 2 + 2?").text in {"4", "four"} for _ in range(5)] == [True] * 5
    gate.set()
    assert judged(llm).failed == 5
    assert llm.core.status().charged == 5


def test_calls_that_fail_are_not_judged():
    class Broken(FakeListChatModel):
        def _call(self, *args, **kwargs):
            raise ConnectionRefusedError

    budget = Budget(amount_usd=10.0, horizon=1_000)
    llm = RunnableWiseRouter(
        models={"small": Broken(responses=[""])}, prices=PRICES, budget=budget, judge=lambda p, a: 1.0, judge_share=1.0
    )
    with pytest.raises(ConnectionRefusedError):
        llm.invoke("what is 2 + 2?")
    assert judged(llm).offered == 0


def test_the_judges_run_is_none_of_the_callers():
    from langchain_core.callbacks import BaseCallbackHandler

    class Counter(BaseCallbackHandler):
        def __init__(self):
            self.names = []

        def on_chat_model_start(self, serialized, messages, **kwargs):
            self.names.append(messages[0][0].text)

    counter = Counter()
    llm = llm_with(replying("1"))
    llm.invoke("what is 2 + 2?", {"callbacks": [counter]})
    assert judged(llm).judged == 1
    assert counter.names == ["what is 2 + 2?"]


def test_terms_are_checked():
    with pytest.raises(InvalidInput, match="need a judge"):
        llm_with(None, judge_budget_usd=1.0)
    with pytest.raises(InvalidInput, match="needs cost_usd"):
        llm_with(lambda prompt, answer: 1.0, judge_budget_usd=1.0)
    with pytest.raises(UnknownPrice, match="judge"):
        llm_with(replying("1"), judge_budget_usd=1.0)
