"""What the routers in shadow mode would have spent and gained, by their journals, without a word of a prompt."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from wiserouter import WiseRouter
from wiserouter.errors import InvalidInput

LEAST_S = 60.0
"""The least time after which a journal is read again."""

PAUSES = 20.0
"""So many times as long as it took, it is not read again: a journal of 256 MiB takes seconds."""


class _Kept(NamedTuple):
    report: dict[str, Any]
    until: float


class ShadowReports:
    """The reports on routers in shadow mode, each made again after a while.

    Parameters
    ----------
    clock : callable returning float
        The time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, Lock()
        self._kept: WeakKeyDictionary[WiseRouter, _Kept] = WeakKeyDictionary()

    def of(self, router: WiseRouter) -> dict[str, Any]:
        """Return the report on a router, made within the last minute or more; the calls of one report at a time."""
        with self._lock:
            kept, began = self._kept.get(router), self._clock()
            if kept is None or began >= kept.until:
                report = _report(router)
                took = self._clock() - began
                kept = self._kept[router] = _Kept(report, began + max(LEAST_S, PAUSES * took))
            return kept.report


def _report(router: WiseRouter) -> dict[str, Any]:
    from wiserouter.evaluation.off_policy.shadow_report import lines_of, report_of_journal

    if router.journal is None:
        return {"missing": "it is computed from the journal: set journal: FILE in the group"}
    router.journal.flush()
    try:
        figures = report_of_journal(router.journal.path)
    except (InvalidInput, OSError) as error:
        return {"missing": str(error)}
    return {**figures, "lines": lines_of(figures)}
