"""The forecast of arrivals: against simulated streams whose future is known, and against the pace alone."""

from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiserouter.budgets.arrivals import MAX_BUCKETS, Arrivals
from wiserouter.budgets.forecast import TrafficHistory, trend, weekly_profile
from wiserouter.budgets.periods import requests_left

HOUR, DAY, WEEK = 3_600.0, 86_400.0, 7 * 86_400.0
MONDAY = 4 * DAY + 2_000 * WEEK


def intensity(kind: str, hours: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the expected arrivals of each hour, relative to the mean of a calm stream."""
    by_hour = 1.0 + 0.8 * np.sin(2 * np.pi * (hours % 24 - 9) / 24)
    by_day = np.where(hours // 24 % 7 >= 5, 0.3, 1.28)
    if kind == "bursts":  # of some hours
        log = np.zeros(len(hours))
        for i in range(1, len(hours)):
            log[i] = 0.7 * log[i - 1] + rng.normal(0, 0.5)
        return np.exp(log - 0.24)
    if kind == "uneven days":
        return by_hour * np.repeat(rng.lognormal(-0.03, 0.25, len(hours) // 24), 24)
    if kind == "jump":
        return np.where(hours > rng.integers(len(hours) // 4, len(hours)), 2.0, 1.0)
    growth = 1.1 ** (hours / 168)
    shapes = {
        "flat": 1.0,
        "daily": by_hour,
        "weekly": by_hour * by_day,
        "trend": growth,
        "all": by_hour * by_day * growth,
    }
    return np.ones(len(hours)) * shapes[kind]


KINDS = ["flat", "daily", "weekly", "trend", "all", "bursts", "uneven days", "jump"]
PATTERNED = ["daily", "weekly", "all"]


def forecasts(kind: str, window_h: int, per_hour: float, seed: int, weeks: int = 7) -> np.ndarray:
    """Return rows of forecast, low, high, truth and naive forecast, made at random moments of a simulated stream."""
    rng = np.random.default_rng(seed)
    hours = np.arange(weeks * 168)
    counts = rng.poisson(per_hour * intensity(kind, hours, rng))
    until = np.concatenate([[0], np.cumsum(counts)])
    arrivals, rows = Arrivals(MONDAY, window_h * HOUR), []
    for i in hours:
        start = i // window_h * window_h
        end, before = start + window_h, max(start - window_h, 0)
        if i > 12 and end <= len(hours) and rng.random() < 0.08:
            ahead = arrivals.forecast(MONDAY + i * HOUR, MONDAY + end * HOUR)
            expected = until[start] - until[before] if start else None
            naive = requests_left(until[i] - until[start], i - start, end - i, window_h, expected)
            rows.append([*ahead, until[end] - until[i], naive])
        arrivals.add(MONDAY + i * HOUR + 1.0, int(counts[i]))
    return np.array(rows)


@pytest.mark.parametrize("window_h", [24, *(pytest.param(hours, marks=pytest.mark.slow) for hours in (168, 720))])
def test_four_outcomes_in_five_lie_in_the_interval_and_the_pace_is_beaten(window_h):
    covered, missed = {}, {}
    for kind in KINDS:
        rows = np.concatenate([forecasts(kind, window_h, rate, seed) for rate in (2.0, 200.0) for seed in range(3)])
        guess, low, high, truth, pace = rows.T
        covered[kind] = float(((low <= truth) & (truth <= high)).mean())
        missed[kind] = [float(np.abs(of - truth).sum() / truth.sum()) for of in (guess, pace)]
        print(f"{window_h:>3} h {kind:<11} covered {covered[kind]:.2f}, off by {missed[kind][0]:.3f}", end="")
        print(f", the pace by {missed[kind][1]:.3f}")
    overall = float(np.mean(list(covered.values())))
    print(f"{window_h:>3} h all kinds   covered {overall:.2f}")
    assert 0.72 <= overall <= 0.88
    assert all(0.6 <= share <= 0.97 for share in covered.values())
    if window_h < 720:  # a month is too long to have learned the week before it is half over
        assert all(missed[kind][0] < 0.5 * missed[kind][1] for kind in PATTERNED)
        assert all(ours < 1.1 * pace for ours, pace in missed.values())


def steady(arrivals: Arrivals, per_hour: int, from_h: int, to_h: int) -> None:
    for hour in range(from_h, to_h):
        arrivals.add(MONDAY + hour * HOUR + 1.0, per_hour)


def test_an_even_stream_goes_on():
    arrivals = Arrivals(MONDAY, DAY)
    steady(arrivals, 100, 0, 50)
    ahead = arrivals.forecast(MONDAY + 50 * HOUR, MONDAY + 72 * HOUR)
    assert ahead.requests == pytest.approx(2_200, rel=0.01)
    assert ahead.low < 2_200 < ahead.high


def test_what_is_older_than_eight_weeks_is_forgotten():
    arrivals = Arrivals(MONDAY, DAY)
    steady(arrivals, 1_000, 0, 168)
    steady(arrivals, 10, 168, 10 * 168)
    assert sum(arrivals.counts) == 10 * len(arrivals.counts) == 10 * MAX_BUCKETS
    now = MONDAY + 10 * WEEK
    assert arrivals.requests(now, now + DAY) == pytest.approx(240, rel=0.01)


def test_a_record_without_arrivals_for_months_starts_again():
    arrivals = Arrivals(MONDAY, DAY)
    steady(arrivals, 1_000, 0, 168)
    arrivals.add(MONDAY + 20 * WEEK, 5)
    assert (sum(arrivals.counts), len(arrivals.counts)) == (5, MAX_BUCKETS)


@pytest.mark.parametrize(("per_hour", "hours"), [(50, 8), (500, 6)])
def test_doubled_traffic_is_followed_within_hours(per_hour, hours):
    rng = np.random.default_rng(0)
    arrivals = Arrivals(MONDAY, 30 * DAY)
    for hour in range(240 + hours):
        arrivals.add(MONDAY + hour * HOUR, int(rng.poisson(per_hour * (1 + (hour >= 240)))))
    now, end = MONDAY + (240 + hours) * HOUR, MONDAY + 30 * DAY
    assert arrivals.requests(now, end) > 1.75 * per_hour * (end - now) / HOUR


def test_the_level_adapts_between_two_hours_too():
    arrivals = Arrivals(MONDAY, DAY)
    for second in range(600):
        arrivals.add(MONDAY + second)
        arrivals.requests(MONDAY + second, MONDAY + DAY)
    assert arrivals.requests(MONDAY + 600, MONDAY + DAY) > 0.4 * (DAY - 600)


def test_the_prior_rules_until_there_is_traffic():
    arrivals = Arrivals(MONDAY, DAY)
    arrivals.expect(2_400, MONDAY)
    assert arrivals.requests(MONDAY, MONDAY + DAY) == pytest.approx(2_400)
    steady(arrivals, 10, 0, 12)
    assert arrivals.requests(MONDAY + DAY / 2, MONDAY + DAY) < 400


def test_hours_and_weekdays_are_those_of_the_time_zone():
    zone = ZoneInfo("Europe/Berlin")
    arrivals = Arrivals(datetime(2026, 3, 2, tzinfo=zone).timestamp(), DAY, "Europe/Berlin")
    start = int(arrivals.start_s // HOUR)
    for hour in range(start, start + 40 * 24):  # the clocks change on 29 March
        local = datetime.fromtimestamp(hour * HOUR, zone)
        arrivals.add(hour * HOUR, 100 if local.hour == 9 and local.weekday() < 5 else 0)

    def between(day: int, first: int, last: int) -> float:
        begin, end = (datetime(2026, 4, day, hour, tzinfo=zone).timestamp() for hour in (first, last))
        now = (start + 40 * 24) * HOUR
        return arrivals.requests(now, end) - arrivals.requests(now, begin)

    assert between(14, 9, 10) > 60  # a Tuesday
    assert between(14, 8, 9) + between(14, 10, 11) < 40
    assert between(18, 9, 10) < 20  # a Saturday


def past(counts: np.ndarray) -> TrafficHistory:
    n = len(counts)
    return TrafficHistory(counts, np.ones(n), np.arange(n) % 168, 24, prior=1.0, prior_seen=1.0, prior_age=float(n))


@pytest.mark.parametrize("days", [1, 2, 3, 13, 15])
def test_a_profile_needs_days_and_a_week_needs_weeks(days):
    hours = np.arange(days * 24 + 1)
    profile = weekly_profile(past(100.0 + 50.0 * (hours % 24 < 12) + 100.0 * (hours // 24 % 7 < 5)))
    assert (profile[0] > 1.1 * profile[12]) == (days >= 3)
    assert (profile[0] > 1.1 * profile[5 * 24]) == (days >= 14)
    assert profile.mean() == pytest.approx(1.0)


def test_noise_is_no_profile_and_a_jump_no_trend():
    rng = np.random.default_rng(0)
    noise = weekly_profile(past(rng.poisson(20.0, 8 * 168).astype(float)))
    assert np.abs(noise - 1.0).max() < 0.1
    hours = np.arange(28 * 24 + 1)
    for jump_day in (5, 14, 20):
        counts = rng.poisson(np.where(hours > jump_day * 24, 200.0, 100.0)).astype(float)
        assert abs(trend(past(counts), np.ones(168))) < 0.005
    growing = rng.poisson(100.0 * 1.02 ** (hours / 24)).astype(float)
    assert trend(past(growing), np.ones(168)) == pytest.approx(np.log(1.02), rel=0.2)


@given(st.integers(1, 5), st.integers(6, 23))
def test_time_in_which_requests_were_refused_tells_nothing(days, closes_at):
    """An even stream of which only the mornings are admitted is forecast as if all of it had been."""
    arrivals = Arrivals(MONDAY, DAY)
    for hour in range(days * 24):
        for minute in range(0, 60, 5):
            now = MONDAY + hour * HOUR + minute * 60
            (arrivals.add if hour % 24 < closes_at else arrivals.note_refusal)(now)
    now = MONDAY + days * DAY
    assert arrivals.requests(now, now + DAY) == pytest.approx(12 * 24, rel=0.15)


@given(
    st.lists(st.tuples(st.floats(-1e5, 1e7), st.sampled_from([1, -1, 0])), max_size=30),
    st.sampled_from([30.0, DAY, 3e9]),
)
def test_memory_is_bounded_and_forecasts_are_finite_whatever_the_clock_does(steps, window_s):
    arrivals, now = Arrivals(MONDAY, window_s), MONDAY
    for step, n in steps:
        now = max(0.0, now + step)
        arrivals.add(now, n) if n else arrivals.note_refusal(now)
        ahead = arrivals.forecast(now, now + window_s / 2)
        assert 0.0 <= ahead.low <= ahead.requests <= ahead.high < float("inf")
    assert len(arrivals.counts) == len(arrivals.unseen) <= MAX_BUCKETS


def test_a_forecast_is_made_once_an_hour_or_when_much_has_arrived(monkeypatch):
    arrivals, fits = Arrivals(MONDAY, DAY), []
    fit = arrivals._fit
    monkeypatch.setattr(arrivals, "_fit", lambda *at: (fits.append(at), fit(*at)))
    for tenth in range(24 * 36_000 // 10):
        arrivals.add(MONDAY + tenth)
        arrivals.requests(MONDAY + tenth, MONDAY + DAY)
    assert len(fits) < 400
