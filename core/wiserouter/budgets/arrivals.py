"""How many requests are still to come: counts of the past in buckets, and what they say of the hours ahead.

The clock is an argument. Recording costs a fraction of a microsecond; the fit behind a forecast
(`wiserouter.budgets.forecast`) is kept for the rest of a bucket, unless much arrives meanwhile, and in between only
the time left is multiplied out.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from wiserouter.budgets.forecast import TrafficForecast, TrafficHistory, forecast
from wiserouter.budgets.periods import TRUST, UNKNOWN_TRUST, zone
from wiserouter.types import FloatArray, IntArray

HOUR_S, DAY_S = 3_600.0, 86_400.0

KEPT = 8 * 7 * 24
"""Buckets that are kept: eight weeks of hours."""

PER_WINDOW = 24
"""A window shorter than a day is cut into this many buckets; longer ones into hours."""

MOST = 10_000
"""A window of years is cut into this many, so that a forecast stays short work."""

GROWTH = 0.05
"""A forecast is made anew when this share of what it rests on has arrived since."""

Z80 = 1.2816
"""Standard deviations to either side that hold 80 % of a normal distribution."""


class Forecast(NamedTuple):
    """Requests expected until an instant, and the 80 % interval: one outcome in ten lies below, one in ten above."""

    requests: float
    low: float
    high: float


class Arrivals:
    """A record of arrivals: one count per bucket, of the last eight weeks at most.

    Parameters
    ----------
    start_s : float, seconds since 1970
        When recording begins.
    window_s : float, seconds
        Length of the windows to forecast; decides the length of a bucket, an hour at most.
    timezone : str, default "UTC"
        Whose hours and weekdays the traffic follows.

    Examples
    --------
    >>> arrivals = Arrivals(0.0, 86_400.0)
    >>> for second in range(0, 36_000, 10):
    ...     arrivals.add(float(second))
    >>> round(arrivals.forecast(36_000.0, 86_400.0).requests, -2)
    5000.0
    """

    def __init__(self, start_s: float, window_s: float, timezone: str = "UTC") -> None:
        self.bucket_s = max(min(HOUR_S, window_s / PER_WINDOW), window_s / MOST)
        self.window_s, self.timezone, self.start_s = window_s, timezone, start_s
        self.first = int(start_s // self.bucket_s)
        self.counts, self.unseen = [0], [0.0]
        self._missed_s: float | None = None
        self.expect(None, start_s)

    def settings(self) -> dict[str, Any]:
        """Return the record as JSON values, which `of_settings` reads."""
        return {
            "start_s": self.start_s,
            "window_s": self.window_s,
            "timezone": self.timezone,
            "first": self.first,
            "counts": self.counts,
            "unseen": self.unseen,
            "prior": self._prior,
        }

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> Arrivals:
        """Return the record that `settings` was called on; what a forecast assumed without one is made anew."""
        arrivals = cls(settings["start_s"], settings["window_s"], settings["timezone"])
        arrivals.first = int(settings["first"])
        arrivals.counts, arrivals.unseen = [*map(int, settings["counts"])], [*map(float, settings["unseen"])]
        requests, seen, at_s = settings["prior"]
        arrivals._prior = (float(requests), float(seen), float(at_s))
        return arrivals

    def expect(self, requests: float | None, now_s: float) -> None:
        """Believe from `now_s` on in so many requests per window, as if a tenth of one had been seen.

        None is one request in a hundredth of a window, an hour at most: whatever comes first is believed instead.
        """
        unknown = (1.0, min(1.0, UNKNOWN_TRUST * self.window_s / self.bucket_s))
        trusted = TRUST * self.window_s / self.bucket_s
        self._prior = (*(unknown if requests is None else (TRUST * requests, trusted)), now_s)
        self._outlook = TrafficForecast(0.0, 0.0, 0.0, 0.0)
        self._from_s = self._valid_s = self._until_s = float("-inf")
        self._news = 0

    def add(self, now_s: float, n: int = 1) -> None:
        """Count `n` arrivals; a negative number takes back some that turned out to be none."""
        at = int(now_s // self.bucket_s) - self.first
        if not 0 <= at < len(self.counts):
            at = self._reach(at)
        if self._missed_s is not None:
            self._unsee(self._missed_s, now_s)
        self.counts[at] += n
        self._news += n

    def note_refusal(self, now_s: float) -> None:
        """Note that an arrival was turned away: until the next one that counts, nobody knows how many there were."""
        self._missed_s = now_s if self._missed_s is None else self._missed_s

    def requests(self, now_s: float, until_s: float) -> float:
        """Return how many requests are expected from `now_s` until `until_s`: what a decision reads."""
        stale = until_s != self._until_s or not self._from_s <= now_s < self._valid_s
        if stale or self._news > GROWTH * self._outlook.basis:
            self._fit(now_s, until_s)
        return self._outlook.after + self._outlook.rate * (self._valid_s - now_s) / self.bucket_s

    def forecast(self, now_s: float, until_s: float) -> Forecast:
        """Return the same with its interval."""
        requests = self.requests(now_s, until_s)
        spread = Z80 * (requests + (self._outlook.error * requests) ** 2) ** 0.5
        return Forecast(requests, max(0.0, requests - spread), requests + spread)

    def _reach(self, at: int) -> int:
        """Append empty buckets up to `at`, forget those that are too old, and return the place of the last."""
        if at >= 0:
            new = min(max(0, at + 1 - len(self.counts)), KEPT)
            self.counts = [*self.counts, *[0] * new][-KEPT:]
            self.unseen = [*self.unseen, *[0.0] * new][-KEPT:]
            self.first += max(0, at + 1 - len(self.counts))
        return max(0, min(at, len(self.counts) - 1))

    def _unsee(self, from_s: float, to_s: float) -> None:
        """Take a stretch of time off what was watched."""
        self._missed_s = None
        first, last = (int(at_s // self.bucket_s) - self.first for at_s in (from_s, to_s))
        for at in range(max(0, first), min(last + 1, len(self.unseen))):
            start_s = (self.first + at) * self.bucket_s
            covered_s = min(to_s, start_s + self.bucket_s) - max(from_s, start_s)
            self.unseen[at] += max(0.0, covered_s) / self.bucket_s

    def _fit(self, now_s: float, until_s: float) -> None:
        """Make the outlook anew; it holds until the bucket or the window ends."""
        current = max(int(now_s // self.bucket_s), self.first)  # clocks may be set back
        n = self._reach(current - self.first) + 1
        if self._missed_s is not None:
            self._unsee(self._missed_s, now_s)
            self._missed_s = now_s
        last = max(int(-(-until_s // self.bucket_s)), current + 1)
        buckets = np.arange(self.first, last, dtype=np.float64)
        slot = self._slots(buckets)
        past = self._past(now_s, buckets[:n], slot[:n])
        share = np.clip(until_s / self.bucket_s - buckets[n:], 0.0, 1.0)
        self._outlook = forecast(past, share, slot[n:])
        self._from_s, self._until_s, self._news = now_s, until_s, 0
        self._valid_s = min((current + 1) * self.bucket_s, until_s)

    def _past(self, now_s: float, buckets: FloatArray, slot: IntArray) -> TrafficHistory:
        """Return the record as arrays, with the share of each bucket in which arrivals were counted."""
        seen = np.clip(now_s / self.bucket_s - buckets, 0.0, 1.0) - self.unseen[: len(buckets)]
        seen[0] -= max(0.0, self.start_s / self.bucket_s - self.first)
        prior, prior_seen, prior_s = self._prior
        return TrafficHistory(
            counts=np.maximum(self.counts[: len(buckets)], 0.0),
            seen=np.maximum(seen, 0.0),
            slot=slot,
            per_day=max(1, round(DAY_S / self.bucket_s)),
            prior=prior,
            prior_seen=prior_seen,
            prior_age=(now_s - prior_s) / self.bucket_s,
        )

    def _slots(self, buckets: FloatArray) -> IntArray:
        """Return the hour of the week, in local time, that each bucket begins in."""
        start_s = buckets * self.bucket_s
        hours = (start_s // HOUR_S).astype(int).tolist()
        local_s = start_s + np.array([_offset_s(hour, self.timezone) for hour in hours])
        slot: IntArray = (local_s // HOUR_S).astype(int) + 3 * 24
        return slot % 168


@lru_cache(maxsize=16_384)
def _offset_s(hour: int, timezone: str) -> float:
    """Return by how much local time is ahead in an hour counted from 1970, a Thursday."""
    offset = datetime.fromtimestamp(hour * HOUR_S, zone(timezone)).utcoffset()
    return 0.0 if offset is None else offset.total_seconds()
