"""The migration guide from `RunnableBranch`: its code is run, on one workload before and after."""

import re
from pathlib import Path

import pytest
from langchain_core.runnables import RunnableBranch

from support.chat_stub import PRICES, StubChat
from wiserouter import Budget
from wiserouter.errors import BudgetExhausted
from wiserouter_langchain import RunnableWiseRouter

GUIDE = (Path(__file__).parents[2] / "docs" / "migrating" / "runnable-branch.md").read_text(encoding="utf-8")
BEFORE, AFTER = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
KINDS = ("Check this contract number", "Fix this function number", "Say hello to team")
QUESTIONS = [f"{KINDS[n % 3]} {n}" for n in range(48)]


def names():
    return {
        "RunnableBranch": RunnableBranch,
        "RunnableWiseRouter": RunnableWiseRouter,
        "Budget": Budget,
        "prices": PRICES,
        "small": StubChat(model="stub-small"),
        "large": StubChat(model="stub-large"),
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
