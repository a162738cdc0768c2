r"""The penalty of the regression on the embedding, and the share of it that is kept, from predictions left out.

The penalty is the one with the least leave-one-out error of the differences between models. A regression that explains
the differences between all models need not tell the best ones apart, and the best prediction of many is the luckiest.
So what is kept of it, the share `beta`, is judged by what it is for: the reward of the queries of the log that are
routed by predictions left out, at equal true spend. It is the expected share that is best, over the Bayesian bootstrap
of the queries (Rubin 1981): near 0 where the log cannot tell, and near 1 where many queries gain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.learning.residuals.held_out_routing import HeldOutRouting
from wiserouter.learning.residuals.ridge import left_out
from wiserouter.learning.residuals.sample import Sample
from wiserouter.types import FloatArray

STRENGTHS = (3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0)
"""Penalties that a fit chooses from."""

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25)
"""Shares that are averaged, of the least-squares fit of the left-out predictions."""

N_RATES = 6
"""Rates at which shares are compared, evenly between the spends that save and that score the most."""

N_DRAWS = 400
"""Draws of the bootstrap."""


class RidgeSettings(NamedTuple):
    """The penalty, the share that is kept, and the predicted rewards at both; each query left out."""

    strength: float
    share: float
    reward: FloatArray


def select_ridge(sample: Sample, cost_usd: FloatArray, seed: int) -> RidgeSettings:
    """Return the settings of the regression for a sample, and its predictions for each query without this query.

    Parameters
    ----------
    sample : Sample
        Queries, scores and costs; each model has at least one.
    cost_usd : ndarray of shape (n_queries, n_models)
        Held-out estimates of the costs.
    seed : int
        Seeds the bootstrap.
    """
    *by_text, mean = left_out(sample.embeddings, sample.reward, (*STRENGTHS, np.inf))
    chosen = int(np.argmin([_squares(sample.reward - each) for each in by_text]))
    deviation = by_text[chosen] - mean
    shares = np.array(SHARES) * _slope(deviation, sample.reward - mean)
    value = _values(sample, [mean + share * deviation for share in shares], cost_usd)
    weights = np.random.default_rng(seed).standard_exponential((N_DRAWS, len(sample)))  # uniform, once divided by sums
    share = float(shares[(weights @ value.T).argmax(axis=1)].mean())
    return RidgeSettings(STRENGTHS[chosen], share, mean + share * deviation)


def _values(sample: Sample, predicted: list[FloatArray], cost_usd: FloatArray) -> FloatArray:
    """Return the mean reward over the rates of each query, routed by each prediction; (n_predictions, n_queries)."""
    routings = [HeldOutRouting(sample, reward, cost_usd) for reward in predicted]
    least, most = (bound(r.spend_usd(g) for r in routings) for bound, g in ((min, -1), (max, 0)))
    rates = np.linspace(least, most, N_RATES)
    return np.array([np.mean([routing.at_rate(rate).reward for rate in rates], axis=0) for routing in routings])


def _squares(error: FloatArray) -> float:
    """Return the sum of squares of the differences between models; of the errors where models were not observed."""
    return float(np.nansum(_differences(error, of=error) ** 2))


def _slope(predicted: FloatArray, true: FloatArray) -> float:
    """Return the least-squares slope of the true differences on the predicted ones, at least 0."""
    x, y = _differences(predicted, of=true), _differences(true, of=true)
    squares = float((x[~np.isnan(y)] ** 2).sum())
    return max(float(np.nansum(x * y)) / squares, 0.0) if squares > 0 else 0.0


def _differences(values: FloatArray, of: FloatArray) -> FloatArray:
    return values if np.isnan(of).any() else values - values.mean(axis=1, keepdims=True)
