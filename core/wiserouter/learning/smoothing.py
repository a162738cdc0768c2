r"""Mean rewards of contexts that borrow from each other, from other models and from a regression on the embeddings.

A context has few queries, so that the best of many models in it is often the luckiest, and most logs have one answer
per query, so that a cell has few rewards. All else that a log says of a cell is in

.. math:: r_{jk} = m_k + c_j + d_{jk} + x_{jk} ,

the effects of model, context and their interaction, with the models drawn about a line over their costs
(`wiserouter.learning.random_effects`), and `x`, what the regression expects of the queries of the context beyond the
model's mean (`wiserouter.learning.residuals`), each query from the others. How much each of them counts, the log itself
says. With few rewards what is left is the line over costs, with more the models, then the text, and with many the cell.

While serving,

.. math:: \hat r = m' + \frac{\max(n, 1)}{\max(n, n', 1)} (r - m),

where `n` and `m` are the number and the shrunk mean (`wiserouter.learning.shrinkage`) of the rewards of the log, and
`n'` and `m'` those of all rewards by now: what is learned counts as it is, and what is borrowed becomes less as the log
becomes a smaller part of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.types import FloatArray


class Smoothing(NamedTuple):
    """What is added to the shrunk means of a log, as sums that move and fade as the rewards do.

    Attributes
    ----------
    labels : ndarray of shape (n_contexts, n_models)
        Number of rewards of the log, 1 where there is none.
    reward : ndarray of shape (n_contexts, n_models)
        This number times what is added.

    Examples
    --------
    >>> smoothing = Smoothing(np.array([[4.0]]), np.array([[0.8]]))
    >>> smoothing.at(np.array([[4.0]])).tolist(), smoothing.at(np.array([[16.0]])).tolist()
    ([[0.2]], [[0.05]])
    """

    labels: FloatArray
    reward: FloatArray

    @classmethod
    def toward(cls, target: FloatArray, labels: FloatArray, shrunk: FloatArray) -> Smoothing:
        """Return the smoothing by which shrunk means become their target; each of shape (n_contexts, n_models).

        Examples
        --------
        >>> smoothing = Smoothing.toward(np.array([[0.5, 0.9]]), np.array([[8.0, 0.0]]), np.array([[0.4, 0.7]]))
        >>> smoothing.at(np.array([[16.0, 2.0]])).round(9).tolist()
        [[0.05, 0.1]]
        """
        n = np.maximum(labels, 1.0)
        return cls(n, n * (target - shrunk))

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
