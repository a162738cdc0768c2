"""The estimators of single queries as one object: a regression of rewards, and the prices at which such queries spend.

A deviation is added to the mean that it deviates from. As soon as deviations decide, they also select the observations:
the calls of an expensive model would be those with upward deviations. So `plain_reward` and `plain_cost_usd` subtract
the predicted deviation from an observation, and the context means stay those of a usual query of the context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from wiserouter.learning.residuals.price_curve import PriceCurve
from wiserouter.learning.residuals.ridge import Ridge
from wiserouter.types import NO_CONTEXT, Embedding


class Deviations(NamedTuple):
    """The deviations that were predicted for a query, each of shape (n_models,), or None where there are none.

    Attributes
    ----------
    reward : array-like or None
        By the regression on its embedding.
    cost_usd : sequence of float or None
        By the length and the cached prefix of its conversation.
    """

    reward: Embedding | Sequence[float] | None = None
    cost_usd: Sequence[float] | None = None

    def plain_reward(self, model: int, reward: float) -> float:
        """Return a reward less the predicted deviation of its query."""
        return reward - _of_model(self.reward, model)

    def plain_cost_usd(self, model: int, cost_usd: float) -> float:
        """Return a cost less the predicted deviation of its query."""
        return cost_usd - _of_model(self.cost_usd, model)


class QueryResiduals:
    """Estimators of the deviation of a query from its context.

    Parameters
    ----------
    ridge : Ridge
        Of rewards, by the embedding.
    prices : PriceCurve, optional
        The spend of such queries at each shadow price.
    """

    def __init__(self, ridge: Ridge, prices: PriceCurve | None = None) -> None:
        self.ridge, self.prices = ridge, prices

    def deviations(self, context: int, embedding: Embedding | None) -> Deviations | None:
        """Return the predicted deviations of a query; None where it lacks an embedding or a context."""
        if embedding is None or context == NO_CONTEXT:
            return None
        return Deviations(self.ridge.shift(embedding, context))

    def price(self, rate_usd: float) -> float | None:
        """Return the price at which such queries spend a rate; None where that is not known."""
        return None if self.prices is None else self.prices.at(rate_usd)

    def add_model(self) -> None:
        """Append a model without observations; the price curve no longer holds and is dropped."""
        self.prices = None
        self.ridge.add_model()

    def settings(self) -> dict[str, Any]:
        """Return the settings that an artifact states next to the arrays, as JSON values."""
        return {"n_models": self.ridge.n_models, "residual": Ridge.name}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays, for an artifact."""
        parts = {"residual": self.ridge.arrays(), "prices": {} if self.prices is None else self.prices.arrays()}
        return {f"{name}.{field}": array for name, part in parts.items() for field, array in part.items()}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> QueryResiduals:
        """Return the estimators whose `arrays()` these are."""
        ridge, prices = _part("residual", arrays), _part("prices", arrays)
        return cls(Ridge.of_arrays(ridge), PriceCurve.of_arrays(prices) if prices else None)

    def copy(self) -> QueryResiduals:
        """Return an independent copy."""
        return QueryResiduals.of_arrays({name: array.copy() for name, array in self.arrays().items()})


def _part(name: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    prefix = f"{name}."
    return {field.removeprefix(prefix): array for field, array in arrays.items() if field.startswith(prefix)}


def _of_model(deviations: Embedding | Sequence[float] | None, model: int) -> float:
    """Return the deviation of one model; 0 for a model that joined after the decision."""
    return float(deviations[model]) if deviations is not None and model < len(deviations) else 0.0
