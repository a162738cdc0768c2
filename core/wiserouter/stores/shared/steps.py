"""The steps of a decision in a shared store: reserving, finding and settling, locally or at the engine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import cast

from wiserouter.budgets.ledger import Ledger
from wiserouter.budgets.run_caps import CapLedger, RunCap
from wiserouter.errors import AlreadySettled, BudgetExhausted, StoreError, StoreUnavailable, UnknownDecision
from wiserouter.learning.source_scores import scores_of_texts
from wiserouter.stores.base import Record, State
from wiserouter.stores.engines.base import Found
from wiserouter.stores.engines.events import Find, Reserve, Score, Settle
from wiserouter.stores.ids import fresh_id
from wiserouter.stores.shared.codec import answered_of_text, record_of_text, text_of_name
from wiserouter.stores.shared.exchange import PendingEvent
from wiserouter.stores.shared.recovery import replay_lost
from wiserouter.stores.shared.replica import effect_of
from wiserouter.stores.shared.worker import Worker
from wiserouter.stores.transitions import Outcome, ledger_change, presumed_cost_usd, set_outcome


def cap_ledgers(worker: Worker, scope: str, caps: Sequence[RunCap]) -> tuple[CapLedger, ...]:
    """Return the account of each cap of a run, as of the last reply and the local steps since."""
    with worker.lock:
        known = worker.caps.are_known(caps, worker.now() - worker.refresh_s)
    if not known:
        try:
            worker.client.request(PendingEvent(Find(""), scope, caps=tuple([cap.key for cap in caps])))
        except StoreUnavailable:
            if any(cap.hard for cap in caps) or not worker.may_act_locally(scope):
                raise
    with worker.lock:
        return worker.caps.ledgers(caps, worker.now())


def reserve(worker: Worker, record: Record) -> None:
    """Reserve the cost of a decision, in all budgets of its scope or in none, and keep its record."""
    scope = record.decision.scope
    with worker.lock:
        if worker.is_up_to_date(scope) and _reserve_locally(worker, record):
            return
    worker.account(scope)
    with worker.lock:
        if _reserve_locally(worker, record):
            return
    (_reserve_in_run if record.caps else _reserve_now)(worker, record)


def find(worker: Worker, *names: str) -> Record:
    """Return the record of the first id or alias that is known; raises `UnknownDecision` if none is."""
    for name in names:
        record = worker.kept_record(name)
        if record is not None:
            return record
    return _fetched(worker, *names)


def finish(worker: Worker, record: Record, to: Outcome, cost_usd: float = 0.0, model: str | None = None) -> None:
    """Settle a call, locally or at the engine; a step that the engine misses is sent again later."""
    decision = record.decision
    if to == "presumed":
        capped = any(cap.hard for cap in record.caps)
        cost_usd = presumed_cost_usd(decision, hard=capped or worker.is_hard(decision.scope))
    with worker.lock:
        change = ledger_change(record, decision.id, to, cost_usd)
        kept = worker.decisions.get(decision.id)
        answered = None if model is None else text_of_name(model)
        event = tuple.__new__(Settle, (decision.id, to, fresh_id(), cost_usd, answered))  # in half the time of a call
        pending = PendingEvent(event, decision.scope, () if kept is None else kept[1], change)
        if record.caps:
            pending.caps = _keys(record)
        if kept is not None and decision.scope in worker.replica.views and worker.may_act_locally(decision.scope):
            worker.apply_locally(pending)
            set_outcome(record, to, cost_usd, model)
            return
    _finish_now(worker, record, pending)
    set_outcome(record, to, cost_usd, model)


def score(worker: Worker, record: Record, event: Score) -> object:
    """Keep a score at the engine, and return its result; learn which model answered, where another worker was told."""
    asked = [] if record.state == "charged" else [PendingEvent(Find(event.id), "")]
    result = worker.client.request(PendingEvent(event, ""), *asked)
    for one in asked:
        if isinstance(one.result, Found) and one.result.model is not None:
            record.answered = answered_of_text(one.result.model, record)
    return result


def _reserve_locally(worker: Worker, record: Record) -> bool:
    """Reserve on the replica where the engine need not be asked; return True if the record is kept."""
    decision = record.decision
    if decision.id in worker.decisions:
        return True
    if record.caps or not worker.may_act_locally(decision.scope):
        return False
    covered, lease = _covered(worker, decision.scope, decision.reserved_usd)
    if covered:
        chain = worker.replica.chain(decision.scope)
        pending = _reserving(record, chain.windows, lease)
        pending.applied = True
        chain.account.hold(decision.reserved_usd, decision.expected_cost_usd, record.counts)
        worker.keep(record, chain.windows)
        worker.client.enqueue(pending)
    return covered


def _reserving(record: Record, windows: tuple[str, ...], lease: str | None = None) -> PendingEvent:
    """Return the event that reserves the cost of a decision in the windows known here."""
    decision, caps, counts = record.decision, record.caps, record.counts
    reserved_usd, expected_usd, on_paper = decision.reserved_usd, decision.expected_cost_usd, record.debit == "paper"
    fields = (decision.id, windows, reserved_usd, expected_usd, on_paper, "", lease, caps, counts, False)
    event = tuple.__new__(Reserve, fields)  # in half the time of a call
    effect = effect_of(Ledger.hold, reserved_usd, expected_usd, counts)
    keys = _keys(record) if caps else ()
    flags = (False, False, False)  # neither applied, resent nor spooled; by position, in less time
    return PendingEvent(event, decision.scope, windows, effect, *flags, record, keys)


def _covered(worker: Worker, scope: str, reserved_usd: float) -> tuple[bool, str | None]:
    """Return True if a call may be reserved without the engine, and the lease that it is taken from, if any."""
    if not worker.leases_to(scope):
        return True, None
    lease = worker.leases.reserve(scope, reserved_usd)
    return lease is not None or worker.continues_alone(scope), lease


def _reserve_now(worker: Worker, record: Record) -> None:
    """Reserve at the engine; a second time on the new windows where those known here no longer exist."""
    decision = record.decision
    for _ in range(2):
        with worker.lock:
            lease = _lease_of_run(worker, record)
            pending = _reserving(record, worker.replica.chain(decision.scope).windows, lease)
        pending.defer = partial(_defer, worker, record, pending)
        result = worker.client.request(pending)
        if result == "ok":
            with worker.lock:
                worker.keep(record, pending.windows)
            return
        if result == "closed":
            raise worker.restoring()
        if result == "capped":
            raise _capped(worker, record)
        if result == "refused":
            break
    raise worker.account(decision.scope).exhausted(decision.reserved_usd)


def _reserve_in_run(worker: Worker, record: Record) -> None:
    """Reserve a call that caps must bear: at the engine, so that no two workers take the same money."""
    try:
        _reserve_now(worker, record)
    except StoreUnavailable:
        with worker.lock:
            if _may_defer_in_run(worker, record) and not _fits_caps(worker, record):
                raise _capped(worker, record) from None
        raise


def _may_defer_in_run(worker: Worker, record: Record) -> bool:
    """Return True if a call may be decided without the engine, which does not answer: under no hard cap."""
    return worker.may_act_locally(record.decision.scope) and not any(cap.hard for cap in record.caps)


def _fits_caps(worker: Worker, record: Record) -> bool:
    """Return True if the caps of a call admit it, as they were last seen."""
    held = record.decision.reserved_usd, record.decision.expected_cost_usd
    return all(ledger.admits(*held) for ledger in worker.caps.ledgers(record.caps, worker.now()))


def _capped(worker: Worker, record: Record) -> BudgetExhausted:
    """Return the error of the cap that does not admit a call."""
    held_usd, expected_usd = record.decision.reserved_usd, record.decision.expected_cost_usd
    with worker.lock:
        ledgers = worker.caps.ledgers(record.caps, worker.now())
        refusing = [one for one in ledgers if not one.admits(held_usd, expected_usd)]
        cap = min(refusing or ledgers, key=lambda one: one.room_usd() if one.hard else one.plannable_usd)
        return cap.exhausted(held_usd if cap.hard else expected_usd)


def _lease_of_run(worker: Worker, record: Record) -> str | None:
    """Return the lease that a call of a run is taken from, where the worker decides on leases."""
    if not record.caps or not worker.decides_on_leases:
        return None
    return worker.leases.reserve(record.decision.scope, record.decision.reserved_usd)


def _keys(record: Record) -> tuple[str, ...]:
    return tuple([cap.key for cap in record.caps])


def _defer(worker: Worker, record: Record, pending: PendingEvent) -> bool:
    """Reserve on the replica a decision that the engine does not answer for, where its limit or a lease permits."""
    decision = record.decision
    if not worker.may_act_locally(decision.scope):
        return False
    if record.caps and not (_may_defer_in_run(worker, record) and _fits_caps(worker, record)):
        return False
    event = cast("Reserve", pending.event)
    covered, lease = (True, event.lease) if event.lease else _covered(worker, decision.scope, decision.reserved_usd)
    if covered:
        pending.event = event._replace(lease=lease, admitted=True)
        worker.caps.open(record.caps, worker.now())
        worker.apply(pending)
        worker.keep(record, pending.windows)
    return covered


def _finish_now(worker: Worker, record: Record, pending: PendingEvent) -> None:
    """Settle a call at the engine; where that fails, the call is settled later if this worker decided it."""
    decision_id, event = record.decision.id, pending.event
    moves_scores = isinstance(event, Settle) and event.model is not None  # also those that other workers were told
    asked = [PendingEvent(Find(decision_id), "")] if moves_scores else []
    try:
        result = worker.client.request(pending, *asked)
    except StoreError:
        with worker.lock:
            if decision_id not in worker.decisions:
                raise
            worker.apply_locally(pending)
        return
    for one in asked:
        if isinstance(one.result, Found):
            record.take(scores_of_texts(one.result.scores, worker.name))
    if result == "unknown":
        _replay(worker, decision_id, pending)
    elif result == "again":
        record.state = _fetched(worker, decision_id).state
        raise AlreadySettled(decision_id, record.state)


def _replay(worker: Worker, decision_id: str, pending: PendingEvent) -> None:
    """Reserve a decision of this worker again that the engine has lost, and settle it."""
    kept = worker.decisions.get(decision_id)
    if kept is None:
        raise UnknownDecision(decision_id)
    for again in replay_lost(worker.replica, *kept, pending):
        worker.client.request(again)


def _fetched(worker: Worker, *names: str) -> Record:
    """Return a record that the engine keeps; one just made by another worker may not have arrived yet."""
    found = _asked_for(worker, names)
    if found is None and not worker.near:
        time.sleep(2.0 * worker.flush_s)
        found = _asked_for(worker, names)
    if found is None:
        raise UnknownDecision(names[0])
    kept = worker.kept_record(found.id)
    record = record_of_text(found.record, worker.name) if kept is None else kept
    record.state = cast("State", found.state)
    record.answered = "" if found.model is None else answered_of_text(found.model, record)
    record.cost_usd = found.cost_usd
    record.take(scores_of_texts(found.scores, worker.name))
    return record


def _asked_for(worker: Worker, names: Sequence[str]) -> Found | None:
    """Return the first decision that the engine knows by one of some names, which go along in one exchange."""
    *others, last = [PendingEvent(Find(name), "") for name in names]
    worker.client.request(last, *others)
    return next((one.result for one in (*others, last) if isinstance(one.result, Found)), None)
