r"""The mean of the predicted cost of a call per (context, model), which a single prediction deviates from.

Every call adds the predictions for all models, also for those that do not serve it, so that the means do not depend on
the choices. With prediction :math:`\hat c` and mean :math:`T`, a true cost :math:`c` is learned as
:math:`c - (\hat c - T)`: a control variate (Lavenberg and Welch 1981), whose mean is that of the cost, while warm and
cold calls no longer differ.
"""

from __future__ import annotations

import numpy as np

from wiserouter.types import FloatArray


class TypicalCost:
    """Running means of predictions.

    Parameters
    ----------
    n_contexts, n_models : int
        Shape of the sums.

    Examples
    --------
    >>> typical = TypicalCost(1, 2)
    >>> typical.deviation(0, np.array([3.0, np.nan]))
    array([0., 0.])
    >>> typical.add(0, np.array([1.0, np.nan]))
    >>> typical.deviation(0, np.array([3.0, np.nan]))
    array([2., 0.])
    """

    def __init__(self, n_contexts: int, n_models: int) -> None:
        self._count, self._sum = np.zeros((n_contexts, n_models)), np.zeros((n_contexts, n_models))

    @property
    def n_contexts(self) -> int:
        """Number of contexts."""
        return len(self._count)

    def add(self, context: int, predicted_usd: FloatArray) -> None:
        """Count the predictions for one call; NaN where there is none."""
        known = ~np.isnan(predicted_usd)
        self._count[context] += known
        self._sum[context] += np.where(known, predicted_usd, 0.0)

    def deviation(self, context: int, predicted_usd: FloatArray) -> FloatArray:
        """Return the deviation of predictions from their means; 0 where either is unknown."""
        count = self._count[context]
        known = ~np.isnan(predicted_usd) & (count > 0.0)
        mean = self._sum[context] / np.maximum(count, 1.0)
        deviation: FloatArray = np.where(known, predicted_usd - mean, 0.0)
        return deviation

    def add_model(self) -> None:
        """Append a model without predictions."""
        column = np.zeros((len(self._count), 1))
        self._count, self._sum = np.hstack([self._count, column]), np.hstack([self._sum, column])
