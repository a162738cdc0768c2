"""Many methods in one picture: one's own in colour, the field in grey, and names beside the lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.types import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OWN, NAMED, FIELD, INK = "#0b7285", "#52606d", "#c3ccd5", "#1f2933"
"""The colour of one's own method, of those that are named, and of the others; no two rely on red against green."""

_LINES = ("-", "--", ":", "-.")


class MethodCurve(NamedTuple):
    """The points of one method."""

    name: str
    x: FloatArray
    y: FloatArray


def curve(name: str, x: ArrayLike, y: ArrayLike) -> MethodCurve:
    """Return the finite points of a method."""
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    finite = np.isfinite(xs) & np.isfinite(ys)
    return MethodCurve(name, xs[finite], ys[finite])


def draw_curves(
    axes: Axes, curves: Iterable[MethodCurve], own: str, *, least: bool = False, named: int = 4, marker: str = "."
) -> None:
    """Draw the curves, and write the names of one's own and of the best others at their ends.

    Parameters
    ----------
    axes : Axes
        With the scale of its x axis set.
    curves : iterable of Curve
        Those without a point are left out.
    own : str
        The name of one's own method.
    least : bool, default False
        Whether the best of the others are those with the least mean, as for regrets.
    named : int, default 4
        The number of others that are named.
    """
    drawn = [one for one in curves if len(one.y)]
    others = sorted((one for one in drawn if one.name != own), key=lambda one: one.y.mean(), reverse=not least)
    for one in others[named:]:
        axes.plot(one.x, one.y, label=one.name, color=FIELD, linewidth=1, marker=marker, markersize=3, zorder=1)
    for i, one in enumerate(others[:named]):
        style = _LINES[i % len(_LINES)]
        axes.plot(
            one.x,
            one.y,
            label=one.name,
            color=NAMED,
            linewidth=1.2,
            linestyle=style,
            marker=marker,
            markersize=4,
            zorder=2,
        )
    mine = [one for one in drawn if one.name == own]
    for one in mine:
        axes.plot(one.x, one.y, label=one.name, color=OWN, linewidth=2.5, marker=marker, markersize=7, zorder=3)
    name_ends(axes, [*mine, *others[:named]], own)


def name_ends(axes: Axes, curves: Sequence[MethodCurve], own: str) -> None:
    """Write the name of each curve to the right of the axes, at the height of its last point where there is room."""
    axes.autoscale_view()
    ends = np.array([[one.x[-1], one.y[-1]] for one in curves]).reshape(-1, 2)
    heights = axes.transAxes.inverted().transform(axes.transData.transform(ends))[:, 1]
    for one, end, height in zip(curves, ends, spread(heights, 0.075), strict=True):
        mine = one.name == own
        axes.annotate(
            one.name,
            xy=(float(end[0]), float(end[1])),
            xytext=(1.03, float(height)),
            textcoords="axes fraction",
            va="center",
            color=OWN if mine else NAMED,
            fontweight="bold" if mine else "normal",
            arrowprops={
                "arrowstyle": "-",
                "color": OWN if mine else FIELD,
                "linewidth": 0.8,
                "shrinkA": 0,
                "shrinkB": 2,
            },
            annotation_clip=False,
        )


def spread(heights: ArrayLike, gap: float) -> FloatArray:
    """Return heights in the same order that are at least a gap apart, as near to those given as one sweep finds.

    Examples
    --------
    >>> spread([0.5, 0.52, 0.0], 0.1)
    array([0.5, 0.6, 0. ])
    """
    given = np.asarray(heights, dtype=np.float64)
    order = np.argsort(given, kind="stable")
    steps = gap * np.arange(len(given))
    apart = np.maximum.accumulate(given[order] - steps) + steps
    top = max(1.0, gap * (len(given) - 1))
    apart = np.minimum(apart, top - steps[::-1])
    placed: FloatArray = np.empty_like(given)
    placed[order] = apart
    return placed
