"""Estimates with known mean costs, as in the epsilon-first ALP of Wu et al. (2015)."""

from __future__ import annotations

from wiserouter.learning.estimates import Estimates, Means
from wiserouter.types import FloatArray


class KnownCosts(Estimates):
    """Estimates that learn rewards and return the true mean costs.

    Parameters
    ----------
    cost_usd : ndarray of shape (n_contexts, n_models)
        True mean costs.

    Examples
    --------
    >>> import numpy as np
    >>> known = KnownCosts(np.array([[1.0, 2.0]]))
    >>> known.add_cost(0, 0, 7.0)
    >>> known.means().cost_usd.tolist()
    [[1.0, 2.0]]
    """

    def __init__(self, cost_usd: FloatArray) -> None:
        super().__init__(*cost_usd.shape)
        self._known_usd = cost_usd

    def means(self, *, shrink: bool = True) -> Means:
        """Return the learned mean rewards and the true mean costs."""
        return Means(super().means(shrink=shrink).reward, self._known_usd)

    def copy(self) -> KnownCosts:
        """Return an independent copy."""
        same = KnownCosts(self._known_usd)
        same.merge(self)
        return same
