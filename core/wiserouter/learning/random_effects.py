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

Interactions and contexts are eliminated in closed form, and models without a reward follow the others by the prior
alone. So each combination takes one Cholesky factor of the size of the models that have rewards, and one inverse
where its share counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.learning.shrinkage import PRIOR_COUNT, Spreads
from wiserouter.types import FloatArray, IntArray

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

NEGLIGIBLE = 1e-15
"""Share of a combination of variances below which its posterior changes no average: the rounding of a float."""

LEAST_ERROR = 1e-12
"""Least variance of a cell's mean: with less, rounding would decide on the differences between contexts."""

_STRONG = 1e6  # pseudo-counts in place of infinitely many
_WEAK = 1e-9  # least variance of interactions
_CORNER = 1e300  # beyond any quadratic form, so that the bordered matrix is positive definite, too


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

    def pseudo_rewards(self, noise: float) -> float:
        """Return the number of rewards that model + context count for in a cell, with the variance of one reward.

        Examples
        --------
        >>> Effects(np.zeros((2, 1)), np.zeros(1), interaction=0.04).pseudo_rewards(0.2)
        5.0
        """
        return min(noise / max(self.interaction, _WEAK), _STRONG)

    def cell_means(self, count: FloatArray, total: FloatArray, noise: float) -> FloatArray:
        """Return the posterior mean of each cell, from the same rewards."""
        weight = self.pseudo_rewards(noise)
        means: FloatArray = (total + weight * self.mean) / (count + weight)
        return means


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
    >>> variance_of_reward(Spreads(none, none > 0.0, freedom=none, strength=None))
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
    variances = np.append(0.0, DEVIATIONS**2) if len(count) > 1 else np.zeros(1)
    scores = count.sum(axis=0)
    (contexts,), (own,), (rest,) = count.sum(axis=1).nonzero(), scores.nonzero(), (scores == 0.0).nonzero()
    cells = contexts[:, np.newaxis], own
    seen = _likelihood(count[cells], total[cells], noise, variances)
    # with the prior, axes (interactions, contexts, deviations, ...)
    mean, covariance = prior.mean[:, own], prior.covariance[:, own[:, np.newaxis], own]
    precision = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
    expected = (precision @ mean[..., np.newaxis])[..., 0]
    right = seen.pull[:, :, np.newaxis] + expected
    bordered = _bordered(seen.information[:, :, np.newaxis], precision, right)
    log_determinant, explained = _determinant_and_form(bordered)
    fit = log_determinant - np.linalg.slogdet(precision)[1] - 2.0 * prior.log_evidence
    fit = fit + seen.misfit[:, :, np.newaxis] + (expected * mean).sum(axis=1) - explained
    likely = np.exp(0.5 * (fit.min() - fit))
    likely /= likely.sum()
    # averages over what the likelihood leaves, axes (combinations, ...)
    u, v, t = (likely > NEGLIGIBLE).nonzero()
    uncertain = np.asarray(np.linalg.inv(bordered[u, v, t, :-1, :-1]), dtype=np.float64)
    combined = _Combinations(likely[u, v, t], t, uncertain, right[u, v, t])
    lift = seen.sums[u] - (seen.weight[u] @ combined.mean[..., np.newaxis])[..., 0]
    of_contexts, of_models, variance = (np.zeros(n) for n in (*count.shape, count.shape[1]))
    of_contexts[contexts] = combined.share @ (seen.share[u, v] * lift)
    of_models[own], variance[own] = combined.average()
    if len(rest):
        of_models[rest], variance[rest] = combined.average_of_others(prior, own, rest, precision)
    return Effects(of_models + of_contexts[:, np.newaxis], variance, float(likely.sum(axis=(1, 2)) @ variances))


class _Likelihood(NamedTuple):
    """The likelihood of the models' effects, contexts and interactions eliminated; axes (interactions, contexts, ...).

    Attributes
    ----------
    information, pull : ndarray of shape (n_variances, n_variances, n_models, n_models) and without the last axis
        Precision of the models' effects, and that times their estimates.
    misfit : ndarray of shape (n_variances, n_variances)
        Twice the negative log likelihood of effects of 0, but for a constant.
    weight, sums : ndarray of shape (n_variances, n_contexts, n_models) and (n_variances, n_contexts)
        Precision of each cell's mean, and the sum of the means of each context with these weights.
    share : ndarray of shape (n_variances, n_variances, n_contexts)
        Posterior variance of each context's effect, given the models'.
    """

    information: FloatArray
    pull: FloatArray
    misfit: FloatArray
    weight: FloatArray
    sums: FloatArray
    share: FloatArray


def _likelihood(count: FloatArray, total: FloatArray, noise: float, variances: FloatArray) -> _Likelihood:
    """Return the likelihood for each variance of interactions and of contexts."""
    tried, n = count > 0, np.maximum(count, 1e-9)
    interaction, context, reward = variances[:, np.newaxis, np.newaxis], variances[:, np.newaxis], total / n
    error = np.maximum(interaction + noise / n, LEAST_ERROR)
    weight = np.where(tried, 1.0 / error, 0.0)
    weighted, of_context = weight * reward, weight.sum(axis=2)
    share = context / (1.0 + context * of_context[:, np.newaxis])
    scaled = weight[:, np.newaxis] * share[..., np.newaxis]
    information = -np.swapaxes(weight, 1, 2)[:, np.newaxis] @ scaled
    diagonal = np.arange(count.shape[1])
    information[..., diagonal, diagonal] += weight.sum(axis=1)[:, np.newaxis]
    sums = weighted.sum(axis=2)
    pull = weighted.sum(axis=1)[:, np.newaxis] - (sums[:, np.newaxis, np.newaxis] @ scaled)[..., 0, :]
    misfit = ((weighted * reward).sum(axis=(1, 2)) + (np.log(error) * tried).sum(axis=(1, 2)))[:, np.newaxis]
    misfit = misfit + np.log1p(context * of_context[:, np.newaxis]).sum(axis=2)
    misfit -= (sums[:, np.newaxis] ** 2 * share).sum(axis=2)
    return _Likelihood(information, pull, misfit, weight, sums, share)


def _bordered(information: FloatArray, precision: FloatArray, right: FloatArray) -> FloatArray:
    """Return the sums of the two matrices with `right` as a further row; only the lower triangle is of use."""
    n = right.shape[-1]
    bordered = np.empty((*right.shape[:-1], n + 1, n + 1))
    np.add(information, precision, out=bordered[..., :n, :n])
    bordered[..., n, :n], bordered[..., n, n] = right, _CORNER
    return bordered


def _determinant_and_form(bordered: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return log |A| and x' inv(A) x of positive definite matrices A that have x as a further row.

    The last row of the Cholesky factor is then inv(L) x, with L the factor of A.

    Examples
    --------
    >>> determinant, form = _determinant_and_form(_bordered(np.diag([1.0, 3.0]), np.eye(2), np.array([2.0, 2.0])))
    >>> float(np.exp(determinant).round(9)), float(form.round(9))
    (8.0, 3.0)
    """
    factor = np.linalg.cholesky(bordered)
    diagonal = np.diagonal(factor, axis1=-2, axis2=-1)[..., :-1]
    return 2.0 * np.log(diagonal).sum(axis=-1), (factor[..., -1, :-1] ** 2).sum(axis=-1)


class _Combinations:
    """The posteriors of the models with rewards, for each combination of variances that the likelihood leaves.

    Parameters
    ----------
    share : ndarray of shape (n,)
        Weights of the combinations.
    deviation : ndarray of shape (n,)
        Which of `DEVIATIONS` each combination has.
    covariance, right : ndarray of shape (n, n_models, n_models) and (n, n_models)
        Posterior covariances, and the posterior precisions times the means.
    """

    def __init__(self, share: FloatArray, deviation: IntArray, covariance: FloatArray, right: FloatArray) -> None:
        self.share, self._deviation, self._covariance = share, deviation, covariance
        self.mean = (covariance @ right[..., np.newaxis])[..., 0]

    def average(self) -> tuple[FloatArray, FloatArray]:
        """Return the posterior means and variances."""
        mean = self.share @ self.mean
        return mean, self.share @ (np.diagonal(self._covariance, axis1=1, axis2=2) + (self.mean - mean) ** 2)

    def average_of_others(
        self, prior: EffectPrior, own: IntArray, rest: IntArray, precision: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return those of the models without a reward (`rest`), which follow the others (`own`) as the prior says.

        `precision` holds the prior precisions of the others, of shape (n_deviations, n_own, n_own).
        """
        joint = prior.covariance[:, rest[:, np.newaxis], own]
        slopes = joint @ precision
        left = prior.covariance[:, rest, rest] - (slopes * joint).sum(axis=2)
        news = self.mean - prior.mean[self._deviation[:, np.newaxis], own]
        each = prior.mean[:, rest][self._deviation] + (slopes[self._deviation] @ news[..., np.newaxis])[..., 0]
        mean = self.share @ each
        of_deviation = self.share * (self._deviation == np.arange(len(slopes))[:, np.newaxis])
        known = np.tensordot(of_deviation, self._covariance, axes=1)
        within = of_deviation.sum(axis=1) @ left + ((slopes @ known) * slopes).sum(axis=(0, 2))
        return mean, within + self.share @ (each - mean) ** 2
