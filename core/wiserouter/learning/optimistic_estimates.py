r"""What each model may be worth: rewards with the benefit of the doubt, and costs that a price sheet fills in.

Reward. The mean of a cell is shrunk toward its model's mean, and what is not known yet counts in its favour:

.. math:: \min\Bigl(1,\ \frac{n\,m + \kappa\,\mu_k}{n + \kappa} + \alpha \sqrt{\frac{s\,L}{2 n'}}\Bigr),
    \qquad L = \log\Bigl(1 + \frac{\tau \pi_j}{K n'}\Bigr),

with `n` rewards of mean `m`, `n'` those rewards with what the other contexts say about the model, and `tau` requests to
come, a share `s` of the whole horizon. The logarithm is that of MOSS (Audibert and Bubeck 2009), of the visits to come:
a context that comes rarely is not worth as much trying out as `log t` would ask for. The share is ours: what a trial
teaches pays over the requests that are still to come, so the same trial is worth most at first and nothing at the last
request. What is held *against* a model (a negative alpha) does not wane. The strength `kappa` is empirical Bayes, the
spread within cells over that between them, in proportion to how much of the spread between cells the models' means
explain: where these carry no signal, nothing is shrunk. Where prices are known, the models' means are themselves drawn
toward what these promise (`wiserouter.learning.price_regression`).

Cost. The mean of a cell is shrunk toward its list cost (`wiserouter.learning.cost_prior`), with a strength estimated
likewise. The spread of a model's calls is shrunk toward that of all models: two that cost the same do not say that
all will.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from wiserouter.learning.cost_prior import log_prices, prior_costs_usd
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.price_regression import toward_price_line
from wiserouter.learning.shrinkage import Spreads, spreads, strength
from wiserouter.pricing.pool import Model
from wiserouter.pricing.prices import Price
from wiserouter.types import FloatArray

BORROWED = 0.3
"""What one observation of a model in other contexts counts for in place of one in this context."""

UNIDENTIFIED_COST_STRENGTH = 8.0
"""Pseudo-counts of the list cost while the data cannot tell how far costs stray from it."""

SPREAD_STRENGTH = 8.0
"""Calls that the spread of all models, relative to their list costs, counts for in that of each."""

PRIOR_SPREAD = 0.5
"""Standard deviation of a call that is expected of all models, in list costs; it counts for as many calls."""

COIN, COIN_REWARDS = 0.25, 2.0
"""Variance of one reward before any was seen, that of a coin, and how many rewards it counts for."""

_STRONG = 1e6  # pseudo-counts that stand for infinitely many
_WEAK = 1e-9  # and for none


class ContextEstimates(NamedTuple):
    """One context: mean reward, reward with the benefit of the doubt, and mean cost in USD, per model."""

    mean: list[float]
    reward: list[float]
    cost_usd: list[float]


class OptimisticEstimates:
    """What the estimates promise, for all contexts or for one that has changed.

    Parameters
    ----------
    estimates : Estimates
        What the router keeps up to date.
    models : sequence of Model
        Prices and leaderboard scores; empty where none are known.
    alpha : float
        Weight of what is not known; negative to hold it against a model.
    first_prices : mapping of str to Price, optional
        The price that each model came with, by its name; by default the present ones. A cut makes no model worse.

    Attributes
    ----------
    freq : ndarray of shape (n_contexts,)
        How often each context occurs, as far as is known.
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
        self._score = np.array([0.0 if m.score is None else m.score for m in models] or np.zeros(estimates.shape[1]))
        self._scored = np.array(
            [0.0 if m.score is None else m.score_weight for m in models] or np.zeros(estimates.shape[1])
        )

    def refresh(self, requests: int, share: float) -> None:
        """Take stock of all contexts together: frequencies, models' means, strengths, list costs.

        Parameters
        ----------
        requests : int
            Requests still to come.
        share : float
            How much of the whole horizon they are.
        """
        seen = self._estimates
        ahead: float = requests
        if self._alpha < 0 < share:  # of the whole horizon: at its end a thin mean is as little known
            ahead, share = requests / share, 1.0
        self._weight = self._alpha * math.sqrt(share)
        met = seen.met.sum(axis=1)
        self.freq = met / met.sum()
        self._visits_per_model = ahead * self.freq / seen.shape[1]
        self._take_rewards()
        self._take_costs()

    def row(self, context: int) -> ContextEstimates:
        """Return what is promised in one context."""
        seen, j = self._estimates, context
        labels, kappa = seen.labels[j], self._kappa
        mean = np.minimum(np.maximum((seen.reward[j] + self._prior_reward) / (labels + kappa), 0.0), 1.0)
        known = np.maximum(labels, self._answered * seen.invoked[j]) + self._borrowed
        doubt = np.sqrt(np.log1p(self._visits_per_model[j] / known) / (2.0 * known))
        reward = np.minimum(np.maximum(mean + self._weight * doubt, 0.0), 1.0)
        cost = (seen.cost[j] + self._prior_cost[j]) / (seen.calls[j] + self._cost_kappa)
        if self._retired.any():  # no plan takes what costs most and yields nothing
            reward, cost = np.where(self._retired, 0.0, reward), np.where(self._retired, cost.max(), cost)
        return ContextEstimates(mean.tolist(), reward.tolist(), cost.tolist())

    def rows(self) -> list[ContextEstimates]:
        """Return what is promised in every context."""
        return [self.row(j) for j in range(self._estimates.shape[0])]

    def _take_rewards(self) -> None:
        seen = self._estimates
        n = seen.labels.sum(axis=0) + self._scored
        total = seen.reward.sum(axis=0) + self._scored * self._score
        overall = total.sum() / n.sum() if n.any() else 0.5
        mean = np.where(n > 0, total / np.maximum(n, _WEAK), overall)
        spread = spreads(seen.labels, seen.reward, seen.reward_sq)
        self._kappa = max(_strength_of_means(seen.labels, mean, spread), _WEAK)
        log_price = log_prices(seen, self._first_prices)
        if log_price is not None:
            mean = toward_price_line(mean, _noise(seen.labels, n, spread), log_price)
        self._prior_reward = self._kappa * mean
        self._borrowed = np.maximum(BORROWED / (1.0 / self._kappa + 1.0 / np.maximum(n, _WEAK)), _WEAK)
        self._answered = min((seen.labels.sum() + _PATIENCE) / (seen.invoked.sum() + _PATIENCE), 1.0)

    def _take_costs(self) -> None:
        seen = self._estimates
        prior = prior_costs_usd(seen, self._models)
        total, square = seen.cost / prior, seen.cost_sq / prior**2
        spread = spreads(seen.calls, total, square)
        kappa = strength(spread)
        self._cost_kappa = UNIDENTIFIED_COST_STRENGTH if kappa is None else min(max(kappa, _WEAK), _STRONG)
        self._prior_cost = self._cost_kappa * prior
        self.spread_usd = np.sqrt(_pooled(seen.calls, spread.within)) * prior


_PATIENCE = 20.0
"""Calls that nobody has rewarded yet are waited for this long before rewards count as rare."""


def _pooled(count: FloatArray, within: FloatArray) -> FloatArray:
    """Return the variances within the cells of each model, shrunk toward that of all models."""
    freedom = np.maximum(count.sum(axis=0) - (count > 0).sum(axis=0), 0.0)
    of_all = (freedom @ within + SPREAD_STRENGTH * PRIOR_SPREAD**2) / (freedom.sum() + SPREAD_STRENGTH)
    shrunk: FloatArray = (freedom * within + SPREAD_STRENGTH * of_all) / (freedom + SPREAD_STRENGTH)
    return shrunk


def _noise(count: FloatArray, n: FloatArray, of: Spreads) -> FloatArray:
    """Return the variance of each model's mean of n rewards; infinite where there is none."""
    freedom = np.maximum(count.sum(axis=0) - (count > 0).sum(axis=0), 0.0)
    within = (freedom @ of.within + COIN_REWARDS * COIN) / (freedom.sum() + COIN_REWARDS)
    between = of.between.mean() * (count**2).sum(axis=0) / np.maximum(n, _WEAK)
    variance: FloatArray = np.where(n > 0, (within + between) / np.maximum(n, _WEAK), np.inf)
    return variance


def _strength_of_means(count: FloatArray, mean: FloatArray, of: Spreads) -> float:
    """Return the pseudo-counts of a model's mean reward, none where models' means explain nothing."""
    if len(count) == 1:
        return _STRONG  # the one context is the model: a leaderboard's score counts in full
    kappa = strength(of)
    if kappa is None:
        return 1.0
    n = count.sum(axis=0)
    tried = n > 0
    noise = (of.within.mean() + of.between.mean() * (count**2).sum(axis=0)[tried] / n[tried]) / n[tried]
    between_models = max(float(mean[tried].var(ddof=1) - noise.mean()), 0.0) if tried.sum() > 1 else 0.0
    between_all = between_models + float(of.between.mean())
    return min(kappa, _STRONG) * (between_models / between_all if between_all > 0 else 1.0)
