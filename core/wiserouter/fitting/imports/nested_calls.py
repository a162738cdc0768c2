"""Calls within calls: where a framework and the client below it are both traced, one call of a model has two spans."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from wiserouter.fitting.imports.calls import ImportedCall


class NestedCalls:
    """Tells which calls are recorded once more by the call directly around or within them.

    Two calls within each other are one where their output has as many tokens, or where one has no count of them, as a
    wrapper or a stream may not. The one around is kept, since it often has the session; it is left out where only
    the one within has a count. A call that is not imported itself stands for no other.

    Parameters
    ----------
    is_imported : callable
        Whether a call is imported unless another one is kept in its place.
    """

    def __init__(self, is_imported: Callable[[ImportedCall], bool]) -> None:
        self._is_imported = is_imported
        self._around: set[int] = set()
        self._within: dict[int, list[_Within]] = {}

    def add(self, calls: Iterable[ImportedCall]) -> None:
        """Take calls, all of them before any is asked about."""
        for call in calls:
            if call.parent is None or call.failed or not _has_own_id(call):
                continue
            is_imported = self._is_imported(call)
            if is_imported:
                self._around.update((hash((call.ids[0], None)), hash((call.ids[0], call.output_tokens))))
            if call.parent:
                one = _Within(call.ids[0], call.output_tokens, call.cost_usd, is_imported)
                self._within.setdefault(hash(call.parent), []).append(one)

    def repeats(self, call: ImportedCall) -> bool:
        """Return True if another call is kept in place of this one."""
        if not _has_own_id(call):
            return False
        if call.parent and hash((call.parent, call.output_tokens)) in self._around:
            return True
        within = self._directly_within(call)
        return call.output_tokens is None and any(one.output_tokens is not None and one.is_imported for one in within)

    def named(self, call: ImportedCall) -> ImportedCall:
        """Return a call that is kept, with the ids of those that it stands for, which scores may mean, and a cost."""
        same = [one for one in self._directly_within(call) if one.output_tokens in {None, call.output_tokens}]
        if not same:
            return call
        ids = (*call.ids[:1], *(one.id for one in same), *call.ids[1:])
        cost_usd = next((cost for cost in (call.cost_usd, *(one.cost_usd for one in same)) if cost), call.cost_usd)
        return call._replace(ids=ids, cost_usd=cost_usd)

    def _directly_within(self, call: ImportedCall) -> list[_Within]:
        return self._within.get(hash(call.ids[0]), []) if _has_own_id(call) else []


class _Within(NamedTuple):
    id: str
    output_tokens: float | None
    cost_usd: float | None
    is_imported: bool


def _has_own_id(call: ImportedCall) -> bool:
    """Return False where a call is known by the step around it alone, as in an export without the ids of spans."""
    return bool(call.ids) and call.ids[0] != call.parent
