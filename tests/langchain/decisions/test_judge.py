"""A judge of LangChain answers: a chat model or a function, its budget, and calls that never wait for it."""

import threading
from datetime import UTC, datetime

import pytest
from genai_prices import Usage as Counted
from genai_prices import calc_price
from langchain_core.language_models import FakeListChatModel
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from pydantic import Field

from wiserouter import Budget, Price
from wiserouter.errors import InvalidInput, UnknownPrice
from wiserouter_langchain import RunnableWiseRouter
from wiserouter_langchain.billing.price_catalogue import at_this_moment
from wiserouter_langchain.pool import pool_member

PRICES = {"small": Price(1e-7, 4e-7), "large": Price(3e-6, 1.5e-5)}
USAGE = {"input_tokens": 100, "output_tokens": 2, "total_tokens": 102}


def llm_with(judge, **fields):
    models = {"small": FakeListChatModel(responses=["4"]), "large": FakeListChatModel(responses=["four"])}
    budget = Budget(amount_usd=10.0, horizon=1_000)
    fields["judge_terms"] = {"first_scores": 0, **fields.get("judge_terms", {})}
    return RunnableWiseRouter(models=models, prices=PRICES, budget=budget, judge=judge, judge_share=1.0, **fields)


class Limited(GenericFakeChatModel):
    """A chat model with a field that limits its output; it notes the limit of each call."""

    max_tokens: int | None = None
    sent: list = Field(default_factory=list)

    def _generate(self, *args, **kwargs):
        self.sent.append(self.max_tokens)
        return super()._generate(*args, **kwargs)


def replying(*texts, kind=Limited):
    """Return a chat model that replies with these texts in turn, at the cost of `USAGE`."""
    return kind(messages=iter([AIMessage(text, usage_metadata=USAGE) for text in texts]))


def judged(llm):
    assert llm.core.judge.flush()
    figures = llm.core.status().judge
    llm.core.stop_judging()
    return figures


class OfHours(Limited):
    """A chat model whose price is twice as high at some hours."""

    def _get_ls_params(self, stop=None, **kwargs):
        return {"ls_provider": "deepseek", "ls_model_name": "deepseek-v4-pro"}


@pytest.mark.parametrize("hour", [2, 20])
def test_a_reply_costs_the_catalogues_price_of_its_hour(hour, monkeypatch):
    now = datetime(2027, 1, 5, hour, tzinfo=UTC)
    monkeypatch.setattr(pool_member, "at_this_moment", lambda card, model: at_this_moment(card, model, now))
    llm = llm_with(replying("1.0", kind=OfHours), judge_budget_usd=1.0)
    llm.invoke("what is 2 + 2?")
    counted = Counted(input_tokens=100, output_tokens=2)
    expected = calc_price(counted, "deepseek-v4-pro", provider_id="deepseek", genai_request_timestamp=now)
    assert judged(llm).spent_usd == pytest.approx(float(expected.total_price))


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


def test_a_judge_reads_which_tools_were_called_before():
    seen = []
    llm = llm_with(lambda prompt, answer: seen.append(prompt) or 1.0)
    called = AIMessage("", tool_calls=[{"name": "look_up", "args": {"city": "Oslo"}, "id": "t1"}])
    llm.invoke([HumanMessage("the weather?"), called, ToolMessage("rain at noon", tool_call_id="t1")])
    judged(llm)
    assert seen == ["human: the weather?\n\nai: \ncalls look_up with {'city': 'Oslo'}\n\ntool: rain at noon"]


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


@pytest.mark.parametrize(("terms", "limit"), [({}, 1_000), ({"max_output_tokens": 50}, 50)])
def test_the_limit_of_a_reply_that_bounds_its_cost_is_sent(terms, limit):
    judge = replying("1")
    llm = llm_with(judge, judge_budget_usd=1.0, judge_terms={"price": Price(0.0, 1e-5), **terms})
    llm.invoke("what is 2 + 2?")
    assert judged(llm).judged == 1
    assert judge.sent == [limit]


@pytest.mark.parametrize(("budget_usd", "sent"), [(0.059, []), (0.061, [6_000])])
def test_a_judge_with_a_limit_of_its_own_keeps_it(budget_usd, sent):
    judge = replying("1")
    judge.max_tokens = 6_000
    llm = llm_with(judge, judge_budget_usd=budget_usd, judge_terms={"price": Price(0.0, 1e-5)})
    llm.invoke("what is 2 + 2?")
    judged(llm)
    assert judge.sent == sent


CACHED = {"input_tokens": 100, "output_tokens": 2, "total_tokens": 102, "input_token_details": {"cache_read": 80}}


@pytest.mark.parametrize(
    ("usage", "metadata", "cost_usd"),
    [
        (USAGE, {}, 120e-6),
        (USAGE, {"response_cost": 0.002}, 0.002),
        ({**USAGE, "total_cost": 0}, {}, 0.0),
        ({"total_cost": 0}, {}, 0.0),
        (CACHED, {}, 48e-6),
    ],
)
def test_a_reply_of_a_judge_is_charged_as_any_call(usage, metadata, cost_usd):
    reply = AIMessage("1")
    reply.usage_metadata, reply.response_metadata = usage, metadata
    judge = Limited(messages=iter([reply]))
    llm = llm_with(judge, judge_budget_usd=1.0, judge_terms={"price": Price(1e-6, 1e-5, cache_read=1e-7)})
    llm.invoke("what is 2 + 2?")
    assert judged(llm).judged == 1
    assert llm.core.status("judge:default").spent_usd == pytest.approx(cost_usd)


def test_a_budget_that_does_not_pay_for_the_limit_of_a_reply_asks_no_judge():
    judge = replying("1")
    llm = llm_with(judge, judge_budget_usd=0.009, judge_terms={"price": Price(0.0, 1e-5)})
    llm.invoke("what is 2 + 2?")
    judged(llm)
    assert judge.sent == []


def test_a_judge_without_a_budget_is_sent_the_limit_that_is_stated_only():
    for terms, limit in (({}, None), ({"max_output_tokens": 50}, 50)):
        judge = replying("1")
        llm = llm_with(judge, judge_terms=terms)
        llm.invoke("what is 2 + 2?")
        assert judged(llm).judged == 1
        assert judge.sent == [limit]


def test_a_budget_needs_a_judge_whose_replies_are_bounded():
    price = Price(1e-6, 1e-5)
    unlimited = replying("1", kind=GenericFakeChatModel)
    with pytest.raises(UnknownPrice, match="no field that limits its output"):
        llm_with(unlimited, judge_budget_usd=1.0, judge_terms={"price": price})
    with pytest.raises(InvalidInput, match="needs a judge with a field"):
        llm_with(unlimited, judge_terms={"max_output_tokens": 50})
    by_profile = unlimited.model_copy(update={"profile": {"max_output_tokens": 100}})
    llm_with(by_profile, judge_budget_usd=1.0, judge_terms={"price": price}).core.stop_judging()


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
    with pytest.raises(InvalidInput, match="max_output_tokens must be a whole number"):
        llm_with(replying("1"), judge_terms={"max_output_tokens": 0})
    with pytest.raises(InvalidInput, match="is a term of a chat model"):
        llm_with(lambda prompt, answer: 1.0, judge_terms={"max_output_tokens": 50})
    with pytest.raises(InvalidInput, match="needs cost_usd"):
        llm_with(lambda prompt, answer: 1.0, judge_budget_usd=1.0)
    with pytest.raises(UnknownPrice, match=r"'judge' has no price: give judge_terms=\{'price': Price\("):
        llm_with(replying("1"), judge_budget_usd=1.0)
