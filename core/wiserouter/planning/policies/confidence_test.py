r"""The Confidence Level Test of the order of all marginal ratios (paper, Appendix "Confidence Level Test").

With counts `n`, each mean is within :math:`r(n) = \sqrt{\log(2/\delta) / 2n}` of the truth with probability
:math:`1 - \delta` (Hoeffding). For two ratios with gains :math:`\Delta u`, spends :math:`\Delta c` and radii
:math:`\delta u, \delta c`, the test asks of every two that :math:`|Z| \ge 2B`, where

.. math::
    Z = \Delta u_1 \Delta c_2 - \Delta u_2 \Delta c_1,\quad
    B = \delta u_2 (\Delta c_1 + \delta c_1) + \delta c_1 + \delta u_1 (\Delta c_2 + \delta c_2) + \delta c_2
        + \delta u_1 \delta c_2 + \delta u_2 \delta c_1 .

Rewards and costs have the same counts, so with :math:`d = \delta u = \delta c` this is
:math:`B = d_1 (1 + \Delta c_2) + d_2 (1 + \Delta c_1) + 4 d_1 d_2`.

A ratio is not compared with itself (`Z = 0` would always fail), and `Z` and `B` are symmetric, so that each two are
compared once. Departure: a pair that was never observed fails the test; as printed, the test passes where there is
nothing to compare.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.planning.policies.marginal_ratios import Ratios, ratios_of
from wiserouter.validation import check_delta


def ordering_is_certain(
    reward: ArrayLike,
    cost_usd: ArrayLike,
    count: ArrayLike,
    delta: float,
    *,
    cost_scale_usd: float | None = None,
    allow_skip: bool = False,
) -> bool:
    """Return True if the order of all ratios is certain at these counts.

    Parameters
    ----------
    reward, cost_usd : array-like of shape (n_contexts, n_models)
        Plain running means.
    count : array-like of shape (n_contexts, n_models)
        Number of observations behind each mean.
    delta : float
        Probability, in (0, 1), that one mean is off by more than its radius. For all means at once divide it by their
        number, 2 x n_contexts x n_models.
    cost_scale_usd : float, optional
        The most that a call can cost; costs are divided by it, since the bounds hold for numbers in [0, 1]. At least,
        and by default, the largest mean: right only where the calls of a pair cost about the same.
    allow_skip : bool, default False
        Include the null action, which is known exactly.

    Raises
    ------
    InvalidInput
        If `delta` does not lie between 0 and 1.

    Notes
    -----
    A sufficient condition, and a conservative one: costs of competing models are close, and a single pair of ratios out
    of O(J^2 K^4) that is too close fails the test. As printed it ignores models of equal mean cost, and passes with
    fewer than two ratios, as with two models in one context.

    Examples
    --------
    >>> reward, cost = [[0.1, 0.9], [0.9, 0.1]], [[0.1, 1.0], [0.1, 1.0]]
    >>> [ordering_is_certain(reward, cost, np.full((2, 2), n), delta=0.1) for n in (100, 1_000)]
    [False, True]
    """
    check_delta("delta", delta)
    seen, cost = np.asarray(count, dtype=np.float64), np.asarray(cost_usd, dtype=np.float64)
    if not seen.all():
        return False
    scale = max(cost_scale_usd or 0.0, float(cost.max())) or 1.0
    radius = np.sqrt(np.log(2.0 / delta) / (2.0 * seen))
    return _all_apart(ratios_of(reward, cost / scale, radius, allow_skip=allow_skip).by_value())


def _all_apart(ratios: Ratios) -> bool:
    """Return True if no two ratios are too close: compare each with its neighbour, then the next but one, and so on.

    Neighbours are the closest, so that a failure is found early. Memory is that of the ratios, not of their pairs.
    """
    gain, spend, d = ratios
    for step in range(1, len(gain)):
        low, high = slice(None, -step), slice(step, None)
        z = gain[low] * spend[high] - gain[high] * spend[low]
        b = d[low] * (1.0 + spend[high]) + d[high] * (1.0 + spend[low]) + 4.0 * d[low] * d[high]
        if np.any(np.abs(z) < 2.0 * b):
            return False
    return True
