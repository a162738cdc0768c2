"""A table of scores and costs, and its halves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wiserouter.types import FloatArray, IntArray


class Table(NamedTuple):
    """Every model's score and cost on every query.

    Attributes
    ----------
    prompts : list of str
        One per query.
    reward, cost_usd : ndarray of shape (n_queries, n_models)
        Scores and costs; NaN where one is missing, which a dense table has nowhere.
    models : tuple of str
        Names of the columns.
    """

    prompts: list[str]
    reward: FloatArray
    cost_usd: FloatArray
    models: tuple[str, ...]

    @property
    def complete(self) -> NDArray[np.bool_]:
        """True for queries with the score and the cost of every model; an array of shape (n_queries,)."""
        return np.asarray(~np.isnan(self.reward + self.cost_usd).any(axis=1))

    def rows(self, index: IntArray) -> Table:
        """Return the table of some of the queries."""
        return Table([self.prompts[i] for i in index], self.reward[index], self.cost_usd[index], self.models)


def random_halves(n: int, seed: int) -> tuple[IntArray, IntArray]:
    """Return a random half of range(n) to train on, and the other half to test on."""
    order = np.random.default_rng(seed).permutation(n)
    return order[: n // 2], order[n // 2 :]
