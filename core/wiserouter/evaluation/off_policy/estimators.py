"""Three estimators of the mean outcome under a target, from weights and outcomes, each with an interval.

Weights and costs are skewed: the few expensive or rare decisions that a log lacks are missing from mean and standard
error alike, and a normal interval then lies too low. Hall's transformation (JRSS B 1992) of the studentised mean `T`,

    g(T) = T + a T^2 / 3 + a^2 T^3 / 27 + a / 6,    a = skewness / sqrt(n),

is normal to one order higher; its inverse gives the ends of the interval, with `a` at most a third: beyond that the
expansion does not hold, and one decision could stretch the interval without bound. The standard error is itself
estimated, from terms of kurtosis `k`; Student's t with 2 n / (k - 1) degrees of freedom, which match its variance,
accounts for that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.types import FloatArray, IntArray

LEVEL = 0.95
"""Coverage of the intervals."""

_SYMMETRIC = 1e-6
"""Below this the transformation is the identity up to rounding."""

_LARGEST_LEAN = 1.0 / 3.0
"""The largest `a` of the transformation."""

_LEAST_TAILS = 0.01
"""Least value of kurtosis minus 1, which is 0 for a fair coin."""


class Estimate(NamedTuple):
    """A mean per request with its interval.

    Attributes
    ----------
    mean, low, high : float
        Reward, or USD.
    se : float
        Standard error of the mean.
    """

    mean: float
    low: float
    high: float
    se: float

    def total(self, requests: int) -> Estimate:
        """Return the estimate of the total over a number of requests."""
        return Estimate(*(requests * figure for figure in self))


def ips(weight: FloatArray, outcome: FloatArray) -> Estimate:
    """Return the inverse propensity score estimate (Horvitz and Thompson 1952).

    Parameters
    ----------
    weight : ndarray of shape (n,)
        Probability of the drawn action under the target over the logged one.
    outcome : ndarray of shape (n,)
        Reward or cost of the drawn action.

    Examples
    --------
    >>> ips(np.array([2.0, 0.0, 2.0, 0.0]), np.array([1.0, 1.0, 0.5, 0.0])).mean
    0.75
    """
    return _of_terms(weight * outcome)


def snips(weight: FloatArray, outcome: FloatArray) -> Estimate:
    """Return the self-normalised estimate (Swaminathan and Joachims 2015), with the variance of a ratio.

    The parameters are those of `ips`; at least one weight must be above 0. The estimate lies in the range of the
    outcomes.

    Examples
    --------
    >>> snips(np.array([2.0, 0.0, 2.0, 0.5]), np.array([1.0, 1.0, 0.5, 0.0])).mean
    0.6666666666666666
    """
    mean = float(weight @ outcome) / float(weight.sum())
    terms = weight * (outcome - mean) / weight.mean()  # contribution of each decision to the ratio
    return _around(mean, terms, float(np.sqrt((terms**2).mean() / len(terms))))


def doubly_robust(
    weight: FloatArray,
    outcome: FloatArray,
    predicted: FloatArray,
    expected: FloatArray,
    unit: IntArray | None = None,
) -> Estimate:
    """Return the doubly robust estimate (Dudik, Langford and Li 2011).

    Parameters
    ----------
    weight, outcome
        Those of `ips`.
    predicted : ndarray of shape (n,)
        Prediction of the drawn action's outcome by an outcome model that has not seen it.
    expected : ndarray of shape (n,)
        Mean prediction of the outcome over the target's actions.
    unit : ndarray of shape (n,), optional
        The decisions that were drawn together, numbered from 0; by default each was drawn for itself.

    Examples
    --------
    >>> predicted = np.array([0.5, 0.5])
    >>> doubly_robust(np.array([2.0, 0.0]), np.array([1.0, 1.0]), predicted, predicted).mean
    1.0
    """
    return _of_terms(expected + weight * (outcome - predicted), unit)


def _of_terms(terms: FloatArray, unit: IntArray | None = None) -> Estimate:
    mean = float(terms.mean())
    deviations = terms - mean if unit is None else _of_units(terms - mean, unit)
    return _around(mean, deviations, float(deviations.std(ddof=1) / np.sqrt(len(deviations))))


def _of_units(deviations: FloatArray, unit: IntArray) -> FloatArray:
    """Return the contribution of each unit to the mean, as of as many decisions (Liang and Zeger 1986)."""
    sums = np.zeros(int(unit.max()) + 1)
    np.add.at(sums, unit, deviations)
    return sums * (len(sums) / len(deviations))


def _around(mean: float, deviations: FloatArray, se: float) -> Estimate:
    from scipy.special import stdtrit  # most commands need no scipy, which takes as long to load as all else

    n, widest = len(deviations), float(np.abs(deviations).max())
    if widest == 0.0:
        return Estimate(mean, mean, mean, se)
    scaled = deviations / widest
    scaled /= np.sqrt((scaled**2).mean())
    lean = float(np.clip((scaled**3).mean() / n**0.5, -_LARGEST_LEAN, _LARGEST_LEAN))
    tails = float((scaled**4).mean()) - 1.0
    reach = float(stdtrit(2.0 * n / max(tails, _LEAST_TAILS), 0.5 + LEVEL / 2.0))
    low, high = (mean - se * _untransformed(end, lean) for end in (reach, -reach))
    return Estimate(mean, low, high, se)


def _untransformed(end: float, lean: float) -> float:
    """Return T such that g(T) is `end`."""
    if abs(lean) < _SYMMETRIC:
        return end
    return 3.0 / lean * (float(np.cbrt(1.0 + lean * (end - lean / 6.0))) - 1.0)
