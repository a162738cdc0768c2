r"""Drift detection: old observations fade, and those that a test contradicts fade at once.

Requests are cut into buckets. When one is full, its observations are tested against all before it: the mean reward
and the mean cost of each model, and the frequencies of the contexts. Rewards are tested on the way, too, each time
that a bucket has doubled, so that a model which breaks is not called until its end; few costs say little, since they
have heavy tails. With `n` and `n'` observations of a (context, model) in the bucket and before it, `d` the difference
of their means and `s` the standard deviation of single observations, a model has changed where

.. math:: \Bigl|\sum_j h_j d_j\Bigr| > z\, s \sqrt{\sum_j h_j}, \qquad h_j = \frac{n_j n_j'}{n_j + n_j'},

the stratified two-sample z-test; each pair is tested in the same way, and frequencies by the chi-square test of
homogeneity. Where nearly all rewards are equal, sums of a few are skewed: to the bound of a test of rewards the second
term of Cornish and Fisher (1938), :math:`s \gamma (z^2 - 1) / 6`, is added, with the skewness :math:`\gamma` of rewards
of 0 and 1 that have this mean. All tests of a bucket share one rate of false alarms (Bonferroni). Where a test rejects,
the old observations of that model (or pair, or of the frequencies) count for half as much as the new ones from then on,
and a new bucket starts: the confidence in what changed becomes wide, and all else is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf, log2
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wiserouter.errors import InvalidInput
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.fading import Fading, Left
from wiserouter.learning.shrinkage import spreads
from wiserouter.types import FloatArray
from wiserouter.validation import check_amount, check_count

KEPT = 0.5
"""Weight of the old observations that a test contradicts, as a share of the new ones."""

FEWEST = 20
"""Fewest new observations of a model, or of the frequencies, that are tested: normal tests need n p (1 - p) >= 5, here
for p = 1/2."""

ROUNDING = 1e-9
"""Relative difference of two means that is rounding only: sums of floats round."""

_COSTS = ("calls", "cost", "cost_sq")
_REWARDS = ("labels", "reward", "reward_sq")
_FIELDS = {"costs": _COSTS, "rewards": _REWARDS, "met": ("met",)}  # of what `Left` names


class Changes(NamedTuple):
    """The changes that the tests of a bucket have found.

    Attributes
    ----------
    rewards, costs : ndarray of bool of shape (n_contexts, n_models)
        True for pairs whose mean has changed.
    frequencies : bool
        True if the frequencies of the contexts have changed.
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
    """Drift detection and forgetting: lets estimates follow rewards, costs and frequencies that change.

    Parameters
    ----------
    half_life_s : float, optional
        Age at which an observation counts half; by default it fades only where a test contradicts it.
    fade_every_s : float, default 3,600
        Time after which observations have faded by another step, where there is a half-life.
    bucket_requests : int, default 500
        Length of a bucket.
    false_alarms : float, default 0.001
        Probability that any test of a bucket rejects though nothing has changed.

    Attributes
    ----------
    bucket : Estimates
        The observations since the last test.
    next_test : int
        Requests in the bucket at which it is tested next.
    due_s : float, seconds
        The time at which observations fade next; infinite without a half-life.

    Raises
    ------
    InvalidInput
        If a setting is out of range.
    """

    bucket: Estimates
    next_test: int
    due_s: float

    def __init__(
        self,
        *,
        half_life_s: float | None = None,
        fade_every_s: float = 3_600.0,
        bucket_requests: int = 500,
        false_alarms: float = 1e-3,
    ) -> None:
        if half_life_s is not None and not check_amount("half_life_s", half_life_s) > 0:
            raise InvalidInput(f"half_life_s must be above 0, got {half_life_s!r}", value=half_life_s)
        if not 0.0 < false_alarms < 1.0:
            raise InvalidInput(f"false_alarms must lie in (0, 1), got {false_alarms!r}", value=false_alarms)
        self.half_life_s = half_life_s
        self.fade_every_s = check_amount("fade_every_s", fade_every_s)
        self.bucket_requests = check_count("bucket_requests", bucket_requests, least=1)
        self.false_alarms = false_alarms
        self._fading = Fading(half_life_s)

    def follow(self, estimates: Estimates, now_s: float) -> None:
        """Start a bucket of the observations added to `estimates` from now on."""
        self._estimates = estimates
        self._fading.reshape(*estimates.shape)
        self._start_bucket(now_s)
        self._start_step(now_s)

    def sums_since(self, at_s: float) -> list[Estimates]:
        """Return the sums that hold an observation of a decision made at `at_s`: the bucket too, if it is in it."""
        return [self._estimates, self.bucket] if at_s >= self._began_s else [self._estimates]

    def left_of(self, decided_s: float, context: int, model: int) -> Left:
        """Return the shares that are left of the observations of a decision, after old ones have faded."""
        return self._fading.left_of(decided_s, context, model)

    def check_drift(self, now_s: float) -> Changes | None:
        """Fade observations where that is due, test the bucket if it is full or has doubled, and return what was found.

        Returns
        -------
        Changes or None
            None if nothing was faded, and no bucket has ended.
        """
        n, fades = self.bucket.n_invoked, now_s >= self.due_s
        if not fades and n < self.next_test:
            return None
        full, changes = n >= self.bucket_requests, _no_changes(self._estimates)
        if n >= self.next_test:
            changes = self._test(full)
            self.next_test = min(2 * n, self.bucket_requests)
        ended = full or changes.rewards.any()
        if not (ended or fades):
            return None
        self._discount(changes)
        if self.half_life_s is not None:
            factor = self._fading.fade(max(now_s - self._faded_at, 0.0))  # no time passes while a clock goes back
            for seen in (self._estimates, self.bucket):
                seen.fade(factor)
        if ended:
            self._start_bucket(now_s)
        self._start_step(now_s)
        return changes

    def _start_bucket(self, now_s: float) -> None:
        self.bucket = Estimates(*self._estimates.shape)
        self._began_s = now_s
        self.next_test = min(FEWEST, self.bucket_requests)

    def _start_step(self, now_s: float) -> None:
        self._faded_at, self.due_s = now_s, inf if self.half_life_s is None else now_s + self.fade_every_s
        self._fading.start_bucket(now_s)

    def _test(self, full: bool) -> Changes:
        """Test the rewards, and if the bucket is full, the costs and the frequencies."""
        seen, bucket = self._estimates, self.bucket
        n_contexts, n_models = seen.shape
        times = 1 + max(ceil(log2(self.bucket_requests / FEWEST)), 0)  # of the rewards of one bucket
        tests = (times + 1) * n_models * (n_contexts + 1) + 1
        z = NormalDist().inv_cdf(1.0 - self.false_alarms / (2.0 * tests))
        rewards = _changed(seen, bucket, _REWARDS, z, skew=(z * z - 1.0) / 6.0)
        if not full:
            return Changes(rewards, np.zeros_like(rewards), False)
        return Changes(rewards, _changed(seen, bucket, _COSTS, z), _frequencies_changed(seen.met, bucket.met, z))

    def _discount(self, changes: Changes) -> None:
        met = np.full(self._estimates.shape, changes.frequencies)
        changed = {"rewards": changes.rewards, "costs": changes.costs, "met": met}
        factors = {
            name: _forget(self._estimates, self.bucket, _FIELDS[name], which)
            for name, which in changed.items()
            if which.any()
        }
        self._fading.forget(self._began_s, factors)


def _no_changes(seen: Estimates) -> Changes:
    none = np.zeros(seen.shape, dtype=np.bool_)
    return Changes(none, none, False)


def _changed(
    seen: Estimates, bucket: Estimates, fields: tuple[str, ...], z: float, skew: float = 0.0
) -> NDArray[np.bool_]:
    """Return the pairs whose mean differs between the bucket and the time before it: z-tests of pair and model.

    `skew`, times the skewness and the deviation of single observations, is added to the bound of each test.
    """
    count, total, square = (getattr(seen, field) for field in fields)
    n, new = (getattr(bucket, field) for field in fields[:2])
    former, old = np.maximum(count - n, 0.0), total - new
    within = spreads(count, total, square).within
    harmonic = n * former / np.maximum(count, 1.0)  # h_j; `shift` is h_j d_j
    difference = new / np.maximum(n, 1.0) - old / np.maximum(former, 1e-9)
    rounding = ROUNDING * np.abs(total) / np.maximum(count, 1.0)  # of equal costs
    shift = np.where(np.abs(difference) > rounding, harmonic * difference, 0.0)
    judged = n.sum(axis=0) >= FEWEST
    lean, lean_of_model = _lean(count, total, within), _lean(count.sum(axis=0), total.sum(axis=0), within)
    model = judged & (np.abs(shift.sum(axis=0)) > z * np.sqrt(within * harmonic.sum(axis=0)) + skew * lean_of_model)
    pair = (n >= FEWEST) & (np.abs(shift) > z * np.sqrt(within * harmonic) + skew * lean)
    changed: NDArray[np.bool_] = pair | model
    return changed


def _lean(count: FloatArray, total: FloatArray, variance: FloatArray) -> FloatArray:
    """Return the skewness of observations of 0 and 1 with these means, times the standard deviation of these ones."""
    mean = total / np.maximum(count, 1.0)
    most = np.maximum(mean * (1.0 - mean), np.maximum(variance, 1e-12))
    lean: FloatArray = np.abs(1.0 - 2.0 * mean) * np.sqrt(variance / most)
    return lean


def _frequencies_changed(met: FloatArray, new: FloatArray, z: float) -> bool:
    """Return True if the chi-square test of homogeneity rejects equal frequencies in the bucket and before it."""
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
    # exceeded with probability exp(-z^2 / 2) at most (Laurent and Massart 2000, Lemma 1)
    return bool(chi_square > freedom + z * np.sqrt(2.0 * freedom) + z * z)


def _forget(seen: Estimates, bucket: Estimates, fields: tuple[str, ...], which: NDArray[np.bool_]) -> FloatArray:
    """Scale the old observations of some pairs to at most `KEPT` times the new ones of their model; return by what."""
    count, n = getattr(seen, fields[0]), getattr(bucket, fields[0])
    old, new = (np.where(which, table, 0.0).sum(axis=0) for table in (count - n, n))
    factor = np.where(which, np.minimum(KEPT * new / np.maximum(old, 1e-9), 1.0), 1.0)
    for field in fields:
        table, fresh = getattr(seen, field), getattr(bucket, field)
        table[...] = np.maximum(fresh + factor * (table - fresh), 0.0)
    return factor
