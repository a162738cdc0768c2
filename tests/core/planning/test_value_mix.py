"""The mix of stated values against weighted sums over all requests, and how often its shares are computed again."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiserouter.errors import InvalidInput
from wiserouter.planning.value_mix import LEAST_VALUE, MEMORY, MOST_VALUE, Tier, ValueMix, check_value


def tiers_by_hand(values, n_plain):
    """Return the mean and the share of each tier; earlier requests weigh less, and plain ones came before all."""
    sums = {0: [n_plain, n_plain]} if n_plain else {}
    for age, value in enumerate(reversed(values)):
        weight = MEMORY**age
        tier = sums.setdefault(round(math.log(value) / math.log(1.25)), [0.0, 0.0])
        tier[0] += weight
        tier[1] += weight * value
    if n_plain:
        for k in (0, 1):
            sums[0][k] -= n_plain * (1.0 - MEMORY ** len(values))
    total = sum(count for count, _ in sums.values())
    return [(worth / count, count / total) for _, (count, worth) in sorted(sums.items())]


@given(st.lists(st.floats(LEAST_VALUE, MOST_VALUE), min_size=1, max_size=40), st.sampled_from([0.0, 5.0, 1e9]))
def test_the_tiers_are_weighted_means_of_the_values(values, n_plain):
    mix = ValueMix(n_plain)
    for value in values:
        mix.add(value)
    found, by_hand = mix.tiers(), tiers_by_hand(values, min(n_plain, 5_000.0))
    assert np.array(found) == pytest.approx(np.array(by_hand), rel=1e-6)
    assert all(isinstance(one, Tier) for one in found)
    assert mix.is_plain == all(value == 1.0 for value in values)


def test_values_of_one_tier_are_not_plain_unless_they_are_one():
    assert ValueMix().is_plain
    assert ValueMix(7.0).is_plain
    mix = ValueMix(7.0)
    mix.add(1.0)
    assert mix.is_plain
    mix.add(1.05)
    assert not mix.is_plain
    assert len(mix.tiers()) == 1


def test_values_that_have_faded_entirely_leave_the_tiers(monkeypatch):
    monkeypatch.setattr("wiserouter.planning.value_mix.MEMORY", 0.9)
    mix = ValueMix()
    for value in [0.1, 900.0, *[1.0] * 8_000]:
        mix.add(value)
    (tier,) = mix.tiers()
    assert tier == pytest.approx((1.0, 1.0))


def test_the_shares_are_computed_again_after_two_in_a_hundred_and_at_least_one():
    renewed, mix = [], ValueMix()
    last = mix.tiers()
    assert last == ()
    for n in range(1, 701):
        mix.add(2.0)
        if mix.tiers() is not last:
            renewed.append(n)
            last = mix.tiers()
    assert renewed[:50] == list(range(1, 51))
    assert 120 < len(renewed) < 200
    gaps = np.diff(renewed)
    assert gaps[-1] == math.ceil(0.02 * renewed[-2])


def test_on_many_requests_a_hundred_new_ones_renew_the_shares():
    mix = ValueMix(1e6)
    first = mix.tiers()
    n = 0
    while mix.tiers() is first and n < 1_000:
        mix.add(2.0)
        n += 1
    assert 100 <= n <= 101  # 2 % of 5,000, which count


def test_a_value_is_a_number_within_its_range():
    assert [check_value(value) for value in (1e-3, 1e3, 3, np.float64(2.0))] == [1e-3, 1e3, 3.0, 2.0]
    assert type(check_value(3)) is float
    for wrong in (0.0, 1e-4, 1_000.5, math.nan, True, "1"):
        with pytest.raises(InvalidInput) as refused:
            check_value(wrong)
        assert str(refused.value) == (
            f"value must be a number from 0.001 to 1000, got {wrong!r}: "
            "state values relative to 1, the value of a request without one"
        )
        assert refused.value.value is wrong
