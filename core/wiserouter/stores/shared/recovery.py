"""Recovery from an engine that has lost its data: every worker restores what it knows.

The worker that notices the loss first opens the accounts again as it last saw them, or adds what it saw to those that
a worker which did not know them has opened meanwhile. The others notice that an account was restored, and add what they
know beyond that. Each worker reserves its own calls in flight again. What was seen and no worker can name, such as the
calls of a killed one, stays set apart on a lease, and is presumed when none claims it in time. What a killed worker
began after the last reply to all others is not known to any of them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Iterable, Mapping

from wiserouter.budgets.ledger import Ledger
from wiserouter.stores.base import Record
from wiserouter.stores.engines.base import AccountState
from wiserouter.stores.engines.events import Lease, Renew, Reserve, Restore, Settle, Spend
from wiserouter.stores.ids import fresh_id
from wiserouter.stores.shared.exchange import PendingEvent
from wiserouter.stores.shared.losses import (
    UNREAD,
    Loss,
    generation_after,
    is_opened_again,
    name_of_opening,
    opened_at_s,
)
from wiserouter.stores.shared.replica import LocalReplica, effect_of

logger = logging.getLogger("wiserouter")

MAX_CLOSED_S = 30.0
"""The longest time for which hard limits stay closed after the engine has lost its data."""

KeptDecision = tuple[Record, tuple[str, ...]]
"""A decision of this worker, and the windows that it counts in."""


def repair_unknown(
    replica: LocalReplica, pending: PendingEvent, decisions: Mapping[str, KeptDecision], store: str
) -> list[PendingEvent]:
    """Return the events to send after one that no caller waits for and whose decision the engine does not know."""
    if not pending.applied or pending.result != "unknown" or pending.resent:
        return []
    event = pending.event
    kept = decisions.get(event.id) if isinstance(event, Settle) else None
    if kept is None:
        logger.warning("%s does not know the decision or window of a %s: dropped", store, type(event).__name__)
        return []
    return replay_lost(replica, *kept, pending)


def replay_lost(
    replica: LocalReplica, record: Record, windows: tuple[str, ...], settling: PendingEvent
) -> list[PendingEvent]:
    """Return the events that reserve a decision again which the engine has lost, and then settle it."""
    scope, applied = record.decision.scope, settling.applied
    settle = PendingEvent(settling.event, scope, windows, settling.effect, applied=applied, resent=True)
    return [*_taken_from_outer(replica, record, windows), _reserve_again(record, windows, applied=applied), settle]


def window_names(
    replica: LocalReplica, present: Mapping[str, AccountState], replaced: Container[str] = ()
) -> dict[str, str]:
    """Return the present windows in place of those last seen, by name, where a lost account was opened with others."""
    names = {}
    for scope in replica.views.keys() & present.keys():
        view, state = replica.views[scope], present[scope]
        generation = generation_after(view.state, state, replaced=scope in replaced)
        if generation != view.state.generation:
            seen_ids = {*view.windows, *(window.id for window in view.state.windows)}
            names.update({window: _of_generation(window, generation) for window in seen_ids})
            continue
        for terms, seen, now in zip(view.budget.each, view.windows, state.windows, strict=False):
            is_same = terms.every is None or _start(seen) == _start(now.id)  # otherwise one follows the other
            if is_same and seen != now.id and state.generation <= view.generation:
                names[seen] = now.id
    return names


def _of_generation(window: str, generation: int) -> str:
    scope, _, level, start = window.rsplit("|", 3)
    return f"{scope}|{generation}|{level}|{start}"


def _start(window: str) -> str:
    return window.rpartition("|")[2]


def renamed(windows: tuple[str, ...], names: Mapping[str, str]) -> tuple[str, ...]:
    """Return windows by their present names."""
    return tuple([names.get(window, window) for window in windows])


def rename(pending: PendingEvent, names: Mapping[str, str]) -> None:
    """Let an event count in the present windows."""
    pending.windows = renamed(pending.windows, names)
    event = pending.event
    if isinstance(event, Reserve | Spend | Lease):
        pending.event = event._replace(windows=renamed(event.windows, names))
    elif isinstance(event, Renew):
        window = event.window._replace(id=names.get(event.window.id, event.window.id))
        pending.event = event._replace(former=names.get(event.former, event.former), window=window)


def restore_accounts(
    replica: LocalReplica,
    scopes: Collection[str],
    present: Mapping[str, AccountState],
    replaced: Container[str],
    loss: str,
    ttl_s: float,
    closed_s: float,
) -> list[PendingEvent]:
    """Return the events that open accounts again as they were last seen, or add them to those opened meanwhile.

    Parameters
    ----------
    replica : LocalReplica
        The accounts; those that are restored are known to be so.
    scopes : collection of str
        Those to restore.
    present : mapping of str to AccountState
        Those that the engine has now, as far as they were read.
    replaced : container of str
        Those that the engine has in an older state, which what was seen replaces.
    loss : str
        The name of the loss.
    ttl_s : float, seconds
        Time after which calls in flight that no worker has claimed are presumed.
    closed_s : float, seconds
        Time in which hard limits stay closed, so that the other workers can restore as well.
    """
    events = []
    names = window_names(replica, present, replaced)
    for scope in scopes:
        view, seen, now = replica.views[scope], replica.remembered(scope), present.get(scope)
        windows = tuple([window._replace(id=names.get(window.id, window.id)) for window in seen.windows])
        token = name_of_opening(opened_at_s(view.state), loss)
        lost = lost_lease(scope), seen.held_usd, ttl_s, closed_s
        generation, former = seen.generation, ""
        if now is not None and scope in replaced:
            generation, former = generation_after(view.state, now, replaced=True), now.restored
        elif now is not None:
            generation, former = now.generation, now.restored if is_opened_again(view.state, now) else ""
        restore = Restore(scope, generation, seen.terms, windows, token, seen.as_of_s, *lost, former)
        events.append(PendingEvent(restore, scope, applied=True))
        view.state = view.state._replace(restored=token + UNREAD)
    return events


def follow(replica: LocalReplica, present: Mapping[str, AccountState], loss: Loss, names: Mapping[str, str]) -> None:
    """Let the replica count in the windows that its accounts have after they were restored."""
    for scope in replica.views.keys() & present.keys():
        view, now = replica.views[scope], present[scope]
        view.generation = generation_after(view.state, now, replaced=scope in loss.replaced)
        windows = [window._replace(id=names.get(window.id, window.id)) for window in view.state.windows]
        view.state = view.state._replace(windows=tuple(windows))
        if scope in loss.followed:
            view.state = view.state._replace(generation=now.generation, restored=now.restored)
    replica.rename(names)


def reserve_again(
    replica: LocalReplica,
    scopes: Collection[str],
    decisions: Iterable[KeptDecision],
    on_their_way: Iterable[PendingEvent],
) -> list[PendingEvent]:
    """Return the events that reserve the calls in flight of scopes again, unless their reservation is on its way."""
    sent = {pending.event.id for pending in on_their_way if isinstance(pending.event, Reserve)}
    events = []
    for record, windows in decisions:
        decision = record.decision
        if record.state == "in flight" and decision.scope in scopes and decision.id not in sent:
            events.append(_reserve_again(record, windows, applied=True))
            events += _taken_from_outer(replica, record, windows)
    return events


def _taken_from_outer(replica: LocalReplica, record: Record, windows: tuple[str, ...]) -> list[PendingEvent]:
    """Return the events by which what is set apart in enclosing accounts stands no longer for a call of this worker."""
    decision = record.decision
    return return_unused(replica, replica.scopes(decision.scope)[1:], windows, decision.reserved_usd)


def return_unused(
    replica: LocalReplica, scopes: Iterable[str], windows: tuple[str, ...], unused_usd: float
) -> list[PendingEvent]:
    """Return the events that give back a part of what was set apart in accounts, given the windows of the innermost."""
    events = []
    for scope in scopes:
        if scope in replica.views:
            rest, within = fresh_id(), windows[-len(replica.windows(scope)) :]
            reserve = Reserve(rest, within, unused_usd, 0.0, False, "", lost_lease(scope))
            release = Settle(rest, "released", fresh_id())
            events += [PendingEvent(event, scope, within, applied=True, resent=True) for event in (reserve, release)]
    return events


def lost_lease(scope: str) -> str:
    """Return the name of the lease that stands for the calls in flight of a lost account."""
    return f"lost|{scope}"


def _reserve_again(record: Record, windows: tuple[str, ...], *, applied: bool) -> PendingEvent:
    decision = record.decision
    held = decision.reserved_usd, decision.expected_cost_usd
    event = Reserve(decision.id, windows, *held, record.debit == "paper", "", lost_lease(decision.scope))
    event = event._replace(caps=record.caps, counts=record.counts, admitted=True)
    effect = effect_of(Ledger.hold, *held, record.counts)
    caps = tuple([cap.key for cap in record.caps])
    scope = decision.scope
    return PendingEvent(event, scope, windows, effect, applied=applied, resent=True, record=record, caps=caps)
