import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from wiserouter import Budget, Contexts, Estimates, Model, Offline, Price, Shadow, Usage, WiseRouter
from wiserouter.budgets.changes import BudgetChange
from wiserouter.budgets.pauses import BudgetPaused
from wiserouter.cli import app
from wiserouter.errors import AlreadySettled, InvalidInput, NotStarted, UnknownModel
from wiserouter.evaluation.off_policy import read_decisions
from wiserouter.evaluation.off_policy.shadow_calls import UNNAMED, ShadowCalls, read_shadow_calls
from wiserouter.evaluation.off_policy.shadow_gain import gain, incumbents
from wiserouter.evaluation.off_policy.shadow_report import lines_of, report_of
from wiserouter.evaluation.off_policy.steady_shares import shares_are_steady
from wiserouter.operating.savings import savings
from wiserouter.routing.journal_reader import JournalReader
from wiserouter.routing.shadow import observed_scope

MODELS = (Model("small", Price(1e-6, 1e-6), max_cost_usd=2.0), Model("large", Price(3e-6, 3e-6), max_cost_usd=4.0))


def make(shadow=None, budget=None, **options):
    estimates = Estimates(1, 2)
    estimates.add_table(np.zeros(2, dtype=np.int64), [[0.2, 0.9]] * 2, [[1.0, 3.0]] * 2)
    router = WiseRouter(MODELS, Contexts.single(), estimates=estimates, policy=Offline(), seed=0, **options)
    router.shadow = Shadow() if shadow is None else shadow
    router.start(budget or Budget(2_000.0, 1_000))
    return router


def journal_of(router, path, steps):
    journal = router.journal_to(path)
    steps()
    journal.flush()
    journal.close()
    return list(JournalReader(path))


@pytest.mark.parametrize("limit", ["expected", "hard"])
def test_observed_calls_spend_nothing_of_the_budget(limit):
    router = make(budget=Budget(2_000.0, 1_000, limit=limit))
    decision = router.observe("a", incumbent="large")
    assert (decision.model, decision.would_be) == ("large", router.decision(decision.id).model)
    assert router.status().reserved_usd == router.status().spent_usd == router.status().decided == 0
    router.charge(decision, cost_usd=7.0)
    assert router.status().spent_usd == 0.0
    assert router.status(observed_scope("default")).spent_usd == pytest.approx(decision.expected_cost_usd)
    with pytest.raises(AlreadySettled):
        router.charge(decision.id, cost_usd=7.0)


def test_cost_and_score_are_learned_for_the_model_that_ran():
    router = make()
    decision = router.observe("a", incumbent="large")
    invoked, sums = router.estimates.invoked.copy(), router.estimates.cost.copy()
    router.charge(decision.id, usage=Usage(1_000_000, 0))
    router.reward(decision.id, 0.25)
    assert (router.estimates.invoked - invoked).tolist() == [[0.0, 1.0]]
    assert (router.estimates.cost - sums).tolist() == [[0.0, pytest.approx(3.0)]]
    assert router.estimates.labels.tolist() == [[2.0, 3.0]]


def test_the_model_that_ran_may_be_named_by_the_charge():
    router = make()
    decision = router.observe("a")
    router.charge(decision, cost_usd=5.0, model="large")
    router.reward(decision, 1.0)
    assert router.estimates.labels[0].tolist() == [2.0, 3.0]
    assert router.explain(decision.id).answered_by == "large"


def test_a_score_before_the_charge_counts_for_the_model_that_ran():
    router = make(budget=Budget(4_000.0, 1_000))
    unnamed, named = router.observe("a"), router.observe("a", incumbent="small")
    for decision in (unnamed, named):
        router.reward(decision, 1.0)
    before = router.estimates.labels[0].copy()
    router.charge(unnamed, cost_usd=0.25, model="small")
    router.charge(named, cost_usd=0.25, model="small")
    assert (router.estimates.labels[0] - before).tolist() == [1.0, -1.0]
    assert router.estimates.labels[0].tolist() == [4.0, 2.0]


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
def test_calls_observed_before_the_mode_changed_are_none_of_the_routers(by_id, ordered):
    router = make()
    decision = router.observe("a", incumbent="large")
    if ordered:
        router.change_mode("route")
    else:
        router.shadow = None
    before = router.estimates.invoked[0].copy()
    router.charge(decision.id if by_id else decision, cost_usd=7.0)
    assert (savings(router).actual.calls, savings(router).actual.cost_usd) == (0, 0.0)
    assert (router.estimates.invoked[0] - before).tolist() == [0.0, 1.0]
    assert router.status(observed_scope("default")).spent_usd == pytest.approx(decision.expected_cost_usd)


def test_a_call_that_failed_leaves_no_trace_in_the_estimates():
    router = make()
    before = router.estimates.invoked.copy()
    decision = router.observe("a", incumbent="small")
    router.release(decision)
    assert np.array_equal(router.estimates.invoked, before)
    other = router.observe("b", incumbent="small")
    router.presume(other)
    assert router.status().spent_usd == 0.0


def test_nothing_is_refused_where_the_observed_account_is_used_up():
    router = make(budget=Budget(4.0, 2, limit="hard"))
    for i in range(20):
        router.charge(router.observe(f"question {i}", incumbent="large"), cost_usd=3.0)
    assert router.observe("more", incumbent="large").would_be == "small"


def test_a_share_is_acted_on_within_its_part_of_the_budget():
    router = make(Shadow(0.25), Budget(4_000.0, 2_000, limit="hard"))
    assert router.status().amount_usd == 1_000.0
    acted = 0
    for i in range(1_000):
        decision = router.observe(f"q {i}", incumbent="large", draw_key=f"thread {i % 200}")
        acts = not decision.would_be
        assert acts is Shadow(0.25).acts(f"thread {i % 200}")
        acted += acts
        router.charge(decision, cost_usd={"small": 1.0, "large": 3.0}[decision.model])
    assert 0.15 < acted / 1_000 < 0.35
    status = router.status()
    assert 0 < status.spent_usd <= 1_000.0
    assert status.decided == acted


def test_a_share_whose_budget_is_used_up_is_only_observed(tmp_path):
    router = make(Shadow(0.5), Budget(8.0, 8))
    keys = [key for i in range(40) if Shadow(0.5).acts(key := f"k{i}")][:10]

    def steps():
        for key in keys:
            router.charge(router.observe("a", incumbent="large", draw_key=key), cost_usd=1.0)

    sides = [event for event in journal_of(router, tmp_path / "j.jsonl", steps) if event["event"] == "shadow"]
    acts = [side["acts"] for side in sides]
    assert acts[0]
    assert not acts[-1]
    assert {side["share"] for side in sides if not side["acts"]} == {0.0}


def test_a_used_up_budget_refuses_no_call_of_the_whole_share():
    router = make(Shadow(1.0), Budget(2.5, 2, limit="hard"))
    for acts in (True, False):
        decision = router.observe("a", incumbent="small")
        assert (decision.would_be == "") is acts
        router.charge(decision, cost_usd=2.0)
    assert router.status().spent_usd == 2.0
    assert router.status(observed_scope("default")).decided == 1
    router.set_budget(amount_usd=500.0)
    assert router.status().amount_usd == 500.0


def test_a_changed_budget_is_divided_again():
    router = make(Shadow(0.1))
    router.set_budget(amount_usd=500.0)
    assert router.status().amount_usd == pytest.approx(50.0)
    assert router.status(observed_scope("default")).amount_usd == pytest.approx(450.0)


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_a_budget_is_paused_and_goes_on(share, tmp_path):
    router = make(Shadow(share))

    def steps():
        assert router.change_budget(BudgetChange(paused=True, reason="audit")).after["paused"]
        with pytest.raises(BudgetPaused):
            router.decide("a")
        assert router.observe("a", incumbent="small", acts=True).would_be  # it goes where it went without the router
        assert not router.change_budget(BudgetChange(paused=False)).after["paused"]
        router.decide("a")

    changes = [line for line in journal_of(router, tmp_path / "journal.jsonl", steps) if line["event"] == "change"]
    assert [line["after"]["paused"] for line in changes] == [True, False]


def test_a_budget_that_was_started_before_the_mode_is_changed_as_a_whole():
    router = WiseRouter(MODELS)
    router.start(Budget(2_000.0, 1_000))
    router.shadow = Shadow(0.5)
    router.set_budget(amount_usd=500.0)
    assert router.change_budget(BudgetChange(add_usd=100.0)).after["amount_usd"] == 600.0
    with pytest.raises(NotStarted, match="scope 'team' has no budget"):
        router.set_budget(amount_usd=500.0, scope="team")


def test_what_is_missing_is_named():
    router = WiseRouter(MODELS)
    with pytest.raises(InvalidInput, match=r"router\.shadow = Shadow"):
        router.observe("a", incumbent="small")
    router.shadow = Shadow()
    with pytest.raises(InvalidInput, match="then call start"):
        router.observe("a", incumbent="small")
    with pytest.raises(UnknownModel):
        make().observe("a", incumbent="medium")
    with pytest.raises(InvalidInput, match="between 0 and 1, got 2"):
        Shadow(2)


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/shadow.db"])
def test_stores_keep_the_two_sides(url, tmp_path):
    router = make(Shadow(0.0), store=url.format(tmp_path))
    decision = router.observe("a", incumbent="large")
    router.charge(decision.id, cost_usd=2.0)
    assert router.reward(decision.id, 0.5) is False
    assert router.status().spent_usd == 0.0
    router.close()


def test_the_journal_names_both_sides_and_evaluate_leaves_observed_calls_out(tmp_path):
    router = make(Shadow(0.5))
    keys = [next(f"k{i}" for i in range(99) if Shadow(0.5).acts(f"k{i}") is acts) for acts in (True, False)]

    def steps():
        for key in keys:
            decision = router.observe("a", incumbent="large", draw_key=key)
            router.charge(decision, cost_usd=3.0)
            router.reward(decision, 1.0)

    events = journal_of(router, tmp_path / "j.jsonl", steps)
    assert [event["event"] for event in events] == ["decision", "shadow", "charge", "reward"] * 2
    assert [(e["acts"], e["incumbent"]) for e in events if e["event"] == "shadow"] == [
        (True, "large"),
        (False, "large"),
    ]
    assert read_decisions(events).n == 1
    calls = read_shadow_calls(events)
    assert (calls.n, calls.acted.tolist(), calls.cost_usd.tolist()) == (2, [True, False], [3.0, 3.0])
    assert calls.would_be.sum(axis=1) == pytest.approx([1.0, 1.0])
    with pytest.raises(InvalidInput, match="mode: shadow"):
        read_shadow_calls([])


def test_a_report_keeps_little_of_each_line(tmp_path):
    router = make(Shadow(0.0))
    once = journal_of(
        router, tmp_path / "j.jsonl", lambda: router.charge(router.observe("a", incumbent="large"), cost_usd=3.0)
    )
    lines, n = [json.dumps(event).replace(once[0]["id"], "{}") for event in once], 2_000
    events = (json.loads(line.replace("{}", f"{i:032}", 1)) for i in range(n) for line in lines)
    tracemalloc.start()
    calls = read_shadow_calls(events)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert calls.n == n
    assert peak / n < 2_000  # bytes; the lines themselves take 6,000


def calls_of(ran, would_be, *, share=0.0, acted=None, incumbent=None, reward=None, cost=None, unit=None):
    n, k = np.shape(would_be)
    nothing = np.full((n, k), np.nan)
    return ShadowCalls(
        tuple(f"m{i}" for i in range(k)),
        np.zeros(n, dtype=np.int64),
        np.asarray(ran),
        np.full(n, UNNAMED) if incumbent is None else np.asarray(incumbent),
        np.zeros(n, dtype=bool) if acted is None else np.asarray(acted),
        np.full(n, share),
        np.asarray(would_be, dtype=float),
        np.ones(n) if cost is None else np.asarray(cost, dtype=float),
        np.full(n, np.nan) if reward is None else np.asarray(reward, dtype=float),
        nothing,
        nothing,
        np.arange(n) if unit is None else np.asarray(unit),
    )


def test_the_gain_of_a_load_balancer_is_that_of_the_better_half():
    rng, n = np.random.default_rng(0), 4_000
    ran = rng.integers(2, size=n)
    reward = (rng.random(n) < np.array([0.3, 0.8])[ran]).astype(float)
    found = gain(calls_of(ran, np.tile([0.0, 1.0], (n, 1)), reward=reward))
    assert found.share == 1.0
    assert found.total.low < 0.25 < found.total.high
    assert found.total.high - found.total.low < 0.1
    assert incumbents(calls_of(ran, np.tile([0.0, 1.0], (n, 1))))[0] == pytest.approx([0.5, 0.5], abs=0.05)


def test_without_overlap_the_interval_holds_every_reward():
    n = 1_000
    found = gain(
        calls_of(np.zeros(n, int), np.tile([0.0, 1.0], (n, 1)), incumbent=np.zeros(n, int), reward=np.full(n, 0.4))
    )
    assert (found.share, found.effective, found.where) == (0.0, 0.0, {"m1": 1.0})
    assert found.total.low == pytest.approx(-0.4, abs=0.02)
    assert found.total.high == pytest.approx(0.6, abs=0.02)


def test_an_incumbent_that_no_call_shows_counts_by_estimates_within_every_reward():
    n = 1_000
    told = {"share": 1.0, "acted": np.ones(n, bool), "incumbent": np.ones(n, int), "reward": np.full(n, 0.4)}
    calls = calls_of(np.zeros(n, int), np.tile([1.0, 0.0], (n, 1)), **told)
    calls = calls._replace(expected_cost_usd=np.tile([1.0, 3.0], (n, 1)))
    reward, cost = gain(calls), gain(calls, "cost_usd")
    assert (reward.share, reward.baseline_share) == (1.0, 0.0)
    assert (reward.total.low, reward.total.high) == pytest.approx((-0.6, 0.4), abs=0.02)
    assert (reward.baseline.low, reward.baseline.high) == (0.0, 1.0)
    assert cost.total.mean == pytest.approx(-2.0, abs=0.02)
    assert cost.baseline.mean == 3.0
    assert any("100% of what runs without the router no call shows" in line for line in lines_of(report_of(calls)))


def test_what_few_calls_show_of_the_incumbent_counts_and_not_the_estimates():
    n = 60
    told = {"incumbent": np.zeros(n, int), "reward": np.full(n, 0.9), "cost": np.full(n, 2.0)}
    calls = calls_of(np.zeros(n, int), np.tile([0.0, 1.0], (n, 1)), **told)
    calls = calls._replace(expected_cost_usd=np.tile([5.0, 1.0], (n, 1)))
    reward, cost = gain(calls), gain(calls, "cost_usd")
    assert (reward.baseline_share, cost.baseline_share) == (1.0, 1.0)
    assert (reward.baseline.mean, cost.baseline.mean) == pytest.approx((0.9, 2.0))
    assert not any("what runs without the router no call shows" in line for line in lines_of(report_of(calls)))


@settings(max_examples=10)
@given(st.floats(0.05, 1.0), st.integers(0, 2**32 - 1))
def test_equal_choices_gain_nothing(share, seed):
    rng, n = np.random.default_rng(seed), 500
    incumbent = np.array([1] * n)
    would_be = np.tile([0.0, 1.0], (n, 1))
    found = gain(calls_of(incumbent, would_be, share=share, incumbent=incumbent, reward=rng.random(n)))
    assert found.total.mean == pytest.approx(0.0, abs=1e-12)


@settings(max_examples=20)
@given(st.integers(4, 200), st.floats(0.05, 0.95), st.integers(0, 2**32 - 1))
def test_no_interval_of_rewards_leaves_what_rewards_can_be(n, share, seed):
    rng = np.random.default_rng(seed)
    acted, ran = rng.random(n) < share, rng.integers(2, size=n)
    reward = np.where(rng.random(n) < 0.5, rng.integers(2, size=n), np.nan)
    reward[0] = 1.0
    calls = calls_of(ran, rng.dirichlet((0.1, 0.1), size=n), share=share, acted=acted, reward=reward)
    found = gain(calls)
    assert -1.0 <= found.total.low <= found.total.mean <= found.total.high <= 1.0
    assert 0.0 <= found.baseline.low <= found.baseline.mean <= found.baseline.high <= 1.0


def test_where_the_router_acts_the_report_does_not_advise_a_share_of_a_tenth():
    n, would_be = 40, np.tile([0.0, 1.0], (40, 1))
    told = {"incumbent": np.zeros(n, int), "reward": np.full(n, 0.9)}
    before = calls_of(np.zeros(n, int), would_be, **told)
    assert any("acting on a share (share: 0.1) shows them" in line for line in lines_of(report_of(before)))
    acted = np.arange(n) == 0
    after = calls_of(acted.astype(int), would_be, share=0.1, acted=acted, **told)
    assert any("acting for longer, or on a larger share, shows them" in line for line in lines_of(report_of(after)))
    assert not any("share: 0.1" in line for line in lines_of(report_of(after)))


def gain_in_threads(seed, n_threads, n_calls):
    """Return the gain that the report finds where threads are acted on as a whole, and the true one."""
    rng = np.random.default_rng(seed)
    thread = np.repeat(np.arange(n_threads), n_calls)
    hardness = rng.normal(0.0, 0.3, n_threads)[thread, np.newaxis]
    worth = np.clip(np.array([0.5, 0.7]) + hardness * np.array([1.0, 0.3]), 0.0, 1.0)
    acted = (rng.random(n_threads) < 0.2)[thread]
    ran = np.where(acted, (rng.random(n_threads) < 0.3)[thread], True).astype(int)
    reward = rng.random(len(thread)) < worth[np.arange(len(thread)), ran]
    would_be, large = np.tile([0.7, 0.3], (len(thread), 1)), np.ones(len(thread), dtype=int)
    calls = calls_of(ran, would_be, share=0.2, acted=acted, incumbent=large, reward=reward, unit=thread)
    return gain(calls), float((would_be * worth).sum(axis=1).mean() - worth[:, 1].mean())


def test_the_interval_covers_the_gain_where_the_calls_of_a_thread_are_alike():
    covers = []
    for seed in range(100):
        found, truth = gain_in_threads(seed, 600, 10)
        assert found.share == pytest.approx(1.0)
        covers.append(found.total.low < truth < found.total.high)
    assert np.mean(covers) > 0.88  # calls taken one by one cover .72


def gain_of_sticky_threads(seed, n_threads, n_calls):
    """Return the gain that the report finds where a load balancer draws a model for each thread, and the true one."""
    rng = np.random.default_rng(seed)
    thread = np.repeat(np.arange(n_threads), n_calls)
    worth = np.clip(np.array([0.5, 0.7]) + rng.normal(0.0, 0.3, (n_threads, 2)), 0.0, 1.0)[thread]
    ran = rng.integers(2, size=n_threads)[thread]
    reward = rng.random(len(thread)) < worth[np.arange(len(thread)), ran]
    would_be = np.tile([0.1, 0.9], (len(thread), 1))
    truth = float(((would_be - 0.5) * worth).sum(axis=1).mean())
    return gain(calls_of(ran, would_be, reward=reward, unit=thread)), truth


def test_the_interval_covers_the_gain_where_a_load_balancer_keeps_to_a_model_in_a_thread():
    covers = []
    for seed in range(100):
        found, truth = gain_of_sticky_threads(seed, 600, 10)
        assert found.share == pytest.approx(1.0)
        covers.append(found.total.low < truth < found.total.high)
    assert np.mean(covers) > 0.88


def test_a_load_balancer_that_draws_each_call_shows_more_than_one_draw_of_a_thread():
    rng, n = np.random.default_rng(0), 1_500
    thread, ran = np.repeat(np.arange(150), 10), rng.integers(2, size=n)
    of_calls, of_threads = (
        gain(calls_of(drawn, np.tile([0.0, 1.0], (n, 1)), reward=rng.random(n), unit=thread))
        for drawn in (ran, ran[thread])
    )
    assert of_calls.share == 1.0
    assert of_threads.effective == 0.0


def drawn_with(shares, seed=0, n_calls=1):
    """Return calls that a load balancer has drawn, 300 threads with each share of the second model."""
    rng = np.random.default_rng(seed)
    ran = np.repeat(np.concatenate([rng.random(300) < share for share in shares]).astype(int), n_calls)
    return calls_of(ran, np.tile([0.0, 1.0], (len(ran), 1)), unit=np.repeat(np.arange(len(shares) * 300), n_calls))


@pytest.mark.parametrize("shares", [(0.9, 0.1), (0.4, 0.6), (0.1, 0.9) * 4])
def test_the_report_says_that_the_shares_of_a_load_balancer_have_changed(shares):
    figures = report_of(drawn_with(shares))
    assert any("Its shares have changed with the time" in line for line in lines_of(figures))


@pytest.mark.parametrize("n_calls", [1, 10])
def test_shares_that_stay_are_taken_for_steady(n_calls):
    found = [shares_are_steady(drawn_with((0.3, 0.3), seed, n_calls)) for seed in range(100)]
    assert sum(found) >= 98
    for calls in (drawn_with((1.0, 1.0)), calls_of([0, 1], np.eye(2))):
        assert shares_are_steady(calls)


def test_the_report_says_that_calls_of_one_thread_show_nothing_and_not_that_none_has_a_score():
    would_be, reward = np.tile([0.0, 1.0], (40, 1)), np.tile([0.0, 1.0], 20)
    of_thread = report_of(calls_of(np.arange(40) % 2, would_be, reward=reward, unit=np.zeros(40, dtype=np.int64)))
    unscored = report_of(calls_of(np.arange(40) % 2, would_be))
    assert (of_thread["scored"], unscored["scored"]) == (40, 0)
    assert any("All calls begin alike or are of one conversation" in line for line in lines_of(of_thread))
    assert any("No call has a score" in line for line in lines_of(unscored))


def test_threads_that_last_do_not_change_the_shares_of_calls_that_are_drawn_one_by_one():
    found = []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        begins, thread = rng.random(1_000), np.repeat(np.arange(1_000), 8)
        order = np.argsort(begins[thread] + 0.2 * rng.random(8_000))
        ran = (rng.random(8_000) < 0.1).astype(int)
        found.append(shares_are_steady(calls_of(ran, np.tile([0.0, 1.0], (8_000, 1)), unit=thread[order])))
    assert sum(found) >= 49


def test_few_threads_show_nothing_however_many_calls_they_have():
    found, truth = gain_in_threads(0, 60, 100)
    assert found.share < 0.4  # what the incumbent shows anyway
    assert found.total.low < truth < found.total.high
    assert found.total.high - found.total.low > 0.6
    assert gain_in_threads(0, 1, 100)[0] is None


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_journal_says_which_calls_belong_together_and_names_no_key(tmp_path, share):
    router = make(Shadow(share))

    def steps():
        for key, share_key in (("thread-1", None), ("thread-2", None), ("thread-1", None), ("a", "s"), ("b", "s")):
            router.charge(router.observe("a", incumbent="large", draw_key=key, share_key=share_key), cost_usd=1.0)
        router.charge(router.observe("a", incumbent="large"), cost_usd=1.0)

    events = journal_of(router, tmp_path / "j.jsonl", steps)
    assert read_shadow_calls(events).unit.tolist() == [0, 1, 0, 2, 2, 3]
    assert "thread" not in (tmp_path / "j.jsonl").read_text()
    earlier = [{name: value for name, value in event.items() if name != "unit"} for event in events]
    assert read_shadow_calls(earlier).unit.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_share_key_decides_the_side_in_place_of_the_draw_key():
    router = make(Shadow(0.5))
    for key in "abcdefgh":
        assert (router.observe("a", draw_key="x", share_key=key).would_be == "") is Shadow(0.5).acts(key)


@settings(max_examples=10)
@given(st.floats(0.01, 0.99))
def test_the_share_of_keys_is_the_share(share):
    acts = np.mean([Shadow(share, "salt").acts(f"key {i}") for i in range(2_000)])
    assert abs(acts - share) < 5 * (share * (1 - share) / 2_000) ** 0.5 + 1e-3


def test_the_report_is_printed(tmp_path):
    path = tmp_path / "j.jsonl"
    router = make(Shadow(0.3, salt="a"))
    rng = np.random.default_rng(0)

    def steps():
        for i in range(600):
            decision = router.observe("a", incumbent="small", draw_key=f"t{i}")
            router.charge(decision, cost_usd={"small": 1.0, "large": 3.0}[decision.model])
            router.reward(decision, float(rng.random() < {"small": 0.2, "large": 0.9}[decision.model]))

    journal_of(router, path, steps)
    told = json.loads(CliRunner().invoke(app, ["shadow", "report", str(path), "--json"]).output)
    assert (told["calls"], told["named_incumbent"]) == (600, True)
    assert told["reward"]["difference"]["low"] < 0.35 < told["reward"]["difference"]["high"]
    assert told["cost_usd"]["difference"]["low"] < 1.0 < told["cost_usd"]["difference"]["high"]
    assert told["reward"]["shown_by_calls"]["share"] == pytest.approx(1.0)
    shown = CliRunner().invoke(app, ["shadow", "report", str(path)])
    assert shown.exit_code == 0
    assert "Reward (600 scores) per call" in shown.output
