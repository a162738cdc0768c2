"""What a worker may hold back by itself: a share of the budget that the engine keeps aside for it, for a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

from wiserouter.stores.engines.events import Lease, Reserve
from wiserouter.stores.shared.exchange import PendingEvent


@dataclass(slots=True)
class _Held:
    usd: float = 0.0
    until_s: float = 0.0


class Leases:
    """The leases of one worker, by scope; whoever calls holds a lock.

    A lease can be used for `ttl_s` by the worker's own clock, from the moment when it was asked for. The engine keeps
    it longer, by the time to live of a reservation: so long the calls that were made on it may be told.

    Parameters
    ----------
    share : float or None
        Of what is left; None where there are no leases.
    ttl_s, reservation_ttl_s : float, seconds
        As above.
    clock : callable returning float
        Seconds.
    """

    def __init__(self, share: float | None, ttl_s: float, reservation_ttl_s: float, clock: Callable[[], float]) -> None:
        self.share = share
        self._ttl_s, self._reservation_ttl_s, self._clock = ttl_s, reservation_ttl_s, clock
        self._held: dict[str, _Held] = {}
        self._worker, self._process = os.urandom(8).hex(), os.getpid()

    def id(self, scope: str) -> str:
        """Return the name of a lease; a process that was forked off has none of its parent's."""
        if self._process != os.getpid():
            self._worker, self._process = os.urandom(8).hex(), os.getpid()
            self._held.clear()
        return f"{self._worker}|{scope}"

    def left_usd(self, scope: str) -> float:
        """Return what may be held back on a lease now."""
        held = self._held.get(scope) if self._process == os.getpid() else None
        return 0.0 if held is None or self._clock() >= held.until_s else held.usd

    def use(self, scope: str, usd: float) -> None:
        """Hold some of it back."""
        self._held.setdefault(scope, _Held()).usd -= usd

    def drop(self, scope: str) -> None:
        """Use a lease no more, as when the windows that it is of have ended."""
        self._held.pop(scope, None)

    def renewal(self, scope: str, windows: tuple[str, ...], left_usd: float, *, due: bool) -> Lease | None:
        """Return what renews a lease where it is due, or runs low; what is to be given back is not used from now on."""
        held_usd = self.left_usd(scope)
        target_usd = (self.share or 0.0) * max(left_usd + held_usd, 0.0)
        if not due and held_usd >= 0.5 * target_usd:
            return None
        if held_usd > target_usd:
            self._held[scope].usd = target_usd
        return Lease(self.id(scope), windows, target_usd, self._ttl_s + self._reservation_ttl_s)

    def take(self, scope: str, granted: object, asked_s: float, waiting: Iterable[PendingEvent]) -> None:
        """Take over what the engine grants, less what was held on it since."""
        mine, held_usd = self.id(scope), cast("float", granted)
        for step in waiting:
            if isinstance(step.event, Reserve) and step.event.lease == mine:
                held_usd -= step.event.held_usd
        self._held[scope] = _Held(max(held_usd, 0.0), asked_s + self._ttl_s)

    def returned(self) -> list[PendingEvent]:
        """Return the steps that give all leases back."""
        return [PendingEvent(Lease(self.id(scope), (), 0.0, 0.0), scope, shown=True) for scope in self._held]
