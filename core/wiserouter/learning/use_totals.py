"""The uses of resources that the workers of a store have seen, as sums that only grow, so that they can be exchanged.

`ResourceEstimates` lets old calls fade; what fades cannot be added to. So each worker keeps plain sums beside them, and
counts what the sums of others have grown by as calls of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from wiserouter.types import FloatArray

Take = Callable[[str, int, int, float, float, float], object]
"""Counts calls of others: measure, context, model, and the number, sum and sum of squares of their uses."""

_FIELDS = ("n", "use", "square")


class UseTotals:
    """Number, sum and sum of squares of the uses of each measure, per (model, context).

    Examples
    --------
    >>> totals = UseTotals(1, 2, print)
    >>> totals.add("latency_s", 0, 1, 3.0)
    >>> totals.sums()["square latency_s"].tolist()
    [[0.0], [9.0]]
    >>> totals.add_sums({name: 2 * sums for name, sums in totals.sums().items()})
    latency_s 0 1 2.0 6.0 18.0
    """

    def __init__(self, n_contexts: int, n_models: int, take: Take) -> None:
        self._n_contexts, self._n_models, self._take = n_contexts, n_models, take
        self._sums: dict[str, FloatArray] = {}

    def begin(self, measure: str) -> None:
        """Keep sums of a measure."""
        for field in _FIELDS:
            self._sums.setdefault(f"{field} {measure}", np.zeros((self._n_models, self._n_contexts)))

    def add(self, measure: str, context: int, model: int, use: float, calls: float = 1.0) -> None:
        """Count a call, or what stands for a part of one."""
        self.begin(measure)
        for field, value in zip(_FIELDS, (1.0, use, use * use), strict=True):
            self._sums[f"{field} {measure}"][model, context] += calls * value

    def grow(self, n_models: int) -> None:
        """Make room for further models."""
        more = n_models - self._n_models
        if more > 0:
            self._sums = {name: np.pad(sums, ((0, more), (0, 0))) for name, sums in self._sums.items()}
            self._n_models = n_models

    def sums(self) -> Mapping[str, FloatArray]:
        """Return the sums by name, each of shape (n_models, n_contexts)."""
        return dict(self._sums)

    def add_sums(self, added: Mapping[str, FloatArray]) -> None:
        """Add what others have added, and count it."""
        for name, sums in added.items():
            self._sums[name] = self._sums[name] + sums
        for name, number in added.items():
            field, _, measure = name.partition(" ")
            if field == _FIELDS[0]:
                uses, squares = added[f"{_FIELDS[1]} {measure}"], added[f"{_FIELDS[2]} {measure}"]
                for model, context in zip(*np.nonzero(number > 0.0), strict=True):
                    cell = (int(model), int(context))
                    figures = float(number[cell]), float(uses[cell]), float(squares[cell])
                    self._take(measure, cell[1], cell[0], *figures)
