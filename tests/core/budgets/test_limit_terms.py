"""The terms of limits, their refusals word by word, and their meters against plain sums."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiserouter import Limit, Limits
from wiserouter.budgets.limit_meter import LEAST_WINDOW, WINDOW, LimitMeter
from wiserouter.budgets.limits import Measure
from wiserouter.errors import InvalidInput


@pytest.mark.parametrize(
    ("make", "message", "value"),
    [
        (Limit, "Limit needs mean, share_above or total, got none of them", None),
        (lambda: Limit(mean=0.0), "Limit.mean must be above 0, got 0.0", 0.0),
        (lambda: Limit(mean=1.0, total=0), "Limit.total must be above 0, got 0", 0),
        (lambda: Limit(mean=-1.0), "Limit.mean must be a finite number of at least 0, got -1.0", -1.0),
        (
            lambda: Limit(share_above=3.0),
            "Limit.share_above must be a threshold and a share, such as (3.0, 0.05), got 3.0",
            3.0,
        ),
        (
            lambda: Limit(share_above=(1, 2, 3)),
            "Limit.share_above must be a threshold and a share, such as (3.0, 0.05), got (1, 2, 3)",
            (1, 2, 3),
        ),
        (
            lambda: Limit(share_above=(-1.0, 0.5)),
            "the threshold of Limit.share_above must be a finite number of at least 0, got -1.0",
            -1.0,
        ),
        (lambda: Limit(share_above=(1.0, 1.0)), "its share must lie between 0 and 1, both left out, got 1.0", 1.0),
        (Limits, "Limits must hold at least one limit, got none", None),
        (
            lambda: Limits({"latency_s": 2.0}),
            "limits must be Limit values, such as Limit(mean=2.0), got 2.0",
            2.0,
        ),
        (
            lambda: Limits({"no name": Limit(mean=1.0)}),
            "a resource must have a name such as 'latency_s', and USD are limited by the budget, got 'no name'",
            "no name",
        ),
        (lambda: Limits(min_quality=1.5), "Limits.min_quality must lie in [0, 1], got 1.5", 1.5),
        (lambda: Limits(min_quality={0: 0.5, 1: -0.1}), "Limits.min_quality must lie in [0, 1], got -0.1", -0.1),
        (lambda: Limits(max_share={"a": 1.5}), "Limits.max_share must lie in [0, 1], got 1.5", 1.5),
        (lambda: Limits(min_share={"a": "0.5"}), "Limits.min_share must lie in [0, 1], got '0.5'", "0.5"),
        (
            lambda: Limits(max_share={"a": 0.2}, min_share={"a": 0.3}),
            "min_share must be at most max_share, got 0.3 and 0.2 for 'a'",
            0.3,
        ),
        (lambda: Limits(min_share={"a": 0.6, "b": 0.65}), "min_share must sum to at most 1, got 1.25", None),
    ],
)
def test_wrong_terms_are_refused_with_their_rule(make, message, value):
    with pytest.raises(InvalidInput) as refused:
        make()
    assert str(refused.value) == message
    assert refused.value.value == value


def test_terms_at_the_edge_of_their_rules_are_taken():
    assert Limit(share_above=(3, 0.05)).share_above == (3.0, 0.05)
    assert Limits(min_share={"a": 0.5, "b": 0.5}, max_share={"a": 0.5}).min_share == {"a": 0.5, "b": 0.5}
    assert Limits(min_quality=0).quality_floors == {None: 0}
    assert Limits(min_quality=1.0).quality_floors == {None: 1.0}
    assert Limits(min_quality={2: 0.25}).quality_floors == {2: 0.25}
    assert Limits(max_share={"a": 0.0}).quality_floors == {}
    assert Limits(min_share={"a": 1}).max_share == {}


def test_the_measures_of_limits_and_their_bounds():
    limits = Limits(
        {
            "latency_s": Limit(mean=2.0, share_above=(3.0, 0.05)),
            "energy_wh": Limit(total=9.0),
            "co2_g": Limit(share_above=(1.5, 0.5)),
        }
    )
    latency, energy, slow, dirty = limits.measures
    assert limits.measures == (
        Measure("latency_s"),
        Measure("energy_wh"),
        Measure("latency_s", 3.0),
        Measure("co2_g", 1.5),
    )
    assert [limits.most(one) for one in limits.measures] == [2.0, None, 0.05, 0.5]
    assert [limits.total(one) for one in limits.measures] == [None, 9.0, None, None]
    assert limits.most(Measure("energy_wh", 1.0)) is None
    assert [one.label for one in limits.measures] == ["latency_s", "energy_wh", "latency_s > 3", "co2_g > 1.5"]
    assert (latency.of(4.0), slow.of(3.0), slow.of(3.5), energy.of(0.5)) == (4.0, 0.0, 1.0, 0.5)
    assert (latency.expected(4.0), slow.expected(0.0)) == (4.0, 0.0)
    assert dirty.expected(0.5) == math.exp(-3.0)


@given(st.floats(0.1, 5.0), st.lists(st.floats(0.0, 20.0), max_size=60), st.integers(0, 1_000), st.floats(1.0, 1_000.0))
def test_a_meter_makes_up_for_its_excess_over_the_requests_to_come(mean, uses, requests, total):
    bare, summed, both = LimitMeter(mean), LimitMeter(total=total), LimitMeter(mean, total)
    for use in uses:
        for meter in (bare, summed, both):
            meter.add(use)
    excess = 0.0
    for use in uses:
        excess = max(-300 * mean, excess + use - mean)
    by_mean = mean - excess / max(50, min(requests, 300))
    by_total = (total - sum(uses)) / max(requests, 1)
    assert bare.rate(requests) == pytest.approx(max(0.0, by_mean))
    assert summed.rate(requests) == pytest.approx(max(0.0, by_total))
    assert both.rate(requests) == pytest.approx(max(0.0, min(by_mean, by_total)))
    assert (both.calls, both.used) == (len(uses), pytest.approx(sum(uses)))
    assert (both.mean, both.total) == (mean, total)
    assert (WINDOW, LEAST_WINDOW) == (300, 50)


def test_what_a_meter_carries_on_is_bounded_on_both_sides():
    for use, rate in ((0.0, 2.0), (9.0, 0.0)):
        meter = LimitMeter(mean=1.0)
        for _ in range(2_000):
            meter.add(use)
        assert meter.rate(300) == rate
        assert meter.calls == 2_000
