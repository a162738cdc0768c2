"""Recovery from an engine that has lost its data: accounts are opened and decisions reserved again, as last seen."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from wiserouter.budgets.ledger import Ledger
from wiserouter.stores.base import Record
from wiserouter.stores.engines.events import Lease, Reserve, Settle
from wiserouter.stores.shared.exchange import PendingEvent
from wiserouter.stores.shared.replica import LocalReplica, effect_of

logger = logging.getLogger("wiserouter")

KeptDecision = tuple[Record, tuple[str, ...]]
"""A decision of this worker, and the windows that it counts in."""


def repair_unknown(pending: PendingEvent, decisions: Mapping[str, KeptDecision], store: str) -> list[PendingEvent]:
    """Return the events to send after one that no caller waits for and whose decision the engine does not know."""
    if not pending.applied or pending.result != "unknown" or pending.resent:
        return []
    event = pending.event
    kept = decisions.get(event.id) if isinstance(event, Settle) else None
    if kept is None:
        logger.warning("%s does not know the decision or window of a %s: dropped", store, type(event).__name__)
        return []
    return replay_lost(*kept, pending)


def replay_lost(record: Record, windows: tuple[str, ...], settling: PendingEvent) -> list[PendingEvent]:
    """Return the events that reserve a decision again which the engine has lost, and then settle it."""
    decision = record.decision
    held = decision.reserved_usd, decision.expected_cost_usd
    lease = _lost_lease(decision.scope)
    reserve = Reserve(decision.id, windows, *held, record.debit == "paper", "", lease)
    return [
        PendingEvent(event, decision.scope, windows, effect, applied=settling.applied, resent=True, record=record)
        for event, effect in ((reserve, effect_of(Ledger.hold, *held)), (settling.event, settling.effect))
    ]


def reopen_lost(
    scopes: Iterable[str], replica: LocalReplica, *, store: str, reservation_ttl_s: float
) -> list[PendingEvent]:
    """Return the events that open lost accounts again as they were last seen.

    The amounts that were reserved and leased there stay set apart for the time to live of a reservation: those calls
    may still be billed.
    """
    events = []
    for scope in scopes:
        opening, held_usd = replica.remembered(scope)
        windows = tuple([window.id for window in opening.windows])
        events.append(PendingEvent(opening, scope, applied=True))
        if held_usd > 0.0:
            lease = Lease(_lost_lease(scope), windows, held_usd, reservation_ttl_s)
            events.append(PendingEvent(lease, scope, applied=True))
        logger.error("%s has lost the budget of scope %r: opened again as it was last seen", store, scope)
    return events


def _lost_lease(scope: str) -> str:
    """Return the name of the lease that stands for the calls in flight of a lost account."""
    return f"lost|{scope}"
