"""The migration guides from `RunnableBranch` and `ChatRouter`: their code is run, on one workload before and after."""

import re
from pathlib import Path

import pytest
from langchain_core.runnables import RunnableBranch
from langchain_model_router import ChatRouter, HeuristicStrategy, KeywordStrategy, routing_decision

from support.chat_stub import PRICES, StubChat
from wiserouter import Budget
from wiserouter.errors import BudgetExhausted
from wiserouter_langchain import RunnableWiseRouter

GUIDES = Path(__file__).parents[2] / "docs" / "migrating"


def blocks(guide):
    return re.findall(r"```python\n(.*?)```", (GUIDES / guide).read_text(encoding="utf-8"), re.DOTALL)


BEFORE, AFTER = blocks("runnable-branch.md")
STRATEGY, BUDGETED, GUARDED = blocks("langchain-model-router.md")
KINDS = ("Check this contract number", "Fix this function number", "Say hello to team")
QUESTIONS = [f"{KINDS[n % 3]} {n}" for n in range(48)]


def names():
    return {
        "RunnableBranch": RunnableBranch,
        "ChatRouter": ChatRouter,
        "HeuristicStrategy": HeuristicStrategy,
        "KeywordStrategy": KeywordStrategy,
        "RunnableWiseRouter": RunnableWiseRouter,
        "Budget": Budget,
        "prices": PRICES,
        "small": StubChat(model="stub-small"),
        "large": StubChat(model="stub-large"),
        "own": StubChat(model="stub-own"),
        "is_contract": lambda question: "contract" in question,
        "is_code": lambda question: "function" in question,
    }


def model_of(answer):
    return answer.response_metadata["model_name"]


@pytest.fixture
def migrated():
    scope = names()
    exec(BEFORE, scope)
    before = [model_of(scope["branch"].invoke(question)) for question in QUESTIONS]
    exec(AFTER, scope)
    return before, scope["branch"], scope["llm"]


def test_rules_hold_and_all_calls_are_paid_from_one_hard_budget(migrated):
    before, branch, llm = migrated
    after = []
    for question in QUESTIONS:
        answer = branch.invoke(question)
        after.append(model_of(answer))
        good = model_of(answer) == "stub-large" or "hello" in question
        llm.feedback(answer, 1.0 if good else 0.0)
    assert set(before) == set(after) == {"stub-small", "stub-large"}
    assert after[::3] == before[::3] == ["stub-large"] * 16  # what must hold
    status = llm.core.status()
    assert (status.charged, status.in_flight) == (1 + len(QUESTIONS), 0)
    assert 0 < status.spent_usd <= 0.02


def test_a_hard_budget_ends_what_a_branch_never_did(migrated):
    _, branch, llm = migrated
    with pytest.raises(BudgetExhausted):
        for _ in range(100):
            branch.invoke("Check this contract")
    assert llm.core.status().spent_usd <= 0.02


def test_a_branch_streams_and_batches_as_before(migrated):
    _, branch, _ = migrated
    assert "".join(chunk.text for chunk in branch.stream("Say hello")) == StubChat().text
    assert [answer.text for answer in branch.batch(["Say hello", "Check this contract"])] == [StubChat().text] * 2


def test_a_strategy_becomes_a_budget_of_the_same_models():
    scope = names()
    exec(STRATEGY, scope)
    assert routing_decision(scope["answer"]).route == "large"  # difficult by its words, whatever that costs
    assert model_of(scope["router"].invoke("Say hello")) == "stub-small"
    exec(BUDGETED, scope)
    router = scope["router"]
    assert scope["answer"].response_metadata["wise_router"]["model"] in {"small", "large"}
    for n in range(40):
        router.feedback(router.invoke(f"Compare the trade-offs of two ideas step by step, case {n}"), 1.0)
    assert router.core.status().charged == 41
    assert 0 < router.core.status().spent_usd <= 0.02


def test_a_strategy_that_must_hold_has_the_router_as_a_route():
    scope = names()
    exec(BUDGETED, scope)
    exec(GUARDED, scope)
    assert model_of(scope["guarded"].invoke("What is the salary of Ann?")) == "stub-own"
    assert model_of(scope["guarded"].invoke("Say hello")) in {"stub-small", "stub-large"}
    assert scope["router"].core.status().charged == 2  # the call of the guide, and this one
