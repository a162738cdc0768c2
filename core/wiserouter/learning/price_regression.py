r"""A regression of mean rewards on log prices: expensive models tend to be better, by as much as the pool itself shows.

The mean reward of model `k` is assumed to lie about a line over the logarithm of its list cost `x`,

.. math:: \theta_k = a + b\,x_k + e_k, \qquad m_k \sim N(\theta_k,\ v_k), \qquad e_k \sim N(0,\ t^2),

a small-area model (Fay and Herriot 1979) whose areas are the models. Level and slope have wide normal priors, the
slope's about zero: where expensive models are no better the line is flat, and where they are worse it falls. The
standard deviation `t` is averaged over a few values, each weighted by its marginal likelihood (Bayesian model
averaging), so that a model is drawn to the line only as far as the others lie on it.
"""

from __future__ import annotations

import numpy as np

from wiserouter.types import FloatArray

STRAYS = np.array([[0.05], [0.1], [0.2], [0.4]])
"""Values of `t` that are averaged over: standard deviations of models about the line, in rewards."""

LEVEL, LEVEL_SPREAD = 0.5, 0.3
"""Prior mean reward of a model of the pool's typical price, and its standard deviation."""

SLOPE_SPREAD = 0.1
"""Prior standard deviation of the reward that a price e times as high buys."""


def toward_price_line(mean: FloatArray, noise: FloatArray, log_price: FloatArray) -> FloatArray:
    """Return the posterior mean reward of each model, between its own mean and the line through all of them.

    Parameters
    ----------
    mean : ndarray of shape (n_models,)
        Mean reward of each model; any number for those never tried.
    noise : ndarray of shape (n_models,)
        Variance of these means; infinite for models never tried.
    log_price : ndarray of shape (n_models,)
        Logarithm of each model's list cost, less that of a typical one.

    Returns
    -------
    ndarray of shape (n_models,)
        Posterior means, within 0 and 1.

    Examples
    --------
    Three models lie on a line, the fourth was never tried:

    >>> mean, noise = np.array([0.3, 0.5, 0.7, 0.0]), np.array([1e-4, 1e-4, 1e-4, np.inf])
    >>> toward_price_line(mean, noise, np.log([0.1, 1.0, 10.0, 100.0])).round(2).tolist()
    [0.3, 0.5, 0.7, 0.86]
    """
    excess = mean - LEVEL
    weight = 1.0 / (STRAYS**2 + noise)  # a row for each value of t
    # level and slope: weighted ridge regression with two unknowns, solved by Cramer's rule
    level = 1.0 / LEVEL_SPREAD**2 + weight.sum(axis=1)
    slope = 1.0 / SLOPE_SPREAD**2 + weight @ log_price**2
    both = weight @ log_price
    of_level, of_slope = weight @ excess, weight @ (log_price * excess)
    determinant = level * slope - both**2
    a = (slope * of_level - both * of_slope) / determinant
    b = (level * of_slope - both * of_level) / determinant
    line = a[:, np.newaxis] + b[:, np.newaxis] * log_price
    believed = line + STRAYS**2 * weight * (excess - line)
    # log marginal likelihood of each t, but for a constant, and the average over t
    fit = a * of_level + b * of_slope - weight @ excess**2 - np.log(determinant)
    fit += np.log(weight, out=np.zeros_like(weight), where=weight > 0).sum(axis=1)
    evidence = np.exp(0.5 * (fit - fit.max()))
    beliefs: FloatArray = np.clip(LEVEL + evidence @ believed / evidence.sum(), 0.0, 1.0)
    return beliefs
