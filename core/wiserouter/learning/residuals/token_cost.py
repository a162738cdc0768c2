r"""Costs that are linear in the length of the query, with an empirical Bayes slope.

The slope of each model is the least-squares slope of cost on tokens within contexts, from running sums. It is shrunk
toward the model's list price of an input token, or 0 where there is none, by its own standard error (positive-part
James-Stein): with `d` the least-squares slope less that price and `v` its variance,

.. math:: \text{slope} = \text{price} + d\, \max\Bigl(0, 1 - \frac{v}{d^2}\Bigr) .

A query of `t` tokens costs the context's mean plus `slope x (t - usual length)`. The usual length of a context is its
mean in history, or the length of its first query; it never changes, since context means are learned relative to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wiserouter.types import FloatArray, IntArray

SLOPE_GROWTH = 1.02
"""The slopes are computed again each time that there are 2 % more calls."""

_N, _T, _C, _TT, _TC, _CC = range(6)  # sums of 1, tokens, costs, and their products


class LengthCost:
    """Slopes of cost on tokens, from running sums per (context, model).

    Parameters
    ----------
    n_contexts : int
        Number of contexts.
    input_price_usd : array-like of shape (n_models,)
        List price of one input token, 0 where there is none.

    Notes
    -----
    Memory does not grow: 8 bytes x n_contexts x (6 x n_models + 1).

    Examples
    --------
    >>> length = LengthCost(n_contexts=1, input_price_usd=[2.0])
    >>> length.learn(0, 0, tokens=100, cost_usd=210.0)
    >>> length.shift(150, 0), length.shift(100, 0)
    (array([100.]), array([0.]))
    """

    def __init__(self, n_contexts: int, input_price_usd: ArrayLike) -> None:
        self._price: FloatArray = np.array(input_price_usd, dtype=np.float64)
        self._sums: FloatArray = np.zeros((6, n_contexts, len(self._price)))
        self._usual_tokens: FloatArray = np.full(n_contexts, np.nan)
        self._n_calls = 0
        self._solve_at = 0.0

    def fit(self, tokens: FloatArray, contexts: IntArray, cost_usd: FloatArray) -> LengthCost:
        """Learn from a table of costs of shape (n_queries, n_models), NaN where not observed."""
        seen = ~np.isnan(cost_usd)
        cost, length = np.where(seen, cost_usd, 0.0), np.where(seen, tokens[:, None], 0.0)
        for row, terms in enumerate((seen, length, cost, length**2, length * cost, cost**2)):
            np.add.at(self._sums[row], contexts, terms)
        self._usual_tokens = _usual(tokens, contexts, len(self._usual_tokens))
        self._n_calls += int(seen.sum())
        self._solve_at = 0.0
        return self

    @property
    def slope_usd(self) -> FloatArray:
        """USD per token of each model, of shape (n_models,)."""
        if self._n_calls >= self._solve_at:
            self._slope = self._slopes()
            self._solve_at = max(self._n_calls + 1, self._n_calls * SLOPE_GROWTH)
        return self._slope

    def shift(self, tokens: float, context: int) -> FloatArray:
        """Return the deviation of the cost of a query of this length from its context's mean, for every model."""
        beyond = tokens - self._usual_tokens[context]
        deviation: FloatArray = self.slope_usd * (0.0 if np.isnan(beyond) else beyond)
        return deviation

    def shifts(self, tokens: FloatArray, contexts: IntArray) -> FloatArray:
        """Return `shift` of many queries, of shape (n_queries, n_models)."""
        return np.outer(np.nan_to_num(tokens - self._usual_tokens[contexts]), self.slope_usd)

    def learn(self, context: int, model: int, tokens: float, cost_usd: float) -> None:
        """Learn from the cost of one call."""
        terms = (1.0, tokens, cost_usd, tokens * tokens, tokens * cost_usd, cost_usd * cost_usd)
        self._sums[:, context, model] += terms
        if np.isnan(self._usual_tokens[context]):
            self._usual_tokens[context] = tokens
        self._n_calls += 1

    def add_model(self, input_price_usd: float) -> None:
        """Append a model that was never called."""
        self._price = np.append(self._price, input_price_usd)
        self._sums = np.pad(self._sums, ((0, 0), (0, 0), (0, 1)))
        self._solve_at = 0.0

    def reprice(self, model: int, factor: FloatArray, input_price_usd: float) -> None:
        """Restate the costs of a model at a new price, `factor` times the old one in each context.

        With a factor of 0 its calls are forgotten, so that the slope is the new price.
        """
        self._price[model] = input_price_usd
        ratio = np.where(factor > 0.0, factor, 1.0)
        self._sums[:, :, model] *= factor > 0.0
        self._sums[[_C, _TC], :, model] *= ratio
        self._sums[_CC, :, model] *= ratio**2
        self._solve_at = 0.0

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays."""
        return {"price": self._price, "sums": self._sums, "usual_tokens": self._usual_tokens}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> LengthCost:
        """Return the estimator whose `arrays()` these are."""
        length = cls(arrays["sums"].shape[1], arrays["price"])
        length._sums[...], length._usual_tokens[...] = arrays["sums"], arrays["usual_tokens"]
        length._n_calls = int(length._sums[_N].sum())
        return length

    def _slopes(self) -> FloatArray:
        # pooled sums of squares and products within contexts
        n, s = np.maximum(self._sums[_N], 1.0), self._sums
        tt, tc, cc = (
            np.maximum(s[ab] - s[a] * s[b] / n, low).sum(axis=0)
            for ab, a, b, low in ((_TT, _T, _T, 0.0), (_TC, _T, _C, -np.inf), (_CC, _C, _C, 0.0))
        )
        freedom = s[_N].sum(axis=0) - (s[_N] > 0).sum(axis=0) - 1
        known = (tt > 1e-9 * np.maximum(s[_TT].sum(axis=0), 1.0)) & (freedom > 0)
        tt, freedom = np.where(known, tt, 1.0), np.where(known, freedom, 1.0)
        # positive-part James-Stein: d and v of the module's equation
        beyond = np.where(known, tc / tt - self._price, 0.0)
        variance = np.maximum(cc - tc**2 / tt, 0.0) / freedom / tt
        kept = np.maximum(1.0 - variance / np.where(beyond == 0.0, 1.0, beyond**2), 0.0)
        slope: FloatArray = np.maximum(self._price + beyond * kept, 0.0)
        return slope


def _usual(tokens: FloatArray, contexts: IntArray, n_contexts: int) -> FloatArray:
    """Return the mean length in each context, shrunk by one query toward that of all."""
    n, total = (np.bincount(contexts, weights, minlength=n_contexts) for weights in (None, tokens))
    usual: FloatArray = (total + tokens.mean()) / (n + 1.0)
    return usual
