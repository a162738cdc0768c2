"""The steps of all contexts in the order of `step_order`, in arrays: where there are many, a change takes less time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from wiserouter.planning.envelope import ContextEnvelope, EnvelopeStep
from wiserouter.types import FloatArray


class StepArrays(Sequence[EnvelopeStep]):
    """The steps by falling slope, equal ones by context; each is read from the envelope of its context.

    Parameters
    ----------
    rows : list of ContextEnvelope
        The envelope of each context; the plan's own list, which it changes.
    falling, spend_usd : ndarray of shape (n_steps,)
        Negated slope, and additional cost, of each step.
    context : ndarray of shape (n_steps,)
        Its context.

    Examples
    --------
    >>> from wiserouter.planning.envelope import context_envelopes
    >>> cost, reward = [[1, 2, 3], [1, 2, 4]], [[0.0, 0.5, 0.6], [0.0, 0.4, 0.6]]
    >>> rows = context_envelopes([0.5, 0.5], cost, reward, allow_skip=False)
    >>> [(step.context, step.to) for step in StepArrays.of(rows)]
    [(0, 1), (1, 1), (0, 2), (1, 2)]
    """

    def __init__(
        self, rows: list[ContextEnvelope], falling: FloatArray, spend_usd: FloatArray, context: NDArray[np.int32]
    ) -> None:
        self._rows, self._falling, self._spend_usd, self._context = rows, falling, spend_usd, context
        self._falling_at, self._context_at = falling.data, context.data  # as numbers of Python
        self._list: list[EnvelopeStep] | None = None

    @classmethod
    def of(cls, rows: list[ContextEnvelope]) -> StepArrays:
        """Return the steps of all contexts in their order."""
        counts = [len(row.falling) for row in rows]
        falling = np.fromiter(chain.from_iterable([row.falling for row in rows]), float, sum(counts))
        spend_usd = np.fromiter(chain.from_iterable([row.spend_usd for row in rows]), float, sum(counts))
        context = np.repeat(np.arange(len(rows), dtype=np.int32), counts)
        order = np.argsort(falling, kind="stable")
        return cls(rows, falling[order], spend_usd[order], context[order])

    def with_row(self, context: int) -> StepArrays:
        """Return the order after the envelope of one context has changed."""
        new, n = self._rows[context], len(self._context)
        falling = np.array(new.falling, dtype=float)
        own = self._context == context
        kept, removed = np.flatnonzero(~own), np.flatnonzero(own)
        rank, last = (self._falling.searchsorted(falling, side=side) for side in ("left", "right"))
        for i in np.flatnonzero(rank < last).tolist():  # equal slopes
            rank[i] += self._context[rank[i] : last[i]].searchsorted(context)
        new_places = np.arange(n, n + len(falling))
        order = np.insert(kept, rank - removed.searchsorted(rank), new_places)
        spend_usd = np.array(new.spend_usd, dtype=float)
        return StepArrays(
            self._rows,
            np.concatenate((self._falling, falling)).take(order),
            np.concatenate((self._spend_usd, spend_usd)).take(order),
            np.concatenate((self._context, np.full(len(falling), context, dtype=np.int32))).take(order),
        )

    def total_usd(self, base_usd: float) -> Sequence[float]:
        """Return the spend after each number of steps: `base_usd`, and the steps' added in their order."""
        total_usd: Sequence[float] = np.cumsum(np.concatenate(([base_usd], self._spend_usd))).data
        return total_usd

    def to_list(self) -> list[EnvelopeStep]:
        """Return the same list at each call."""
        if self._list is None:
            self._list = [self[rank] for rank in range(len(self))]
        return self._list

    def __len__(self) -> int:
        return len(self._context)

    def __iter__(self) -> Iterator[EnvelopeStep]:
        return iter(self.to_list())

    @overload
    def __getitem__(self, rank: int) -> EnvelopeStep: ...
    @overload
    def __getitem__(self, rank: slice) -> Sequence[EnvelopeStep]: ...
    def __getitem__(self, rank: Any) -> Any:
        if isinstance(rank, slice):
            return self.to_list()[rank]
        return self._rows[self._context_at[rank]].step(self._falling_at[rank])
