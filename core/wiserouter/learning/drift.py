r"""What changes: old observations fade, and those that no longer hold fade at once.

Time is cut into buckets. When one ends, what it brought is held against all that was known before: the mean reward and
the mean cost of each model, and how often each context came. With `n` and `n'` observations of a (context, model) in
the bucket and before it, `d` the difference of their means and `s` the spread of single observations, a model has
changed where

.. math:: \Bigl|\sum_j h_j d_j\Bigr| > z\, s \sqrt{\sum_j h_j}, \qquad h_j = \frac{n_j n_j'}{n_j + n_j'},

the stratified two-sample z-test; a single context is tested likewise, and frequencies by chi-square. Where a test
fails, the old observations of that model (or context, or of the frequencies) count for half as much as the new ones
from then on: the confidence in what changed becomes wide, and all else is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wiserouter.errors import InvalidInput
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.shrinkage import spreads
from wiserouter.pricing.prices import Usage
from wiserouter.types import FloatArray
from wiserouter.validation import check_amount, check_count

KEPT = 0.5
"""What is left of the old observations of something that has changed, as a share of the new ones."""

FEWEST = 20
"""A model is not judged by fewer new observations."""

ENOUGH = 100
"""A bucket is not tested before it holds so many requests per model, or `bucket_requests` in all."""

ROUNDING = 1e-9
"""Share of a mean by which two means differ though nothing has changed: sums of floats round."""

_COSTS = ("calls", "cost", "cost_sq")
_REWARDS = ("labels", "reward", "reward_sq")


class Changes(NamedTuple):
    """What a bucket has shown to have changed.

    Attributes
    ----------
    rewards, costs : ndarray of bool of shape (n_contexts, n_models)
        Pairs whose mean is no longer what it was.
    frequencies : bool
        Whether contexts come as often as they did.
    """

    rewards: NDArray[np.bool_]
    costs: NDArray[np.bool_]
    frequencies: bool

    def describe(self, names: Sequence[str]) -> list[str]:
        """Return one line per model and kind of change.

        Examples
        --------
        >>> Changes(np.array([[True], [False]]), np.array([[False], [False]]), False).describe(["small"])
        ['the rewards of small have changed in 1 of 2 contexts']
        """
        lines = [
            f"the {what} of {name} have changed in {n} of {len(table)} contexts"
            for what, table in (("rewards", self.rewards), ("costs", self.costs))
            for name, n in zip(names, table.sum(axis=0), strict=True)
            if n
        ]
        return lines + ["contexts come in other proportions"] * self.frequencies


class Watch:
    """Lets estimates follow a world that changes.

    Parameters
    ----------
    half_life_s : float, optional
        After this long an observation counts half; by default it fades only if it no longer holds.
    bucket_s : float, default 3,600
        How often observations fade, and are tested where there are 100 requests per model; else the bucket goes on.
    bucket_requests : int, default 500
        The same in requests, where these come faster.
    false_alarms : float, default 0.001
        How often all tests of a bucket together fail though nothing has changed.

    Raises
    ------
    InvalidInput
        If a setting is out of range.
    """

    def __init__(
        self,
        *,
        half_life_s: float | None = None,
        bucket_s: float = 3_600.0,
        bucket_requests: int = 500,
        false_alarms: float = 1e-3,
    ) -> None:
        if half_life_s is not None and not check_amount("half_life_s", half_life_s) > 0:
            raise InvalidInput(f"half_life_s must be above 0, got {half_life_s!r}", value=half_life_s)
        if not 0.0 < false_alarms < 1.0:
            raise InvalidInput(f"false_alarms must lie in (0, 1), got {false_alarms!r}", value=false_alarms)
        self.half_life_s = half_life_s
        self.bucket_s = check_amount("bucket_s", bucket_s)
        self.bucket_requests = check_count("bucket_requests", bucket_requests, least=1)
        self.false_alarms = false_alarms

    def follow(self, estimates: Estimates, now_s: float) -> None:
        """Start a bucket of what is added to `estimates` from now on."""
        self._estimates = estimates
        self._bucket = Estimates(*estimates.shape)
        self._faded_at = now_s

    def add_invoked(self, context: int, model: int, count: int = 1) -> None:
        """Count a decision of this bucket."""
        self._bucket.add_invoked(context, model, count)

    def add_cost(self, context: int, model: int, cost_usd: float, usage: Usage | None = None) -> None:
        """Count a cost of this bucket."""
        self._bucket.add_cost(context, model, cost_usd, usage)

    def add_reward(self, context: int, model: int, reward: float) -> None:
        """Count a reward of this bucket."""
        self._bucket.add_reward(context, model, reward)

    def add(self, sums: Estimates) -> None:
        """Count what others have observed in this bucket."""
        self._bucket.merge(sums)

    def reprice(self, model: int, factor: FloatArray) -> None:
        """Restate the costs of this bucket at a new price."""
        self._bucket.reprice(model, factor)

    def turn(self, now_s: float) -> Changes | None:
        """Let observations fade if it is time to, test the bucket if it is full enough, and return what has changed.

        Returns
        -------
        Changes or None
            None while neither is due.
        """
        elapsed_s, n = now_s - self._faded_at, self._bucket.n_invoked
        if elapsed_s < self.bucket_s and n < self.bucket_requests:
            return None
        full = n >= min(self.bucket_requests, ENOUGH * self._estimates.shape[1])
        if not full and self.half_life_s is None:
            return None
        changes = self._test() if full else _none(self._estimates)
        self._let_go(changes)
        if self.half_life_s is not None:
            for seen in (self._estimates, self._bucket):
                seen.fade(0.5 ** (elapsed_s / self.half_life_s))
        self._faded_at = now_s
        if full:
            self._bucket = Estimates(*self._estimates.shape)
        return changes

    def _test(self) -> Changes:
        n_contexts, n_models = self._estimates.shape
        tests = 2 * n_models * (n_contexts + 1) + 1
        z = NormalDist().inv_cdf(1.0 - self.false_alarms / (2.0 * tests))
        rewards, costs = (_changed(self._estimates, self._bucket, fields, z) for fields in (_REWARDS, _COSTS))
        return Changes(rewards, costs, _come_otherwise(self._estimates.met, self._bucket.met, z))

    def _let_go(self, changes: Changes) -> None:
        for which, fields in ((changes.rewards, _REWARDS), (changes.costs, _COSTS)):
            _forget(self._estimates, self._bucket, fields, which)
        if changes.frequencies:
            _forget(self._estimates, self._bucket, ("met",), np.ones(self._estimates.shape, dtype=np.bool_))


def _none(seen: Estimates) -> Changes:
    """Return that nothing has changed."""
    nothing = np.zeros(seen.shape, dtype=np.bool_)
    return Changes(nothing, nothing, False)


def _changed(seen: Estimates, bucket: Estimates, fields: tuple[str, ...], z: float) -> NDArray[np.bool_]:
    """Return the pairs whose mean differs between the bucket and the time before it."""
    count, total, square = (getattr(seen, field) for field in fields)
    n, new = (getattr(bucket, field) for field in fields[:2])
    former, old = np.maximum(count - n, 0.0), total - new
    within = spreads(count, total, square)[0]
    harmonic = n * former / np.maximum(count, 1.0)
    difference = new / np.maximum(n, 1.0) - old / np.maximum(former, 1e-9)
    rounding = ROUNDING * np.abs(total) / np.maximum(count, 1.0)  # of sums of one and the same cost
    shift = np.where(np.abs(difference) > rounding, harmonic * difference, 0.0)
    judged = n.sum(axis=0) >= FEWEST
    model = judged & (np.abs(shift.sum(axis=0)) > z * np.sqrt(within * harmonic.sum(axis=0)))
    pair = (n >= FEWEST) & (np.abs(shift) > z * np.sqrt(within * harmonic))
    changed: NDArray[np.bool_] = pair | model
    return changed


def _come_otherwise(met: FloatArray, new: FloatArray, z: float) -> bool:
    """Return whether the contexts of the bucket come in other proportions than those before it."""
    recent = new.sum(axis=1)
    former = np.maximum(met.sum(axis=1) - recent, 0.0)
    n, m = recent.sum(), former.sum()
    either = recent + former
    cells = either > 0
    if n < FEWEST or m < FEWEST or cells.sum() < 2:
        return False
    share = either[cells] / (n + m)
    expected = n * share
    chi_square = ((recent[cells] - expected) ** 2 / expected).sum() * (n + m) / m  # of two samples
    freedom = cells.sum() - 1
    return bool(chi_square > freedom + z * np.sqrt(2.0 * freedom) + z * z)


def _forget(seen: Estimates, bucket: Estimates, fields: tuple[str, ...], which: NDArray[np.bool_]) -> None:
    """Let the old observations of some pairs count for `KEPT` times the new ones of their model at most."""
    if not which.any():
        return
    count, n = getattr(seen, fields[0]), getattr(bucket, fields[0])
    old, new = (np.where(which, table, 0.0).sum(axis=0) for table in (count - n, n))
    factor = np.where(which, np.minimum(KEPT * new / np.maximum(old, 1e-9), 1.0), 1.0)
    for field in fields:
        table, fresh = getattr(seen, field), getattr(bucket, field)
        table[...] = np.maximum(fresh + factor * (table - fresh), 0.0)
