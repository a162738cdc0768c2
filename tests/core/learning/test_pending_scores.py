"""The share of calls that get a score, against simulated scores that are late, rare or missing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter.learning.estimates import Estimates
from wiserouter.learning.optimistic_estimates import scored_share
from wiserouter.learning.pending_scores import LATEST_S, PendingScores


def served(share, mean_delay_s, *, calls=3_000, gap_s=1.0, seed=0):
    """Return the estimates of a router just after its last decision, each scored with `share`, exponentially late."""
    rng = np.random.default_rng(seed)
    made_s = gap_s * np.arange(calls)
    scored_s = np.where(rng.random(calls) < share, made_s + rng.exponential(mean_delay_s, calls), np.inf)
    estimates, pending = Estimates(1, 1), PendingScores()
    arrivals = sorted([(at, 1, i) for i, at in enumerate(scored_s) if np.isfinite(at)] + [(at, 0, 0) for at in made_s])
    for at, kind, i in arrivals:
        if at > made_s[-1]:
            break
        if kind:
            estimates.add_reward(0, 0, 1.0, delay_s=at - made_s[i])
        else:
            estimates.add_invoked(0, 0)
            if estimates.n_invoked >= pending.due:
                pending.update(estimates, at)
    return estimates


@settings(max_examples=20, deadline=None)
@given(share=st.sampled_from([0.02, 0.2, 0.5, 1.0]), seed=st.integers(0, 10**6))
def test_scores_that_come_at_once_are_counted_over_all_calls(share, seed):
    got = scored_share(served(share, 1e-3, calls=1_000, seed=seed))
    error = 5.0 * np.sqrt(share * (1 - share) / 1_000) + 0.005
    assert share - error <= got <= share / 0.9 + error  # the latest tenth counts as made at the time of the count


@pytest.mark.parametrize(("share", "mean_delay_s"), [(1.0, 300.0), (0.2, 300.0), (0.5, 1_000.0)])
def test_late_scores_do_not_count_as_none(share, mean_delay_s):
    estimates = served(share, mean_delay_s, calls=int(3 * mean_delay_s))
    counted_over_all = estimates.scored.sum() / estimates.invoked.sum()
    got = scored_share(estimates)
    assert counted_over_all < 0.9 * share
    assert abs(got - share) < 0.25 * share  # delays are still underestimated: the longest are yet to come
    assert abs(got - share) < abs(counted_over_all - share)


def test_the_share_falls_with_every_call_that_stays_without_score():
    estimates, pending, shares = Estimates(1, 1), PendingScores(), []
    for now_s in range(500):
        estimates.add_invoked(0, 0)
        pending.update(estimates, float(now_s))
        shares.append(scored_share(estimates))
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == pytest.approx(1 / 502)


def test_a_day_of_silence_is_forgiven_once_its_scores_come():
    estimates, pending = Estimates(1, 1), PendingScores()
    for i in range(1_000):
        estimates.add_invoked(0, 0)
        pending.update(estimates, 86.4 * i)
    assert scored_share(estimates) < 0.01
    for i in range(1_000, 2_000):  # each is scored a day later
        estimates.add_invoked(0, 0)
        pending.update(estimates, 86.4 * i)
        estimates.add_reward(0, 0, 1.0, delay_s=86_400.0)
    assert scored_share(estimates) > 0.6


def test_history_and_calls_before_do_not_count_as_served():
    estimates = Estimates(1, 2)
    estimates.add_table(np.zeros(500, dtype=int), np.ones((500, 2)), np.ones((500, 2)))
    assert scored_share(estimates) == 0.5
    estimates.add_invoked(0, 0, count=98)
    pending = PendingScores(estimates.n_invoked)
    pending.update(estimates, 0.0)
    assert (estimates.pending, scored_share(estimates)) == (0.0, 0.01)


def test_decisions_beyond_the_life_of_a_score_are_not_awaited():
    estimates, pending = Estimates(1, 1), PendingScores()
    for now_s in (0.0, 1.0, 2.0 + LATEST_S):
        estimates.add_invoked(0, 0)
        estimates.add_reward(0, 0, 1.0, delay_s=1e9)
        pending.update(estimates, now_s)
    assert estimates.pending == pytest.approx(1.0)
