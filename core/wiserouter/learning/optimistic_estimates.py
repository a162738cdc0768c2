r"""Optimistic estimates: upper confidence bounds of rewards, and costs with a prior from the price list.

Reward. The mean of a cell is shrunk toward its model's mean, and the cell's uncertainty is that of both levels, with
the posterior variance :math:`V_k` of the model's mean and :math:`\sigma^2` of one reward:

.. math:: \min\Bigl(1,\ \frac{n\,m + \kappa\,\mu_k}{n + \kappa} + \alpha \sqrt{2 s \Bigl(
    \frac{\kappa^2 L_k V_k}{(n' + \kappa)^2} + \frac{L_{jk} \sigma^2}{n' + \kappa}\Bigr)}\Bigr),
    \qquad L_k = \log\Bigl(1 + \frac{\tau}{K n'_k}\Bigr),
    \quad L_{jk} = \log\Bigl(1 + \frac{\tau \pi_j}{K (n' + \kappa)}\Bigr),

with `n` rewards of mean `m`, `n'` those rewards and the expected ones of calls under way, :math:`n'_k` the same in all
contexts, and `tau` requests to come, a share `s` of the whole horizon. The logarithms are those of MOSS (Audibert and
Bubeck 2009), over the visits to come: what is learned of a model counts in all contexts, what is learned of a cell only
there. So few queries with many models explore models, and many explore cells. The factor `s` is ours: the information
of a trial pays over the requests still to come, so that the same trial is worth most at first and nothing at the last
request. A positive alpha is scaled by the share of calls that get a score (`scored_share`): a trial is worth what its
score would teach, times the probability of a score. A penalty for uncertainty (a negative alpha) shrinks with
neither. Bounds that are capped at 1 are ordered by their means. The strength `kappa` is empirical Bayes: the variance
within cells over that between them (`wiserouter.learning.shrinkage`), times the share of the variance between cells
that the models' means explain; where these carry no signal, nothing is shrunk.

Prices. Where prices are known, the means of models without a prior quality of their own are themselves shrunk toward
a regression on log prices: expensive models tend to be better, by as much as the pool itself shows. The mean reward
of model `k` is assumed to lie about a line over the logarithm of its list cost `x`,

.. math:: \theta_k = a + b\,x_k + e_k, \qquad m_k \sim N(\theta_k,\ v_k), \qquad e_k \sim N(0,\ t^2),

a small-area model (Fay and Herriot 1979) whose areas are the models. Level and slope have wide normal priors: where
expensive models are no better the line becomes flat, and where they are worse it falls. Before the first reward the
line rises slightly, so that a budget is spent on the models that its price level suggests. The standard deviation `t`
is averaged over a few values, each weighted by its marginal likelihood (Bayesian model averaging), so that a model is
drawn to the line only as far as the others lie on it.

Cost. The mean of a cell is shrunk toward its list cost (`wiserouter.learning.cost_prior`), with a strength estimated
in the same way. The variance of a model's calls is shrunk toward that of all models: two calls of equal cost do not
show that all calls will cost the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from wiserouter.learning.cost_prior import list_figures
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.long_rows import LONG_ROW, numbers
from wiserouter.learning.shrinkage import UNIDENTIFIED_STRENGTH, Spreads, spreads_of_each
from wiserouter.pricing.pool import Model
from wiserouter.pricing.prices import Price
from wiserouter.types import FloatArray

SPREAD_STRENGTH = 8.0
"""Pseudo-calls of the variance of all models, relative to their list costs, in that of each model."""

PRIOR_SPREAD = 0.5
"""Prior standard deviation of the cost of a call, in list costs; it counts for `SPREAD_STRENGTH` calls as well."""

PRIOR_REWARD_VARIANCE, PRIOR_REWARDS = 0.25, 2.0
"""Prior variance of one reward, that of a coin toss, and its pseudo-counts."""

STRAYS = np.array([[0.05], [0.1], [0.2], [0.4]])
"""Values of `t` that are averaged over: standard deviations of models about the line, in rewards."""

LEVEL, LEVEL_SPREAD = 0.5, 0.3
"""Prior mean reward of a model of the pool's typical price, and its standard deviation."""

SLOPE = 0.04
"""Prior mean of the reward that a price e times as high buys: the mean slope of four tables of models (BFCL,
LLMRouterBench, Natural Questions, OpenHands: -.004, .092, .034, .040), none of which the policy is judged on."""

SLOPE_SPREAD = 0.1
"""Its prior standard deviation."""

TIE = 1e-6
"""Weight of the mean among models whose bound is capped at 1: it breaks ties, and nothing else."""

_STRONG = 1e6  # pseudo-counts in place of infinitely many
_WEAK = 1e-9  # and in place of none


class ContextEstimates(NamedTuple):
    """One context: mean reward, upper confidence bound of the reward, and mean cost in USD, per model."""

    mean: Sequence[float]
    reward: Sequence[float]
    cost_usd: Sequence[float]


class EstimatesOfAll(NamedTuple):
    """All contexts: the same figures as ndarrays of shape (n_contexts, n_models)."""

    mean: FloatArray
    reward: FloatArray
    cost_usd: FloatArray


class Beliefs(NamedTuple):
    """Posterior means and variances of the models' mean rewards, each of shape (n_models,)."""

    mean: FloatArray
    variance: FloatArray


class OptimisticEstimates:
    """Optimistic estimates, for all contexts or for one that has changed.

    Parameters
    ----------
    estimates : Estimates
        Observations, which the router keeps up to date.
    models : sequence of Model
        Prices and leaderboard scores; empty where none are known.
    alpha : float
        Weight of the uncertainty; a negative one makes the bound a lower one.
    first_prices : mapping of str to Price, optional
        The price that each model came with, by its name; by default the present ones. The regression on prices uses
        these, since a price cut makes no model worse.

    Attributes
    ----------
    freq : ndarray of shape (n_contexts,)
        Share of each context among the queries so far.
    spread_usd : ndarray of shape (n_contexts, n_models)
        Standard deviation of the cost of one call.
    """

    def __init__(
        self,
        estimates: Estimates,
        models: Sequence[Model],
        alpha: float,
        first_prices: Mapping[str, Price] = MappingProxyType({}),
    ) -> None:
        self._estimates, self._models, self._alpha = estimates, models, alpha
        self._first_prices = [first_prices.get(model.name, model.price) for model in models]
        self._retired = np.array([model.retired for model in models] or [False])
        self._has_retired = bool(self._retired.any())
        self._score = np.array([0.0 if m.score is None else m.score for m in models] or np.zeros(estimates.shape[1]))
        self._scored = np.array(
            [0.0 if m.score is None else m.score_weight for m in models] or np.zeros(estimates.shape[1])
        )

    def refresh(self, requests: int, share: float) -> EstimatesOfAll:
        """Compute frequencies, models' means, strengths and list costs again, and return the estimates that follow.

        Parameters
        ----------
        requests : int
            Requests still to come.
        share : float
            Their share of the whole horizon.
        """
        seen = self._estimates
        ahead: float = requests
        if self._alpha < 0 < share:  # a penalty counts the whole horizon: at its end a thin mean is no better known
            ahead, share = requests / share, 1.0
        self.scored_share = scored_share(seen)
        self._weight = self._alpha * math.sqrt(share) * (self.scored_share if self._alpha > 0 else 1.0)
        met = seen.met.sum(axis=1)
        self.freq = met / met.sum()
        self._visits_per_model = (ahead * self.freq / seen.shape[1])[:, np.newaxis]
        prior_usd, log_price = list_figures(seen, self._models, self._first_prices)
        of_rewards, of_costs = spreads_of_each(
            (seen.labels, seen.reward, seen.reward_sq),
            (seen.calls, seen.cost / prior_usd, seen.cost_sq / prior_usd**2),
        )
        self._take_rewards(of_rewards, log_price)
        self._take_costs(of_costs, prior_usd)
        return EstimatesOfAll(*self._estimated(slice(None)))

    def row(self, context: int) -> ContextEstimates:
        """Return the estimates of one context."""
        mean, reward, cost = self._estimated(context)
        if len(mean) > LONG_ROW:
            return ContextEstimates(numbers(mean), numbers(reward), numbers(cost))
        return ContextEstimates(mean.tolist(), reward.tolist(), cost.tolist())

    def _estimated(self, j: int | slice) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return mean reward, its upper confidence bound and mean cost, of one context or of a slice of them."""
        seen = self._estimates
        labels, kappa = seen.labels[j], self._kappa
        mean = np.minimum(np.maximum((seen.reward[j] + self._prior_reward) / (labels + kappa), 0.0), 1.0)
        # known: rewards and those expected of calls under way, and the pseudo-counts of the model's mean
        known = np.maximum(labels, self.scored_share * seen.invoked[j]) + kappa
        of_cell = self._noise * np.log1p(self._visits_per_model[j] / known)
        radius = np.sqrt(2.0 * ((kappa / known) ** 2 * self._of_model + of_cell / known))
        reward = np.maximum(np.minimum(mean + self._weight * radius, 1.0 - TIE * (1.0 - mean)), 0.0)
        cost = (np.maximum(seen.cost[j], 0.0) + self._prior_cost[j]) / (seen.calls[j] + self._cost_kappa)
        if self._has_retired:  # no plan takes a model that costs most and yields nothing
            most = cost.max(axis=-1, keepdims=True)
            reward, cost = np.where(self._retired, 0.0, reward), np.where(self._retired, most, cost)
        return mean, reward, cost

    def _take_rewards(self, of: Spreads, log_price: FloatArray | None) -> None:
        seen = self._estimates
        n = seen.labels.sum(axis=0) + self._scored
        of_calls, rewards = seen.labels.sum(axis=0), seen.reward.sum(axis=0)
        total = rewards + self._scored * (self._score + _level(of_calls, rewards, self._scored, self._score))
        overall = total.sum() / n.sum() if n.any() else 0.5
        mean = np.where(n > 0, total / np.maximum(n, _WEAK), overall)
        # empirical Bayes: strength of the models' means, and these drawn to the price line
        self._kappa = max(_strength_of_means(seen.labels, mean, of), _WEAK)
        self._noise = _noise(seen.labels, of)
        sampling = _sampling_variance(seen.labels, n, of, self._noise)
        line = toward_price_line(mean, sampling, np.zeros(len(mean)) if log_price is None else log_price)
        if log_price is not None:
            mean = np.where(self._scored > 0, np.clip(mean, 0.0, 1.0), line.mean)
        self._prior_reward = self._kappa * mean
        expected = np.maximum(self.scored_share * seen.invoked.sum(axis=0) - of_calls, 0.0)
        variance = 1.0 / (1.0 / line.variance + expected / self._noise)
        visits = self._visits_per_model.sum()
        self._of_model = variance * np.log1p(visits / np.maximum(n + expected, 1.0))

    def _take_costs(self, of: Spreads, prior: FloatArray) -> None:
        kappa = of.strength
        self._cost_kappa = UNIDENTIFIED_STRENGTH if kappa is None else min(max(kappa, _WEAK), _STRONG)
        self._prior_cost = self._cost_kappa * prior
        self.spread_usd = np.sqrt(_pooled(self._estimates.calls, of.within)) * prior


def scored_share(estimates: Estimates) -> float:
    """Return the share of calls that get a score: Laplace's rule of succession, over calls old enough to have one.

    Examples
    --------
    >>> estimates = Estimates(n_contexts=1, n_models=1)
    >>> scored_share(estimates)
    0.5
    >>> estimates.add_invoked(0, 0, count=98)
    >>> scored_share(estimates)
    0.01
    >>> estimates.pending = 98.0
    >>> scored_share(estimates)
    0.5
    """
    scored = float(estimates.scored.sum())
    scorable = max(float(estimates.invoked.sum()) - estimates.pending, scored)
    return (scored + 1.0) / (scorable + 2.0)


def _level(labels: FloatArray, rewards: FloatArray, weight: FloatArray, score: FloatArray) -> float:
    """Return by how much rewards lie above the models' scores, where several have one: the scales may differ.

    A model that was rewarded would otherwise stand apart from those that are known by their scores alone.
    """
    scored = weight > 0
    both = (labels > 0) & scored
    if not both.any() or scored.sum() < 2:
        return 0.0
    n, w = labels[both], weight[both]
    precision = 1.0 / (PRIOR_REWARD_VARIANCE * (1.0 / n + 1.0 / w))
    return float(precision @ (rewards[both] / n - score[both]) / (precision.sum() + 1.0 / LEVEL_SPREAD**2))


def _pooled(count: FloatArray, within: FloatArray) -> FloatArray:
    """Return the variances within the cells of each model, shrunk toward that of all models by degrees of freedom."""
    freedom = np.maximum(count.sum(axis=0) - (count > 0).sum(axis=0), 0.0)
    of_all = (freedom @ within + SPREAD_STRENGTH * PRIOR_SPREAD**2) / (freedom.sum() + SPREAD_STRENGTH)
    shrunk: FloatArray = (freedom * within + SPREAD_STRENGTH * of_all) / (freedom + SPREAD_STRENGTH)
    return shrunk


def _noise(count: FloatArray, of: Spreads) -> float:
    """Return the variance of one reward within its cell, with a prior."""
    freedom = np.maximum(count.sum(axis=0) - (count > 0).sum(axis=0), 0.0)
    return float(freedom @ of.within + PRIOR_REWARDS * PRIOR_REWARD_VARIANCE) / float(freedom.sum() + PRIOR_REWARDS)


def _sampling_variance(count: FloatArray, n: FloatArray, of: Spreads, noise: float) -> FloatArray:
    """Return the sampling variance of each model's mean of n rewards; infinite where there is none."""
    between = of.between.mean() * (count**2).sum(axis=0) / np.maximum(n, _WEAK)
    variance: FloatArray = np.where(n > 0, (noise + between) / np.maximum(n, _WEAK), np.inf)
    return variance


def _strength_of_means(count: FloatArray, mean: FloatArray, of: Spreads) -> float:
    """Return the pseudo-counts of a model's mean reward: the strength, times the share that models' means explain."""
    if len(count) == 1:
        return _STRONG  # a single cell is its model's mean: a leaderboard's score counts in full
    if of.strength is None:
        return 1.0
    # variance between models: that of their means, less the sampling variance of these
    n = count.sum(axis=0)
    tried = n > 0
    noise = (of.within.mean() + of.between.mean() * (count**2).sum(axis=0)[tried] / n[tried]) / n[tried]
    between_models = max(float(mean[tried].var(ddof=1) - noise.mean()), 0.0) if tried.sum() > 1 else 0.0
    between_all = between_models + float(of.between.mean())
    return min(of.strength, _STRONG) * (between_models / between_all if between_all > 0 else 1.0)


def toward_price_line(mean: FloatArray, noise: FloatArray, log_price: FloatArray) -> Beliefs:
    """Return the posterior of each model's mean reward, between its own mean and the line through all of them.

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
    Beliefs
        Posterior means, within 0 and 1, and variances.

    Examples
    --------
    Three models lie on a line, the fourth was never tried:

    >>> mean, noise = np.array([0.3, 0.5, 0.7, 0.0]), np.array([1e-4, 1e-4, 1e-4, np.inf])
    >>> toward_price_line(mean, noise, np.log([0.1, 1.0, 10.0, 100.0])).mean.round(2).tolist()
    [0.3, 0.5, 0.7, 0.88]
    """
    expected = LEVEL + SLOPE * log_price
    excess = mean - expected
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
    own = STRAYS**2 * weight
    believed = line + own * (excess - line)
    of_line = (slope[:, np.newaxis] - 2.0 * both[:, np.newaxis] * log_price + level[:, np.newaxis] * log_price**2) / (
        determinant[:, np.newaxis]
    )
    variance = STRAYS**2 * (1.0 - own) + (1.0 - own) ** 2 * of_line
    # log marginal likelihood of each t, but for a constant, and the average over t
    fit = a * of_level + b * of_slope - weight @ excess**2 - np.log(determinant)
    fit += np.log(weight, out=np.zeros_like(weight), where=weight > 0).sum(axis=1)
    evidence = np.exp(0.5 * (fit - fit.max()))
    evidence /= evidence.sum()
    mean_excess = evidence @ believed
    total = evidence @ (variance + (believed - mean_excess) ** 2)
    return Beliefs(np.clip(expected + mean_excess, 0.0, 1.0), total)
