r"""Rewards as model + context + interaction: the exact posterior of a two-way random-effects model.

The mean reward of a cell, model `k` in context `j`, is assumed to be

.. math:: \theta_{jk} = m_k + c_j + d_{jk}, \qquad c_j \sim N(0, v), \quad d_{jk} \sim N(0, u),

with the models' effects `m` drawn about their prices or scores (`EffectPrior`), and the mean of `n` rewards of a cell
:math:`N(\theta_{jk}, \sigma^2 / n)`. A context that is hard for all models is then no fault of those that it was sent
to, and one score tells of a model in all contexts, of a context for all models, and most of its own cell (Searle,
Casella, McCulloch 1992, "Variance Components").

The deviations of models from the line, of contexts and of interactions are unknown: each takes the values of
`DEVIATIONS`, that of contexts and of interactions also 0, and the posterior is averaged over all combinations, weighted
by their marginal likelihood (Bayesian model averaging). Where contexts do not differ, or cells do not depart from
model + context, the likelihood says so as scores come; a single context has neither effect.

Interactions and contexts are eliminated in closed form, so that each combination takes one inverse of the size of
the pool.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.learning.shrinkage import PRIOR_COUNT, Spreads
from wiserouter.types import FloatArray

DEVIATIONS = np.array([0.05, 0.1, 0.2, 0.4])
"""Standard deviations, in rewards, that are averaged over: of models about the price line, contexts and interactions"""

PRIOR_REWARD_VARIANCE = 0.25
"""Prior variance of one reward: the largest of rewards in [0, 1], that of a coin toss."""

LEVEL, LEVEL_SPREAD = 0.5, 0.3
"""Prior mean reward of a model of the pool's typical price, and its standard deviation."""

SLOPE = 0.04
"""Prior mean of the reward that a price e times as high buys: the mean slope of four tables of models (BFCL,
LLMRouterBench, Natural Questions, OpenHands: -.004, .092, .034, .040), none of which the policy is judged on."""

SLOPE_SPREAD = 0.1
"""Its prior standard deviation."""


class EffectPrior(NamedTuple):
    """Prior of the models' mean rewards, for each of `DEVIATIONS` from the line.

    Attributes
    ----------
    mean : ndarray of shape (n_deviations, n_models)
        Prior means.
    covariance : ndarray of shape (n_deviations, n_models, n_models)
        Prior covariances.
    log_evidence : ndarray of shape (n_deviations,)
        Log likelihood of the prior scores, but for a constant.
    """

    mean: FloatArray
    covariance: FloatArray
    log_evidence: FloatArray


class Effects(NamedTuple):
    """The posterior.

    Attributes
    ----------
    mean : ndarray of shape (n_contexts, n_models)
        Posterior mean of model + context, without the interaction.
    variance : ndarray of shape (n_models,)
        Posterior variance of the models' effects.
    interaction : float
        Posterior mean of the variance `u` of interactions; 0 with one context.
    """

    mean: FloatArray
    variance: FloatArray
    interaction: float


def effect_prior(log_price: FloatArray, score: FloatArray, precision: FloatArray) -> EffectPrior:
    """Return the prior of models on a line over the logarithms of their prices, or at prior scores of their own.

    Parameters
    ----------
    log_price : ndarray of shape (n_models,)
        Logarithm of each model's list cost, less that of a typical one.
    score : ndarray of shape (n_models,)
        Prior mean rewards, as of a leaderboard; any number where the precision is 0.
    precision : ndarray of shape (n_models,)
        Number of rewards that each score counts for over the variance of one; 0 where there is no score.

    Notes
    -----
    A model without a score lies about the line through prior and scores; one with a score is not drawn to the line.
    Where several have one, their common level is free: a leaderboard's scale need not be that of the rewards.

    Examples
    --------
    >>> effect_prior(np.array([-1.0, 1.0]), np.zeros(2), np.zeros(2)).mean[0].tolist()
    [0.46, 0.54]
    """
    n_models, given = len(log_price), precision > 0
    line = LEVEL + SLOPE * log_price
    about = LEVEL_SPREAD**2 + SLOPE_SPREAD**2 * np.outer(log_price, log_price)
    covariance = about + DEVIATIONS[:, np.newaxis, np.newaxis] ** 2 * np.eye(n_models)
    mean, log_evidence = np.tile(line, (len(DEVIATIONS), 1)), np.zeros(len(DEVIATIONS))
    if not given.any():
        return EffectPrior(mean, covariance, log_evidence)
    own, rest, error = np.flatnonzero(given), np.flatnonzero(~given), np.diag(1.0 / precision[given])
    level = LEVEL_SPREAD**2 if len(own) > 1 else 0.0
    of_scores = covariance[:, own[:, np.newaxis], own] + error
    slopes = about[rest[:, np.newaxis], own] @ np.linalg.inv(of_scores)
    excess = score[own] - line[own]
    settled = np.linalg.solve(of_scores, np.tile(excess[:, np.newaxis], (len(DEVIATIONS), 1, 1)))[..., 0]
    log_evidence -= 0.5 * (np.linalg.slogdet(of_scores)[1] + settled @ excess)
    raised = np.ones((len(DEVIATIONS), n_models))  # by how much each model follows the level of the scores
    raised[:, rest] = slopes.sum(axis=2)
    conditional = covariance[:, rest[:, np.newaxis], rest] - slopes @ about[own[:, np.newaxis], rest]
    covariance = level * raised[:, :, np.newaxis] * raised[:, np.newaxis, :]
    covariance[:, own[:, np.newaxis], own] += error
    covariance[:, rest[:, np.newaxis], rest] += conditional
    mean[:, own], mean[:, rest] = score[own], mean[:, rest] + slopes @ excess
    return EffectPrior(mean, covariance, log_evidence)


def variance_of_reward(of_rewards: Spreads) -> float:
    """Return the variance of one reward within its cell: that of all cells, with a prior.

    Examples
    --------
    >>> none = np.zeros(2)
    >>> variance_of_reward(Spreads(none, none, none > 0.0, freedom=none, strength=None))
    0.25
    """
    inside, freedom = float(of_rewards.freedom @ of_rewards.within), float(of_rewards.freedom.sum())
    return (inside + PRIOR_COUNT * PRIOR_REWARD_VARIANCE) / (freedom + PRIOR_COUNT)


def effects(count: FloatArray, total: FloatArray, noise: float, prior: EffectPrior) -> Effects:
    """Return the posterior of the effects.

    Parameters
    ----------
    count, total : ndarray of shape (n_contexts, n_models)
        Number of rewards and their sum.
    noise : float
        Variance of one reward within a cell.
    prior : EffectPrior
        Of the models' effects.
    """
    tried, n = count > 0, np.maximum(count, 1e-9)
    variances = np.append(0.0, DEVIATIONS**2) if len(count) > 1 else np.zeros(1)
    interaction, context, reward = variances[:, np.newaxis, np.newaxis], variances[:, np.newaxis], total / n
    # weights of cells, axes (interactions, contexts, models), and of contexts given the models' effects
    error = interaction + noise / n
    weight = np.where(tried, 1.0 / error, 0.0)
    weighted, of_context = weight * reward, weight.sum(axis=2)
    share = context / (1.0 + context * of_context[:, np.newaxis])
    scaled = weight[:, np.newaxis] * share[..., np.newaxis]
    # precision of the models' effects and the rest of the likelihood, axes (interactions, contexts, ...)
    information = -np.swapaxes(weight, 1, 2)[:, np.newaxis] @ scaled
    diagonal = np.arange(count.shape[1])
    information[..., diagonal, diagonal] += weight.sum(axis=1)[:, np.newaxis]
    sums = weighted.sum(axis=2)[:, np.newaxis]
    pull = weighted.sum(axis=1)[:, np.newaxis] - (sums[..., np.newaxis, :] @ scaled)[..., 0, :]
    misfit = ((weighted * reward).sum(axis=(1, 2)) + (np.log(error) * tried).sum(axis=(1, 2)))[:, np.newaxis]
    misfit = misfit + np.log1p(context * of_context[:, np.newaxis]).sum(axis=2) - (sums**2 * share).sum(axis=2)
    # with the prior, axes (interactions, contexts, deviations, ...)
    precision = np.linalg.inv(prior.covariance)
    expected = (precision @ prior.mean[..., np.newaxis])[..., 0]
    posterior = information[:, :, np.newaxis] + precision
    covariance, right = np.linalg.inv(posterior), pull[:, :, np.newaxis] + expected
    model = (covariance @ right[..., np.newaxis])[..., 0]
    fit = np.linalg.slogdet(posterior)[1] - np.linalg.slogdet(precision)[1] - 2.0 * prior.log_evidence
    fit = fit + misfit[:, :, np.newaxis] + (expected * prior.mean).sum(axis=1) - (right * model).sum(axis=3)
    likely = np.exp(0.5 * (fit.min() - fit))
    likely /= likely.sum()
    # averages over all
    lift = sums[:, :, np.newaxis] - (weight[:, np.newaxis, np.newaxis] @ model[..., np.newaxis])[..., 0]
    of_contexts = np.einsum("uvt,uvtj->j", likely, share[:, :, np.newaxis] * lift)
    of_models = np.einsum("uvt,uvtk->k", likely, model)
    spread = covariance[..., diagonal, diagonal] + (model - of_models) ** 2
    return Effects(
        of_models + of_contexts[:, np.newaxis],
        np.einsum("uvt,uvtk->k", likely, spread),
        float(likely.sum(axis=(1, 2)) @ variances),
    )
