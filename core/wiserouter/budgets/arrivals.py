"""A record of request arrivals: counts in buckets of time, and the requests that they forecast.

The time is an argument. Recording takes a fraction of a microsecond. The fit behind a forecast
(`wiserouter.budgets.forecast`) is reused for the rest of a bucket unless many requests arrive meanwhile; in between,
only the remaining time is multiplied by the rate.
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

MAX_BUCKETS = 8 * 7 * 24
"""Number of buckets kept: eight weeks of hours."""

BUCKETS_PER_SHORT_WINDOW = 24
"""A window shorter than a day is divided into this many buckets; longer ones into hours."""

MAX_BUCKETS_PER_WINDOW = 10_000
"""A window of years is divided into this many, so that a forecast stays fast."""

FORECAST_GROWTH = 0.05
"""A forecast is computed again when the arrivals since exceed this share of those that it rests on."""

Z80 = 1.2816
"""Standard deviations to either side that hold 80 % of a normal distribution."""


class Forecast(NamedTuple):
    """The requests expected until an instant, with an 80 % interval: 10 % of outcomes lie below, 10 % above."""

    requests: float
    low: float
    high: float


class Arrivals:
    """A record of arrivals: one count per bucket, of the last eight weeks at most.

    Parameters
    ----------
    start_s : float, seconds since 1970
        The start of the record.
    window_s : float, seconds
        Length of the windows to forecast; determines the length of a bucket, at most an hour.
    timezone : str, default "UTC"
        The time zone of the hours and weekdays that the traffic follows.

    Examples
    --------
    >>> arrivals = Arrivals(0.0, 86_400.0)
    >>> for second in range(0, 36_000, 10):
    ...     arrivals.add(float(second))
    >>> round(arrivals.forecast(36_000.0, 86_400.0).requests, -2)
    5000.0
    """

    def __init__(self, start_s: float, window_s: float, timezone: str = "UTC") -> None:
        self.bucket_s = max(min(HOUR_S, window_s / BUCKETS_PER_SHORT_WINDOW), window_s / MAX_BUCKETS_PER_WINDOW)
        self.window_s, self.timezone, self.start_s = window_s, timezone, start_s
        self.first = int(start_s // self.bucket_s)
        self.counts, self.unseen = [0], [0.0]
        self._refused_s: float | None = None
        self.expect(None, start_s)

    def at(self, now_s: float) -> Arrivals:
        """Return this record, or one that begins at `now_s` where that lies before this one or too long after it."""
        bucket = int(now_s // self.bucket_s)
        if now_s >= self.start_s and self.first <= bucket < self.first + len(self.counts) + MAX_BUCKETS:
            return self
        begun = Arrivals(now_s, self.window_s, self.timezone)
        begun._prior = (*self._prior[:2], now_s)
        return begun

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
        """Return the record that `settings` was called on; forecasts are computed again."""
        arrivals = cls(settings["start_s"], settings["window_s"], settings["timezone"])
        arrivals.first = int(settings["first"])
        arrivals.counts, arrivals.unseen = [*map(int, settings["counts"])], [*map(float, settings["unseen"])]
        requests, seen, at_s = settings["prior"]
        arrivals._prior = (float(requests), float(seen), float(at_s))
        return arrivals

    def expect(self, requests: float | None, now_s: float) -> None:
        """Set the prior from `now_s` on: `requests` per window, with the weight of a tenth of a window.

        None is a prior of one request in a hundredth of a window, at most an hour: the first arrivals outweigh it.
        """
        self._prior = (*self._prior_of(requests), now_s)
        self._forecast = TrafficForecast(0.0, 0.0, 0.0, 0.0)
        self._from_s = self._valid_s = self._until_s = float("-inf")
        self._arrived = 0

    def follow(self, requests: float | None, now_s: float) -> None:
        """Set the prior from `now_s` on, unless it is that of so many requests already."""
        if self._prior[:2] != self._prior_of(requests):
            self.expect(requests, now_s)

    def add(self, now_s: float, n: int = 1) -> None:
        """Count `n` arrivals; a negative number takes back arrivals that were counted before."""
        at = int(now_s // self.bucket_s) - self.first
        if not 0 <= at < len(self.counts):
            at = self._extend_to(at)
        if self._refused_s is not None:
            self._mark_unobserved(self._refused_s, now_s)
        self.counts[at] += n
        self._arrived += n

    def note_refusal(self, now_s: float) -> None:
        """Record that an arrival was refused: the time until the next admitted one counts as unobserved."""
        self._refused_s = now_s if self._refused_s is None else self._refused_s

    def requests(self, now_s: float, until_s: float) -> float:
        """Return the number of requests expected from `now_s` until `until_s`."""
        stale = until_s != self._until_s or not self._from_s <= now_s < self._valid_s
        if stale or self._arrived > FORECAST_GROWTH * self._forecast.basis:
            self._fit(now_s, until_s)
        return self._forecast.after + self._forecast.rate * (self._valid_s - now_s) / self.bucket_s

    def forecast(self, now_s: float, until_s: float) -> Forecast:
        """Return the number of requests expected from `now_s` until `until_s`, with its interval."""
        requests = self.requests(now_s, until_s)
        spread = Z80 * (requests + (self._forecast.error * requests) ** 2) ** 0.5
        return Forecast(requests, max(0.0, requests - spread), requests + spread)

    def _prior_of(self, requests: float | None) -> tuple[float, float]:
        """Return the arrivals of the prior for so many requests per window, and the buckets that they stand for."""
        if requests is None:
            return 1.0, min(1.0, UNKNOWN_TRUST * self.window_s / self.bucket_s)
        return TRUST * requests, TRUST * self.window_s / self.bucket_s

    def _extend_to(self, at: int) -> int:
        """Append empty buckets up to `at`, drop those that are too old, and return the position of the last."""
        if at >= 0:
            new = min(max(0, at + 1 - len(self.counts)), MAX_BUCKETS)
            self.counts = [*self.counts, *[0] * new][-MAX_BUCKETS:]
            self.unseen = [*self.unseen, *[0.0] * new][-MAX_BUCKETS:]
            self.first += max(0, at + 1 - len(self.counts))
        return max(0, min(at, len(self.counts) - 1))

    def _mark_unobserved(self, from_s: float, to_s: float) -> None:
        """Mark a period as unobserved."""
        self._refused_s = None
        first, last = (int(at_s // self.bucket_s) - self.first for at_s in (from_s, to_s))
        for at in range(max(0, first), min(last + 1, len(self.unseen))):
            start_s = (self.first + at) * self.bucket_s
            covered_s = min(to_s, start_s + self.bucket_s) - max(from_s, start_s)
            self.unseen[at] += max(0.0, covered_s) / self.bucket_s

    def _fit(self, now_s: float, until_s: float) -> None:
        """Compute the forecast again; it is valid until the bucket or the window ends."""
        current = max(int(now_s // self.bucket_s), self.first)  # clocks may be set back
        n = self._extend_to(current - self.first) + 1
        if self._refused_s is not None:
            self._mark_unobserved(self._refused_s, now_s)
            self._refused_s = now_s
        last = max(int(-(-until_s // self.bucket_s)), current + 1)
        buckets = np.arange(self.first, last, dtype=np.float64)
        slot = self._slots(buckets)
        past = self._past(now_s, buckets[:n], slot[:n])
        share = np.clip(until_s / self.bucket_s - buckets[n:], 0.0, 1.0)
        self._forecast = forecast(past, share, slot[n:])
        self._from_s, self._until_s, self._arrived = now_s, until_s, 0
        self._valid_s = min((current + 1) * self.bucket_s, until_s)

    def _past(self, now_s: float, buckets: FloatArray, slot: IntArray) -> TrafficHistory:
        """Return the record as arrays, with the share of each bucket that was observed."""
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
        """Return the hour of the week, in local time, in which each bucket begins."""
        start_s = buckets * self.bucket_s
        hours = (start_s // HOUR_S).astype(int).tolist()
        local_s = start_s + np.array([_offset_s(hour, self.timezone) for hour in hours])
        slot: IntArray = (local_s // HOUR_S).astype(int) + 3 * 24
        return slot % 168


@lru_cache(maxsize=16_384)
def _offset_s(hour: int, timezone: str) -> float:
    """Return the UTC offset of local time in an hour counted from 1970."""
    offset = datetime.fromtimestamp(hour * HOUR_S, zone(timezone)).utcoffset()
    return 0.0 if offset is None else offset.total_seconds()
