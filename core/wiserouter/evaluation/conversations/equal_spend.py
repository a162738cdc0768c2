"""Quality at equal spend: each policy's curve of quality over spend, read at the budgets.

Policies miss a budget by different amounts, so that their qualities at one budget do not compare. Between two budgets a
curve is taken to be straight over the logarithm of the spend, and beyond its ends to go on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wiserouter.types import FloatArray


def quality_at(budgets_usd: Sequence[float], spend_usd: Sequence[float], quality: Sequence[float]) -> FloatArray:
    """Return the quality of one policy and seed at each budget.

    Parameters
    ----------
    budgets_usd : sequence of float, USD
        The budgets.
    spend_usd, quality : sequence of float
        Spend and quality of the policy at each of them.

    Examples
    --------
    >>> quality_at([1.0, 100.0], spend_usd=[0.1, 10.0], quality=[0.5, 0.7]).round(6).tolist()
    [0.6, 0.8]
    """
    y = np.asarray(quality, dtype=np.float64)
    if len(y) == 1:
        return y
    x, at = np.log(np.asarray(spend_usd)), np.log(np.asarray(budgets_usd))
    order = np.argsort(x)
    x, y = x[order], y[order]
    left = np.clip(np.searchsorted(x, at) - 1, 0, len(x) - 2)
    step = np.maximum(x[left + 1] - x[left], 1e-12)
    read: FloatArray = y[left] + (at - x[left]) * (y[left + 1] - y[left]) / step
    return read
