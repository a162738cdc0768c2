"""Arms: one chat model bound to several efforts is several models of the pool."""

import pytest
from langchain_core.messages import AIMessage

from support.chat_calls import DOORS
from support.chat_stub import PRICES, StubChat
from wiserouter import Budget, Contexts, Estimates, Model, Offline, Price, WiseRouter
from wiserouter.errors import BudgetExhausted, InvalidInput
from wiserouter_langchain import RunnableWiseRouter

LOW, HIGH = {"reasoning_effort": "low"}, {"reasoning_effort": "high"}
WORDS = {"low": 5, "high": 50, "medium": 12, None: 11}
PRICE = Price(1e-6, 2e-6)


class Thinker(StubChat):
    """Answers with the effort that it was asked for, as many tokens long as that costs, within its limit."""

    def _answer(self, messages, **kw) -> AIMessage:
        answer, effort = super()._answer(messages, **kw), kw.get("reasoning_effort")
        n_out = min(WORDS[effort], kw.get("max_tokens") or self.max_tokens or 10**9)
        counts = answer.usage_metadata
        usage = {**counts, "output_tokens": n_out, "total_tokens": counts["input_tokens"] + n_out}
        return answer.model_copy(update={"content": str(effort), "usage_metadata": usage})


def billed(effort, limit=10**9):
    return 4e-6 + 2e-6 * min(WORDS[effort], limit)


def fitted(prefer):
    estimates = Estimates(1, 2)
    for k, params in enumerate((LOW, HIGH)):
        for _ in range(50):
            estimates.add_cost(0, k, billed(params["reasoning_effort"]))
            estimates.add_reward(0, k, 0.9 if params == prefer else 0.1)
    models = [Model("think", PRICE, params=params) for params in (LOW, HIGH)]
    return WiseRouter(models, Contexts.single(), estimates=estimates, policy=Offline(), seed=0)


def bound(*params, **fields):
    return [Thinker(**fields).bind(**one) if one else Thinker(**fields) for one in params]


def routed(models, budget=None, **fields):
    prices = {} if fields.get("router") else {"think": PRICE}
    prices |= {"quick": PRICE, "thorough": PRICE}
    return RunnableWiseRouter(models=models, prices=prices | PRICES, budget=budget or Budget(1.0, 1_000), **fields)


@pytest.mark.parametrize("given", ["a list", "names", "the router's"])
@pytest.mark.parametrize("prefer", [LOW, HIGH])
@pytest.mark.parametrize("door", ["invoke", "astream"])
def test_the_chosen_arm_is_called_and_its_cost_learned(door, prefer, given):
    low, high = bound(LOW, HIGH)
    models = {
        "a list": {"think": [low, high]},
        "names": {"think@low": low, "think@high": high},
        "the router's": {"think": Thinker()},
    }
    llm, effort = routed(models[given], router=fitted(prefer)), prefer["reasoning_effort"]
    assert DOORS[door](llm, "hello")
    assert llm.core.status().spent_usd == pytest.approx(billed(effort))
    calls = dict(zip(llm.core.pool.names, llm.core.estimates.calls[0].tolist(), strict=True))
    assert calls == {"think@low": 50 + (effort == "low"), "think@high": 50 + (effort == "high")}
    assert [model.params for model in llm.core.pool.models] == [LOW, HIGH]
    assert llm.core.pool.families == [0, 0]
    if door == "invoke":
        answer = llm.invoke("hello")
        assert (answer.text, answer.response_metadata["wise_router"]["model"]) == (effort, f"think@{effort}")


def test_arms_are_learned_from_nothing():
    llm = routed({"think": bound(LOW, HIGH, {}), "small": StubChat()})
    assert list(llm.core.pool.names) == ["think@low", "think@high", "think", "small"]
    assert llm.core.pool.families == [0, 0, 0, 1]
    answers = [llm.invoke("hello") for _ in range(12)]
    sent = [a.text for a in answers if a.response_metadata["wise_router"]["model"] != "small"]
    assert {"low", "high", "None"} == set(sent)
    for answer in answers:
        name = answer.response_metadata["wise_router"]["model"]
        assert name == "small" or name == {"low": "think@low", "high": "think@high", "None": "think"}[answer.text]


@pytest.mark.parametrize(("said", "model"), [(LOW, "think@low"), ({"reasoning_effort": "medium"}, "think")])
def test_what_a_call_says_is_sent_and_learned_as_said(said, model):
    llm = routed({"think": bound(HIGH, LOW, {})})
    for _ in range(4):
        answer = llm.invoke("hello", **said)
        assert answer.text == said["reasoning_effort"]
        assert answer.response_metadata["wise_router"]["model"] == model


def test_without_a_plain_model_the_first_arm_serves_what_a_call_says():
    llm = routed({"think": bound(HIGH, LOW)})
    answer = llm.invoke("hello", reasoning_effort="medium")
    assert (answer.text, answer.response_metadata["wise_router"]["model"]) == ("medium", "think@high")
    assert llm.invoke("hello", reasoning_effort=None, temperature=0.5).text in {"low", "high", "None"}


def test_a_hard_limit_holds_by_the_limit_of_each_arm():
    arms = bound({**LOW, "max_tokens": 3}, {**HIGH, "max_tokens": 30}, profile={"max_input_tokens": 100})
    llm = routed({"think": arms}, Budget(1e-3, 40, limit="hard"))
    spent = 0.0
    for _ in range(40):
        try:
            answer = llm.invoke("hello")
        except BudgetExhausted:
            break
        effort = answer.text
        spent += billed(effort, {"low": 3, "high": 30}[effort])
        assert llm.core.status().spent_usd == pytest.approx(spent)
    assert 3e-4 < spent <= 1e-3


def test_own_names_have_the_model_behind_them_as_family():
    low, high = bound(LOW, HIGH, model="gpt-5")
    llm = routed({"quick": low, "thorough": high, "small": StubChat()}, router=None)
    families = [model.family for model in llm.core.pool.models]
    assert families == ["gpt-5", "gpt-5", "small"]


def test_two_arms_of_one_name_are_refused():
    with pytest.raises(InvalidInput, match="think@low"):
        routed({"think": bound(LOW, LOW)})
    with pytest.raises(InvalidInput, match="name the arm"):
        routed({"think": [Thinker().bind(reasoning={"include": ["a", "b"]})]})
