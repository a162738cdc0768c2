"""The cost-quality hull of a method, which interpolates its quality at any spend.

RouterBench (Hu et al. 2024) interpolates routers in this way: a random mixture of two routers reaches every point on
the line between them, so a router is valued by its non-decreasing concave hull of (cost, quality). Serving nothing, at
(0, 0), is another point.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.types import FloatArray


class Hull:
    """The non-decreasing concave hull of (spend, quality), flat beyond its best point.

    Parameters
    ----------
    spend_usd, quality : array-like of shape (n_points,)
        Spend and quality of each point, in any order.
    from_nothing : bool, default True
        Whether (0, 0) is one of the points; without it the quality below the least spend is NaN.

    Examples
    --------
    >>> hull = Hull([1.0, 2.0, 3.0], [0.5, 0.6, 0.9])
    >>> hull.at([0.5, 1.0, 2.0, 3.0, 9.0]).round(3)
    array([0.25, 0.5 , 0.7 , 0.9 , 0.9 ])
    >>> Hull([1.0, 2.0], [0.9, 0.8], from_nothing=False).at([0.5, 2.0])
    array([nan, 0.9])
    """

    def __init__(self, spend_usd: ArrayLike, quality: ArrayLike, *, from_nothing: bool = True) -> None:
        points = np.column_stack([np.asarray(spend_usd, dtype=np.float64), np.asarray(quality, dtype=np.float64)])
        if from_nothing:
            points = np.vstack([[0.0, 0.0], points])
        self._x, self._y = np.array(_upper(points)).T
        self._from_nothing = from_nothing

    def at(self, spend_usd: ArrayLike) -> FloatArray:
        """Return the quality at each spend."""
        left = 0.0 if self._from_nothing else np.nan
        spend = np.asarray(spend_usd, dtype=np.float64)
        return np.asarray(np.interp(spend, self._x, self._y, left=left), dtype=np.float64)

    def price_usd(self, quality: ArrayLike) -> FloatArray:
        """Return the least spend that reaches each quality; NaN if none does.

        Examples
        --------
        >>> Hull([1.0, 2.0], [0.5, 0.6]).price_usd([0.25, 0.55, 0.7])
        array([0.5, 1.5, nan])
        """
        wanted = np.asarray(quality, dtype=np.float64)
        return np.asarray(np.interp(wanted, self._y, self._x, right=np.nan), dtype=np.float64)

    def mean(self, low_usd: float, high_usd: float) -> float:
        """Return the mean quality between two spends, RouterBench's AIQ; at one spend the quality there."""
        if low_usd == high_usd:
            return float(self.at(low_usd))
        inside = self._x[(self._x > low_usd) & (self._x < high_usd)]
        x = np.concatenate([[low_usd], inside, [high_usd]])
        return float(np.trapezoid(self.at(x), x) / (high_usd - low_usd))


def _upper(points: FloatArray) -> list[tuple[float, float]]:
    """Return the corners of the hull by ascending spend, up to the best point."""
    hull: list[tuple[float, float]] = []
    for x, y in sorted(map(tuple, points.tolist()), key=lambda point: (point[0], -point[1])):
        if hull and y <= hull[-1][1]:
            continue
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], (x, y)):
            hull.pop()
        hull.append((x, y))
    return hull


def _slope(a: tuple[float, float], b: tuple[float, float]) -> float:
    return (b[1] - a[1]) / (b[0] - a[0]) if b[0] > a[0] else float("inf")
