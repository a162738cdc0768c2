"""How much is left of an observation after old ones have faded: what is taken back later is as much, not all of it.

Sums fade at the end of each bucket of `wiserouter.learning.drift`: all by the half-life, and what a test contradicts by
a factor of its own. The factors are kept by the time of the bucket, so that the share that is left of an observation
follows from the time of its decision. A score that came later than its decision has faded by less: then less of it is
replaced than could be, and a mean remains one of scores that were given.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from wiserouter.types import FloatArray

MOST_KEPT = 1_000
"""Buckets whose half-lives are kept; of an observation before them the share follows from its age."""

MOST_CHANGES = 50
"""Changes whose factors are kept apart; older ones count as one."""


class Left(NamedTuple):
    """The shares that are left of the cost, the reward and the query of a call, and of all else that counts it."""

    costs: float = 1.0
    rewards: float = 1.0
    met: float = 1.0
    others: float = 1.0


ALL_LEFT = Left()
"""What is left of an observation where nothing has faded."""


class Fading:
    """The factors by which old observations have faded, by the time of their bucket.

    Parameters
    ----------
    half_life_s : float, optional
        Age at which an observation counts half.

    Examples
    --------
    >>> fading = Fading(half_life_s=60.0)
    >>> fading.start_bucket(0.0)
    >>> fading.fade(60.0)
    0.5
    >>> fading.start_bucket(60.0)
    >>> fading.left_of(30.0, 0, 0).met, fading.left_of(60.0, 0, 0).met
    (0.5, 1.0)
    """

    def __init__(self, half_life_s: float | None = None) -> None:
        self._half_life_s = half_life_s
        self._faded_s = 0.0
        self._starts_s: list[float] = []
        self._faded_before_s: list[float] = []
        self._changes: list[tuple[float, dict[str, FloatArray]]] = []

    def start_bucket(self, now_s: float) -> None:
        """Start a bucket: what is decided from now on has not faded."""
        while self._starts_s and self._starts_s[-1] >= now_s:  # nothing was decided in it, or the clock went back
            self._starts_s.pop()
            self._faded_before_s.pop()
        self._starts_s.append(now_s)
        self._faded_before_s.append(self._faded_s)
        del self._starts_s[:-MOST_KEPT], self._faded_before_s[:-MOST_KEPT]

    def fade(self, elapsed_s: float) -> float:
        """Let all observations so far grow older, and return the factor by which they fade."""
        if self._half_life_s is None:
            return 1.0
        self._faded_s += elapsed_s
        return float(0.5 ** (elapsed_s / self._half_life_s))

    def forget(self, before_s: float, factors: Mapping[str, FloatArray]) -> None:
        """Note the factors, by the fields of `Left`, of what was decided before a time; each per (context, model)."""
        if not factors:
            return
        self._changes.append((before_s, dict(factors)))
        if len(self._changes) > MOST_CHANGES:
            (_, first), (second_s, second) = self._changes[:2]
            both = {name: first[name] * second[name] if name in second else first[name] for name in first}
            self._changes[:2] = [(second_s, {**second, **both})]

    def reshape(self, n_contexts: int, n_models: int) -> None:
        """Go on with other contexts, or with more models; the least factor of a model is taken for all contexts."""
        for _, factors in self._changes:
            for name, factor in factors.items():
                row = np.ones(n_models)
                row[: factor.shape[1]] = factor.min(axis=0)
                factors[name] = np.tile(row, (n_contexts, 1))

    def left_of(self, decided_s: float, context: int, model: int) -> Left:
        """Return the shares that are left of the observations of a decision."""
        left = dict.fromkeys(Left._fields, self._left_by_age(decided_s))
        for before_s, factors in self._changes:
            if decided_s < before_s:
                for name, factor in factors.items():
                    left[name] *= float(factor[context, model])
        return Left(**left)

    def _left_by_age(self, decided_s: float) -> float:
        if self._half_life_s is None or not self._starts_s:
            return 1.0
        at = bisect_right(self._starts_s, decided_s) - 1
        before_s = self._faded_before_s[max(at, 0)] - (0.0 if at >= 0 else self._starts_s[0] - decided_s)
        return float(0.5 ** ((self._faded_s - before_s) / self._half_life_s))
