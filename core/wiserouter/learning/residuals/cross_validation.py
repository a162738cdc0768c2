"""K-fold cross-validation: predictions for queries that the fit has not seen.

The choice between estimators, and the price curve, rest on these: in-sample predictions look better than they are, so
that a price read off them spends too much or too little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.errors import InvalidInput
from wiserouter.learning.estimates import Estimates, Means
from wiserouter.learning.residuals.ridge import STRENGTHS, Ridge
from wiserouter.learning.residuals.sample import Sample
from wiserouter.learning.residuals.shift import Shift
from wiserouter.learning.residuals.token_cost import LengthCost
from wiserouter.types import Embedding, FloatArray

N_FOLDS = 5

FitResidual = Callable[[Sample, FloatArray], Ridge]
"""Fits an estimator on a sample, given the mean reward of its contexts."""


class HeldOut(NamedTuple):
    """Predictions for every query of a sample, by fits on the other folds.

    Attributes
    ----------
    reward, cost_usd : ndarray of shape (n_queries, n_models)
        Means of the query's context.
    reward_shift : dict of str to ndarray of shape (n_queries, n_models)
        The deviation of the reward that each estimator predicts.
    cost_shift_usd : ndarray of shape (n_queries, n_models)
        The deviation of the cost that the query's length predicts.
    fits : dict of str to callable
        Fits each estimator, at the setting whose held-out error is least.
    """

    reward: FloatArray
    cost_usd: FloatArray
    reward_shift: dict[str, FloatArray]
    cost_shift_usd: FloatArray
    fits: dict[str, FitResidual]

    def predicted(self, estimator: str, *, token_cost: bool) -> tuple[FloatArray, FloatArray]:
        """Return the predicted rewards and costs of an estimator; "means" adds nothing to the reward."""
        none = np.zeros(self.reward.shape)
        by_text = self.reward_shift.get(estimator, none)
        return Shift(by_text, self.cost_shift_usd if token_cost else none).applied(self.reward, self.cost_usd)


def hold_out(
    sample: Sample, centroids: Embedding, input_price_usd: ArrayLike, estimators: Sequence[str], seed: int
) -> HeldOut:
    """Return held-out predictions of context means, of costs by length, and of each of `estimators`.

    Raises
    ------
    InvalidInput
        If there are fewer queries than folds.
    """
    if len(sample) < N_FOLDS:
        raise InvalidInput(f"to estimate single queries the log must hold at least {N_FOLDS}, got {len(sample)}")
    fold = np.random.default_rng(seed).permutation(len(sample)) % N_FOLDS
    grids = {name: _GRIDS[name](centroids) for name in estimators}
    reward, cost, by_length = (np.zeros(sample.reward.shape) for _ in range(3))
    shifts = {name: [np.zeros(sample.reward.shape) for _ in grid] for name, grid in grids.items()}
    for f in range(N_FOLDS):
        out = fold == f
        train, test = sample.rows(~out), sample.rows(out)
        means = context_means(train, len(centroids))
        reward[out], cost[out] = means.reward[test.contexts], means.cost_usd[test.contexts]
        by_length[out] = fit_length(train, len(centroids), input_price_usd).shifts(test.tokens, test.contexts)
        for name, grid in grids.items():
            for shift, fit in zip(shifts[name], grid, strict=True):
                shift[out] = fit(train, means.reward).shifts(test.embeddings, test.contexts)
    best = {
        name: int(np.argmin([_squared_error(sample.reward - reward, shift) for shift in shifts[name]]))
        for name in estimators
    }
    return HeldOut(
        reward,
        cost,
        {name: shifts[name][i] for name, i in best.items()},
        by_length,
        {name: grids[name][i] for name, i in best.items()},
    )


def context_means(sample: Sample, n_contexts: int) -> Means:
    """Return the shrunk means of a sample's contexts."""
    estimates = Estimates(n_contexts, sample.reward.shape[1])
    estimates.add_table(sample.contexts, sample.reward, sample.cost_usd)
    return estimates.means()


def fit_length(sample: Sample, n_contexts: int, input_price_usd: ArrayLike) -> LengthCost:
    """Return costs by length, fitted on a sample."""
    return LengthCost(n_contexts, input_price_usd).fit(sample.tokens, sample.contexts, sample.cost_usd)


def _squared_error(residual: FloatArray, shift: FloatArray) -> float:
    return float(np.nansum((residual - shift) ** 2))


def _ridges(centroids: Embedding) -> list[FitResidual]:
    def fitted(strength: float) -> FitResidual:
        def fit(sample: Sample, mean_reward: FloatArray) -> Ridge:
            ridge = Ridge(centroids, sample.reward.shape[1], strength)
            return ridge.fit(sample.embeddings, sample.contexts, sample.reward - mean_reward[sample.contexts])

        return fit

    return [fitted(strength) for strength in STRENGTHS]


_GRIDS = {Ridge.name: _ridges}
