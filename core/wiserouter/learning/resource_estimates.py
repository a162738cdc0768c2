r"""Mean uses of a resource per (context, model), learned like costs from recent calls and priors.

The mean of a model over all contexts starts from its prior, which counts as some calls; without one it starts from a
single call that used nothing, so that a model of unknown use is tried. The mean of a cell is shrunk toward it with the
strength of `wiserouter.learning.shrinkage`. Since latencies drift, newer calls of a model let its older ones fade; a
model that is not called keeps what is known of it, and is not explored again and again. The plan uses lower confidence
bounds, as it does upper ones of rewards: what it uses more than that, the meter of the limit makes up for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from wiserouter.learning.memory import MEMORY
from wiserouter.learning.shrinkage import spreads
from wiserouter.types import NO_CONTEXT, FloatArray

PRIOR_CALLS = 5.0
"""Number of calls of a model that its prior counts for."""


class ResourceEstimates:
    """Counts and sums of one measure per (context, model).

    Parameters
    ----------
    n_contexts : int
        Number of contexts.
    priors : sequence of float or None, one per model
        Prior means.

    Attributes
    ----------
    shape : tuple of int
        (n_contexts, n_models).

    Examples
    --------
    >>> latency_s = ResourceEstimates(1, [1.2, None])
    >>> latency_s.means()
    array([[1.2, 0. ]])
    >>> for _ in range(5):
    ...     latency_s.add(0, 1, 3.0)
    >>> latency_s.means().round(1)
    array([[1.2, 2.7]])
    """

    def __init__(self, n_contexts: int, priors: Sequence[float | None]) -> None:
        self.shape = shape = (n_contexts, len(priors))
        self._count, self._sum, self._square = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self._prior = np.array([np.nan if prior is None else prior for prior in priors], dtype=np.float64)
        self._prior_calls = np.where(np.isnan(self._prior), 1.0, PRIOR_CALLS)

    def add(self, context: int, model: int, use: float, calls: float = 1.0) -> None:
        """Count a call, or what stands for a part of one."""
        self._add(context, model, MEMORY, (calls, calls * use, calls * use * use))

    def add_many(self, context: int, model: int, number: float, total: float, square: float) -> None:
        """Count calls of other workers by the number, sum and sum of squares of their uses."""
        share = min(1.0, 1.0 / ((1.0 - MEMORY) * number))  # of more calls than are remembered
        self._add(context, model, MEMORY ** (share * number), (share * number, share * total, share * square))

    def _add(self, context: int, model: int, kept: float, added: tuple[float, float, float]) -> None:
        """Add to the sums of a cell, of whose model the share `kept` of what was seen so far is left."""
        for table, more in zip((self._count, self._sum, self._square), added, strict=True):
            table[:, model] *= kept
            table[context, model] += more

    def means(self) -> FloatArray:
        """Return the mean of each (context, model)."""
        count, total, square = self._count, self._sum, self._square
        column = self._of_models(total, self._prior)
        strength = spreads(count, total, square).pseudo_counts if count.any() else 0.0
        if np.isinf(strength):
            return np.broadcast_to(column, self.shape).copy()
        weight = np.maximum(strength, self._prior_calls / self.shape[0])
        means: FloatArray = (total + weight * column) / (count + weight)
        return means

    def known_means(self, freq: FloatArray) -> dict[int, dict[int, float]]:
        """Return the means of models with a prior or calls, by context and model; those of `NO_CONTEXT` by `freq`."""
        means = self.means()
        known = [k for k in range(self.shape[1]) if self.are_known([k])]
        rows = [*enumerate(means.tolist()), (NO_CONTEXT, (freq @ means).tolist())]
        return {context: {k: row[k] for k in known} for context, row in rows}

    def optimistic_means(self, *, wide: bool = False) -> FloatArray:
        """Return the means less a standard error: a model whose first calls were slow by chance is tried again.

        Parameters
        ----------
        wide : bool, default False
            Whether they widen with the log of a model's rarity among the calls, as those of MOSS do (Audibert and
            Bubeck, 2009). A slow start, with cold connections for instance, then keeps no model out for good.
        """
        means, calls = self.means(), self._count
        error = self._deviations() / np.sqrt(calls + PRIOR_CALLS)  # others may differ from it
        if wide:
            rarity = np.log(np.maximum(calls.sum(), 1.0) / (calls.sum(axis=0) + PRIOR_CALLS))
            error *= np.sqrt(np.maximum(2.0 * rarity, 1.0))
        bounds: FloatArray = np.maximum(means - error, 0.0)
        return bounds

    def _deviations(self) -> FloatArray:
        """Return the standard deviation of a call of each model; a prior alone has none."""
        mean, second = self._of_models(self._sum, self._prior), self._of_models(self._square, self._prior**2)
        deviations: FloatArray = np.sqrt(np.maximum(second - mean**2, 0.0))
        return deviations

    def are_known(self, models: Collection[int]) -> bool:
        """Return True if each of these models has a prior or calls."""
        return all(bool(self._count[:, k].any()) or not np.isnan(self._prior[k]) for k in models)

    def moved_to(self, n_contexts: int, priors: Sequence[float | None]) -> ResourceEstimates:
        """Return the estimates for other contexts or more models, which start from the means of the models so far."""
        means = self.means().mean(axis=0)
        known = [float(mean) if self.are_known([k]) else None for k, mean in enumerate(means)]
        return ResourceEstimates(n_contexts, [*known, *priors[len(known) :]])

    def _of_models(self, total: FloatArray, prior: FloatArray) -> FloatArray:
        """Return a mean of each model over all contexts, from sums and a prior mean."""
        weight = self._prior_calls
        means: FloatArray = (total.sum(axis=0) + weight * np.nan_to_num(prior)) / (self._count.sum(axis=0) + weight)
        return means
