"""Synchronisation of sums that only grow between workers: the estimates of conversations, and the uses of resources.

Counts are kept in the estimates alone. What a worker adds is their difference from what they were when it last sent,
so that learning from a call costs nothing more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from wiserouter.prompts.contexts import Contexts
from wiserouter.stores.engines.base import Reply
from wiserouter.stores.engines.events import Learn
from wiserouter.stores.shared.daily_sums import DailySumsPeer
from wiserouter.stores.shared.estimate_sync import sums_name
from wiserouter.types import FloatArray

EVERY_S = 1.0
"""Seconds between two exchanges: these estimates move slowly, and their cells are many."""


class GrowingSums(Protocol):
    """Named sums, each of shape (n_models, ...), to which what others have added can be added."""

    def sums(self) -> Mapping[str, FloatArray]: ...  # noqa: D102

    def add_sums(self, added: Mapping[str, FloatArray]) -> None: ...  # noqa: D102


class CallSync(DailySumsPeer):
    """The sums of the calls that one worker has seen, and those of the others.

    Parameters
    ----------
    contexts : Contexts
        The contexts that the sums are told apart by.
    estimates : GrowingSums
        The worker's own sums; what others add is merged into them.
    kind : str, default "calls"
        The name of these sums beside others of the same contexts.
    """

    def __init__(self, contexts: Contexts, estimates: GrowingSums, kind: str = "calls") -> None:
        super().__init__(f"{sums_name(contexts)}-{kind}")
        self._estimates = estimates
        self._models: tuple[str, ...] = ()
        self._known = self._copied()  # what was saved is every worker's own
        self._asked_s, self._asks = -EVERY_S, False

    def set_models(self, models: Sequence[str]) -> None:
        """Set the names of the models, in the order of the estimates."""
        self._models = tuple(models)

    def outgoing(self, now_s: float) -> list[Learn]:
        """Return the events that add to the sums; the same ones again until `incoming` confirms their arrival."""
        with self._lock:
            if self._sums.renew_after_fork():  # the parent sends what it has learned
                self._known = self._copied()
            self._asks = now_s - self._asked_s >= EVERY_S
            if not self._asks:
                return []
            self._asked_s = now_s
            if not self._sums.sent:
                present = self._copied()
                deltas = _cells(present, self._known, self._models)
                self._known = present
                if deltas:
                    self._sums.send(now_s, deltas)
            return list(self._sums.sent)

    def wanted(self, now_s: float) -> list[str]:
        """Return the names of the sums to read; none between two exchanges of these sums."""
        return super().wanted(now_s) if self._asks else []

    def incoming(self, reply: Reply) -> None:
        """Take over the sums as they are after the events of `outgoing`."""
        if self._asks:
            super().incoming(reply)

    def hasten(self) -> None:
        """Send what was learned with the next exchange, however short the time since the last one."""
        self._asked_s = float("-inf")

    def merge(self) -> None:
        """Merge what the other workers have added; the estimates must not change meanwhile."""
        with self._lock:
            shapes = {name: sums.shape for name, sums in self._estimates.sums().items()}
            added = {name: np.zeros(shape) for name, shape in shapes.items()}
            row = {name: k for k, name in enumerate(self._models)}
            for _, cells in self._sums.take_remote(row):
                for cell, value in cells.items():
                    name, place, model = cell.split("|", 2)
                    if name in added and int(place) < added[name][0].size:
                        added[name].reshape(len(row), -1)[row[model], int(place)] += value
            self._estimates.add_sums(added)
            self._known = {name: _padded(self._known, name, sums) + sums for name, sums in added.items()}

    def _copied(self) -> dict[str, FloatArray]:
        return {name: np.array(sums) for name, sums in self._estimates.sums().items()}


def _cells(
    present: Mapping[str, FloatArray], known: Mapping[str, FloatArray], models: Sequence[str]
) -> dict[str, float]:
    """Return the growth of the sums since they were known, by the names of the cells in a store."""
    cells: defaultdict[str, float] = defaultdict(float)
    for name, sums in present.items():
        grown = (sums - _padded(known, name, sums)).reshape(len(sums), -1)
        for k, place in zip(*np.nonzero(grown), strict=True):
            if k < len(models):
                cells[f"{name}|{place}|{models[k]}"] = float(grown[k, place])
    return dict(cells)


def _padded(known: Mapping[str, FloatArray], name: str, sums: FloatArray) -> FloatArray:
    """Return the known sums with rows of zeros for the models that came later."""
    padded = np.zeros(sums.shape)
    if name in known:
        padded[: len(known[name])] = known[name]
    return padded
