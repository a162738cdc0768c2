"""The deviation of one query from the means of its context."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any, NamedTuple, Protocol

import numpy as np

from wiserouter.types import FloatArray

LEAST_SHARE = 0.1
"""A query costs at least this share of its context's mean: a line may fall below 0, a cost may not."""


class Valued(Protocol):
    """The value of a request, by which a plan weighs its reward."""

    @property
    def value(self) -> float:
        """The value relative to 1."""
        ...

    def split_from_floor(self, plan: Any, context: int, rate_usd: float) -> tuple[int, int, float, float, float]:
        """Return the fields of `Plan.split_from_floor` for this request."""
        ...


class Shift(NamedTuple):
    """The deviation of one query, to be added to the means of its context.

    Attributes
    ----------
    reward, cost_usd : array-like of shape (n_models,), or None
        Deviations from the context's mean reward and mean cost; None where there are none.
    shadow_price : float or None
        Reward per USD at which queries with estimates of their own spend the rate; None for the plan's own.
    own_cost_usd : sequence of float of length n_models, or None
        The cost of this query itself, in place of mean and deviation; NaN where it is not known.
    valued : Valued or None
        The value of this query; None where all requests have the value 1.
    """

    reward: FloatArray | Sequence[float] | None = None
    cost_usd: FloatArray | Sequence[float] | None = None
    shadow_price: float | None = None
    own_cost_usd: Sequence[float] | None = None
    valued: Valued | None = None

    def rewards(self, means: Sequence[float]) -> list[float]:
        """Return the rewards of `applied`, where costs do not deviate, as a list.

        Examples
        --------
        >>> Shift([0.25, -0.75]).rewards([0.5, 0.5])
        [0.75, 0.0]
        """
        if self.reward is None:
            return list(means)
        deviations = self.reward if isinstance(self.reward, list) else np.asarray(self.reward).tolist()
        pairs = zip(means, deviations, strict=True)
        return [0.0 if (u := mean + own) < 0.0 else 1.0 if u > 1.0 else u for mean, own in pairs]

    def costs_usd(self, means_usd: Sequence[float]) -> list[float]:
        """Return the costs of `applied`, where they do not deviate, as a list."""
        own_usd = self.own_cost_usd
        if own_usd is None:
            return list(means_usd)
        return [mean if isnan(own) else own for own, mean in zip(own_usd, means_usd, strict=True)]

    def applied(self, reward: FloatArray, cost_usd: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the means with the deviations added, rewards kept in [0, 1] and costs at `LEAST_SHARE` of their mean.

        Examples
        --------
        >>> Shift(np.array([0.3]), np.array([-5.0])).applied(np.array([0.9]), np.array([2.0]))
        (array([1.]), array([0.2]))
        """
        if self.reward is not None:
            reward = np.minimum(np.maximum(reward + self.reward, 0.0), 1.0)  # np.clip takes four times as long
        if self.cost_usd is not None:
            cost_usd = np.maximum(cost_usd + self.cost_usd, LEAST_SHARE * cost_usd)
        if self.own_cost_usd is not None:
            cost_usd = np.where(np.isnan(self.own_cost_usd), cost_usd, self.own_cost_usd)
        return reward, cost_usd
