"""Calls within calls: where a framework and the client below it are both traced, one call of a model has two spans."""

from __future__ import annotations

from collections.abc import Iterable

from wiserouter.fitting.imports.calls import ImportedCall


class NestedCalls:
    """Tells which calls are recorded once more by the call directly around or within them.

    Two calls within each other are one where their output has as many tokens, or where one has no count of them, as a
    wrapper or a stream may not. The one around is kept, since it often has the session and the cost; it is left out
    where only the one within has a count. A call that failed, or lacks its model or its prompt, stands for no other.
    """

    def __init__(self) -> None:
        self._around: set[int] = set()
        self._counted_within: set[int] = set()

    def add(self, calls: Iterable[ImportedCall]) -> None:
        """Take calls, all of them before any is asked about."""
        for call in calls:
            if call.failed or not call.ids or not call.model or not call.prompt:
                continue
            self._around.update((hash((call.ids[0], None)), hash((call.ids[0], call.output_tokens))))
            if call.output_tokens is not None:
                self._counted_within.add(hash(call.parent))

    def repeats(self, call: ImportedCall) -> bool:
        """Return True if another call is kept in place of this one."""
        if call.parent and hash((call.parent, call.output_tokens)) in self._around:
            return True
        return call.output_tokens is None and bool(call.ids) and hash(call.ids[0]) in self._counted_within
