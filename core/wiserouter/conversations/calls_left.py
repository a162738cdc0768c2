r"""The number of calls still to come, as a function of those made: a product-limit estimate of when runs end.

Of the runs of a model that made :math:`n` calls and whose fate is known, :math:`e(n)` ended and :math:`c(n)` went on,

.. math:: h(n) = \frac{e(n)}{e(n) + c(n)}, \qquad
          E[H \mid n] = \sum_{j \ge n} \prod_{i=n}^{j} (1 - h(i)),

where runs in progress are censored (Kaplan and Meier 1958). Hazards are shrunk with the weight of one call: that of a
model toward the pool's at the same call, times the ratio of its ended runs to those that the pool's hazards predict,
and the pool's toward its mean over all calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np
from numpy.typing import NDArray

from wiserouter.errors import InvalidInput
from wiserouter.types import FloatArray
from wiserouter.validation import check_count

MAX_CALLS = 256
"""Calls are counted one by one up to here; longer runs end at a constant rate."""

PRIOR_CALLS = 10.0
"""Before anything is known, a run is taken to have so many calls; the prior counts for one such run."""

REFRESH_GROWTH = 1.02
"""The expectations are computed again each time that 2 % more calls are known."""


class CallsLeft:
    """Counts of runs that ended or went on after each number of calls, and the calls expected from there.

    Parameters
    ----------
    n_models : int
        Number of models.
    shrink : float, default 1
        Weight of the shrinkage in calls; 0 gives the plain product-limit estimate.

    Attributes
    ----------
    went_on, stopped : ndarray of shape (n_models, MAX_CALLS)
        Number of runs that went on, or ended, after their n-th call; n - 1 is the column.

    Examples
    --------
    >>> left = CallsLeft(n_models=1, shrink=0.0)
    >>> for length in (2, 4):
    ...     for n in range(1, length + 1):
    ...         left.made(0, n)
    ...     left.ended(0, length)
    >>> left.expected(0, made=1), left.expected(0, made=2), left.expected(0, made=4)
    (2.0, 1.0, 0.0)
    """

    def __init__(self, n_models: int, *, shrink: float = 1.0) -> None:
        shape = (check_count("n_models", n_models, least=1), MAX_CALLS)
        self.went_on, self.stopped = np.zeros(shape), np.zeros(shape)
        self._shrink = shrink
        self._changed()

    def made(self, model: int, n: int) -> None:
        """Count the n-th call of a run, which so went on after the one before; the first call teaches nothing."""
        if n > 1:
            self.went_on[model, _column(n - 1)] += 1.0
            self._seen += 1.0

    def ended(self, model: int, n: int) -> None:
        """Count a run that ended after its n-th call."""
        if n >= 1:
            self.stopped[model, _column(n)] += 1.0
            self._seen += 1.0

    def expected(self, model: int, made: int) -> float:
        """Return the expected number of calls that follow the `made` ones."""
        row = self._rows()[0][model]
        return row[min(made, len(row) - 1)]

    def pairs(self, model: int, made: int) -> float:
        """Return the expected number of pairs, H (H - 1) / 2, of the calls that follow."""
        row = self._rows()[1][model]
        return row[min(made, len(row) - 1)]

    def of_all(self, made: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return `expected` and `pairs`, each for all models."""
        self._rows()
        return self._of_all[made if made < len(self._of_all) else -1]

    def hazards(self) -> FloatArray:
        """Return the probability that a run ends after its n-th call, of shape (n_models, longest run seen + 1)."""
        n_columns = min(int(np.flatnonzero((self.went_on + self.stopped).any(axis=0)).max(initial=-1)) + 2, MAX_CALLS)
        stopped, known = self.stopped[:, :n_columns], (self.stopped + self.went_on)[:, :n_columns]
        mean = (stopped.sum() + 1.0) / (known.sum() + PRIOR_CALLS)
        pool = _ratio(stopped.sum(axis=0) + self._shrink * mean, known.sum(axis=0) + self._shrink, mean)
        pace = (stopped.sum(axis=1) + 1.0) / (known @ pool + 1.0)
        prior = np.minimum(pace[:, np.newaxis] * pool, 1.0)
        return _ratio(stopped + self._shrink * prior, known + self._shrink, prior)

    def merge(self, other: CallsLeft) -> None:
        """Add the counts of another worker; the order of merges never matters."""
        if other.went_on.shape != self.went_on.shape:
            raise InvalidInput(f"calls to merge must be of {len(self.went_on)} models, got {len(other.went_on)}")
        self.went_on += other.went_on
        self.stopped += other.stopped
        self._changed()

    def add_model(self) -> None:
        """Take one more model, whose runs last as long as the pool's until they are observed."""
        row = np.zeros((1, MAX_CALLS))
        self.went_on, self.stopped = np.vstack([self.went_on, row]), np.vstack([self.stopped, row])
        self._changed()

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return the counts by name, for an artifact."""
        return {"went_on": self.went_on, "stopped": self.stopped}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, FloatArray]) -> Self:
        """Return the calls whose `arrays()` these are."""
        left = cls(len(arrays["went_on"]))
        left.went_on[...], left.stopped[...] = arrays["went_on"], arrays["stopped"]
        left._changed()
        return left

    def _changed(self) -> None:
        self._seen, self._refresh_at = float(self.went_on.sum() + self.stopped.sum()), 0.0
        self._expected: list[list[float]] = []
        self._pairs: list[list[float]] = []
        self._of_all: list[tuple[tuple[float, ...], tuple[float, ...]]] = []

    def _rows(self) -> tuple[list[list[float]], list[list[float]]]:
        """Return calls and pairs to come, per model and number of calls made (0 first)."""
        if self._seen >= self._refresh_at:
            both = [_to_come(row) for row in self.hazards().tolist()]
            self._expected, self._pairs = [expected for expected, _ in both], [pairs for _, pairs in both]
            by_calls = (zip(*rows, strict=True) for rows in (self._expected, self._pairs))
            self._of_all = list(zip(*by_calls, strict=True))
            self._refresh_at = max(self._seen + 1.0, self._seen * REFRESH_GROWTH)
        return self._expected, self._pairs


def _column(n: int) -> int:
    return min(n, MAX_CALLS) - 1


def _ratio(part: FloatArray, whole: FloatArray, otherwise: FloatArray | float) -> FloatArray:
    """Return part / whole, and another value where the whole is 0."""
    ratio: FloatArray = np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), otherwise)
    return ratio


def _to_come(hazard: list[float]) -> tuple[list[float], list[float]]:
    """Return E[H] and E[H (H - 1) / 2] after 0, 1, 2, ... calls; after the last, runs end at its constant hazard."""
    last = max(hazard[-1], 1.0 / MAX_CALLS)
    calls = (1.0 - last) / last
    pairs = calls * calls
    expected, of_pairs = [calls], [pairs]
    for h in reversed(hazard[:-1]):
        pairs = (1.0 - h) * (pairs + calls)
        calls = (1.0 - h) * (1.0 + calls)
        expected.append(calls)
        of_pairs.append(pairs)
    # before the first call, a run is certain to make it
    expected.append(1.0 + calls)
    of_pairs.append(pairs + calls)
    return expected[::-1], of_pairs[::-1]
