r"""Mean rewards of contexts, smoothed by a regression on the embeddings: what it adds to the shrunk means of a log.

A context has few queries, so that the best of many models in it is often the luckiest. The regression sees all queries
of the log at once. With `n` rewards of a model in a context, their mean `y`, the mean `p` of what the regression
predicts for these queries from all others, and the variances `s2` within and `t2` between contexts of what it misses,
the mean of the model in the context is

.. math:: r = p + \bar d + \frac{n}{n + \kappa} (y - p - \bar d), \qquad \kappa = s^2 / t^2 ,

with the mean `d` of what is missed over all contexts: means are shrunk toward the regression as they are toward the
model's own mean without it (`wiserouter.learning.shrinkage`), and many queries speak for themselves. While serving,

.. math:: \hat r = m' + \frac{n}{\max(n, n')} (r - m),

where `m` is the shrunk mean of the log, and `n'` and `m'` are the number and the shrunk mean of all rewards by now:
what is learned counts as it is, and what the regression adds becomes less as the log becomes a smaller part of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.types import FloatArray


class Smoothing(NamedTuple):
    """What a regression adds to the rewards of a log, as sums that move and fade as the rewards do.

    Attributes
    ----------
    labels : ndarray of shape (n_contexts, n_models)
        Number of rewards of the log.
    reward : ndarray of shape (n_contexts, n_models)
        Their number times the smoothed means, less the shrunk ones.

    Examples
    --------
    >>> smoothing = Smoothing(np.array([[4.0]]), np.array([[0.8]]))
    >>> smoothing.at(np.array([[4.0]])).tolist(), smoothing.at(np.array([[16.0]])).tolist()
    ([[0.2]], [[0.05]])
    """

    labels: FloatArray
    reward: FloatArray

    def at(self, labels: FloatArray) -> FloatArray:
        """Return the amounts to add to mean rewards where there are `labels` by now."""
        count = np.maximum(self.labels, labels)
        added: FloatArray = np.divide(self.reward, count, out=np.zeros(count.shape), where=count > 0.0)
        return added

    def faded(self, factor: float) -> Smoothing:
        """Return it where all observations have faded by a factor."""
        return Smoothing(factor * self.labels, factor * self.reward)

    def moved(self, spread: FloatArray) -> Smoothing:
        """Return it in new contexts, given the share of each former one in each of them."""
        return Smoothing(spread.T @ self.labels, spread.T @ self.reward)

    def with_model(self) -> Smoothing:
        """Return it with a column for a model that the log does not have."""
        return Smoothing(*(np.pad(table, ((0, 0), (0, 1))) for table in self))
