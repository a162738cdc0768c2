"""The choice of a constant by leaving tables out: a value counts only where it had no part in being chosen.

For each table the value is taken that is best on average over the other tables, and compared on that table with the
value in use. The mean of these differences is what choosing the constant again would be expected to give on a table
that no one has seen; the value that is best on all tables together promises more than it keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wiserouter.types import FloatArray


class LeaveOneOut(NamedTuple):
    """The evidence on one constant, for one method.

    Attributes
    ----------
    chosen : list of float
        For each table, the best value on the others.
    gain : ndarray of shape (n_tables,)
        Quality on each table under the value chosen without it, minus that under the value in use.
    best : float
        The best value on all tables together.
    best_gain : float
        Its mean quality minus that of the value in use.
    spread : float
        Largest minus least mean quality of the values.
    """

    chosen: list[float]
    gain: FloatArray
    best: float
    best_gain: float
    spread: float

    @property
    def mean(self) -> float:
        """Mean gain over the tables."""
        return float(self.gain.mean())

    @property
    def error(self) -> float:
        """Standard error of the mean gain over the tables; NaN with one table."""
        n = len(self.gain)
        return float(self.gain.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")

    @property
    def verdict(self) -> str:
        """The advice: "no effect", "keep", or the value that all folds agree on, if it gains more than the error."""
        if self.spread == 0.0:
            return "no effect"
        agreed = len(set(self.chosen)) == 1 and self.mean > max(np.nan_to_num(self.error), 0.0)
        return f"change to {self.best:g}" if agreed else "keep"


def leave_one_out(values: Sequence[float], quality: FloatArray) -> LeaveOneOut:
    """Return the evidence on a constant.

    Parameters
    ----------
    values : sequence of float
        The values; the first is in use, and is taken where others are only as good.
    quality : ndarray of shape (n_values, n_tables)
        Mean quality under each value on each table.

    Examples
    --------
    >>> found = leave_one_out([1.0, 2.0], np.array([[0.5, 0.5, 0.5], [0.6, 0.6, 0.4]]))
    >>> found.chosen, found.gain.round(3).tolist(), found.best
    ([1.0, 1.0, 2.0], [0.0, 0.0, -0.1], 2.0)
    """
    n_tables = quality.shape[1]
    others = quality if n_tables == 1 else quality.sum(axis=1, keepdims=True) - quality
    chosen = _first_best(others)
    means = quality.mean(axis=1)
    best = int(_first_best(means[:, np.newaxis])[0])
    gain = quality[chosen, np.arange(n_tables)] - quality[0]
    return LeaveOneOut(
        [float(values[i]) for i in chosen],
        gain,
        float(values[best]),
        float(means[best] - means[0]),
        float(means.max() - means.min()),
    )


def _first_best(quality: FloatArray) -> FloatArray:
    """Return the first row that is best in each column, up to rounding."""
    return np.asarray((quality >= quality.max(axis=0) - 1e-12).argmax(axis=0))
