"""Shadow mode: the incumbent is called as without the router, which records its own choice."""

import pytest

from support.chat_calls import DOORS
from support.chat_stub import PRICES, StubChat, core, cost_usd, routed
from wiserouter import Budget, Shadow
from wiserouter.errors import InvalidInput, UnknownModel
from wiserouter.evaluation.off_policy.shadow_calls import read_shadow_calls
from wiserouter.routing.journal_reader import JournalReader
from wiserouter_langchain import RunnableWiseRouter

OBSERVED = "shadow:default"
TINY = Budget(1e-9, 1, limit="hard")


def session(acts, share):
    return next(f"s{i}" for i in range(99) if Shadow(share).acts(f"default s{i}") is acts)


def shadowed(prefer="small", **options):
    options = {"mode": "shadow", "incumbent": "large", "budget": TINY, "cap_output_tokens": 2} | options
    models = {"small": StubChat(model="stub-small"), "large": StubChat(model="stub-large")}
    return RunnableWiseRouter(models=models, router=core(prefer, starts=False), prices=PRICES, **options)


@pytest.mark.parametrize("door", DOORS)
def test_the_incumbent_answers_and_nothing_is_spent_or_refused(door):
    llm = shadowed()
    for _ in range(2):
        DOORS[door](llm, "two words")
    status = llm.core.status(OBSERVED)
    assert (status.charged, status.in_flight) == (2, 0)
    assert llm.core.status().decided == llm.core.status().spent_usd == 0


def test_the_answer_names_both_models_and_takes_a_score():
    llm = shadowed()
    before = llm.core.estimates.cost.copy()
    answer = llm.invoke("two words")
    record = answer.response_metadata["wise_router"]
    assert (record["model"], record["would_be"]) == ("large", "small")
    assert (llm.core.estimates.cost - before)[0].tolist() == [0.0, pytest.approx(cost_usd("large", 5, 11))]
    assert llm.feedback(answer, 1.0) == 1


def test_without_a_name_the_first_model_is_the_incumbent_unless_a_call_forces_one():
    llm = shadowed("large", incumbent="")
    assert llm.invoke("a").response_metadata["wise_router"]["model"] == "small"
    forced = llm.invoke("a", {"configurable": {"wise_model": "large"}})
    assert forced.response_metadata["wise_router"]["model"] == "large"


def test_the_calls_of_a_thread_are_one_draw_where_nothing_is_acted_on(tmp_path):
    llm = shadowed()
    journal = llm.core.journal_to(tmp_path / "j.jsonl")
    for name in "abab":
        llm.invoke("a", {"configurable": {"thread_id": name}})
    journal.close()
    assert read_shadow_calls(JournalReader(tmp_path / "j.jsonl")).unit.tolist() == [0, 1, 0, 1]


def test_a_share_of_the_threads_is_acted_on(tmp_path):
    llm = shadowed(share=0.5, budget=Budget(10.0, 100), cap_output_tokens=None)
    journal = llm.core.journal_to(tmp_path / "j.jsonl")
    for acts, model in ((True, "small"), (False, "large"), (True, "small"), (False, "large")):
        answer = llm.invoke("a", {"configurable": {"thread_id": session(acts, 0.5)}})
        assert answer.response_metadata["wise_router"]["model"] == model
    assert llm.core.status().charged == llm.core.status(OBSERVED).charged == 2
    journal.close()
    assert read_shadow_calls(JournalReader(tmp_path / "j.jsonl")).unit.tolist() == [0, 1, 0, 1]


def test_where_the_budget_of_the_share_is_used_up_the_incumbent_answers():
    llm = shadowed(share=0.5)
    answer = llm.invoke("a", {"configurable": {"thread_id": session(True, 0.5)}})
    assert answer.response_metadata["wise_router"]["model"] == "large"


async def test_a_fault_changes_nothing_for_the_call(monkeypatch, caplog):
    llm = shadowed()
    monkeypatch.setattr(type(llm.core), "observe", lambda *_, **__: 1 / 0)
    assert (await llm.ainvoke("a")).response_metadata["wise_router"]["model"] == "large"
    assert "is not observed" in caplog.text


def test_settings_say_what_is_wrong():
    with pytest.raises(UnknownModel):
        shadowed(incumbent="medium")
    with pytest.raises(InvalidInput, match="incumbent needs mode='shadow'"):
        shadowed(mode="route")
    with pytest.raises(InvalidInput, match="unit='call'"):
        shadowed(unit="run")
    with pytest.raises(InvalidInput, match="share needs mode='shadow'"):
        routed("small", share=0.5)
