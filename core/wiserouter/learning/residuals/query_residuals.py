"""The estimators of single queries as one object; costs by length go on learning while the router serves.

A deviation is added to the mean that it deviates from. As soon as deviations decide, they also select
the observations: the calls of an expensive model would be those with upward deviations. So `plain_reward` and
`plain_cost_usd` subtract the predicted deviation from an observation, and the context means stay those of a usual query
of the context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wiserouter.learning.residuals.price_curve import PriceCurve
from wiserouter.learning.residuals.ridge import Ridge
from wiserouter.learning.residuals.shift import Shift
from wiserouter.learning.residuals.token_cost import LengthCost
from wiserouter.types import NO_CONTEXT, Embedding, FloatArray


class QueryFeatures(NamedTuple):
    """The features of a query that its decision keeps, to learn from its cost and reward.

    Attributes
    ----------
    tokens : int or None
        Its length, kept where costs follow it.
    shift : Shift
        The predicted deviation.
    """

    tokens: int | None
    shift: Shift

    def plain_reward(self, model: int, reward: float) -> float:
        """Return a reward less the predicted deviation of its query."""
        return reward - _of_model(self.shift.reward, model)

    def plain_cost_usd(self, model: int, cost_usd: float) -> float:
        """Return a cost less the predicted deviation of its query."""
        return cost_usd - _of_model(self.shift.cost_usd, model)


class QueryResiduals:
    """Estimators of the deviation of a query from its context.

    Parameters
    ----------
    n_models : int
        Number of models.
    residual : Ridge, optional
        Of rewards, by the embedding.
    length : LengthCost, optional
        Of costs, by the length.
    prices : PriceCurve, optional
        The spend of such queries at each shadow price.
    """

    def __init__(
        self,
        n_models: int,
        residual: Ridge | None = None,
        length: LengthCost | None = None,
        prices: PriceCurve | None = None,
    ) -> None:
        self.n_models = n_models
        self.residual, self.length, self.prices = residual, length, prices

    def features(
        self, context: int, embedding: Embedding | None, tokens: int | None, rate_usd: float
    ) -> QueryFeatures | None:
        """Return the features of a query and its predicted deviation at this rate; None where no estimator applies."""
        by_text, by_length, prices = self.residual, self.length, self.prices
        reward = None if by_text is None or embedding is None else by_text.shift(embedding, context)
        cost_usd = None if by_length is None or tokens is None else by_length.shift(tokens, context).tolist()
        if context == NO_CONTEXT or reward is cost_usd is None:
            return None
        price = None if prices is None else prices.at(rate_usd)
        shift = tuple.__new__(Shift, (reward, cost_usd, price, None, None))  # in half the time of a call
        return tuple.__new__(QueryFeatures, (None if cost_usd is None else tokens, shift))

    def learn_cost(self, query: QueryFeatures, context: int, model: int, cost_usd: float) -> None:
        """Learn from the true cost of a call."""
        if self.length is not None and query.tokens is not None:
            self.length.learn(context, model, query.tokens, cost_usd)

    def add_model(self, input_price_usd: float) -> None:
        """Append a model without observations; the price curve no longer holds and is dropped."""
        self.n_models += 1
        self.prices = None
        if self.residual is not None:
            self.residual.add_model()
        if self.length is not None:
            self.length.add_model(input_price_usd)

    def reprice(self, model: int, factor: FloatArray, input_price_usd: float, *, was_free: bool) -> None:
        """Restate the costs of a model at a new price, `factor` times the old one; the price curve is dropped."""
        self.prices = None
        if self.length is not None:
            self.length.reprice(model, np.zeros_like(factor) if was_free else factor, input_price_usd)

    def settings(self) -> dict[str, Any]:
        """Return the settings that `of_arrays` needs next to the arrays, as JSON values."""
        return {"n_models": self.n_models, "residual": None if self.residual is None else self.residual.name}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays, for an artifact."""
        parts = {"residual": self.residual, "length": self.length, "prices": self.prices}
        return {
            f"{name}.{field}": array
            for name, part in parts.items()
            if part is not None
            for field, array in part.arrays().items()
        }

    @classmethod
    def of_arrays(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> QueryResiduals:
        """Return the estimators whose `settings()` and `arrays()` these are."""
        residual, length, prices = (_part(name, arrays) for name in ("residual", "length", "prices"))
        return cls(
            settings["n_models"],
            Ridge.of_arrays(residual) if residual else None,
            LengthCost.of_arrays(length) if length else None,
            PriceCurve.of_arrays(prices) if prices else None,
        )

    def copy(self) -> QueryResiduals:
        """Return an independent copy."""
        arrays = {name: array.copy() for name, array in self.arrays().items()}
        return QueryResiduals.of_arrays(self.settings(), arrays)


def _part(name: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    prefix = f"{name}."
    return {field.removeprefix(prefix): array for field, array in arrays.items() if field.startswith(prefix)}


def _of_model(shift: FloatArray | Sequence[float] | None, model: int) -> float:
    """Return the deviation of one model; 0 for a model that joined after the decision."""
    return float(shift[model]) if shift is not None and model < len(shift) else 0.0
