r"""The mean of the predicted cost of a call per (context, model), which a single prediction deviates from.

Every call adds the predictions for all models, also for those that do not serve it, so that the means do not depend on
the choices. With prediction :math:`\hat c` and mean :math:`T`, a true cost :math:`c` is learned as
:math:`c - (\hat c - T)`: a control variate (Lavenberg and Welch 1981), whose mean is that of the cost, while warm and
cold calls no longer differ.
"""

from __future__ import annotations

from collections.abc import Sequence


class TypicalCost:
    """Running means of predictions.

    Parameters
    ----------
    n_contexts, n_models : int
        Shape of the sums.

    Examples
    --------
    >>> typical = TypicalCost(1, 2)
    >>> typical.deviation(0, [1.0, float("nan")])
    [0.0, 0.0]
    >>> typical.deviation(0, [3.0, float("nan")])
    [2.0, 0.0]
    """

    def __init__(self, n_contexts: int, n_models: int) -> None:
        self._count = [[0.0] * n_models for _ in range(n_contexts)]
        self._sum = [[0.0] * n_models for _ in range(n_contexts)]

    @property
    def n_contexts(self) -> int:
        """Number of contexts."""
        return len(self._count)

    def deviation(self, context: int, predicted_usd: Sequence[float]) -> list[float]:
        """Return the deviation of the predictions for one call from the means so far, and count them.

        NaN stands for a prediction that is not known; where that or the mean is unknown, the deviation is 0.
        """
        count, total, found = self._count[context], self._sum[context], [0.0] * len(predicted_usd)
        for model, usd in enumerate(predicted_usd):
            if usd != usd:  # NaN, in half the time of `isnan` # noqa: PLR0124
                continue
            seen = count[model]
            if seen:
                found[model] = usd - total[model] / seen
            count[model] = seen + 1.0
            total[model] += usd
        return found

    def add_model(self) -> None:
        """Append a model without predictions."""
        for row in (*self._count, *self._sum):
            row.append(0.0)
