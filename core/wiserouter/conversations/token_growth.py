r"""Tokens per (context, model): first prompt, growth of the prompt from call to call, and output.

Means are shrunk twice, with strengths estimated from the data (`wiserouter.learning.shrinkage`): a cell toward its
model, and a model toward the pool,

.. math:: \hat m_{jk} = \frac{n_{jk} m_{jk} + \kappa \hat\mu_k}{n_{jk} + \kappa}, \qquad
          \hat\mu_k = \frac{n_k m_k + \kappa' \mu}{n_k + \kappa'} .

Dollars follow from tokens, prices and what is warm (`call_cost`), so a new price or a cold cache needs no new data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np
from numpy.typing import NDArray

from wiserouter.errors import InvalidInput
from wiserouter.learning.shrinkage import UNIDENTIFIED_STRENGTH, shrunk_means, spreads
from wiserouter.types import NO_CONTEXT, FloatArray
from wiserouter.validation import check_count

KINDS = ("first", "growth", "output")
"""First prompt of a conversation, growth of the prompt from one call to the next, and output of a call, in tokens."""

UNKNOWN_TOKENS = {"first": 1000.0, "growth": 1000.0, "output": 500.0}
"""Means before anything is known."""

REFRESH_GROWTH = 1.02
"""The means are computed again each time that there are 2 % more observations."""


def hierarchical_means(count: FloatArray, total: FloatArray, square: FloatArray, unknown: float) -> FloatArray:
    """Return the cell means shrunk toward their column's mean, and that toward the mean of all columns.

    Parameters
    ----------
    count, total, square : ndarray of shape (n_contexts, n_models)
        Number of observations, their sum and sum of squares.
    unknown : float
        The mean where there is no observation at all.

    Examples
    --------
    >>> count = np.array([[2.0, 0.0]]); total = np.array([[6.0, 0.0]]); square = np.array([[20.0, 0.0]])
    >>> hierarchical_means(count, total, square, unknown=1.0).tolist()
    [[3.0, 3.0]]
    """
    if not count.any():
        return np.full(count.shape, unknown)
    columns = [sums.sum(axis=0)[:, np.newaxis] for sums in (count, total, square)]
    column_mean = shrunk_means(*columns, shrink=True)[:, 0]
    kappa = spreads(count, total, square).strength
    if kappa is None:
        kappa = UNIDENTIFIED_STRENGTH
    if np.isinf(kappa):
        return np.broadcast_to(column_mean, count.shape).copy()
    weight = np.where((count > 0) | (kappa > 0), kappa, 1.0)
    means: FloatArray = (total + weight * column_mean) / (count + weight)
    return means


class TokenGrowth:
    """Counts and sums of tokens per (context, model), and their shrunk means.

    Parameters
    ----------
    n_contexts, n_models : int
        Shape of every array.

    Examples
    --------
    >>> tokens = TokenGrowth(n_contexts=1, n_models=2)
    >>> for grown in (1200, 1400):
    ...     tokens.learn(0, 0, growth_tokens=grown, output_tokens=300)
    >>> tokens.growth(0), tokens.output(0)
    ([1300.0, 1300.0], [300.0, 300.0])
    """

    def __init__(self, n_contexts: int, n_models: int) -> None:
        shape = (check_count("n_contexts", n_contexts, least=1), check_count("n_models", n_models, least=1))
        self._sums = {kind: np.zeros((3, *shape)) for kind in KINDS}
        self._changed()

    @property
    def shape(self) -> tuple[int, int]:
        """(n_contexts, n_models)."""
        return self._sums["first"].shape[1], self._sums["first"].shape[2]

    def first(self, context: int) -> list[float]:
        """Return the mean tokens of the first prompt of a conversation, for each model."""
        return self._row("first", context)

    def growth(self, context: int) -> list[float]:
        """Return the mean growth of the prompt from one call to the next, for each model."""
        return self._row("growth", context)

    def mean_first(self, context: int) -> float:
        """Return the mean over the models of `first`."""
        return self._over_models("first", context)

    def mean_growth(self, context: int) -> float:
        """Return the mean over the models of `growth`."""
        return self._over_models("growth", context)

    def output(self, context: int) -> list[float]:
        """Return the mean tokens of an answer, for each model."""
        return self._row("output", context)

    def learn(self, context: int, model: int, growth_tokens: float, output_tokens: float) -> None:
        """Count a call that continues a conversation; a prompt that was cut has not grown."""
        self._add("growth", context, model, max(growth_tokens, 0.0))
        self._add("output", context, model, output_tokens)

    def learn_first(self, context: int, model: int, prompt_tokens: float, output_tokens: float) -> None:
        """Count the first call of a conversation."""
        self._add("first", context, model, prompt_tokens)
        self._add("output", context, model, output_tokens)

    def merge(self, other: TokenGrowth) -> None:
        """Add the counts and sums of another worker; the order of merges never matters."""
        if other.shape != self.shape:
            raise InvalidInput(f"tokens to merge must have shape {self.shape}, got {other.shape}")
        for kind in KINDS:
            self._sums[kind] += other._sums[kind]
        self._changed()

    def add_model(self) -> None:
        """Take one more model, whose means are those of the pool until it is observed."""
        for kind, sums in self._sums.items():
            self._sums[kind] = np.concatenate([sums, np.zeros((*sums.shape[:2], 1))], axis=2)
        self._changed()

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return the counts, sums and sums of squares by kind, each of shape (3, n_contexts, n_models)."""
        return self._sums

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, FloatArray]) -> Self:
        """Return the tokens whose `arrays()` these are."""
        tokens = cls(*arrays["first"].shape[1:])
        for kind in KINDS:
            tokens._sums[kind][...] = arrays[kind]
        tokens._changed()
        return tokens

    def _add(self, kind: str, context: int, model: int, tokens: float) -> None:
        if context == NO_CONTEXT:
            return
        sums = self._sums[kind]
        sums[0, context, model] += 1.0  # three numbers one by one take a third of the time of one slice
        sums[1, context, model] += tokens
        sums[2, context, model] += tokens * tokens
        self._seen += 1

    def _changed(self) -> None:
        self._seen, self._refresh_at = int(sum(sums[0].sum() for sums in self._sums.values())), 0.0

    def _row(self, kind: str, context: int) -> list[float]:
        if self._seen >= self._refresh_at:
            self._refresh()
        return self._means[kind][context]  # the last row is that of all contexts, NO_CONTEXT

    def _over_models(self, kind: str, context: int) -> float:
        if self._seen >= self._refresh_at:
            self._refresh()
        return self._of_pool[kind][context]

    def _refresh(self) -> None:
        means = {kind: _with_all(sums, UNKNOWN_TOKENS[kind]) for kind, sums in self._sums.items()}
        self._means: dict[str, list[list[float]]] = {kind: of.tolist() for kind, of in means.items()}
        self._of_pool: dict[str, list[float]] = {kind: of.mean(axis=1).tolist() for kind, of in means.items()}
        self._refresh_at = max(self._seen + 1.0, self._seen * REFRESH_GROWTH)


def _with_all(sums: FloatArray, unknown: float) -> FloatArray:
    """Return the means per context, and below them those of all contexts together."""
    means, everywhere = (
        hierarchical_means(of[0], of[1], of[2], unknown) for of in (sums, sums.sum(axis=1, keepdims=True))
    )
    return np.vstack([means, everywhere])
