"""Metrics: counters against the calls that were made, gauges against the status, and bounded, clean labels."""

import inspect
import math
import re
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from wiserouter import Budget, Conversations, MemoryStore, Model, Price, Usage, WiseRouter
from wiserouter.errors import BudgetExhausted, HorizonExhausted, StoreUnavailable
from wiserouter.operating.account_gauges import OTHER
from wiserouter.operating.metrics import REASONS, Metrics, reason_of

MODELS = [Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))]


@pytest.fixture
def registry():
    return CollectorRegistry()


def routed(budget: Budget | None = None) -> WiseRouter:
    router = WiseRouter(MODELS, seed=0)
    router.start(budget or Budget(1.0, 1_000))
    return router


def samples(registry) -> dict[tuple[str, ...], float]:
    """Return every sample of a scrape, by its name and the values of its labels."""
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def test_counters_follow_decisions_outcomes_and_scores(registry):
    router = routed(Budget(10.0, 1_000))
    watched = Metrics(registry).watch(router, "wise")
    decisions = []
    for at in range(50):
        with watched.deciding():
            decisions.append(router.decide("q"))
        if at < 40:
            router.charge(decisions[at], 0.001 * (at + 1))
    router.release(decisions[40])
    router.presume(decisions[41])
    router.reward(decisions[0], 1.0)
    router.reward(decisions[1], 0.5, source="rule:cut")
    found = samples(registry)
    for name in ("small", "large"):
        of_model = [at for at, one in enumerate(decisions) if one.model == name]
        by_rule = [found.get(("wiserouter_decisions_total", "wise", name, rule), 0.0) for rule in ("first", "plan")]
        assert by_rule == [float(decisions[0].model == name), len(of_model) - float(decisions[0].model == name)]
        charged = sum(0.001 * (at + 1) for at in of_model if at < 40)
        assert found["wiserouter_charged_usd_total", "wise", name] == pytest.approx(charged, abs=1e-12)
    outcomes = {outcome: found["wiserouter_calls_total", "wise", outcome] for outcome in ("charged", "released")}
    assert outcomes == {"charged": 40, "released": 1}
    assert found["wiserouter_calls_total", "wise", "presumed"] == 1
    assert found["wiserouter_rewards_count", "wise", "human"] == found["wiserouter_rewards_count", "wise", "rule"] == 1
    assert found["wiserouter_decide_seconds_count", "wise"] == 50


def test_gauges_show_what_the_status_shows(registry):
    router = routed(Budget(5.0, every="day", within=Budget(50.0, every="month")))
    Metrics(registry).watch(router, "wise", faults=lambda: {"encoder": 3})
    router.charge(router.decide("q"), 0.25)
    router.decide("q")
    found, status = samples(registry), router.status()
    for window in status.windows:
        at = ("wise", "default", window.every)
        assert found["wiserouter_budget_amount_usd", *at] == window.amount_usd
        assert found["wiserouter_budget_spent_usd", *at] == window.spent_usd == 0.25
        assert found["wiserouter_budget_left_usd", *at] == pytest.approx(window.left_usd, abs=1e-12)
        assert found["wiserouter_calls_in_flight", *at] == 1
        assert found["wiserouter_requests_used", *at] == 2
        assert found["wiserouter_budget_renewal_timestamp_seconds", *at] == window.renews_at
        assert found["wiserouter_requests_left", *at] == pytest.approx(window.horizon_left, abs=1)
    assert found["wiserouter_rate_usd", "wise", "default"] == pytest.approx(status.rate_usd, rel=1e-3)
    assert found["wiserouter_shadow_price", "wise", "default"] == pytest.approx(status.shadow_price, rel=1e-3)
    assert found["wiserouter_renewal_timestamp_seconds", "wise", "default"] == status.renews_at
    assert found["wiserouter_store_up", "wise"] == 1
    assert found["wiserouter_faults_total", "encoder", "wise"] == 3


@pytest.mark.parametrize("max_scopes", [10, 1])
def test_a_budget_is_shown_once_and_not_in_the_scopes_that_it_encloses(registry, max_scopes):
    router = routed(Budget(50.0, 100))
    for team, usd in (("team:a", 5.0), ("team:b", 8.0)):
        router.start(Budget(usd, 10), scope=team, parent="default")
    scopes = ["team:a", "default", "team:b"]
    Metrics(registry, max_scopes=max_scopes).watch(router, "wise", scopes=lambda: scopes)
    router.charge(router.decide("q", scope="team:a"), 0.25)
    router.charge(router.decide("q"), 0.5)
    text = generate_latest(registry).decode()
    lines = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines))
    found = samples(registry)
    teams = {"team:a": (5.0, 0.25), "team:b": (8.0, 0.0)} if max_scopes == 10 else {OTHER: (13.0, 0.25)}
    shown = {"default": (50.0, 0.75), **teams}
    for scope, (amount_usd, spent_usd) in shown.items():
        assert found["wiserouter_budget_amount_usd", "wise", scope, "never"] == amount_usd
        assert found["wiserouter_budget_spent_usd", "wise", scope, "never"] == spent_usd


def test_counts_kept_elsewhere_are_added_up_over_scrapes_and_restarts(registry):
    router, faults = routed(), {"store": 2, "encoder": 0}
    metrics = Metrics(registry)
    metrics.watch(router, "wise", faults=lambda: faults)
    assert samples(registry)["wiserouter_faults_total", "store", "wise"] == 2
    faults["encoder"] = 3
    assert samples(registry)["wiserouter_faults_total", "encoder", "wise"] == 3
    metrics.watch(routed(), "wise", faults=lambda: {"store": 0, "encoder": 1})  # a new configuration counts from 0
    samples(registry)
    metrics.watch(routed(), "wise", faults=lambda: {"store": 1, "encoder": 1})
    found = samples(registry)
    assert found["wiserouter_faults_total", "store", "wise"] == 3
    assert found["wiserouter_faults_total", "encoder", "wise"] == 3


def test_the_judge_and_the_caches_are_counted(registry):
    router = WiseRouter(MODELS, seed=0, conversations=Conversations())
    router.start(Budget(1.0, 1_000))
    Metrics(registry).watch(router, "wise")
    judge = router.judge_with(lambda prompt, answer: 1.0, share=1.0, first_scores=0)
    try:
        for used in (Usage(4_000, 10), Usage(5_000, 10)):
            decision = router.decide("q", conversation="chat", eligible=["large"])
            router.charge(decision, usage=used)
        judge.offer(decision, "q", "a")
        judge.flush()
        router.reward(decision, 0.5)
        found = samples(registry)
    finally:
        judge.close()
    assert found["wiserouter_judgements_total", "wise", "judged"] == 1
    assert found["wiserouter_judge_agreement", "wise"] == pytest.approx(0.5)
    assert found["wiserouter_judge_waiting_calls", "wise"] == 0
    assert found["wiserouter_cache_missed_usd_total", "wise"] == router.conversation_figures().missed_usd
    assert found["wiserouter_models", "wise"] == 2
    assert found["wiserouter_floor_usd", "wise"] == router.plan.floor_usd


@pytest.mark.parametrize(
    ("budget", "refused", "reason"),
    [
        (Budget(1e-9, 1_000, limit="hard"), BudgetExhausted, "budget"),
        (Budget(1.0, 1), HorizonExhausted, "horizon"),
    ],
)
def test_a_refusal_is_counted_by_its_reason(registry, budget, refused, reason):
    router = WiseRouter([Model("small", Price(1e-7, 4e-7), max_output_tokens=1_000)], seed=0)
    router.start(budget)
    watched = Metrics(registry).watch(router)
    with pytest.raises(refused):
        for _ in range(2):
            with watched.deciding():
                router.decide("q")
    assert samples(registry)["wiserouter_refusals_total", "default", reason] == 1


def test_every_reason_is_shown_from_the_start(registry):
    Metrics(registry).watch(routed(), "wise")
    words = set(re.findall(r'"(\w+)"', inspect.getsource(reason_of).partition('"""')[2].partition('"""')[2]))
    assert {key[2] for key in samples(registry) if key[0] == "wiserouter_refusals_total"} == set(REASONS) == words


def test_ten_thousand_teams_have_a_bounded_number_of_labels(registry):
    store = MemoryStore()
    router = WiseRouter(MODELS, store=store, seed=0)
    scopes = [f"team-{at}" for at in range(10_000)]
    for at, scope in enumerate(scopes):
        router.start(Budget(1.0, 100), scope=scope)
        router.spend(at / 20_000, scope=scope)
    Metrics(registry, max_scopes=100).watch(router, "wise", scopes=lambda: scopes)
    found = samples(registry)
    spent = {key[2]: value for key, value in found.items() if key[0] == "wiserouter_budget_spent_usd"}
    assert len(spent) == 101
    assert sum(spent.values()) == pytest.approx(np.arange(10_000).sum() / 20_000)
    assert min(value for scope, value in spent.items() if scope != OTHER) == pytest.approx(9_900 / 20_000)


def test_what_is_not_known_is_left_out_and_names_are_escaped(registry):
    router = routed()
    evil = 'a"b\\c\nd<script>'
    router.start(Budget(1.0, 100), scope=evil)
    Metrics(registry).watch(router, "wise", scopes=lambda: ["default", evil, "never started"])
    text = generate_latest(registry).decode()
    found = samples(registry)
    assert found["wiserouter_budget_amount_usd", "wise", evil, "never"] == 1.0
    assert "NaN" not in text
    assert all(math.isfinite(value) for key, value in found.items() if not key[0].endswith("_bucket"))
    assert not [key for key in found if "never started" in key]


def test_a_store_that_is_away_leaves_its_budgets_out(registry, monkeypatch):
    router = routed()
    Metrics(registry).watch(router, "wise")

    def away(scope="default"):
        raise StoreUnavailable("the store cannot be reached", store="redis")

    monkeypatch.setattr(router, "account", away)
    found = samples(registry)
    assert ("wiserouter_store_up", "wise") in found
    assert not [key for key in found if key[0].startswith("wiserouter_budget")]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_lines_that_a_journal_loses_are_faults(registry):
    router = routed()
    Metrics(registry).watch(router, "wise")
    journal = router.journal_to("/dev/full")
    assert samples(registry)["wiserouter_faults_total", "journal", "wise"] == 0
    router.decide("What is the capital of France?")
    assert journal.flush()
    assert samples(registry)["wiserouter_faults_total", "journal", "wise"] == 1
    journal.close()
