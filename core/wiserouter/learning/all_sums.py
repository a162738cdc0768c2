"""Several sums that count the same observations, as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from wiserouter.pricing.prices import Usage
from wiserouter.types import NO_CONTEXT, FloatArray


class Sums(Protocol):
    """Sums to which observations are added, such as `Estimates`."""

    def add_invoked(self, context: int, model: int, count: int = 1) -> None:
        """Count decisions."""
        ...

    def add_cost(self, context: int, model: int, cost_usd: float, usage: Usage | None = None) -> None:
        """Count the true cost of one call, and its tokens where they are known."""
        ...

    def reprice(self, model: int, factor: FloatArray, unlisted_usd: FloatArray) -> None:
        """Restate the costs of a model at a new price, as `Estimates.reprice` does."""
        ...


class AllSums:
    """Several sums that count the same observations; a query without a context counts in none.

    Examples
    --------
    >>> from wiserouter.learning.estimates import Estimates
    >>> estimates, recent = Estimates(1, 1), Estimates(1, 1)
    >>> AllSums([estimates, recent]).add_invoked(0, 0)
    >>> estimates.n_invoked, recent.n_invoked
    (1, 1)
    """

    def __init__(self, each: Sequence[Sums]) -> None:
        self._each = tuple(each)

    def add_invoked(self, context: int, model: int, count: int = 1) -> None:
        """Count decisions."""
        if context != NO_CONTEXT:
            for sums in self._each:
                sums.add_invoked(context, model, count)

    def add_cost(self, context: int, model: int, cost_usd: float, usage: Usage | None = None) -> None:
        """Count the true cost of one call, and its tokens where they are known."""
        if context != NO_CONTEXT:
            for sums in self._each:
                sums.add_cost(context, model, cost_usd, usage)

    def reprice(self, model: int, factor: FloatArray, unlisted_usd: FloatArray) -> None:
        """Restate the costs of a model at a new price."""
        for sums in self._each:
            sums.reprice(model, factor, unlisted_usd)
