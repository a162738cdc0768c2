r"""Optimistic estimates: upper confidence bounds of rewards, and costs with a prior from the price list.

Reward. The mean of a cell is shrunk toward model + context (`wiserouter.learning.random_effects`), and the cell's
uncertainty is that of both levels, with the posterior variance :math:`V_k` of the model's effect, :math:`\sigma^2` of
one reward and `u` of the interactions of models and contexts:

.. math:: \min\Bigl(1,\ \frac{n\,m + \kappa\,(m_k + c_j)}{n + \kappa} + \alpha \sqrt{s a \Bigl(
    \frac{\kappa^2 z_k^2 V_k}{(n' + \kappa)^2} + \frac{z_{jk}^2 \sigma^2}{n' + \kappa}\Bigr)}\Bigr),
    \qquad \kappa = \frac{\sigma^2}{u},
    \quad z_k = z\Bigl(\frac{\tau}{K n'_k}\Bigr),
    \quad z_{jk} = z\Bigl(\frac{\tau \pi_j}{K (n' + \kappa)}\Bigr),

with `n` rewards of mean `m`, `n'` those rewards and the expected ones of calls under way, :math:`n'_k` the same in all
contexts, and `tau` requests to come, a share `s` of the whole horizon. With `x` visits to come per observation, `z(x)`
is the normal quantile at 1 - 1 / (1 + x), and 0 below the median: the bound is an upper quantile of the posterior
(Bayes-UCB, Kaufmann, Cappé and Garivier 2012), at a level that rises with the visits to come, as in MOSS (Audibert and
Bubeck 2009). What is learned of a model counts in all contexts, what is learned of a cell only there. So few queries
with many models explore models, and many explore cells. The factor `s` is ours: the information
of a trial pays over the requests still to come, so that the same trial is worth most at first and nothing at the last
request. So is `a`, the share of calls that get a score (`scored_share`): the variance that a call is expected to
resolve is that which its score resolves, times the probability of a score. Where alpha is negative, a penalty for
uncertainty, `s` and `a` are 1.

Prices. The models' effects are drawn toward a line over the logarithms of their list costs `x`,

.. math:: m_k = a + b\,x_k + e_k, \qquad e_k \sim N(0,\ t^2),

a small-area model (Fay and Herriot 1979) whose areas are the models: expensive models tend to be better, by as much as
the pool itself shows. Level and slope have wide normal priors: where expensive models are no better the line becomes
flat, and where they are worse it falls. Before the first reward the line rises slightly, so that a budget is spent on
the models that its price level suggests. A model with a prior quality of its own is drawn to that instead.

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

from wiserouter.learning.cost_prior import PRIOR_SPREAD, log_prices, prior_costs_usd
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.random_effects import Effects, effect_prior, effects, variance_of_reward
from wiserouter.learning.shrinkage import UNIDENTIFIED_STRENGTH, Spreads, spreads
from wiserouter.pricing.pool import Model
from wiserouter.pricing.prices import Price
from wiserouter.types import FloatArray

QUANTILE_ABOVE = (0.010328, 0.802853, 2.515517)
QUANTILE_BELOW = (0.001308, 0.189269, 1.432788, 1.0)
"""Coefficients of the approximation of a normal quantile, the highest power first."""

LOGISTIC = 1.702
"""Scale of the logistic distribution that is closest to a normal one."""

TIE = 1e-6
"""Weight of the mean among models whose bound is capped at 1: it breaks ties, and nothing else."""

_STRONG = 1e6  # pseudo-counts in place of infinitely many
_WEAK = 1e-9  # and in place of none


class MeansAndBounds(NamedTuple):
    """Mean reward, upper confidence bound of the reward, and mean cost in USD.

    Each is an ndarray of shape (n_contexts, n_models), or (n_models,) for one context.
    """

    mean: FloatArray
    reward: FloatArray
    cost_usd: FloatArray


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
    pause : float, default 0
        Fewest rewards between two fits of the effects of models and contexts; at first, thrice as many as there were.

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
        pause: float = 0.0,
    ) -> None:
        models = models or [Model(f"model {k}") for k in range(estimates.shape[1])]  # of which nothing is known
        self._estimates, self._models, self._alpha = estimates, models, alpha
        self._first_prices = [first_prices.get(model.name, model.price) for model in models]
        self._retired = np.array([model.retired for model in models])
        self._has_retired = bool(self._retired.any())
        self._score = np.array([0.0 if m.score is None else m.score for m in models])
        self._scored = np.array([0.0 if m.score is None else m.score_weight for m in models])
        self.freq: FloatArray = np.full(estimates.shape[0], 1.0 / estimates.shape[0])
        self._effects: Effects | None = None
        self._pause = pause
        self._fitted_at = self._fit_at = 0.0

    def refresh(self, requests: int, share: float) -> MeansAndBounds:
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
        self._weight = self._alpha * math.sqrt(share * (_assured(self.scored_share, seen) if self._alpha > 0 else 1.0))
        met = seen.met.sum(axis=1)
        if met.any():  # else all queries were taken back
            self.freq = met / met.sum()
        self._visits_per_model = (ahead * self.freq / seen.shape[1])[:, np.newaxis]
        prior_usd = prior_costs_usd(seen, self._models)
        self._take_rewards(spreads(seen.labels, seen.reward, seen.reward_sq), log_prices(seen, self._first_prices))
        self._take_costs(spreads(seen.calls, seen.cost / prior_usd, seen.cost_sq / prior_usd**2), prior_usd)
        return self.row(slice(None))

    def row(self, j: int | slice) -> MeansAndBounds:
        """Return the estimates of one context, or of a slice of them."""
        seen = self._estimates
        labels, kappa = seen.labels[j], self._kappa
        mean = np.minimum(np.maximum((seen.reward[j] + self._prior_reward[j]) / (labels + kappa), 0.0), 1.0)
        # known: rewards and those expected of calls under way, and the pseudo-counts of the model's mean
        known = np.maximum(labels, self.scored_share * seen.invoked[j]) + kappa
        of_cell = self._noise * quantile_sq(self._visits_per_model[j] / known)
        radius = np.sqrt((kappa / known) ** 2 * self._of_model + of_cell / known)
        reward = np.maximum(np.minimum(mean + self._weight * radius, 1.0 - TIE * (1.0 - mean)), 0.0)
        cost = (np.maximum(seen.cost[j], 0.0) + self._prior_cost[j]) / (seen.calls[j] + self._cost_kappa)
        if self._has_retired:  # no plan takes a model that costs most and yields nothing
            most = cost.max(axis=-1, keepdims=True)
            reward, cost = np.where(self._retired, 0.0, reward), np.where(self._retired, most, cost)
        return MeansAndBounds(mean, reward, cost)

    def _take_rewards(self, of_rewards: Spreads, log_price: FloatArray) -> None:
        seen = self._estimates
        self._noise = variance_of_reward(of_rewards)
        of = self._fitted(log_price)
        self._kappa = of.pseudo_rewards(self._noise)
        self._prior_reward = self._kappa * mean_within_range(of.mean, np.sqrt(of.variance))
        n = seen.labels.sum(axis=0)
        expected = np.maximum(self.scored_share * seen.invoked.sum(axis=0) - n, 0.0)
        variance = 1.0 / (1.0 / of.variance + expected / self._noise)
        visits = self._visits_per_model.sum()
        self._of_model = variance * quantile_sq(visits / np.maximum(n + self._scored + expected, 1.0))

    def _fitted(self, log_price: FloatArray) -> Effects:
        """Return the effects of models and contexts; in large tables those of some rewards ago."""
        seen, n = self._estimates, float(self._estimates.labels.sum())
        if self._effects is None or not self._fitted_at <= n < self._fit_at:
            prior = effect_prior(log_price, self._score, self._scored / self._noise)
            self._effects = effects(seen.labels, seen.reward, self._noise, prior)
            self._fitted_at, self._fit_at = n, n + min(3.0 * n, self._pause)
        return self._effects

    def _take_costs(self, of: Spreads, prior: FloatArray) -> None:
        kappa = of.strength
        self._cost_kappa = UNIDENTIFIED_STRENGTH if kappa is None else min(max(kappa, _WEAK), _STRONG)
        self._prior_cost = self._cost_kappa * prior
        self.spread_usd = np.sqrt(_pooled(of)) * prior


def quantile_sq(ahead: FloatArray) -> FloatArray:
    """Return the squared normal quantile at 1 - 1 / (1 + ahead); 0 up to one visit to come per observation.

    By the rational approximation 26.2.23 of Abramowitz and Stegun (1964), which is within .00045 of the quantile.

    Examples
    --------
    >>> quantile_sq(np.array([0.5, 1.0, 9.0, 99.0, 1e6])).round(2).tolist()
    [0.0, 0.0, 1.64, 5.41, 22.59]
    """
    t = np.sqrt(2.0 * np.log1p(ahead))
    (a, b, c), (d, e, f, g) = QUANTILE_ABOVE, QUANTILE_BELOW
    above, below = (a * t + b) * t + c, ((d * t + e) * t + f) * t + g  # half the time of `numpy.polyval`
    squares: FloatArray = np.maximum(t - above / below, 0.0) ** 2
    return squares


def mean_within_range(mean: FloatArray, deviation: FloatArray) -> FloatArray:
    """Return the mean of a normal quantity that is clipped to [0, 1], as no model earns more than 1.

    The clipped mean of what is hardly known lies well below 1, even where a line through other models points beyond.
    The normal distribution is replaced by the logistic one that is closest to it (Bowling et al. 2009).

    Examples
    --------
    >>> mean_within_range(np.array([0.5, 0.99, 1.1, 1.1]), np.array([0.2, 0.01, 0.01, 0.3])).round(3).tolist()
    [0.5, 0.989, 1.0, 0.921]
    """
    scale = np.maximum(deviation, _WEAK) / LOGISTIC
    above, below = np.logaddexp(0.0, (mean - 1.0) / scale), np.logaddexp(0.0, -mean / scale)
    within: FloatArray = np.clip(mean + scale * (below - above), 0.0, 1.0)
    return within


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


def _assured(scored_share: float, estimates: Estimates) -> float:
    """Return the share of calls that get a score less its standard error: none as long as no call got one."""
    calls = max(float(estimates.invoked.sum()) - estimates.pending, float(estimates.scored.sum()))
    return max(scored_share - math.sqrt(scored_share * (1.0 - scored_share) / (calls + 3.0)), 0.0)


def _pooled(of: Spreads) -> FloatArray:
    """Return the variances within the cells of each model, shrunk toward that of all models by degrees of freedom."""
    within, freedom, strength = of.within, of.freedom, UNIDENTIFIED_STRENGTH
    of_all = (freedom @ within + strength * PRIOR_SPREAD**2) / (freedom.sum() + strength)
    shrunk: FloatArray = (freedom * within + strength * of_all) / (freedom + strength)
    return shrunk
