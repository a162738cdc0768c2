r"""The marginal ratios of reward to cost that the plan is ordered by.

For two models of one context (paper, Section "Regret Analysis"),

.. math:: \xi_{j,k_1,k_2} = \frac{u_{j,k_1} - u_{j,k_2}}{c_{j,k_1} - c_{j,k_2}},

taken once per pair, the more expensive model first, so that the denominator is positive. Models of equal cost have no
ratio.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.types import FloatArray


class Ratios(NamedTuple):
    """All ratios of all contexts, each an ndarray of shape (n_ratios,).

    Attributes
    ----------
    gain, spend : ndarray of shape (n_ratios,)
        Numerator and denominator: the additional reward and cost of the more expensive model.
    radius : ndarray of shape (n_ratios,)
        Confidence radius of numerator and denominator: the sum of the two models' radii.
    """

    gain: FloatArray
    spend: FloatArray
    radius: FloatArray

    @property
    def xi(self) -> FloatArray:
        """The ratios themselves; infinite where the quotient is too large for a float."""
        with np.errstate(over="ignore"):
            xi: FloatArray = self.gain / self.spend
        return xi

    def by_value(self) -> Ratios:
        """Return the same ratios, the smallest first."""
        order = np.argsort(self.xi)
        return Ratios(*(field[order] for field in self))


def ratios_of(reward: ArrayLike, cost: ArrayLike, radius: ArrayLike, *, allow_skip: bool) -> Ratios:
    """Return the ratios of every two models of unequal cost in one context.

    Parameters
    ----------
    reward, cost, radius : array-like of shape (n_contexts, n_models)
        Mean reward and cost, and the confidence radius of each mean.
    allow_skip : bool
        Include the null action, whose reward and cost are known to be 0: its radius is 0.

    Examples
    --------
    >>> ratios_of([[0.2, 0.9]], [[1.0, 3.0]], [[0.1, 0.1]], allow_skip=False).xi
    array([0.35])
    >>> ratios_of([[0.2, 0.9]], [[1.0, 3.0]], [[0.1, 0.1]], allow_skip=True).xi
    array([0.35, 0.2 , 0.3 ])
    """
    null = ((0, 0), (0, 1)) if allow_skip else ((0, 0), (0, 0))
    u, c, r = (np.pad(np.asarray(table, dtype=np.float64), null) for table in (reward, cost, radius))
    a, b = np.triu_indices(u.shape[1], k=1)
    gain, spend, width = u[:, a] - u[:, b], c[:, a] - c[:, b], r[:, a] + r[:, b]
    unequal = spend != 0.0
    return Ratios((gain * np.sign(spend))[unequal], np.abs(spend)[unequal], width[unequal])
