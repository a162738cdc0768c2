"""The budget-aware form of a bandit (paper, Appendix "Making Bandit Algorithms Budget-Aware").

At each request the bandit chooses among the models with an expected cost of at most b / tau, or takes the cheapest
model if there is none. As in the paper, the baselines are given the true expected costs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

import numpy as np

from wiserouter.budgets.funds import Funds
from wiserouter.learning.estimates import Estimates
from wiserouter.planning.plan import Plan
from wiserouter.planning.policies import Choice
from wiserouter.planning.shift import Shift
from wiserouter.pricing.pool import Model
from wiserouter.types import FloatArray


def affordable(cost_usd: Sequence[float], rate_usd: float, allowed: Collection[int] | None = None) -> list[int]:
    """Return the models that cost at most `rate_usd`, or the cheapest one.

    Examples
    --------
    >>> affordable([1.0, 2.0, 3.0], 2.0), affordable([1.0, 2.0, 3.0], 0.5), affordable([1.0, 2.0, 3.0], 0.5, {1, 2})
    ([0, 1], [0], [1])
    """
    models = range(len(cost_usd)) if allowed is None else sorted(allowed)
    return [k for k in models if cost_usd[k] <= rate_usd] or [min(models, key=cost_usd.__getitem__)]


def best_of(score: Sequence[float], models: Sequence[int]) -> list[int]:
    """Return the model with the highest score, or all that are tied.

    Examples
    --------
    >>> best_of([0.9, 0.5, 0.3], [1, 2]), best_of([0.5, 0.5], [0, 1])
    ([1], [0, 1])
    """
    top = max([score[k] for k in models])
    return [k for k in models if score[k] == top]


def draw(models: Sequence[int], rng: np.random.Generator) -> int:
    """Return one of `models`, drawn uniformly."""
    return models[0] if len(models) == 1 else models[int(rng.integers(len(models)))]


class BudgetAware(ABC):
    """A bandit that chooses among the affordable models.

    Parameters
    ----------
    cost_usd : ndarray of shape (n_contexts, n_models)
        True mean costs.
    """

    name: str
    plan: Plan | None = None

    def __init__(self, cost_usd: FloatArray) -> None:
        self._cost_usd: list[list[float]] = cost_usd.tolist()

    def bind(self, freq: FloatArray, estimates: Estimates, models: Sequence[Model] = ()) -> None:
        """Keep a reference to the estimates, which the run updates."""
        self._estimates = estimates

    def choose(
        self,
        context: int,
        funds: Funds,
        rng: np.random.Generator,
        allowed: Collection[int] | None = None,
        shift: Shift | None = None,
    ) -> Choice:
        """Draw one of the affordable models."""
        cost = self._cost_usd[context]
        model, probability = self.pick(context, affordable(cost, funds.rate_usd, allowed), rng)
        return Choice(model, probability, 0.0, cost[model], 0.0, "actual")

    @abstractmethod
    def pick(self, context: int, models: Sequence[int], rng: np.random.Generator) -> tuple[int, float]:
        """Return one of `models` and the probability with which it was drawn."""

    def settings(self) -> dict[str, object]:
        """Return no settings: a baseline is not saved."""
        return {}
