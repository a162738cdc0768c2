r"""An environment of known means, and the stream of requests that arrive in it.

The cost of a call with mean `c` is log-normal: :math:`c\,e^{\sigma z - \sigma^2/2}` with a standard normal `z`,
truncated at 4 as by a provider's limit on the output, so that every call has a finite worst case.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from wiserouter.errors import InvalidInput
from wiserouter.planning.plan import Plan
from wiserouter.pricing.pool import Model
from wiserouter.pricing.prices import Price
from wiserouter.types import FloatArray, IntArray
from wiserouter.validation import check_count

CAP_SIGMAS = 4.0
"""A call costs at most this many sigmas more than the median, on the log scale."""


class Environment(NamedTuple):
    """The true frequencies, rewards and costs, with a budget.

    Attributes
    ----------
    freq : ndarray of shape (n_contexts,)
        Frequency of each context.
    reward, cost_usd : ndarray of shape (n_contexts, n_models)
        Mean reward in [0, 1] and mean cost of a call.
    budget_usd : float, USD
        For all requests.
    horizon : int
        Number of requests T.
    prices : tuple of Price, or None
        Price of one output token of each model, if known; a call then has a whole number of tokens.
    sigma : float
        Standard deviation of the logarithm of a call's cost.
    """

    freq: FloatArray
    reward: FloatArray
    cost_usd: FloatArray
    budget_usd: float
    horizon: int
    prices: tuple[Price, ...] | None
    sigma: float

    @property
    def plan(self) -> Plan:
        """The linear program at the true means."""
        return Plan(self.freq, self.reward, self.cost_usd)

    @property
    def oracle_reward(self) -> float:
        """The largest expected reward within the budget: the value of the linear program at B / T, times T."""
        return self.horizon * self.plan.value(self.budget_usd / self.horizon)

    def bill_usd(self, cost_usd: FloatArray) -> FloatArray:
        """Return costs, one column per model, rounded to whole tokens; unchanged without prices."""
        if self.prices is None:
            return cost_usd
        token_usd = np.array([price.output for price in self.prices])
        billed: FloatArray = np.rint(cost_usd / token_usd) * token_usd
        return billed

    def worst_usd(self) -> FloatArray:
        """Return the largest cost of one call, of shape (n_contexts, n_models)."""
        return self.bill_usd(self.cost_usd * float(_factor(np.array(CAP_SIGMAS), self.sigma)))

    def models(self) -> list[Model]:
        """Return the pool: names, known prices and the largest cost of a call of each model."""
        max_cost_usd = self.worst_usd().max(axis=0).tolist()
        prices = self.prices or (None,) * len(max_cost_usd)
        priced = zip(prices, max_cost_usd, strict=True)
        return [Model(f"m{k}", price, max_cost_usd=most) for k, (price, most) in enumerate(priced)]


class Stream(NamedTuple):
    """The requests of one run with their random outcomes, the same for every method of a seed.

    Attributes
    ----------
    contexts : ndarray of int of shape (horizon,)
        The context of each request.
    luck : ndarray of shape (horizon,)
        Uniform on [0, 1): the answer is correct if it is less than the model's mean reward.
    factor : ndarray of shape (horizon,)
        Factor on the mean cost of a call.
    """

    contexts: IntArray
    luck: FloatArray
    factor: FloatArray

    @classmethod
    def of(cls, environment: Environment, seed: int) -> Stream:
        """Return the requests of one seed; those of a shorter horizon are the first of a longer one.

        Examples
        --------
        >>> world = Environment(np.array([1.0]), np.array([[0.5]]), np.array([[1.0]]), 3.0, 3, None, 0.0)
        >>> Stream.of(world, seed=0).contexts, Stream.of(world, seed=0).factor
        (array([0, 0, 0]), array([1., 1., 1.]))
        """
        arrivals, luck, spread = np.random.default_rng([seed, 2]).spawn(3)
        n = environment.horizon
        contexts = arrivals.choice(len(environment.freq), size=n, p=environment.freq)
        normal = np.minimum(spread.standard_normal(n), CAP_SIGMAS)
        return cls(contexts, luck.random(n), _factor(normal, environment.sigma))

    def rewards(self, environment: Environment) -> FloatArray:
        """Return the score of each model on each request, 0 or 1, of shape (horizon, n_models)."""
        return (self.luck[:, np.newaxis] < environment.reward[self.contexts]).astype(np.float64)

    def costs_usd(self, environment: Environment) -> FloatArray:
        """Return the cost of each model on each request, of shape (horizon, n_models)."""
        return environment.bill_usd(environment.cost_usd[self.contexts] * self.factor[:, np.newaxis])


def budget_between_usd(freq: FloatArray, cost_usd: FloatArray, horizon: int, fraction: float) -> float:
    """Return the budget at `fraction` between always the cheapest and always the most expensive model.

    Raises
    ------
    InvalidInput
        If the fraction is outside [0, 1], or the horizon is not a whole number of at least 1.

    Examples
    --------
    >>> budget_between_usd(np.array([1.0]), np.array([[1.0, 3.0]]), horizon=10, fraction=0.5)
    20.0
    """
    if not 0.0 <= fraction <= 1.0:
        raise InvalidInput(f"fraction must lie in [0, 1], got {fraction!r}", value=fraction)
    least, most = float(freq @ cost_usd.min(axis=1)), float(freq @ cost_usd.max(axis=1))
    return check_count("horizon", horizon, least=1) * (least + fraction * (most - least))


def _factor(normal: FloatArray, sigma: float) -> FloatArray:
    """Return log-normal factors of mean 1."""
    factor: FloatArray = np.exp(sigma * normal - 0.5 * math.pow(sigma, 2))
    return factor
