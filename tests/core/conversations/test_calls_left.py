import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import CensoredData, ecdf

from wiserouter.conversations.calls_left import MAX_CALLS, CallsLeft
from wiserouter.conversations.open_runs import OpenRuns
from wiserouter.errors import InvalidInput


def observe(left, model, length, *, ended):
    for n in range(1, length + 1):
        left.made(model, n)
    if ended:
        left.ended(model, length)


runs = st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=30)


@given(runs)
def test_the_hazards_are_those_of_the_product_limit_estimator(lengths):
    left = CallsLeft(1, shrink=0.0)
    for length, ended in lengths:
        observe(left, 0, length, ended=ended)
    # a run in progress after n calls may still end at its n-th: it is censored just before
    fates = CensoredData(
        uncensored=[n for n, ended in lengths if ended], right=[n - 0.5 for n, ended in lengths if not ended]
    )
    survival = ecdf(fates).sf
    hazards = left.hazards()[0]
    at_risk = (left.went_on + left.stopped)[0]
    for n in range(1, 41):
        before = survival.evaluate(n - 0.25)
        if before > 0 and at_risk[n - 1] > 0:
            assert 1 - hazards[n - 1] == pytest.approx(survival.evaluate(n) / before)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(1, 40))
def test_with_all_ends_known_the_expectations_are_plain_means(lengths, made):
    left = CallsLeft(1, shrink=0.0)
    for length in lengths:
        observe(left, 0, length, ended=True)
    to_come = np.array([length - made for length in lengths if length >= made], dtype=float)
    if len(to_come):
        assert left.expected(0, made) == pytest.approx(to_come.mean())
        assert left.pairs(0, made) == pytest.approx((to_come * (to_come - 1) / 2).mean())
    assert left.expected(0, 0) == pytest.approx(np.mean(lengths))


def test_a_constant_hazard_gives_the_geometric_mean_residual():
    rng, left = np.random.default_rng(0), CallsLeft(2)
    for model, mean in ((0, 10), (1, 30)):
        for length in rng.geometric(1 / mean, size=3_000):
            observe(left, model, int(length), ended=True)
    for made in (1, 5, 10):
        assert left.expected(0, made) == pytest.approx(9, rel=0.1)
        assert left.expected(1, made) == pytest.approx(29, rel=0.1)
    assert left.pairs(1, 1) == pytest.approx(29**2, rel=0.15)


def test_censored_runs_do_not_shorten_the_estimate():
    rng, left, naive = np.random.default_rng(1), CallsLeft(1), CallsLeft(1)
    for length in rng.geometric(1 / 20, size=3_000):
        seen = int(min(length, rng.integers(1, 60)))
        observe(left, 0, seen, ended=seen == length)
        observe(naive, 0, seen, ended=True)
    assert left.expected(0, 1) == pytest.approx(19, rel=0.1)
    assert naive.expected(0, 1) < 15


def test_a_model_with_few_runs_lasts_as_long_as_the_pool_and_then_as_its_own():
    left = CallsLeft(2)
    for _ in range(200):
        observe(left, 0, 20, ended=True)
    assert left.expected(1, 1) == pytest.approx(19, rel=0.15)
    for _ in range(200):
        observe(left, 1, 5, ended=True)
    assert left.expected(1, 1) == pytest.approx(4, rel=0.1)
    assert left.expected(0, 1) == pytest.approx(19, rel=0.1)


def test_before_anything_is_known_some_calls_are_expected_and_every_figure_is_finite():
    left = CallsLeft(3)
    assert left.of_all(0)[0] == pytest.approx([10, 10, 10])
    observe(left, 0, 2 * MAX_CALLS, ended=False)
    for made in (0, 1, MAX_CALLS, 10 * MAX_CALLS):
        calls, pairs = left.of_all(made)
        assert np.isfinite([*calls, *pairs]).all()
        assert [*calls] == [left.expected(model, made) for model in range(3)]
        assert [*pairs] == [left.pairs(model, made) for model in range(3)]


@given(runs, runs)
def test_merging_commutes_and_equals_learning_everything_in_one_place(mine, theirs):
    def learned(*parts):
        left = CallsLeft(2)
        for length, ended in (run for part in parts for run in part):
            observe(left, length % 2, length, ended=ended)
        return left

    merged, other_way, at_once = learned(mine), learned(theirs), learned(mine, theirs)
    merged.merge(learned(theirs))
    other_way.merge(learned(mine))
    assert merged.of_all(3) == other_way.of_all(3) == at_once.of_all(3)
    again = CallsLeft.of_arrays(at_once.arrays())
    assert again.of_all(2) == at_once.of_all(2)
    again.add_model()
    assert len(again.of_all(1)[0]) == 3
    with pytest.raises(InvalidInput, match="3 models"):
        again.merge(merged)


class TestOpenRuns:
    def test_what_is_used_again_does_not_lapse(self):
        runs = OpenRuns(ttl_s=60)
        runs.touch("a", 0, 1, now_s=0)
        runs.touch("b", 0, 1, now_s=10)
        runs.touch("a", 0, 2, now_s=50)
        assert [key for key, _ in runs.lapsed(now_s=80)] == ["b"]
        assert [(key, run.calls) for key, run in runs.lapsed(now_s=200)] == [("a", 2)]
        assert runs.lapsed(now_s=1e9) == []

    def test_a_reported_end_is_taken_once(self):
        runs = OpenRuns(ttl_s=60)
        runs.touch("a", 1, 4, now_s=0)
        assert runs.close("a").calls == 4
        assert runs.close("a") is None
        assert runs.lapsed(now_s=1e9) == []

    def test_their_number_is_bounded(self):
        runs = OpenRuns(ttl_s=60, max_runs=2)
        for key in "abc":
            runs.touch(key, 0, 1, now_s=0)
        assert len(runs) == 2
        assert runs.close("a") is None
