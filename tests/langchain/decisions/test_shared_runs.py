"""Runs on a store that workers share: any worker goes on with a run, also after a restart in the middle of it."""

import asyncio

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from support.agent_runs import MIXED, fitted, ledger_usd, model_of, routed, thread
from support.redis_servers import MISSING, redis_server, serving
from wiserouter.errors import RunBudgetExhausted

WAYS = ["thread_id", "records", "texts"]


@pytest.fixture(scope="module")
def redis_url():
    if redis_server() is None:
        pytest.skip(MISSING)
    with serving() as server:
        yield server.url


@pytest.fixture(params=["sqlite", "redis"])
def store(tmp_path, request):
    """Return a function that opens a worker on one store; all workers are closed at the end."""
    opened = []
    url = f"sqlite:///{tmp_path}/budget.db"
    if request.param == "redis":
        url = f"{request.getfixturevalue('redis_url')}?prefix={tmp_path.name}"

    def worker(**fields):
        llm, providers = routed(router=fitted(MIXED, store=url), **fields)
        opened.append(llm.core)
        return llm, providers

    yield worker
    for core in opened:
        core.close()


def turns(llm, way, history, name, n):
    """Return the models of the next turns of a run, and its history."""
    models = []
    for _ in range(n):
        history = [*history, HumanMessage(f"question {len(history)} of {name}")]
        answer = llm.invoke(history, thread(name) if way == "thread_id" else None)
        models.append(model_of(answer))
        history.append(answer if way == "records" else AIMessage(answer.text))
    return models, history


@pytest.mark.parametrize("way", WAYS)
def test_a_run_goes_on_after_a_restart_and_in_another_worker(store, way):
    first, before = store()
    runs = {f"run-{i}": turns(first, way, [SystemMessage("be brief " * 200)], f"run-{i}", 2) for i in range(10)}
    first.core.close()
    second, after = store()
    third, beside = store()
    for name, (models, kept) in runs.items():
        more, history = turns(second, way, kept, name, 1)
        last, _ = turns(third, way, history, name, 1)
        assert len({*models, *more, *last}) == 1
    if way == "thread_id":  # the ids of the others are drawn, and so may be their models
        assert {models[0] for models, _ in runs.values()} == {"small", "large"}
    third.core.refresh()
    status = third.core.status()
    assert (status.decided, status.charged) == (10, 40)
    assert status.spent_usd == pytest.approx(sum(map(ledger_usd, (before, after, beside))), rel=1e-9)


def test_scores_and_ends_reach_the_runs_of_another_worker(store):
    (one, _), (other, _) = store(), store()
    answer = one.invoke("hello", thread("t"))
    assert [other.feedback(target, 0.5) for target in ("t", answer)] == [1, 1]
    asyncio.run(other.aend_run("t"))
    assert asyncio.run(one.afeedback("t", 0.7)) == 1
    asyncio.run(one.ainvoke("hello", thread("t")))
    other.core.refresh()
    assert other.core.status().decided == 2


def test_workers_share_the_budget_of_a_run(store):
    (one, first), (other, second) = (store(run_budget_usd=0.02) for _ in range(2))
    with pytest.raises(RunBudgetExhausted):
        for _ in range(200):
            for llm in (one, other):
                llm.invoke([HumanMessage("word " * 400)] * 3, thread("t"))
    assert 0.01 < ledger_usd(first) + ledger_usd(second) <= 0.02
