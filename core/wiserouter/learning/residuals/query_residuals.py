"""`QueryResiduals`: what a router knows beyond contexts, and how it goes on learning.

A deviation is learned beside the mean that it deviates from. Once it decides, it also decides what is observed: the
calls of a dear model would be those where it deviates upward. So `plain_reward` and `plain_cost_usd` take the predicted
deviation off an observation, which leaves the context means what they were: those of a usual query of the context.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wiserouter.learning.residuals.base import Residual, open_residual
from wiserouter.learning.residuals.price_curve import PriceCurve
from wiserouter.learning.residuals.shift import Shift
from wiserouter.learning.residuals.token_cost import LengthCost
from wiserouter.types import NO_CONTEXT, Embedding


class QueryFeatures(NamedTuple):
    """What a decision remembers of its query, so that its cost and reward can be learned from.

    Attributes
    ----------
    embedding : ndarray of shape (dim,) or None
        Where rewards have an estimator.
    tokens : int or None
        Its length, where costs follow it.
    shift : Shift
        What was predicted.
    """

    embedding: Embedding | None
    tokens: int | None
    shift: Shift

    def plain_reward(self, model: int, reward: float) -> float:
        """Return a reward less the deviation that was predicted for its query."""
        return reward - _of_model(self.shift.reward, model)

    def plain_cost_usd(self, model: int, cost_usd: float) -> float:
        """Return a cost less the deviation that was predicted for its query."""
        return cost_usd - _of_model(self.shift.cost_usd, model)


class QueryResiduals:
    """Estimators of how a query deviates from its context.

    Parameters
    ----------
    n_models : int
        Number of models.
    residual : Residual, optional
        Of rewards, by the embedding.
    length : LengthCost, optional
        Of costs, by the length.
    prices : PriceCurve, optional
        What such queries spend at each shadow price.

    Notes
    -----
    Memory is bounded by that of the parts, and by what a decision remembers: its embedding and 16 bytes per model.
    With ten models the 100,000 decisions that `MemoryStore` keeps hold 90 MB more for it at 64 dimensions, 220 MB at
    384.
    """

    def __init__(
        self,
        n_models: int,
        residual: Residual | None = None,
        length: LengthCost | None = None,
        prices: PriceCurve | None = None,
    ) -> None:
        self.n_models = n_models
        self.residual, self.length, self.prices = residual, length, prices

    def features(
        self, context: int, embedding: Embedding | None, tokens: int | None, rate_usd: float
    ) -> QueryFeatures | None:
        """Return how a query deviates at this rate, and what to remember; None where nothing is known of it."""
        by_text = self.residual if embedding is not None else None
        by_length = self.length if tokens is not None else None
        if context == NO_CONTEXT or (by_text is None and by_length is None):
            return None
        shift = Shift(
            np.zeros(self.n_models) if by_text is None or embedding is None else by_text.shift(embedding, context),
            np.zeros(self.n_models) if by_length is None or tokens is None else by_length.shift(tokens, context),
            None if self.prices is None else self.prices.at(rate_usd),
        )
        return QueryFeatures(embedding if by_text else None, tokens if by_length else None, shift)

    def learn_cost(self, query: QueryFeatures, context: int, model: int, cost_usd: float) -> None:
        """Take in the true cost of a call."""
        if self.length is not None and query.tokens is not None:
            self.length.learn(context, model, query.tokens, cost_usd)

    def learn_reward(self, query: QueryFeatures, context: int, model: int, residual: float) -> None:
        """Take in a reward less its context's mean."""
        if self.residual is not None and query.embedding is not None:
            self.residual.learn(query.embedding, context, model, residual)

    def amend_reward(self, query: QueryFeatures, context: int, model: int, change: float) -> None:
        """Take in that a reward was replaced by one that is larger by `change`."""
        if self.residual is not None and query.embedding is not None:
            self.residual.amend(query.embedding, context, model, change)

    def add_model(self, input_price_usd: float) -> None:
        """Append a model of which nothing is known; what queries spend at each price is no longer known either."""
        self.n_models += 1
        self.prices = None
        if self.residual is not None:
            self.residual.add_model()
        if self.length is not None:
            self.length.add_model(input_price_usd)

    def settings(self) -> dict[str, Any]:
        """Return what `of_arrays` needs beside the arrays, as JSON values."""
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
        """Return the estimators that `settings` and `arrays` were called on."""
        residual, length, prices = (_part(name, arrays) for name in ("residual", "length", "prices"))
        return cls(
            settings["n_models"],
            open_residual(settings["residual"], residual) if residual else None,
            LengthCost.of_arrays(length) if length else None,
            PriceCurve.of_arrays(prices) if prices else None,
        )

    def copy(self) -> QueryResiduals:
        """Return estimators that no longer change with these."""
        arrays = {name: array.copy() for name, array in self.arrays().items()}
        return QueryResiduals.of_arrays(self.settings(), arrays)


def _part(name: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    prefix = f"{name}."
    return {field.removeprefix(prefix): array for field, array in arrays.items() if field.startswith(prefix)}


def _of_model(shift: np.ndarray[tuple[int, ...], np.dtype[np.float64]], model: int) -> float:
    """Return a model's part of a shift; a model that joined after the decision has none."""
    return float(shift[model]) if model < len(shift) else 0.0
