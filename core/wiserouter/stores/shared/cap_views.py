"""The caps of runs as a worker last saw them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from wiserouter.budgets.run_caps import CapLedger, RunCap
from wiserouter.stores.engines.base import CapState
from wiserouter.stores.shared.replica import Effect

MAX_CAPS = 10_000
"""The number of caps that a worker keeps a view of; the one read longest ago is dropped."""


class CapView(NamedTuple):
    """The account of a cap, None where it was not open, the engine's time of the reply, and the number of refreshes."""

    ledger: CapLedger | None
    as_of_s: float
    refreshes: int


class CapViews:
    """The caps that a worker has read; the caller holds a lock."""

    def __init__(self) -> None:
        self._views: OrderedDict[str, CapView] = OrderedDict()
        self._refreshes = 0

    def refresh(self) -> None:
        """Let every cap be read again when it is next asked for."""
        self._refreshes += 1

    def are_known(self, caps: Sequence[RunCap], since_s: float) -> bool:
        """Return True if all of some caps were read since a time, and since the last refresh."""
        views = [self._views.get(cap.key) for cap in caps]
        return all(one and one.as_of_s >= since_s and one.refreshes == self._refreshes for one in views)

    def ledgers(self, caps: Sequence[RunCap], now_s: float) -> tuple[CapLedger, ...]:
        """Return the account of each cap as last seen; a new one where it was not open."""
        return tuple([self._ledger(cap, now_s) for cap in caps])

    def apply(self, keys: Iterable[str], effect: Effect) -> None:
        """Apply the effect of a step on a call to its caps."""
        for key in keys:
            view = self._views.get(key)
            if view is not None and view.ledger is not None:
                effect(view.ledger)

    def open(self, caps: Sequence[RunCap], now_s: float) -> None:
        """Open caps that were not open, while the engine is away."""
        for cap in caps:
            view = self._views.get(cap.key)
            if view is None or view.ledger is None:
                self._keep(cap.key, CapView(CapLedger.of_cap(cap, now_s), now_s, self._refreshes))

    def take(
        self,
        keys: Iterable[str],
        states: Mapping[str, CapState],
        now_s: float,
        unsent: Callable[[str], Iterable[Effect]],
    ) -> None:
        """Take over the states of caps, and apply the effects that the engine does not have yet."""
        for key in keys:
            state = states.get(key)
            ledger = None if state is None else _ledger(state, key, now_s)
            if ledger is not None:
                for effect in unsent(key):
                    effect(ledger)
            self._keep(key, CapView(ledger, now_s, self._refreshes))

    def _ledger(self, cap: RunCap, now_s: float) -> CapLedger:
        view = self._views.get(cap.key)
        return CapLedger.of_cap(cap, now_s) if view is None or view.ledger is None else view.ledger

    def _keep(self, key: str, view: CapView) -> None:
        self._views[key] = view
        self._views.move_to_end(key)
        if len(self._views) > MAX_CAPS:
            self._views.popitem(last=False)


def _ledger(state: CapState, key: str, now_s: float) -> CapLedger:
    ledger = CapLedger.of_cap(RunCap(key, state.amount_usd, state.hard, 0.0), now_s)
    for name, value in state.counters.items():
        setattr(ledger, name, value if name.endswith("_usd") else round(value))
    return ledger
