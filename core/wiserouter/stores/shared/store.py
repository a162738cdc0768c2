"""A store for many workers: one budget and one set of decisions, behind an engine that all of them reach.

How a worker goes about it:

* Where every exchange with the engine matters, as under a hard limit, each step waits for one.
* Where it need not wait, as under an expected limit with a remote engine, or within a lease, a step is done on the
  worker's own view at once, and told to the engine some hundredths of a second later.
* A view is as old as the last reply, `refresh_s` at most while the engine answers.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from threading import RLock
from typing import Literal, cast

from wiserouter.budgets.budget import Budget
from wiserouter.budgets.ledger import Ledger
from wiserouter.budgets.funds import BudgetSnapshot
from wiserouter.budgets.nested import Account, check_same_shape, open_account
from wiserouter.errors import AlreadySettled, InvalidInput, NotStarted, StoreError, UnknownDecision
from wiserouter.stores.base import Health, Peer, Record, State
from wiserouter.stores.engines.base import Engine, Found, ReadRequest, Reply
from wiserouter.stores.engines.events import Alias, Amend, Event, Find, Lease, Open, Reserve, Score, Settle, Spend
from wiserouter.stores.ids import fresh_id
from wiserouter.stores.shared.codec import record_of_text, text_of_terms
from wiserouter.stores.shared.exchange import EngineClient, PendingEvent
from wiserouter.stores.shared.leases import Leases
from wiserouter.stores.shared.replica import Effect, LocalReplica, first_windows
from wiserouter.validation import check_amount

logger = logging.getLogger("wiserouter")

OnStoreError = Literal["closed", "local"]

NOTED_S = 60.0
"""How often the records of arrivals are kept, for workers that start later."""

IDLE_S = 600.0
"""An account that nobody asked for so long is not read again until somebody does."""


class SharedStore:
    """Budgets and decisions that several workers share.

    Parameters
    ----------
    engine : Engine
        What keeps them: `SQLiteEngine`, `RedisEngine`.
    name : str, default "store"
        What errors and logs call it; holds no password.
    clock : callable returning float, default time.monotonic
        Seconds; only differences count, the time of day is the engine's.
    refresh_s : float, default 1
        The oldest that a view may get while the engine answers.
    flush_s : float, default 0.05
        How long an event that nobody waits for may take to be sent.
    lease_share : float, optional
        Each worker holds this share of what is left, and decides within it without asking; the only way not to ask
        under a hard limit.
    lease_ttl_s : float, default 30
        How long a lease can be used without being renewed.
    on_store_error : {"closed", "local"}, default "closed"
        While the engine cannot be reached: decide nothing, or decide on the last view within `local_share` of the
        budget, leased beforehand.
    local_share : float, default 0.02
        Share of what is left that each worker leases for that.
    max_staleness_s : float, default 5
        How old a view may get before a closed store refuses, where nobody waits for the engine.
    reservation_ttl_s : float, default 900
        That of the engine: a lease is held so much longer than it can be used, for the calls made on it.
    max_decisions : int, default 20,000
        Decisions of this worker that are kept at hand; the others are asked for.

    Raises
    ------
    InvalidInput
        If a share is not in (0, 0.5], or `on_store_error` is none of the two.
    """

    durable = True

    def __init__(
        self,
        engine: Engine,
        *,
        name: str = "store",
        clock: Callable[[], float] = time.monotonic,
        refresh_s: float = 1.0,
        flush_s: float = 0.05,
        lease_share: float | None = None,
        lease_ttl_s: float = 30.0,
        on_store_error: OnStoreError = "closed",
        local_share: float = 0.02,
        max_staleness_s: float = 5.0,
        reservation_ttl_s: float = 900.0,
        max_decisions: int = 20_000,
    ) -> None:
        for what, share in (("lease_share", lease_share), ("local_share", local_share)):
            if share is not None and not 0.0 < check_amount(what, share) <= 0.5:
                raise InvalidInput(f"{what} must lie in (0, 0.5], got {share!r}", value=share)
        if on_store_error not in ("closed", "local"):
            raise InvalidInput(f"on_store_error must be 'closed' or 'local', got {on_store_error!r}")
        self.name = name
        self._near, self._leases_always = engine.near, lease_share is not None
        self._clock, self._flush_s, self._max_staleness_s = clock, flush_s, max_staleness_s
        self._reservation_ttl_s, self._max_decisions = reservation_ttl_s, max_decisions
        share = lease_share if lease_share is not None else local_share if on_store_error == "local" else None
        self._leases = Leases(share, lease_ttl_s, reservation_ttl_s, clock)
        self._views = LocalReplica(name)
        self._records: OrderedDict[str, tuple[Record, tuple[str, ...]]] = OrderedDict()
        self._peers: weakref.WeakSet[Peer] = weakref.WeakSet()
        self._noted_s = float("-inf")
        self._read: list[str] = []
        self._leased: dict[str, Lease] = {}
        self._lock = RLock()
        self._wire = EngineClient(engine, self, self._lock, clock, name=name, refresh_s=refresh_s, flush_s=flush_s)
        self._wire.offset_s = time.time() - clock()

    def now(self) -> float:
        """Return the engine's time, as far as it is known."""
        return self._clock() + self._wire.offset_s

    def waits(self, scope: str, decision_id: str | None = None) -> bool:
        """Return whether a step waits for the engine: then take it off the event loop."""
        with self._lock:
            if self._near or scope not in self._views.of or not self._may_act_locally(scope):
                return True
            if decision_id is not None:
                return decision_id not in self._records
            return self._leases.share is not None and self._leases.left_usd(scope) <= 0.0

    def open(self, scope: str, budget: Budget, *, parent: str | None = None, restart: bool = False) -> None:
        """Start a budget for `scope`, or take part in the one that runs, with amount and horizon as given now.

        Raises
        ------
        InvalidInput
            If the one that runs renews otherwise, has another limit or another parent, and `restart` is not said.
        NotStarted
            If the parent has no budget.
        """
        if parent is not None:
            self.ledger(parent)
        self._refresh_account(scope)
        while True:
            with self._lock:
                view = self._views.of.get(scope)
                if view is not None and not restart:
                    break
                generation = 0 if view is None else view.generation
                windows = first_windows(scope, generation + 1, budget, self.now())
            opened = self._wire.ask(
                PendingEvent(Open(scope, generation, text_of_terms(budget, parent), windows), scope)
            )
            if opened == generation + 1:
                return
            restart = False  # somebody else was faster
        if text_of_terms(view.budget, view.parent) != text_of_terms(budget, parent):
            self._adjust(scope, budget, parent)

    def amend(self, scope: str, *, amount_usd: float | None, horizon: int | None, every: str | None = None) -> None:
        """Change the running budget of `scope`: the one that renews `every` so often, where there are several."""
        self._refresh_account(scope)
        with self._lock:
            view = self._views.of.get(scope)
            if view is None:
                raise NotStarted(scope)
            budget = _amended(view.budget, amount_usd, horizon, every)
        self._change(scope, budget, view.parent)

    def ledger(self, scope: str) -> Account:
        """Return the account of `scope`, as of the last reply and what this worker has done since."""
        if scope not in self._views.of:
            self._refresh_account(scope)
        with self._lock:
            now_s = self.now()
            self._check_reachable(scope, now_s)
            account, begun = self._views.account(scope, now_s)
            if begun:
                self._wire.tell(*[PendingEvent(event, scope, shown=True) for event in begun])
                self._leases.drop(scope)
            if self._wire.broken and self._leases.share is not None:
                account.each[0].lease_usd = self._leases.left_usd(scope)
            return account

    def snapshot(self, scope: str) -> BudgetSnapshot:
        """Return the budget of `scope`, as of the last reply and what this worker has done since."""
        account = self.ledger(scope)
        with self._lock:
            return account.snapshot()

    def reserve(self, record: Record) -> None:
        """Hold back the cost of a decision, in all budgets of its scope or in none, and keep its record."""
        scope, held_usd = record.decision.scope, record.decision.reserved_usd
        with self._lock:
            current = scope in self._views.of and not self._wire.broken
            current = current and self.now() < self._views.chain(scope).ends_s
            if current and self._reserve_locally(record):
                return
        self.ledger(scope)
        with self._lock:
            if self._reserve_locally(record):
                return
        try:
            self._reserve_now(record)
        except StoreError:
            with self._lock:
                if self._leases.share is None or held_usd > self._leases.left_usd(scope):
                    raise
                self._hold(record, leased=True)

    def find(self, decision_id: str) -> Record:
        """Return the record of a decision, by its id or an alias; raises `UnknownDecision` if there is none."""
        record = self._at_hand(decision_id)
        return self._fetched(decision_id) if record is None else record

    def alias(self, alias: str, decision_id: str) -> None:
        """Let a decision be found by another name as well."""
        step = PendingEvent(Alias(alias, decision_id), "", shown=not self._near)
        if self._near:
            self._wire.ask(step)
        else:
            self._wire.tell(step)

    def settle(self, decision_id: str, cost_usd: float, model: int | None = None) -> Record:
        """Charge the true cost of a call, once, and note the model that answered where it is another one."""
        record = self.find(decision_id)
        self._finish(record, "charged", cost_usd, model)
        return record

    def release(self, decision_id: str) -> Record:
        """Give back the reservation of a call that failed."""
        record = self.find(decision_id)
        self._finish(record, "released", 0.0, None)
        return record

    def reward(self, decision_id: str, reward: float) -> tuple[Record, float | None]:
        """Keep the reward of a decision, and return its record and the reward that it replaces."""
        record = self.find(decision_id)
        if record.state == "released":
            raise AlreadySettled(decision_id, record.state)
        result = self._wire.ask(PendingEvent(Score(record.decision.id, reward, fresh_id()), ""))
        if result == "unknown":
            raise UnknownDecision(decision_id)
        if result == "released":
            record.state = "released"
            raise AlreadySettled(decision_id, record.state)
        record.reward = reward
        return record, result if isinstance(result, float) else None

    def spend(self, scope: str, cost_usd: float) -> None:
        """Count a cost that belongs to no decision, or with a negative one give some of it back."""
        account = self.ledger(scope)
        with self._lock:
            windows = self._views.chain(scope).windows
            event = Spend(fresh_id(), windows, cost_usd)
            effect = partial(Ledger.spend, cost_usd=cost_usd, debit_usd=cost_usd)
            step = PendingEvent(event, scope, windows, effect)
            if self._may_act_locally(scope) and not account.hard:
                self._apply_locally(step)
                return
        if self._wire.ask(step) != "ok":
            raise self.ledger(scope).exhausted(cost_usd)

    def join(self, peer: Peer) -> None:
        """Let somebody exchange sums with the peers of other workers; kept as long as somebody else keeps it."""
        with self._lock:
            self._peers.add(peer)
            self._wire.listen()

    def refresh(self) -> None:
        """Tell the engine all that it has not heard of, and read how things stand.

        Raises
        ------
        StoreUnavailable, StoreDamaged
            If that fails; it is tried again later.
        """
        self._wire.refresh()

    def health(self) -> Health:
        """Return whether the engine answers, how old the view is, and what waits to be sent."""
        return self._wire.health()

    def close(self) -> None:
        """Tell the engine what it has not heard of, give leases back, and let go of it."""
        with self._lock:
            if self._wire.closed:
                return
            self._wire.waiting.extend(self._leases.returned())
        self._wire.close()

    def compose(self, steps: Sequence[PendingEvent], *, due: bool) -> tuple[list[Event], ReadRequest]:
        """Return the leases to renew, what peers add, and what to read."""
        now_s = self.now()
        active = {scope for scope, view in self._views.of.items() if due and now_s - view.used_s < IDLE_S}
        scopes = active | {step.scope for step in steps if step.scope}
        self._leased = self._renewals(scopes, active)
        events: list[Event] = list(self._leased.values())
        if due:
            events += [learn for peer in self._peers for learn in peer.outgoing(now_s)]
            if self._clock() - self._noted_s >= NOTED_S:
                events += self._views.notes()
                self._noted_s = self._clock()
        self._read = read = sorted({one for scope in scopes for one in self._views.scopes(scope)})
        notes = [name for scope in read if scope not in self._views.of for name in self._views.note_names(scope)]
        sums = [name for peer in self._peers for name in peer.wanted(now_s)] if due else []
        return events, ReadRequest(read, sums, notes)

    def take(
        self, steps: Sequence[PendingEvent], extras: list[object], reply: Reply, asked_s: float
    ) -> list[PendingEvent] | None:
        """Take over accounts, leases and what peers are told."""
        lost = [scope for scope in self._read if scope in self._views.of and scope not in reply.accounts]
        if lost:
            return [*self._reopen_lost(lost), *steps]
        for step in steps:
            self._repair_unknown(step)
        pending = [
            (window, step.effect)
            for step in self._wire.waiting
            if step.shown and step.effect is not None
            for window in step.windows
        ]
        for scope, state in reply.accounts.items():
            if scope not in self._views.of:
                self._noted_s = float("-inf")  # who starts next is told at once
            self._views.take(scope, state, reply.now_s, reply.notes, pending)
        for scope, granted in zip(self._leased, extras, strict=False):
            self._leases.take(scope, granted, asked_s, self._wire.waiting)
        for peer in list(self._peers) if reply.sums else []:
            peer.incoming(reply)
        return None

    def _may_act_locally(self, scope: str) -> bool:
        """Return whether the steps of a scope need not wait for the engine."""
        if self._near:
            return self._leases_always
        return self._leases_always or not self._views.chain(scope).hard

    def _check_reachable(self, scope: str, now_s: float) -> None:
        """Raise `StoreUnavailable` where nothing may be decided without the engine."""
        if not self._wire.broken or self._leases.left_usd(scope) > 0.0:
            return
        view, leases = self._views.of.get(scope), self._leases.share is not None
        fresh = view is not None and now_s - view.as_of_s <= self._max_staleness_s
        if leases or not fresh or not self._may_act_locally(scope):
            raise self._wire.unavailable("what was leased is used up" if leases else "on_store_error is 'closed'")

    def _reserve_locally(self, record: Record) -> bool:
        """Reserve on this worker's view, where it need not ask; return whether the record is kept."""
        decision = record.decision
        if decision.id in self._records:
            return True
        leased = self._leases.share is not None
        if not self._may_act_locally(decision.scope) or (
            leased and decision.reserved_usd > self._leases.left_usd(decision.scope)
        ):
            return False
        self._hold(record, leased=leased)
        return True

    def _hold(self, record: Record, *, leased: bool) -> None:
        """Reserve on this worker's view, and have the engine told."""
        decision = record.decision
        chain = self._views.chain(decision.scope)
        lease = self._leases.id(decision.scope) if leased else None
        held = decision.reserved_usd, decision.expected_cost_usd
        event = Reserve(decision.id, chain.windows, *held, record.debit == "paper", "", lease)
        if leased:
            self._leases.use(decision.scope, decision.reserved_usd)
        chain.account.hold(*held)
        self._keep(record, chain.windows)
        effect = _effect(Ledger.hold, *held)
        self._wire.tell(PendingEvent(event, decision.scope, chain.windows, effect, shown=True, record=record))

    def _reserve_now(self, record: Record) -> None:
        """Reserve at the engine; once more on fresh windows where those that were known are gone."""
        decision = record.decision
        held = decision.reserved_usd, decision.expected_cost_usd
        for _ in range(2):
            with self._lock:
                windows = self._views.chain(decision.scope).windows
            event = Reserve(decision.id, windows, *held, record.debit == "paper", "")
            step = PendingEvent(event, decision.scope, windows, _effect(Ledger.hold, *held), record=record)
            result = self._wire.ask(step)
            if result == "ok":
                with self._lock:
                    self._keep(record, windows)
                return
            if result == "refused":
                break
        raise self.ledger(decision.scope).exhausted(decision.reserved_usd)

    def _finish(self, record: Record, to: Literal["charged", "released"], cost_usd: float, model: int | None) -> None:
        """Charge or release a call, at once or as soon as the engine can be reached."""
        decision = record.decision
        debit_usd = cost_usd if record.debit == "actual" else decision.expected_cost_usd
        with self._lock:
            if record.state in ("charged", to):
                raise AlreadySettled(decision.id, record.state)
            _, windows = self._records.get(decision.id, (record, ()))
            effect = _settling(record, to, cost_usd, debit_usd)
            step = PendingEvent(Settle(decision.id, to, fresh_id(), cost_usd, model), decision.scope, windows, effect)
            if (
                decision.id in self._records
                and decision.scope in self._views.of
                and self._may_act_locally(decision.scope)
            ):
                self._apply_locally(step)
                _settled(record, to, cost_usd, model)
                return
        self._finish_now(record, step)
        _settled(record, to, cost_usd, model)

    def _finish_now(self, record: Record, step: PendingEvent) -> None:
        """Have a call settled by the engine; what cannot be told now is told later, where this worker decided it."""
        decision_id = record.decision.id
        try:
            result = self._wire.ask(step)
        except StoreError:
            with self._lock:
                if decision_id not in self._records:
                    raise
                self._apply_locally(step)
            return
        if result == "unknown":
            kept = self._records.get(decision_id)
            if kept is None:
                raise UnknownDecision(decision_id)
            for again in self._replay_lost(*kept, step):  # the engine has lost its memory
                self._wire.ask(again)
        if result == "again":
            record.state = self._fetched(decision_id).state
            raise AlreadySettled(decision_id, record.state)

    def _at_hand(self, decision_id: str) -> Record | None:
        with self._lock:
            kept = self._records.get(decision_id)
            return None if kept is None else kept[0]

    def _keep(self, record: Record, windows: tuple[str, ...]) -> None:
        """Keep a record at hand; the oldest goes."""
        self._records[record.decision.id] = record, windows
        if len(self._records) > self._max_decisions:
            self._records.popitem(last=False)

    def _fetched(self, decision_id: str) -> Record:
        """Return a record that the engine keeps; one that another worker has just made may not have arrived yet."""
        found = self._wire.ask(PendingEvent(Find(decision_id), ""))
        if found is None and not self._near:
            time.sleep(2.0 * self._flush_s)
            found = self._wire.ask(PendingEvent(Find(decision_id), ""))
        if not isinstance(found, Found):
            raise UnknownDecision(decision_id)
        own = self._at_hand(found.id)
        record = record_of_text(found.record, self.name) if own is None else own
        record.state = cast("State", found.state)
        record.model = record.model if found.model is None else found.model
        record.cost_usd, record.reward = found.cost_usd, found.reward
        return record

    def _refresh_account(self, scope: str) -> None:
        """Read an account, and those that it is within."""
        while True:
            before = self._views.scopes(scope)
            self._wire.ask(PendingEvent(Find(""), before[-1]))
            if self._views.scopes(scope) == before:
                return

    def _adjust(self, scope: str, budget: Budget, parent: str | None) -> None:
        """Bring the running budget of a scope to the amount and horizon given now."""
        view = self._views.of[scope]
        check_same_shape(scope, view.budget, budget, view.parent, parent)
        logger.info("the budget of scope %r is %s from now on", scope, budget)
        self._change(scope, budget, parent)

    def _change(self, scope: str, budget: Budget, parent: str | None) -> None:
        text = text_of_terms(budget, parent)
        for level, (one, former) in enumerate(zip(budget.each, self._views.of[scope].budget.each, strict=True)):
            if one != former:
                window = self._views.of[scope].windows[level]
                self._wire.ask(PendingEvent(Amend(scope, text, window, one.amount_usd), scope))
                record = self._views.of[scope].arrivals[level]
                if record is not None and one.horizon != former.horizon:
                    record.expect(one.horizon, self.now())

    def _apply_locally(self, step: PendingEvent) -> None:
        """Let a step be seen on this worker's view at once, and have the engine told."""
        step.shown, step.done = True, False
        if step.effect is not None:
            self._views.count(step.windows, step.effect)
        self._wire.tell(step)

    def _renewals(self, scopes: set[str], active: set[str]) -> dict[str, Lease]:
        """Return the leases to renew, by scope."""
        leases: dict[str, Lease] = {}
        for scope in scopes if self._leases.share is not None and not self._wire.closed else ():
            if scope in self._views.of:
                left_usd, windows = self._views.left_usd(scope), self._views.chain(scope).windows
                lease = self._leases.renewal(scope, windows, left_usd, due=scope in active)
                if lease is not None:
                    leases[scope] = lease
        return leases

    def _repair_unknown(self, step: PendingEvent) -> None:
        """Put right what nobody waits for, where the engine does not know what it is about."""
        if not step.shown or step.result != "unknown" or step.again:
            return
        event = step.event
        kept = self._records.get(event.id) if isinstance(event, Settle) else None
        if kept is None:
            logger.warning("%s does not know what a %s is about: dropped", self.name, type(event).__name__)
            return
        self._wire.waiting.extend(self._replay_lost(*kept, step))

    def _replay_lost(self, record: Record, windows: tuple[str, ...], step: PendingEvent) -> list[PendingEvent]:
        """Return the steps that make a decision known which the engine has lost, and settle it."""
        decision, shown = record.decision, step.shown
        held = decision.reserved_usd, decision.expected_cost_usd
        lease = _lost_lease(decision.scope)
        known = Reserve(decision.id, windows, *held, record.debit == "paper", "", lease)
        return [
            PendingEvent(one, decision.scope, windows, effect, shown=shown, again=True, record=record)
            for one, effect in ((known, _effect(Ledger.hold, *held)), (step.event, step.effect))
        ]

    def _reopen_lost(self, lost: Sequence[str]) -> list[PendingEvent]:
        """Return the steps that open accounts again as they were last seen, where an engine has lost its memory.

        What was held back and leased there stays so until the time to live of a reservation has passed: the calls may
        still be billed.
        """
        steps = []
        for scope in lost:
            opening, held_usd = self._views.remembered(scope)
            windows = tuple([window.id for window in opening.windows])
            steps.append(PendingEvent(opening, scope, shown=True))
            if held_usd > 0.0:
                lease = Lease(_lost_lease(scope), windows, held_usd, self._reservation_ttl_s)
                steps.append(PendingEvent(lease, scope, shown=True))
            self._leases.drop(scope)
            logger.error("%s has lost the budget of scope %r: opened again as it was last seen", self.name, scope)
        return steps


def _effect(verb: Callable[..., None], *held: float) -> Effect:
    return lambda ledger: verb(ledger, *held)


def _settling(record: Record, to: str, cost_usd: float, debit_usd: float) -> Effect:
    """Return what settling a call does to a ledger."""
    held = record.decision.reserved_usd, record.decision.expected_cost_usd
    state = record.state
    if to == "released":
        return _effect(Ledger.release, *held) if state == "in flight" else Ledger.release_late
    if state == "in flight":
        return lambda ledger: ledger.settle(*held, cost_usd=cost_usd, debit_usd=debit_usd)
    return lambda ledger: ledger.settle_late(state, cost_usd=cost_usd, debit_usd=debit_usd)


def _settled(record: Record, to: State, cost_usd: float, model: int | None) -> None:
    record.state = to
    if to == "charged":
        record.cost_usd = cost_usd
        record.model = record.model if model is None else model


def _lost_lease(scope: str) -> str:
    return f"lost|{scope}"


def _amended(budget: Budget, amount_usd: float | None, horizon: int | None, every: str | None) -> Budget:
    """Return a budget with one of its amounts or horizons changed, checked as an account checks it."""
    account = open_account(budget, 0.0)
    account.amend(amount_usd=amount_usd, horizon=horizon, every=every)
    return account.budget
