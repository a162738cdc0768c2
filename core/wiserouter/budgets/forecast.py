"""The traffic forecast: level, hours of the day, days of the week, trend and error of a record of counts.

The expected count of a bucket is level x hour x weekday x trend.

- **Level**: exponentially weighted counts per exposure. The memory is not a setting: memories of three buckets to two
  months are weighted by how well each would have forecast up to three days, so that a steady stream is averaged over
  weeks and a jump is followed within hours (prequential likelihood: Dawid, 1984).
- **Hours and weekdays**: ratios to the centred moving mean, shrunk toward 1 by the share of their variance that is
  noise (James-Stein), from three days and two weeks of data on.
- **Trend**: the slope of the logarithm, only as far as both halves of the last two to four weeks show it, since a jump
  is no trend; it goes on for no longer than the record goes back.
- **Error**: the root mean square of the errors that the same level and profile would have made before, over a span as
  long as the one to forecast; wider where the record is shorter than that, and of 100 % at first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.types import FloatArray, IntArray

MEMORIES = np.array([3.0, 12.0, 48.0, 192.0, 1_344.0])[:, None]
"""Memories of the candidate levels, in buckets."""

MIN_LOOK_AHEAD, MAX_LOOK_AHEAD = 12, 72
"""Buckets over which the candidates are compared: half of the span to forecast, within these limits. An error that is
as old as the upper one counts for 1/e."""

CHI2_MEDIAN = 0.455
"""Median of a squared normal deviate: a median of squares divided by it is a variance robust to one jump."""

MIN_DAYS, MIN_WEEKS = 3, 2
"""Whole days and weeks that a profile needs."""

MAX_ERROR = 10.0
"""Upper limit of the relative error, for forecasts of nearly nothing."""


class TrafficHistory(NamedTuple):
    """Counts by bucket, the current one last.

    Attributes
    ----------
    counts, seen : ndarray of shape (n,)
        Arrivals, and the share of the bucket that was observed.
    slot : ndarray of shape (n,)
        Hour of the week in local time, 0 to 167.
    per_day : int
        Buckets in a day.
    prior, prior_seen, prior_age : float
        Arrivals of the prior, the buckets that they stand for, and the age of the prior in buckets.
    """

    counts: FloatArray
    seen: FloatArray
    slot: IntArray
    per_day: int
    prior: float
    prior_seen: float
    prior_age: float


class TrafficForecast(NamedTuple):
    """The traffic expected from now on.

    Attributes
    ----------
    rate : float
        Expected arrivals per whole bucket, at the level of the current one.
    after : float
        Expected arrivals in the buckets after it.
    error : float
        Relative standard error in addition to that of a Poisson count.
    basis : float
        Number of arrivals that the level rests on.
    """

    rate: float
    after: float
    error: float
    basis: float


def forecast(past: TrafficHistory, share: FloatArray, slot: IntArray) -> TrafficForecast:
    """Return the forecast for the next buckets, of which `share` counts; `slot` is the hour of the week of each."""
    profile = weekly_profile(past)
    due = past.seen * profile[past.slot]
    rates, counts = levels(past, due)
    weight = _weights(past.counts, due, rates, int(np.clip(len(slot) / 2, MIN_LOOK_AHEAD, MAX_LOOK_AHEAD)))
    rate = weight @ rates
    days = np.arange(1, len(slot) + 1) / past.per_day
    growth = np.exp(trend(past, profile) * np.minimum(days, len(past.counts) / past.per_day))
    after = float(rate[-1] * (share * profile[slot] * growth).sum())
    error = _error(past, due, rate, len(slot))
    return TrafficForecast(float(rate[-1] * profile[past.slot[-1]]), after, error, float(weight @ counts))


def weekly_profile(past: TrafficHistory) -> FloatArray:
    """Return the mean of each hour of the week relative to the overall mean, shrunk toward 1."""
    profile = np.ones(168)
    counts, slot = past.counts[:-1], past.slot[:-1]
    for periods, length, n_slots, at in (
        (MIN_DAYS, past.per_day, 24, slot % 24),
        (MIN_WEEKS, 7 * past.per_day, 7, slot // 24),
    ):
        if len(counts) >= periods * length:
            ratio = _shape(counts, profile[slot] * past.seen[:-1], at, n_slots, length)
            profile *= np.tile(ratio, 7) if n_slots == 24 else np.repeat(ratio, 24)
    profile /= profile.mean()
    return profile


def levels(past: TrafficHistory, due: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the level after each bucket for each memory, of shape (n_memories, n), and the counts behind the last."""
    n = len(due)
    age = np.arange(n - 1, -1, -1) / MEMORIES
    fade = np.exp(-age)
    since = past.prior_age - np.arange(n - 1, -1, -1)
    prior = (
        MEMORIES * -np.expm1(-past.prior_seen / MEMORIES) * (since >= 0) * np.exp(-np.maximum(since, 0.0) / MEMORIES)
    )
    counts = np.cumsum(past.counts * fade, axis=1) / fade
    seen = np.cumsum(due * fade, axis=1) / fade
    return (counts + prior * past.prior / past.prior_seen) / np.maximum(seen + prior, 1e-9), counts[:, -1]


def trend(past: TrafficHistory, profile: FloatArray) -> float:
    """Return the growth of the logarithm of the level per day.

    It is 0 before two weeks have passed, where their halves disagree, or where a day was hardly observed.
    """
    n_weeks = min((len(past.counts) - 1) // past.per_day // 7, 4)
    half = 7 * (n_weeks // 2)
    if half == 0:
        return 0.0
    whole = slice(len(past.counts) - 1 - 2 * half * past.per_day, len(past.counts) - 1)
    daily = past.counts[whole].reshape(2 * half, -1).sum(axis=1)
    due = (past.seen * profile[past.slot])[whole].reshape(2 * half, -1).sum(axis=1)
    if due.min() <= due.mean() / 4:
        return 0.0
    early, late = (_slope(part) for part in np.split(np.log((daily + 0.5) / due), 2))
    return min(early, late, key=abs) if early * late > 0 else 0.0


def _shape(counts: FloatArray, base: FloatArray, slot: IntArray, n_slots: int, length: int) -> FloatArray:
    """Return the mean ratio of each slot to the centred moving mean, shrunk by the noise share of its variance."""
    n = len(counts)
    got, share = (np.concatenate([[0.0], np.cumsum(of)]) for of in (counts, base))
    mean = (got[length:] - got[:-length]) / np.maximum(share[length:] - share[:-length], 1e-9)
    mean = mean[np.clip(np.arange(n) - length // 2, 0, n - length)]
    cell, n_cells = np.arange(n) // length * n_slots + slot, -(-n // length) * n_slots
    got, due, observed = (np.bincount(cell, of, n_cells).reshape(-1, n_slots) for of in (counts, base * mean, base))
    informative = observed.sum(axis=0) > observed.sum() / n_slots / 10  # the other slots were hardly observed
    total = np.maximum(due.sum(axis=0), 1e-9)
    ratio = np.where(informative, got.sum(axis=0) / total, 1.0)
    if not informative.any():
        return np.ones(n_slots)
    noise = (((got - ratio * due) ** 2).sum(axis=0) / total**2)[informative].mean() * len(got) / (len(got) - 1)
    spread = ((ratio - 1.0) ** 2)[informative].mean()
    signal = max(0.0, 1.0 - noise / spread) if spread > 0 else 0.0
    shape: FloatArray = np.maximum(1.0 + signal * (ratio - 1.0), 0.01)
    return shape


def _weights(counts: FloatArray, due: FloatArray, rates: FloatArray, look: int) -> FloatArray:
    """Return the weight of each memory, by the errors of its forecasts of the next `look` buckets."""
    n = len(counts)
    if n == 1:
        return np.full(len(rates), 1.0 / len(rates))
    start = np.arange(n - 1)
    end = np.minimum(start + look, n - 1)
    got, share = (np.cumsum(of) for of in (counts, due))
    got, share = got[end] - got[start], share[end] - share[start]
    expected = rates[:, :-1] * share
    recent = np.exp((start - n) / MAX_LOOK_AHEAD) / (end - start)
    square = (got - expected) ** 2 / (expected.mean(axis=0) + 1.0)
    loss = square @ recent
    scale = max(1.0, float(np.median(square[loss.argmin()])) / CHI2_MEDIAN)  # bursts: less information per error
    weight: FloatArray = np.exp((loss.min() - loss) / (2.0 * scale))
    weight /= weight.sum()
    return weight


def _slope(log_counts: FloatArray) -> float:
    """Return the least-squares slope, shrunk by its own standard error."""
    n = len(log_counts)
    day = np.arange(n) - (n - 1) / 2
    slope = float(day @ log_counts / (day @ day))
    rest = log_counts - log_counts.mean() - slope * day
    variance = float(rest @ rest / (n - 2) / (day @ day))
    return slope * max(0.0, 1.0 - 4.0 * variance / slope**2) if slope else 0.0


def _error(past: TrafficHistory, due: FloatArray, rate: FloatArray, ahead: int) -> float:
    """Return the relative error over the next `ahead` buckets, in addition to that of a Poisson count."""
    n = len(due)
    span = max(1, min(ahead, n // 3))
    got, share = (np.concatenate([[0.0], np.cumsum(of)]) for of in (past.counts, due))
    unseen = np.exp(-n / past.per_day) * min(1.0, ahead / n)  # of what a whole day would show
    start = np.arange(span, n - span + 1)
    if not len(start):
        return float(unseen)
    expected = np.maximum(rate[start - 1] * (share[start + span] - share[start]), 1e-9)
    actual = got[start + span] - got[start]
    square = float(((actual - expected) ** 2 - expected).sum() / (expected**2).sum())
    spans = len(start) / span + 1.0
    variance = max(square, 0.0) * (1.0 + 2.0 / spans) * max(1.0, ahead / span) + unseen**2
    return float(min(np.sqrt(variance), MAX_ERROR))
