"""The deviation of one query from the means of its context."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import NamedTuple

import numpy as np

from wiserouter.planning.valued_plan import ValuedRequest
from wiserouter.types import Embedding


class Shift(NamedTuple):
    """The deviation of one query, to be added to the means of its context.

    Attributes
    ----------
    reward : array-like of shape (n_models,), or None
        Deviations from the context's mean rewards; None where there are none.
    shadow_price : float or None
        Reward per USD at which queries with estimates of their own spend the rate; None for the plan's own.
    own_cost_usd : sequence of float of length n_models, or None
        The cost of this query itself, in place of the mean; NaN where it is not known.
    valued : ValuedRequest or None
        The value of this query; None where all requests have the value 1.
    """

    reward: Embedding | Sequence[float] | None = None
    shadow_price: float | None = None
    own_cost_usd: Sequence[float] | None = None
    valued: ValuedRequest | None = None

    def rewards(self, means: Sequence[float]) -> Sequence[float]:
        """Return the rewards of this query, in [0, 1], by the means of its context.

        Examples
        --------
        >>> Shift([0.25, -0.75]).rewards([0.5, 0.5])
        [0.75, 0.0]
        """
        if self.reward is None:
            return means
        pairs = zip(means, np.asarray(self.reward).tolist(), strict=True)
        return [0.0 if (u := mean + own) < 0.0 else 1.0 if u > 1.0 else u for mean, own in pairs]

    def costs_usd(self, means_usd: Sequence[float]) -> Sequence[float]:
        """Return the costs of this query: its own where they are known, else the means.

        Examples
        --------
        >>> Shift(own_cost_usd=[float("nan"), 9.0]).costs_usd([2.0, 2.0])
        [2.0, 9.0]
        """
        if self.own_cost_usd is None:
            return means_usd
        return [mean if isnan(own) else own for own, mean in zip(self.own_cost_usd, means_usd, strict=True)]
