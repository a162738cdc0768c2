"""The split of one context where there are many steps: those near the shadow price in their order, the others as sums.

A change of one context then takes the time of the steps near the price that it changes, mostly those of one model. The
sums round in another order than those of all steps one after another: rates and shares are those of the whole order up
to rounding.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import chain

import numpy as np

from wiserouter.planning.envelope import ContextEnvelope

_ONE_IN = 16
"""The steps near the price are one in so many of all; a rate that is not among them widens them."""

_INFINITE = float("inf")

_ROUNDING = 1e-12  # relative; a rate above the ceiling by no more than this may be below it


class StepWindow:
    """The steps between two slopes by falling slope, equal ones by context, and what all steeper ones cost.

    Parameters
    ----------
    rows : list of ContextEnvelope
        The envelope of each context; the plan's own list, which it changes.

    Attributes
    ----------
    floor_usd : float
        The least mean spend per request.

    Examples
    --------
    >>> from wiserouter.planning.envelope import context_envelopes
    >>> cost, reward = np.array([[1, 2, 3], [1, 2, 4]]), np.array([[0.0, 0.5, 0.6], [0.0, 0.4, 0.6]])
    >>> window = StepWindow(context_envelopes([0.5, 0.5], cost, reward, allow_skip=False))
    >>> window.split(0, 1.25), window.split(1, 1.25)
    ((0, 1, 0.5, 0.5), (0, 0, 0.0, 0.5))
    """

    def __init__(self, rows: list[ContextEnvelope]) -> None:
        self._rows = rows
        self._from, self._to = _INFINITE, -_INFINITE  # negated slopes; no step is between these
        self._changed: set[int] = set()
        self._least_usd, self._most_usd = [row.base_usd for row in rows], [_most_usd(row) for row in rows]
        self._bound()

    def revise(self, context: int) -> None:
        """Take note that the envelope of a context has changed."""
        row = self._rows[context]
        self._changed.add(context)
        self._least_usd[context], self._most_usd[context] = row.base_usd, _most_usd(row)
        self._bound()

    def split(self, context: int, rate_usd: float) -> tuple[int, int, float, float]:
        """Return the fields of `Plan.split` at a rate that is finite and not below the floor."""
        if rate_usd > self._ceiling_usd:  # no step is left: their order does not matter
            best = self._rows[context].hull[-1]
            return best, best, 0.0, 0.0
        if self._from > self._to:
            self._widen(rate_usd)
        elif self._changed:
            self._merge()
        total = self._total_usd
        taken = bisect_right(total, rate_usd) - 1
        if taken < 0 or (taken == len(total) - 1 and self._to < _INFINITE):
            self._widen(rate_usd)
            total = self._total_usd
            taken = max(bisect_right(total, rate_usd) - 1, 0)  # a rate at the floor, up to rounding
        row = self._rows[context]
        if taken == len(total) - 1:
            return row.hull[-1], row.hull[-1], 0.0, 0.0
        falling, at = self._falling[taken], self._context[taken]
        low = row.hull[(bisect_right if context < at else bisect_left)(row.falling, falling)]
        share = (rate_usd - total[taken]) / (total[taken + 1] - total[taken])
        if at != context or not share > 0.0:
            return low, low, 0.0, -falling
        return low, row.hull[bisect_left(row.falling, falling) + 1], share, -falling

    def _bound(self) -> None:
        """Add up the spend before the first step, and after the last one."""
        self.floor_usd = sum(self._least_usd)
        self._ceiling_usd = sum(self._most_usd) * (1.0 + _ROUNDING)

    def _widen(self, rate_usd: float) -> None:
        """Take in the steps near the price of a rate; those that are in it stay."""
        rows = self._rows
        counts = [len(row.falling) for row in rows]
        falling = np.fromiter(chain.from_iterable([row.falling for row in rows]), float, sum(counts))
        spend_usd = np.fromiter(chain.from_iterable([row.spend_usd for row in rows]), float, sum(counts))
        context = np.repeat(np.arange(len(rows), dtype=np.intc), counts)
        order = np.argsort(falling, kind="stable")
        falling, spend_usd, context = falling[order], spend_usd[order], context[order]
        total_usd = sum([row.base_usd for row in rows]) + np.cumsum(spend_usd)
        rank, aside = int(np.searchsorted(total_usd, rate_usd, side="right")), len(order) // (2 * _ONE_IN) + 1
        self._from = min(self._from, float(falling[rank - aside]) if rank > aside else -_INFINITE)
        after = rank + aside
        if after < len(order):  # beyond all steps of the same slope
            after = max(after, int(np.searchsorted(falling, falling[rank], side="right")))
        self._to = max(self._to, float(falling[after]) if after < len(order) else _INFINITE)
        first, last = np.searchsorted(falling, [self._from, self._to])
        self._falling, self._spend_usd = (array("d", one[first:last].tobytes()) for one in (falling, spend_usd))
        self._context = array("i", context[first:last].tobytes())
        self._merged, self._before_usd = [*rows], [self._steeper_usd(row) for row in rows]
        self._changed.clear()
        self._sum_up()

    def _merge(self) -> None:
        """Take in the changed contexts."""
        for context in self._changed:
            row = self._rows[context]
            self._replace(self._within(self._merged[context]), self._within(row), context)
            self._merged[context], self._before_usd[context] = row, self._steeper_usd(row)
        self._changed.clear()
        self._sum_up()

    def _within(self, row: ContextEnvelope) -> set[tuple[float, float]]:
        """Return slope and spend of the steps of a context that are among these."""
        own = slice(bisect_left(row.falling, self._from), bisect_left(row.falling, self._to))
        return set(zip(row.falling[own], row.spend_usd[own], strict=True))

    def _replace(self, old: set[tuple[float, float]], new: set[tuple[float, float]], context: int) -> None:
        """Replace the steps of one context, but for those that stay."""
        for falling, _ in old - new:
            i = self._place(falling, context)
            del self._falling[i], self._spend_usd[i], self._context[i]
        for falling, spend_usd in new - old:
            i = self._place(falling, context)
            self._falling.insert(i, falling)
            self._spend_usd.insert(i, spend_usd)
            self._context.insert(i, context)

    def _place(self, falling: float, context: int) -> int:
        """Return the place of a step."""
        first = bisect_left(self._falling, falling)
        return bisect_left(self._context, context, first, bisect_right(self._falling, falling, first))

    def _sum_up(self) -> None:
        """Add up the spend of the steps in their order."""
        spend_usd = np.empty(len(self._spend_usd) + 1)
        spend_usd[0], spend_usd[1:] = sum(self._before_usd), self._spend_usd
        self._total_usd: Sequence[float] = np.add.accumulate(spend_usd, out=spend_usd).data  # as numbers of Python

    def _steeper_usd(self, row: ContextEnvelope) -> float:
        """Return the spend of a context before the first of these steps."""
        return row.base_usd + sum(row.spend_usd[: bisect_left(row.falling, self._from)])


def _most_usd(row: ContextEnvelope) -> float:
    """Return the spend of a context after its last step."""
    return row.base_usd + sum(row.spend_usd)
