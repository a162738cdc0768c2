"""Savings: figures computed by hand, properties against the sum over single calls, and what is said of coverage."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter import Budget, Contexts, MemoryStore, Model, Price, Usage, WiseRouter
from wiserouter.errors import InvalidInput, UnknownModel, UnknownPrice
from wiserouter.operating.savings import savings
from wiserouter.operating.savings_quality import ScoreModel
from wiserouter.operating.savings_terms import days_of, read_shares
from wiserouter.pricing.prices import cost_usd
from wiserouter.routing.pool_figures import SUMS, PoolFigures
from wiserouter.testing import FakeClock

DAY_S = 86_400.0
SMALL = Model("small", Price(1e-6, 4e-6, cache_read=1e-7))
LARGE = Model("large", Price(3e-6, 1.5e-5, cache_read=3e-7, cache_write=3.75e-6))
PRICES = {one.name: one.price for one in (SMALL, LARGE)}


def routed(models=(SMALL, LARGE), clock=None, contexts=2) -> WiseRouter:
    found = Contexts(np.eye(contexts), np.full(contexts, 1.0 / contexts))
    router = WiseRouter(models, found, store=MemoryStore(clock or FakeClock(100.5 * DAY_S)), seed=0, growing=None)
    router.start(Budget(1_000.0, 1_000_000))
    return router


def called(router, model, usage=None, *, context=0, score=None, scope="default", cost=None):
    decision = router.decide(context=context, eligible=[model], scope=scope)
    router.charge(decision, cost, usage=usage)
    if score is not None:
        router.reward(decision, score)
    return decision


def test_a_workload_with_cached_tokens_by_hand():
    router = routed(contexts=1)
    for _ in range(3):  # 600 x 1e-6 + 400 x 1e-7 + 50 x 4e-6 = 8.4e-4 each
        called(router, "small", Usage(1_000, 50, cache_read_tokens=400))
    # 200 x 3e-6 + 500 x 3e-7 + 300 x 3.75e-6 + 200 x 1.5e-5 = 4.875e-3
    called(router, "large", Usage(1_000, 200, cache_read_tokens=500, cache_write_tokens=300))
    found = savings(router, "1d")
    assert found.actual.cost_usd == pytest.approx(3 * 8.4e-4 + 4.875e-3, abs=1e-15)
    large, small = found.models["large"], found.models["small"]
    # answers of the length of large, 200 tokens: 600 x 3e-6 + 400 x 3e-7 + 200 x 1.5e-5 = 4.92e-3 each
    assert large.cost_usd == pytest.approx(3 * 4.92e-3 + 4.875e-3, abs=1e-15)
    # 50 tokens; what was written is plain, without a price for writing: 500 x 1e-6 + 500 x 1e-7 + 50 x 4e-6
    assert small.cost_usd == pytest.approx(3 * 8.4e-4 + 7.5e-4, abs=1e-15)
    assert large.saved_usd == pytest.approx(large.cost_usd - found.actual.cost_usd, abs=1e-15)
    assert found.against["best"] == large
    assert found.against["cheapest"] == small
    assert small.saved_usd < 0.0
    assert found.actual.cached_share == pytest.approx(1_700 / 4_000)
    mixed = savings(router, "1d", before="large=1,small=3").against["before"]
    assert mixed.cost_usd == pytest.approx(0.25 * large.cost_usd + 0.75 * small.cost_usd, abs=1e-15)
    assert (large.length_calls, small.length_calls, mixed.length_calls) == (1, 3, 4)


def test_where_no_call_compares_the_cheapest_model_is_that_of_the_lowest_price():
    router = routed((LARGE, SMALL), contexts=1)
    called(router, "large", cost=0.01)  # without tokens
    found = savings(router, "1d")
    assert (found.coverage.compared_calls, found.coverage.without_tokens) == (0, 1)
    assert found.against["cheapest"].models == {"small": 1.0}


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["small", "large"]),
        st.integers(0, 1),
        st.integers(0, 900),
        st.integers(0, 50),
        st.integers(0, 50),
        st.sampled_from([0, 0, 1, 3]),
        st.sampled_from(["default", "a", "b|c"]),
    ),
    max_size=12,
)


@given(CALLS)
@settings(max_examples=25, deadline=None)
def test_sums_are_those_of_the_single_calls(calls):
    """Answers have one length per model, as learned: each model's cost is then the sum over the calls, and its own."""
    clock, length = FakeClock(100.5 * DAY_S), {"small": 30, "large": 70}
    router = routed(clock=clock)
    for scope in ("a", "b|c"):
        router.start(Budget(1_000.0, 1_000_000), scope=scope)
    charged, always = {}, dict.fromkeys(PRICES, 0.0)
    for model, context, plain, read, written, day, scope in sorted(calls, key=lambda one: one[5]):
        clock.advance((100.5 + day) * DAY_S - clock())
        tokens = plain + read + written
        usage = {name: Usage(tokens, length[name], read, written) for name in PRICES}
        called(router, model, usage[model], context=context, scope=scope)
        charged[scope] = charged.get(scope, 0.0) + cost_usd(PRICES[model], usage[model])
        known = {name for name, *_ in calls}
        for name, price in PRICES.items():  # the answers of a model that was never called are as long as they were
            always[name] += cost_usd(price, usage[name if name in known else model])
    clock.advance(104.0 * DAY_S - clock())
    found = savings(router)
    total = sum(charged.values())
    assert found.actual.cost_usd == pytest.approx(total, abs=1e-9)
    assert sum(one.cost_usd for one in found.actual.by_model.values()) == pytest.approx(total, abs=1e-9)
    assert sum(day.cost_usd for day in found.days) == pytest.approx(total, abs=1e-9)
    ledgers = sum(router.status(scope).spent_usd for scope in ("default", "a", "b|c"))
    assert found.actual.cost_usd == pytest.approx(ledgers, abs=1e-9)
    for name, expected in always.items():
        assert found.models[name].cost_usd == pytest.approx(expected, rel=1e-9, abs=1e-12)
        of_days = math.fsum(day.against_usd["best"] for day in found.days)
        assert of_days == pytest.approx(found.against["best"].cost_usd, abs=1e-9)
    for scope in ("default", "a", "b|c"):
        assert savings(router, scope=scope).actual.cost_usd == pytest.approx(charged.get(scope, 0.0), abs=1e-9)


def test_one_model_saves_nothing_against_itself():
    router = routed()
    for at in range(20):
        called(router, "large", Usage(100 + at, 10 + 7 * at, cache_read_tokens=at), context=at % 2)
    found = savings(router)
    assert found.models["large"].cost_usd == found.actual.cost_usd
    assert found.models["large"].saved_usd == 0.0


def test_what_cannot_be_compared_stands_on_neither_side():
    router = routed()
    called(router, "small", Usage(1_000, 100))
    called(router, "small", cost=0.5)  # no tokens
    decision = router.decide(context=0)
    router.charge(decision, 0.0, usage=Usage(1_000, 100), learn=False)  # an answer from a cache
    router.presume(router.decide(context=0))
    router.release(router.decide(context=0))
    found = savings(router)
    coverage = found.coverage
    assert (coverage.calls, coverage.compared_calls, coverage.without_tokens, coverage.set_aside) == (3, 1, 1, 1)
    assert coverage.compared_usd == pytest.approx(0.0014)
    assert (coverage.presumed.calls, coverage.presumed.since) == (1, "1970-04-11")
    assert coverage.presumed.cost_usd == router.status().presumed_usd > 0.0
    assert found.actual.cost_usd == pytest.approx(0.5014)
    assert found.models["small"].saved_usd == 0.0
    assert found.models["large"].saved_usd == pytest.approx(0.003 + 100 * 1.5e-5 - 0.0014)


def test_each_call_counts_once_on_the_day_of_its_decision():
    clock = FakeClock(100.9 * DAY_S)
    router = routed(clock=clock)
    late, presumed = router.decide(context=0, eligible=["small"]), router.decide(context=0, eligible=["small"])
    router.presume(presumed)
    clock.advance(0.3 * DAY_S)
    for one in (late, presumed):
        router.charge(one, 0.25)
        with pytest.raises(Exception, match="charged"):
            router.charge(one, 0.25)
    router.reward(late, 1.0)
    router.reward(late, 0.5)
    found = savings(router, "2d")
    assert [(day.date, day.calls, day.cost_usd) for day in found.days] == [
        ("1970-04-11", 2, 0.5),
        ("1970-04-12", 0, 0.0),
    ]
    assert (found.actual.scores, found.actual.mean_score) == (1, 0.5)


def test_what_the_router_spends_itself_counts_against_it():
    router = routed()
    called(router, "small", Usage(1_000, 0))
    before = savings(router).models["large"]
    router.spend(0.25)
    after = savings(router)
    assert after.actual.other_usd == 0.25
    assert after.models["large"].saved_usd == pytest.approx(before.saved_usd - 0.25)


def test_quality_is_the_mean_of_the_router_with_an_interval():
    router, rng, truth = routed(), np.random.default_rng(1), []
    true = {("small", 0): 0.8, ("small", 1): 0.3, ("large", 0): 0.85, ("large", 1): 0.9}
    for _ in range(400):
        context = int(rng.integers(2))
        model = ["small", "large"][context] if rng.random() < 0.8 else ["large", "small"][context]
        called(router, model, Usage(10, 10), context=context, score=float(rng.random() < true[model, context]))
        truth.append(true[model, context] - true["large", context])
    found, means = savings(router), router.estimates.means().reward
    share = router.estimates.calls.sum(axis=1) / router.estimates.calls.sum()
    for k, name in enumerate(("small", "large")):
        one = found.models[name]
        assert one.quality == pytest.approx(float(share @ means[:, k]), abs=1e-9)
        low, high = one.quality_interval
        assert low < np.mean([true[name, 0], true[name, 1]]) < high
        assert high - low < 0.25
    assert found.against["best"].models == {"large": 1.0}
    assert found.actual.quality_scores == found.actual.scores == 400
    best = found.against["best"]
    assert best.quality_difference == pytest.approx(found.actual.quality - best.quality, abs=1e-9)
    low, high = best.quality_difference_interval
    assert low < np.mean(truth) < high


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """Of 400 worlds with four contexts and two models, for one model and for the difference of two ways to route."""
    rng, held = np.random.default_rng(0), np.zeros(2)
    for _ in range(400):
        true = np.clip(rng.normal(0.6, 0.15, size=(4, 2)), 0.05, 0.95)
        labels = rng.integers(0, 40, size=(4, 2)).astype(float)
        good = rng.binomial(labels.astype(int), true).astype(float)
        sums = dict.fromkeys(SUMS, np.zeros((4, 2))) | {"labels": labels, "reward": good, "reward_sq": good}
        model = ScoreModel(PoolFigures(("a", "b"), (None, None), (True, True), "c", np.full(4, 0.25), sums))
        always, mixed = np.zeros((5, 2)), np.zeros((5, 2))
        always[:4, 0], mixed[[0, 1, 2, 3], [0, 1, 0, 1]] = 0.25, 0.25
        for at, shares in enumerate((always, mixed - always)):
            found = model.mean_of(shares, bounded=False)
            held[at] += found.low <= (shares[:4] * true).sum() <= found.high
    assert (held / 400 >= 0.9).all()
    assert (held / 400 <= 0.995).all()


def test_nothing_is_known_of_quality_without_scores():
    router = routed()
    called(router, "small", Usage(10, 10))
    found = savings(router)
    assert found.actual.quality is None
    assert found.against["best"].quality is None
    assert found.against["best"].models == {"large": 1.0}  # of the highest price
    called(router, "small", Usage(10, 10), score=0.0)
    found = savings(router)
    assert found.against["best"].models == {"small": 1.0}
    low, high = found.actual.quality_interval
    assert (low, high > 0.5) == (0.0, True)


def test_a_report_without_a_call_has_no_figure_that_is_not_a_number():
    found = savings(routed(), before="small").as_dict()
    assert found["actual"]["calls"] == 0
    assert found["against"]["before"]["cost_usd"] == 0.0
    assert "nan" not in str(found).lower()


def test_a_model_without_a_price_costs_its_mean():
    router = routed((Model("plain", max_cost_usd=1.0), SMALL, Model("idle", max_cost_usd=1.0)))
    called(router, "plain", Usage(10, 10), cost=0.2)
    called(router, "plain", Usage(10, 10), cost=0.4)
    called(router, "small", Usage(1_000, 0))
    found = savings(router)
    assert found.models["plain"].cost_usd == pytest.approx(0.2 + 0.4 + 0.3)
    assert set(found.models) == {"plain", "small"}
    assert found.coverage.without_price == ("plain", "idle")
    with pytest.raises(UnknownPrice, match="idle"):
        savings(router, before="idle")


def test_calls_of_former_contexts_count_like_the_usual_mix():
    router = routed()
    called(router, "small", Usage(10, 10), context=1, score=1.0)
    router._learner.contexts = Contexts(np.eye(2)[::-1].copy(), [0.5, 0.5])
    called(router, "small", Usage(10, 10), context=1)
    assert savings(router).coverage.in_other_contexts == 1


def test_scopes_beyond_the_bound_count_together():
    router = routed()
    for at in range(60):
        router.start(Budget(1.0, 100), scope=f"team-{at}")
        called(router, "small", Usage(10, 10), scope=f"team-{at}")
    assert savings(router).actual.calls == 60
    assert savings(router, scope="team-3").actual.calls == 1
    assert savings(router, scope="(other)").actual.calls == 40


def test_old_days_are_forgotten():
    clock = FakeClock(100.5 * DAY_S)
    router = routed(clock=clock)
    for _ in range(100):
        called(router, "small", Usage(10, 10))
        clock.advance(DAY_S)
    assert len(router._days._buckets) <= 62
    assert savings(router, "99d").actual.calls == 62


@pytest.mark.parametrize(
    "since", ["", "30", "d", "0d", "500d", "2999-01-01", "yesterday", "-3d", "1e9d", "12h", "2024-10-01T05:00"]
)
def test_periods_that_cannot_be_read(since):
    with pytest.raises(InvalidInput, match="since must"):
        days_of(since, 20_000.5 * DAY_S)


def test_a_time_that_is_no_day_of_utc_is_refused_as_such():
    with pytest.raises(InvalidInput, match="since must begin with a day of UTC"):
        days_of("2024-10-01T00:00:00+05:00", 20_000.5 * DAY_S)


def test_periods():
    now_s = 20_000.5 * DAY_S
    assert days_of("1d", now_s) == range(20_000, 20_001)
    assert days_of("2w", now_s) == range(19_987, 20_001)
    assert days_of("48h", now_s) == days_of("2d", now_s)
    assert days_of("2024-10-01", now_s) == days_of("20241001", now_s) == range(19_997, 20_001)


@pytest.mark.parametrize("before", ["", "a=x", {"a": -1.0, "b": 2.0}, {"a": 0.0}, {"a": math.inf}, "a=nan"])
def test_shares_that_cannot_be_read(before):
    with pytest.raises(InvalidInput, match="before must"):
        read_shares(before)


def test_unknown_models_of_before():
    with pytest.raises(UnknownModel, match="huge"):
        savings(routed(), before="huge")
