"""The protocol of an estimator of reward residuals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from wiserouter.errors import InvalidInput
from wiserouter.types import Embedding, FloatArray, IntArray


class Residual(Protocol):
    """Predicts by how much the rewards of a query differ from the means of its context.

    Attributes
    ----------
    name : str
        Its name in an artifact.
    """

    name: str

    def shift(self, embedding: Embedding, context: int) -> FloatArray:
        """Return the deviation of every model, of shape (n_models,)."""
        ...

    def shifts(self, embeddings: Embedding, contexts: IntArray) -> FloatArray:
        """Return `shift` of many queries, of shape (n_queries, n_models)."""
        ...

    def learn(self, embedding: Embedding, context: int, model: int, residual: float) -> None:
        """Learn from one reward less its context's mean."""
        ...

    def amend(self, embedding: Embedding, context: int, model: int, change: float) -> None:
        """Add `change` to a residual that was learned before."""
        ...

    def add_model(self) -> None:
        """Append a model without observations."""
        ...

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays, for an artifact."""
        ...


def open_residual(name: str, arrays: Mapping[str, NDArray[Any]]) -> Residual:
    """Return the estimator of this name whose `arrays()` these are; raise `InvalidInput` if there is none."""
    from wiserouter.learning.residuals.nearest_neighbors import Neighbours  # they implement the protocol above
    from wiserouter.learning.residuals.ridge import Ridge

    if name == Ridge.name:
        return Ridge.of_arrays(arrays)
    if name == Neighbours.name:
        return Neighbours.of_arrays(arrays)
    raise InvalidInput(f"a residual must be {Ridge.name!r} or {Neighbours.name!r}, got {name!r}", value=name)
