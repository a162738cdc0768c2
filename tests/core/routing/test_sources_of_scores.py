"""Scores of people, rules and judges of the same call, through the router, its journal and a shared store."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiserouter import Budget, Estimates, Model, Price, Shadow, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.off_policy import read_decisions
from wiserouter.evaluation.off_policy.shadow_calls import read_shadow_calls
from wiserouter.learning.source_scores import SourceScore, evidence
from wiserouter.operating.savings_journal import calls_of, sums_of_journal
from wiserouter.operating.savings_terms import days_of
from wiserouter.routing.journal_reader import JournalReader, find_explanation
from wiserouter.stores import MemoryStore

MODELS = [Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))]
SHARES = st.floats(0.0, 1.0)
SOURCES = st.sampled_from(["human", "rule:truncated", "judge:mini"])


def started(store="memory://"):
    router = WiseRouter(MODELS, seed=0, store=store)
    router.start(Budget(1.0, 1_000))
    return router


def charged(router):
    decision = router.decide("hello")
    router.charge(decision, 1e-4)
    return decision


@given(st.lists(st.tuples(SOURCES, SHARES, SHARES), max_size=8))
def test_the_sums_are_those_of_the_evidence_alone(events):
    router = started()
    decision, latest = charged(router), {}
    for source, reward, weight in events:
        counted = router._corrected(source, decision.id, reward) if source.startswith("judge:") else reward
        assert router.reward(decision, reward, source=source, weight=weight) is (source in latest)
        latest[source] = SourceScore(reward, weight, counted)
    learned, expected = evidence(latest), Estimates(1, 2)
    if learned is not None:
        expected.add_reward(0, router.pool.index(decision.model), learned.counted, weight=learned.weight)
    for field in ("labels", "reward", "reward_sq", "scored"):
        np.testing.assert_allclose(getattr(router.estimates, field), getattr(expected, field), atol=1e-12)


def test_a_judge_never_replaces_a_person():
    router = started()
    decision = charged(router)
    assert not router.reward(decision, 1.0)
    assert not router.reward(decision, 0.0, source="judge:mini")
    assert (router.estimates.labels.sum(), router.estimates.reward.sum()) == (1.0, 1.0)
    assert router.explain(decision).reward == 1.0
    with pytest.raises(InvalidInput, match="source must be"):
        router.reward(decision, 1.0, source="anyone")


@given(st.lists(st.tuples(SOURCES, SHARES, SHARES, st.floats(0.0, 1e5)), max_size=8))
def test_a_score_of_less_weight_takes_its_share_of_the_delays_along(events):
    now_s = [1_000.0]
    router = WiseRouter(MODELS, seed=0, store=MemoryStore(lambda: now_s[0]))
    router.start(Budget(1.0, 1_000))
    decision = charged(router)
    longest_s = 0.0
    for source, reward, weight, later_s in events:
        now_s[0] += later_s
        longest_s += later_s
        router.reward(decision, reward, source=source, weight=weight)
        scored, delay_s = router.estimates.scored.sum(), router.estimates.delay_s.sum()
        assert -1e-9 <= delay_s <= scored * longest_s + 1e-9


def test_workers_that_share_a_store_take_the_same_delays_back(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'budget.db'}"
    one, other = started(url), started(url)
    decision = charged(one)
    for source, weight, delay_s in (("judge:mini", 1.0, 10.0), ("human", 0.5, 3_610.0)):
        monkeypatch.setattr(one._learner, "_now", lambda delay_s=delay_s: decision.decided_at + delay_s)
        one.reward(decision, 0.9, source=source, weight=weight)
    for router in (one, other, one, other):
        router.refresh()
    for router in (one, other):
        router.release(router.decide("hello"))
        assert router.estimates.delay_s.sum() == pytest.approx(5.0)
        router.save(tmp_path / "router.wise")
        WiseRouter.load(tmp_path / "router.wise")
        router.close()


def test_workers_that_share_a_store_count_a_call_once(tmp_path):
    url = f"sqlite:///{tmp_path / 'budget.db'}"
    one, other = started(url), started(url)
    decision = charged(one)
    one.refresh()
    one.reward(decision, 0.0, source="judge:mini", weight=0.5)
    other.reward(decision.id, 1.0)
    for router in (one, other, one, other):
        router.refresh()
    for router in (one, other):
        router.release(router.decide("hello"))
        assert (router.estimates.labels.sum(), router.estimates.reward.sum()) == pytest.approx((1.0, 1.0))
        router.close()


def test_the_journal_names_the_source_and_readers_prefer_people(tmp_path):
    path = tmp_path / "decisions.jsonl"
    router = WiseRouter(MODELS, seed=0)
    router.start(Budget(1.0, 1_000))
    journal = router.journal_to(path)
    decision = charged(router)
    router.reward(decision, 0.25, source="judge:mini", weight=0.5)
    router.reward(decision, 1.0)
    router.reward(decision, 0.0, source="rule:truncated")
    assert journal.flush()
    rewards = [line for line in JournalReader(path) if line["event"] == "reward"]
    assert [(line.get("source"), line.get("weight")) for line in rewards] == [
        ("judge:mini", 0.5), (None, None), ("rule:truncated", 1.0),
    ]  # fmt: skip
    assert find_explanation(JournalReader(path), decision.id)["reward"] == 1.0
    assert read_decisions(JournalReader(path)).reward.tolist() == [1.0]


SEVERAL = [
    [("judge:b", 0.5, 1.0), ("judge:a", 0.25, 0.5)],  # the heaviest of a kind is learned, not the latest
    [("judge:a", 0.75, 0.5), ("judge:b", 0.25, 0.5)],
    [("judge:mini", 1.0, 0.5), ("human", 0.0, 0.0)],  # a score without a weight is not learned
    [("human", 1.0, 1.0), ("human", 0.25, 0.0)],
    [("rule:length", 0.0, 0.25)],
]


def test_reports_on_a_journal_take_the_scores_that_the_router_learned(tmp_path):
    path = tmp_path / "decisions.jsonl"
    router = started()
    journal = router.journal_to(path)
    decisions = [charged(router) for _ in range(40 + len(SEVERAL))]
    pairs = [[("judge:mini", 0.9, 1.0), ("human", 0.4, 1.0)]] * 40
    for decision, scores in zip(decisions, pairs + SEVERAL, strict=True):
        for source, reward, weight in scores:
            router.reward(decision, reward, source=source, weight=weight)
    learned = [router.explain(decision).reward for decision in decisions]
    assert journal.flush()
    events = list(JournalReader(path))
    assert any("counted" in event for event in events)
    router_days, _ = router.sums_of_days(days_of("1d", router.now()))
    ((_, cells),) = router_days.items()
    journal_days, _ = sums_of_journal(calls_of(events), lambda at_s: days_of("1d", at_s), None, {})
    ((_, found),) = journal_days.items()
    for field in ("scores", "score", "score_sq"):
        assert _total(found, field) == pytest.approx(_total(cells, field))
    assert [None if np.isnan(one) else one for one in read_decisions(events).reward.tolist()] == learned
    for decision, reward in zip(decisions[-len(SEVERAL) :], learned[-len(SEVERAL) :], strict=True):
        assert find_explanation(JournalReader(path), decision.id)["reward"] == reward


def test_the_report_on_shadow_mode_takes_the_scores_that_the_router_learned(tmp_path):
    path = tmp_path / "decisions.jsonl"
    router = WiseRouter(MODELS, seed=0)
    router.shadow = Shadow()
    router.start(Budget(1.0, 1_000))
    journal = router.journal_to(path)
    for scores in SEVERAL:
        decision = router.observe("hello", incumbent="large")
        router.charge(decision, 1e-4)
        for source, reward, weight in scores:
            router.reward(decision, reward, source=source, weight=weight)
    assert journal.flush()
    rewards = read_shadow_calls(JournalReader(path)).reward.tolist()
    assert rewards == pytest.approx([0.5, 0.75, 1.0, float("nan"), 0.0], nan_ok=True)


def _total(cells, field):
    return sum(value for cell, value in cells.items() if cell.partition("|")[0] == field)


def test_late_scores_of_half_a_weight_keep_the_mean_delay():
    estimates = Estimates(1, 1)
    estimates.add_reward(0, 0, 0.5, weight=0.5, delay_s=60.0)
    estimates.add_reward(0, 0, 1.0, replacing=0.5, replaced_weight=0.5, delay_s=60.0)
    assert estimates.delay_s[0, 0] / estimates.scored[0, 0] == 60.0
    assert (estimates.labels[0, 0], estimates.reward[0, 0]) == (1.0, 1.0)
