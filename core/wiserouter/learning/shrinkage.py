r"""Shrinkage of cell means toward the mean of their column, with a strength estimated from the data (empirical Bayes).

With `n` observations of a cell, its mean `m`, the column's mean `mu`, the variance within cells `s2` and between cells
`t2`,

.. math:: \hat m = \frac{n\, m + \kappa\, \mu}{n + \kappa}, \qquad \kappa = s^2 / t^2 ,

is the posterior mean of the one-way random-effects model. Both variances come from the analysis of variance (method of
moments, as in Bühlmann-Straub credibility), and all columns share one ratio. Where cells do not differ, `t2` is 0 and
the column's mean is used; where column means carry no signal, `t2` is large and the cell keeps its own mean.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wiserouter.types import FloatArray

UNIDENTIFIED_STRENGTH = 8.0
"""Pseudo-counts where the data cannot separate the variances, as with one observation per cell, and of the prior of a
variance."""

PRIOR_COUNT = 2.0
"""Pseudo-counts of the prior of a mean: those of a uniform prior of a probability (Laplace's rule of succession)."""


class Spreads(NamedTuple):
    """Variances within the cells of each column, and the strength that follows from these and those between cells.

    Attributes
    ----------
    within : ndarray of shape (n_models,)
        The variance of each column within its cells.
    identified : ndarray of bool of shape (n_models,)
        Whether the data identify it, and that between the cells.
    freedom : ndarray of shape (n_models,)
        Degrees of freedom of the variance within: observations beyond the first of each cell.
    strength : float or None
        The pseudo-counts of a column's mean: variance within cells over variance between them. Each column's variances
        are taken relative to their sum and averaged over the columns: one strength for all models is steadier than one
        each, and models differ in scale. Infinite where cells do not differ; None where no column identifies its
        variances.
    """

    within: FloatArray
    identified: NDArray[np.bool_]
    freedom: FloatArray
    strength: float | None

    @property
    def pseudo_counts(self) -> float:
        """The strength; where it is None, 0 if all columns are identified, else `UNIDENTIFIED_STRENGTH`."""
        if self.strength is None:
            return 0.0 if self.identified.all() else UNIDENTIFIED_STRENGTH
        return self.strength


def shrunk_means(count: FloatArray, total: FloatArray, square: FloatArray, *, shrink: bool) -> FloatArray:
    """Return the cell means shrunk toward their column's mean; NaN in a column without any observation.

    Parameters
    ----------
    count, total, square : ndarray of shape (n_contexts, n_models)
        Number of observations, their sum and sum of squares.
    shrink : bool
        False leaves observed cells as they are.

    Examples
    --------
    >>> count = np.array([[2.0], [0.0]]); total = np.array([[1.0], [0.0]])
    >>> shrunk_means(count, total, total, shrink=False).tolist()
    [[0.5], [0.5]]
    """
    n = count.sum(axis=0)
    # rounding may leave a sum where all observations were taken back
    column_mean = np.divide(total.sum(axis=0), n, out=np.full(n.shape, np.nan), where=n > 0.0)
    # a cell without observations takes its column's mean, whatever the strength
    kappa = np.where(count > 0, spreads(count, total, square).pseudo_counts if shrink else 0.0, 1.0)
    pooled = np.isinf(kappa)
    weight = np.where(pooled, 1.0, kappa)
    cell = (total + weight * column_mean) / (count + weight)
    means: FloatArray = np.where(pooled, column_mean, cell)
    return means


def spreads(count: FloatArray, total: FloatArray, square: FloatArray) -> Spreads:
    """Return the variances within and between the cells of each column, by one-way analysis of variance."""
    n, cells = count.sum(axis=0), (count > 0).sum(axis=0)
    mean = total.sum(axis=0) / np.maximum(n, 1.0)
    cell_mean = np.where(count > 0, total / np.maximum(count, 1.0), mean)
    # sums of squares within and between the cells
    inside = np.maximum((square - count * cell_mean**2).sum(axis=0), 0.0)
    across = (count * (cell_mean - mean) ** 2).sum(axis=0)
    freedom = np.maximum(n - cells, 0.0)
    within = inside / np.maximum(freedom, 1.0)
    # method of moments for cells of unequal size: `across` has expectation (cells - 1) within + spread_count between
    spread_count = n - (count**2).sum(axis=0) / np.maximum(n, 1.0)
    # where contexts have moved, rounding leaves counts next to 0, beside which `spread_count` is 0
    identified = (n > cells) & (cells > 1) & (spread_count > 0)
    between = np.maximum(across - (cells - 1) * within, 0.0) / np.where(identified, spread_count, 1.0)
    varies = identified & (within + between > 0)
    return Spreads(within, identified, freedom, _strength(within[varies], between[varies]))


def _strength(within: FloatArray, between: FloatArray) -> float | None:
    """Return the ratio of the variances, averaged over the columns that identify them."""
    if not within.size:
        return None
    share = float((between / (within + between)).mean())
    return (1.0 - share) / share if share > 0 else float("inf")


class MeanErrors(NamedTuple):
    """Standard deviations of the errors of shrunk means, given the variances; arrays of shape (n_contexts, n_models).

    Attributes
    ----------
    own : ndarray
        Of the cell itself: the posterior deviation around the column's mean.
    shared : ndarray
        Of the column's mean, times its weight in the cell; one error for all cells of the column.
    call : ndarray
        Of one observation.
    """

    own: FloatArray
    shared: FloatArray
    call: FloatArray


def mean_errors(count: FloatArray, total: FloatArray, square: FloatArray) -> MeanErrors:
    """Return the errors of the means of `shrunk_means`, by the random-effects model (Morris 1983).

    A cell of n observations with the variance s2 deviates by (n s2 + kappa^2 t2) / (n + kappa)^2 from the column's
    mean, whose weight in it is kappa / (n + kappa), with the variance t2 between cells. The column's mean has the
    variance of its observations and that of its cells.

    Examples
    --------
    >>> count = np.array([[4.0], [4.0]]); total = np.array([[8.0], [8.0]])
    >>> mean_errors(count, total, np.array([[24.0], [24.0]])).shared.round(3).tolist()  # cells do not differ
    [[0.577], [0.577]]
    """
    of = spreads(count, total, square)
    within, kappa = of.within, of.pseudo_counts
    n = np.maximum(count.sum(axis=0), 1.0)
    call_sq = _variances(count, total, square, within)
    call = np.sqrt(call_sq)
    if np.isinf(kappa):
        return MeanErrors(np.zeros_like(call), np.broadcast_to(np.sqrt(within / n), call.shape), call)
    weight = np.where(count > 0, kappa, 1.0)
    between = within / kappa if kappa > 0.0 else within
    own_sq = (count * call_sq + weight**2 * between) / (count + weight) ** 2
    column = np.sqrt(within / n + between * ((count / n) ** 2).sum(axis=0))
    return MeanErrors(np.sqrt(own_sq), column * weight / (count + weight), call)


def _variances(count: FloatArray, total: FloatArray, square: FloatArray, within: FloatArray) -> FloatArray:
    """Return the variance within each cell, shrunk toward one in proportion to the square of its mean.

    Costs of long answers deviate by more than those of short ones, so that one variance for a column would be too large
    for some of its cells by orders of magnitude.
    """
    mean = np.nan_to_num(shrunk_means(count, total, square, shrink=True))
    squares = (count * mean**2).sum(axis=0) / np.maximum(count.sum(axis=0), 1.0)
    prior = mean**2 * np.divide(within, squares, out=np.zeros_like(within), where=squares > 0.0)
    inside = np.maximum(square - total**2 / np.maximum(count, 1.0), 0.0)
    freedom = np.maximum(count - 1.0, 0.0)
    variance: FloatArray = (inside + UNIDENTIFIED_STRENGTH * prior) / (freedom + UNIDENTIFIED_STRENGTH)
    return variance
