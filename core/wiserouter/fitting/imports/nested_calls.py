"""Calls within calls: where a framework and the client below it are both traced, one call of a model has two spans."""

from __future__ import annotations

from collections.abc import Iterable

from wiserouter.fitting.imports.calls import ImportedCall


class NestedCalls:
    """Tells which calls are recorded once more by the call directly around or within them.

    Of two such calls the one around is kept, since it often has the session and the cost. It is left out where it has
    no usage and the one within has. A call that failed, or lacks its model or its prompt, stands for no other.
    """

    def __init__(self) -> None:
        self._around: set[int] = set()
        self._used_within: set[int] = set()

    def add(self, calls: Iterable[ImportedCall]) -> None:
        """Take calls, all of them before any is asked about."""
        for call in calls:
            if call.failed or not call.ids or not call.model or not call.prompt:
                continue
            self._around.add(hash((call.ids[0], False)))
            if _has_usage(call):
                self._around.add(hash((call.ids[0], True)))
                self._used_within.add(hash(call.parent))

    def repeats(self, call: ImportedCall) -> bool:
        """Return True if another call is kept in place of this one."""
        has_usage = _has_usage(call)
        if call.parent and hash((call.parent, has_usage)) in self._around:
            return True
        return not has_usage and bool(call.ids) and hash(call.ids[0]) in self._used_within


def _has_usage(call: ImportedCall) -> bool:
    return call.input_tokens is not None or bool(call.cost_usd)
