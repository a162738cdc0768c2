r"""The mean of the predicted cost of a call per (context, model), which a single prediction deviates from.

Every call adds the predictions for all models, also for those that do not serve it, so that the means do not depend on
the choices. With prediction :math:`\hat c` and mean :math:`T`, a true cost :math:`c` is learned as
:math:`c - (\hat c - T)`: a control variate (Lavenberg and Welch 1981), whose mean is that of the cost, while warm and
cold calls no longer differ.
"""

from __future__ import annotations

from math import isnan

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
        self._count = [[0.0] * n_models for _ in range(n_contexts)]
        self._sum = [[0.0] * n_models for _ in range(n_contexts)]

    @property
    def n_contexts(self) -> int:
        """Number of contexts."""
        return len(self._count)

    def add(self, context: int, predicted_usd: FloatArray) -> None:
        """Count the predictions for one call; NaN where there is none."""
        count, total = self._count[context], self._sum[context]
        for model, usd in enumerate(predicted_usd.tolist()):
            if not isnan(usd):
                count[model] += 1.0
                total[model] += usd

    def deviation(self, context: int, predicted_usd: FloatArray) -> FloatArray:
        """Return the deviation of predictions from their means; 0 where either is unknown."""
        rows = zip(predicted_usd.tolist(), self._count[context], self._sum[context], strict=True)
        return np.array([usd - total / count if count and not isnan(usd) else 0.0 for usd, count, total in rows])

    def add_model(self) -> None:
        """Append a model without predictions."""
        for row in (*self._count, *self._sum):
            row.append(0.0)
