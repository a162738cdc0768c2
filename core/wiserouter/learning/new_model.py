"""The prior of a model before its first call: the others' rewards, and costs in proportion to its price."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.learning.estimates import Estimates
from wiserouter.learning.shrinkage import shrunk_means
from wiserouter.pricing.pool import Pool
from wiserouter.types import FloatArray
from wiserouter.validation import check_amount, check_reward

WEIGHT = 1.0
"""Observations per context that the prior counts for: it holds the information of one (Kass and Wasserman 1995)."""


class ModelPrior(NamedTuple):
    """Mean reward and cost per context, each of shape (n_contexts,), and how many scores and calls they count for."""

    reward: FloatArray
    cost_usd: FloatArray
    labels: float
    calls: float


def new_model_prior(estimates: Estimates, pool: Pool, reward: float | None, cost_usd: float | None) -> ModelPrior:
    """Return the prior of the pool's last model.

    Parameters
    ----------
    estimates : Estimates
        Observations of the models before it.
    pool : Pool
        All models, the new one last.
    reward, cost_usd : float, optional
        The caller's prior means. By default the mean reward of the others with a score, in each context, and the mean
        cost of all others scaled by the list prices where these are known; the others are those of its own family where
        it has any.

    Returns
    -------
    ModelPrior
        Of weight 0 where there is neither a prior mean nor an observation: without a score, it is judged as the others.

    Raises
    ------
    InvalidInput
        If a prior mean is out of range.
    """
    none = np.zeros(estimates.shape[0])
    known, kin = bool(estimates.calls.any()), _kin(pool)
    means = estimates.means() if known else None
    cost = none if cost_usd is None else none + check_amount("cost_usd", cost_usd)
    if means is not None and cost_usd is None:
        cost = (means.cost_usd * _price_ratios(pool))[:, kin].mean(axis=1)
    scored = [k for k in kin if estimates.labels[:, k].any()]
    score = none if reward is None else none + check_reward(reward)
    if reward is None and scored:
        scores = shrunk_means(estimates.labels, estimates.reward, estimates.reward_sq, shrink=True)
        score = np.clip(scores[:, scored].mean(axis=1), 0.0, 1.0)
    labels = WEIGHT if reward is not None or scored else 0.0
    return ModelPrior(score, cost, labels, WEIGHT if known or cost_usd is not None else 0.0)


def _kin(pool: Pool) -> list[int]:
    """Return the other arms of the new model's family; all other models where there are none."""
    *others, new = pool.families
    return [k for k, family in enumerate(others) if family == new] or list(range(len(others)))


def _price_ratios(pool: Pool) -> FloatArray:
    """Return the new model's list price over that of each other model; 1 where one of them has none."""
    *others, new = [0.0 if m.price is None else m.price.input + m.price.output for m in pool.models]
    return np.array([new / other if new and other else 1.0 for other in others])
