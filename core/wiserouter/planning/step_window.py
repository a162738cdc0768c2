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

_FEWEST = 512
"""Of few steps, at least so many are near the price: their order takes less time than a price that leaves them."""

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
        self._total_usd: Sequence[float] | None = None
        self._least_usd, self._most_usd = [row.base_usd for row in rows], [_most_usd(row) for row in rows]
        self._bound()

    def revise(self, context: int, old: ContextEnvelope) -> None:
        """Take in the envelope of a context that has changed; `old` is that before."""
        row = self._rows[context]
        self._least_usd[context], self._most_usd[context] = row.base_usd, _most_usd(row)
        self._bound()
        if self._from <= self._to:
            self._replace(self._within(old), self._within(row), context)
            self._before_usd[context], self._total_usd = self._steeper_usd(row), None

    def split(self, context: int, rate_usd: float) -> tuple[int, int, float, float]:
        """Return the fields of `Plan.split` at a rate that is finite and not below the floor."""
        if self._from > self._to:  # where all is computed again, not in one of the decisions after it
            self._widen(rate_usd)
        if rate_usd > self._ceiling_usd:  # no step is left: their order does not matter
            best = self._rows[context].hull[-1]
            return best, best, 0.0, 0.0
        total = self._total_usd or self._sum_up()
        taken = bisect_right(total, rate_usd) - 1
        if taken < 0 or (taken == len(total) - 1 and self._to < _INFINITE):
            self._widen(rate_usd)
            total = self._sum_up()
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
        total_usd, in_order = sum(self._least_usd) + np.cumsum(spend_usd[order]), falling[order]
        rank = int(np.searchsorted(total_usd, rate_usd, side="right"))
        aside = max(len(order) // _ONE_IN, _FEWEST) // 2 + 1
        self._from = min(self._from, float(in_order[rank - aside]) if rank > aside else -_INFINITE)
        after = rank + aside
        if after < len(order):  # beyond all steps of the same slope
            after = max(after, int(np.searchsorted(in_order, in_order[rank], side="right")))
        self._to = max(self._to, float(in_order[after]) if after < len(order) else _INFINITE)
        first, last = np.searchsorted(in_order, [self._from, self._to])
        kept = order[first:last]
        self._falling, self._spend_usd = (array("d", row[kept].tobytes()) for row in (falling, spend_usd))
        self._context = array("i", context[kept].tobytes())
        self._before_usd, self._total_usd = [self._steeper_usd(row) for row in rows], None

    def _within(self, row: ContextEnvelope) -> dict[float, float]:
        """Return the spend of each slope of a context that is among these."""
        own = slice(bisect_left(row.falling, self._from), bisect_left(row.falling, self._to))
        return dict(zip(row.falling[own], row.spend_usd[own], strict=True))

    def _replace(self, old: dict[float, float], new: dict[float, float], context: int) -> None:
        """Replace the steps of one context, but for those that stay."""
        for falling, spend_usd in old.items():
            if new.get(falling) != spend_usd:
                i = self._place(falling, context)
                del self._falling[i], self._spend_usd[i], self._context[i]
        for falling, spend_usd in new.items():
            if old.get(falling) != spend_usd:
                i = self._place(falling, context)
                self._falling.insert(i, falling)
                self._spend_usd.insert(i, spend_usd)
                self._context.insert(i, context)

    def _place(self, falling: float, context: int) -> int:
        """Return the place of a step."""
        first = bisect_left(self._falling, falling)
        if first < len(self._falling) and self._falling[first] == falling and self._context[first] < context:
            return bisect_left(self._context, context, first, bisect_right(self._falling, falling, first))
        return first

    def _sum_up(self) -> Sequence[float]:
        """Add up the spend of the steps in their order."""
        spend_usd = np.empty(len(self._spend_usd) + 1)
        spend_usd[0], spend_usd[1:] = sum(self._before_usd), self._spend_usd
        self._total_usd = np.add.accumulate(spend_usd, out=spend_usd).data  # as numbers of Python
        return self._total_usd

    def _steeper_usd(self, row: ContextEnvelope) -> float:
        """Return the spend of a context before the first of these steps."""
        return row.base_usd + sum(row.spend_usd[: bisect_left(row.falling, self._from)])


def _most_usd(row: ContextEnvelope) -> float:
    """Return the spend of a context after its last step."""
    return row.base_usd + sum(row.spend_usd)
