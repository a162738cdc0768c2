"""A store for many workers: one budget and one set of decisions, behind an engine that all of them reach.

How a worker goes about it:

* Where every exchange with the engine matters, as under a hard limit, each step waits for one. Those who wait together
  go together: whoever is first takes the events of all others along.
* Where it need not wait, as under an expected limit with a remote engine, or within a lease, a step is done on the
  worker's own view at once, and told to the engine some hundredths of a second later.
* A view is as old as the last reply, `refresh_s` at most while the engine answers.

Events are applied once however often they are sent, so that after any failure they are simply sent again.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Event as Signal
from threading import RLock, Thread
from typing import Literal, cast

from wiserouter.accounts import Account, check_same_shape, open_account
from wiserouter.budget import Budget, Ledger
from wiserouter.errors import (
    AlreadySettled,
    InvalidInput,
    NotStarted,
    StoreError,
    StoreUnavailable,
    UnknownDecision,
)
from wiserouter.stores.base import Health, Peer, Record, State
from wiserouter.stores.engine import (
    Alias,
    Amend,
    Engine,
    Event,
    Find,
    Found,
    Lease,
    Open,
    Reading,
    Reply,
    Reserve,
    Score,
    Settle,
    Spend,
)
from wiserouter.stores.texts import record_of_text, text_of_record, text_of_terms
from wiserouter.stores.views import Effect, Views, first_windows
from wiserouter.types import check_amount

logger = logging.getLogger("wiserouter")

OnStoreError = Literal["closed", "local"]

AT_ONCE = 500
"""The most events that go in one exchange."""

RETRY_S = 1.0
"""After an exchange has failed, nobody waits for another one so soon."""

NOTED_S = 60.0
"""How often the records of arrivals are kept, for workers that start later."""

IDLE_S = 600.0
"""An account that nobody asked for so long is not read again until somebody does."""


@dataclass(slots=True, eq=False)
class _Step:
    """An event on its way to the engine.

    `effect` is what it does to a ledger of its `windows`. A step that is `shown` has had it, and is waited for by
    nobody; one that is not is waited for.
    """

    event: Event
    scope: str
    windows: tuple[str, ...] = ()
    effect: Effect | None = None
    shown: bool = False
    done: bool = False
    result: object = None
    error: StoreError | None = None
    again: bool = False


@dataclass(slots=True)
class _Lease:
    """What a worker may hold back by itself, and until when by its own clock."""

    held_usd: float = 0.0
    until_s: float = 0.0


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
        self.name, self.worker = name, os.urandom(8).hex()
        self._engine, self._clock = engine, clock
        self._refresh_s, self._flush_s, self._max_staleness_s = refresh_s, flush_s, max_staleness_s
        self._leases_always, self._local = lease_share is not None, on_store_error == "local"
        self._share = lease_share if lease_share is not None else local_share if self._local else None
        self._lease_ttl_s, self._reservation_ttl_s = lease_ttl_s, reservation_ttl_s
        self._max_decisions = max_decisions
        self._offset_s = time.time() - clock()
        self._views = Views(name)
        self._steps: deque[_Step] = deque()
        self._leases: dict[str, _Lease] = {}
        self._records: OrderedDict[str, tuple[Record, tuple[str, ...]]] = OrderedDict()
        self._peers: weakref.WeakSet[Peer] = weakref.WeakSet()
        self._refreshed_s = self._noted_s = self._replied_s = float("-inf")
        self._failed_s: float | None = None
        self._failures = self._exchanges = 0
        self._lock, self._wire, self._wake = RLock(), RLock(), Signal()
        self._closed = False
        self._thread: Thread | None = None
        self._process = 0

    def now(self) -> float:
        """Return the engine's time, as far as it is known."""
        return self._clock() + self._offset_s

    def waits(self, scope: str) -> bool:
        """Return whether a step of `scope` waits for the engine: then take it off the event loop."""
        return self._engine.near or scope not in self._views.of or not self._ahead(scope)

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
        self._look(scope)
        while True:
            with self._lock:
                view = self._views.of.get(scope)
                if view is not None and not restart:
                    break
                generation = 0 if view is None else view.generation
                windows = first_windows(scope, generation + 1, budget, self.now())
            opened = self._ask(_Step(Open(scope, generation, text_of_terms(budget, parent), windows), scope))
            if opened == generation + 1:
                return
            restart = False  # somebody else was faster
        if text_of_terms(view.budget, view.parent) != text_of_terms(budget, parent):
            self._adjust(scope, budget, parent)

    def amend(self, scope: str, *, amount_usd: float | None, horizon: int | None, every: str | None = None) -> None:
        """Change the running budget of `scope`: the one that renews `every` so often, where there are several."""
        self._look(scope)
        with self._lock:
            view = self._views.of.get(scope)
            if view is None:
                raise NotStarted(scope)
            budget = _amended(view.budget, amount_usd, horizon, every)
        self._change(scope, budget, view.parent)

    def ledger(self, scope: str) -> Account:
        """Return the account of `scope`, as of the last reply and what this worker has done since."""
        if scope not in self._views.of:
            self._look(scope)
        with self._lock:
            now_s = self.now()
            self._check_reachable(scope, now_s)
            account, begun = self._views.account(scope, now_s)
            if begun:
                self._steps.extend([_Step(event, scope, shown=True) for event in begun])
                self._leases.pop(scope, None)  # it was of the windows that have ended
            if self._failed_s is not None and self._share is not None:
                account.each[0].lease_usd = self._lease_left_usd(scope)
            return account

    def reserve(self, record: Record) -> None:
        """Hold back the cost of a decision, in all budgets of its scope or in none, and keep its record."""
        scope = record.decision.scope
        self.ledger(scope)
        held_usd = record.decision.reserved_usd
        with self._lock:
            if self._ahead(scope) and (not self._leases_always or held_usd <= self._lease_left_usd(scope)):
                self._hold(record, leased=self._leases_always)
                return
        try:
            self._reserve_now(record)
        except StoreUnavailable:
            with self._lock:
                if self._share is None or held_usd > self._lease_left_usd(scope):
                    raise
                self._hold(record, leased=True)

    def find(self, decision_id: str) -> Record:
        """Return the record of a decision, by its id or an alias; raises `UnknownDecision` if there is none."""
        record = self._at_hand(decision_id)
        return self._fetched(decision_id) if record is None else record

    def alias(self, alias: str, decision_id: str) -> None:
        """Let a decision be found by another name as well."""
        step = _Step(Alias(alias, decision_id), "", shown=not self._engine.near)
        with self._lock:
            self._start()
        self._tell(step)

    def settle(self, decision_id: str, cost_usd: float, model: int | None = None) -> Record:
        """Charge the true cost of a call, once, and note the model that answered where it is another one."""
        record = self.find(decision_id)
        if record.state == "charged":
            raise AlreadySettled(decision_id, record.state)
        self._finish(record, "charged", cost_usd, model)
        return record

    def release(self, decision_id: str) -> Record:
        """Give back the reservation of a call that failed."""
        record = self.find(decision_id)
        if record.state in ("charged", "released"):
            raise AlreadySettled(decision_id, record.state)
        self._finish(record, "released", 0.0, None)
        return record

    def reward(self, decision_id: str, reward: float) -> tuple[Record, float | None]:
        """Keep the reward of a decision, and return its record and the reward that it replaces."""
        record = self.find(decision_id)
        if record.state == "released":
            raise AlreadySettled(decision_id, record.state)
        result = self._ask(_Step(Score(record.decision.id, reward, os.urandom(8).hex()), ""))
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
            windows = self._views.windows(scope)
            event = Spend(os.urandom(8).hex(), windows, cost_usd)
            effect = partial(Ledger.spend, cost_usd=cost_usd, debit_usd=cost_usd)
            step = _Step(event, scope, windows, effect)
            if self._ahead(scope) and not account.hard:
                self._show(step)
                return
        if self._ask(step) != "ok":
            raise self.ledger(scope).exhausted(cost_usd)

    def join(self, peer: Peer) -> None:
        """Let somebody exchange sums with the peers of other workers; kept as long as somebody else keeps it."""
        with self._lock:
            self._peers.add(peer)
            self._start()

    def refresh(self) -> None:
        """Tell the engine all that it has not heard of, and read how things stand; raises `StoreUnavailable`."""
        with self._wire:
            self._exchange(refresh=True)
            while self._steps:
                self._exchange()

    def health(self) -> Health:
        """Return whether the engine answers, how old the view is, and what waits to be sent."""
        with self._lock:
            return Health(
                reachable=self._failed_s is None,
                staleness_s=self._clock() - self._replied_s,
                waiting=len(self._steps),
                failures=self._failures,
                exchanges=self._exchanges,
            )

    def close(self) -> None:
        """Tell the engine what it has not heard of, give leases back, and let go of it."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for scope in self._leases:
                self._steps.append(_Step(Lease(self._lease_id(scope), (), 0.0, 0.0), scope, shown=True))
        self._wake.set()
        try:
            if self._process == os.getpid():
                self.refresh()
        except StoreError as error:
            logger.warning("%d events could not be told to the store: %s", len(self._steps), error)
        finally:
            self._engine.close()

    def _ahead(self, scope: str) -> bool:
        """Return whether the steps of a scope need not wait for the engine."""
        if self._engine.near:
            return self._leases_always
        return self._leases_always or not any(self._views.of[one].budget.hard for one in self._views.scopes(scope))

    def _lease_id(self, scope: str) -> str:
        return f"{self.worker}|{scope}"

    def _lease_left_usd(self, scope: str) -> float:
        lease = self._leases.get(scope)
        return 0.0 if lease is None or self._clock() >= lease.until_s else lease.held_usd

    def _check_reachable(self, scope: str, now_s: float) -> None:
        """Raise `StoreUnavailable` where nothing may be decided without the engine."""
        if self._failed_s is None or self._lease_left_usd(scope) > 0.0:
            return
        view = self._views.of.get(scope)
        fresh = view is not None and now_s - view.as_of_s <= self._max_staleness_s
        if self._share is None and fresh and self._ahead(scope):
            return
        raise self._unavailable("on_store_error is 'closed'" if self._share is None else "what was leased is used up")

    def _unavailable(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(f"{self.name} cannot be reached, and {why}: try again later", store=self.name)

    def _hold(self, record: Record, *, leased: bool) -> None:
        """Reserve on this worker's view, and have the engine told."""
        decision = record.decision
        windows = self._views.windows(decision.scope)
        lease = self._lease_id(decision.scope) if leased else None
        held = decision.reserved_usd, decision.expected_cost_usd
        event = Reserve(decision.id, windows, *held, record.debit == "paper", text_of_record(record), lease)
        if leased:
            self._leases.setdefault(decision.scope, _Lease()).held_usd -= decision.reserved_usd
        self._keep(record, windows)
        self._show(_Step(event, decision.scope, windows, _effect(Ledger.hold, *held)))

    def _reserve_now(self, record: Record) -> None:
        """Reserve at the engine; once more on fresh windows where those that were known are gone."""
        decision = record.decision
        held = decision.reserved_usd, decision.expected_cost_usd
        for _ in range(2):
            windows = self._views.windows(decision.scope)
            event = Reserve(decision.id, windows, *held, record.debit == "paper", text_of_record(record))
            step = _Step(event, decision.scope, windows, _effect(Ledger.hold, *held))
            result = self._ask(step)
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
        effect = _settling(record, to, cost_usd, debit_usd)
        with self._lock:
            _, windows = self._records.get(decision.id, (record, ()))
            step = _Step(Settle(decision.id, to, os.urandom(8).hex(), cost_usd, model), decision.scope, windows, effect)
            self._start()
            ahead = decision.id in self._records and decision.scope in self._views.of and self._ahead(decision.scope)
            if ahead:
                self._show(step)
        if not ahead:
            self._finish_now(record, step)
        record.state = to
        if to == "charged":
            record.cost_usd = cost_usd
            record.model = record.model if model is None else model

    def _finish_now(self, record: Record, step: _Step) -> None:
        """Have a call settled by the engine; what cannot be told now is told later, where this worker decided it."""
        decision_id = record.decision.id
        try:
            result = self._ask(step)
        except StoreError:
            with self._lock:
                if decision_id not in self._records:
                    raise
                self._show(step)
            return
        if result == "unknown":
            raise UnknownDecision(decision_id)
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
        found = self._ask(_Step(Find(decision_id), ""))
        if found is None and not self._engine.near:
            time.sleep(2.0 * self._flush_s)
            found = self._ask(_Step(Find(decision_id), ""))
        if not isinstance(found, Found):
            raise UnknownDecision(decision_id)
        own = self._at_hand(found.id)
        record = record_of_text(found.record, self.name) if own is None else own
        record.state = cast("State", found.state)
        record.model = record.model if found.model is None else found.model
        record.cost_usd, record.reward = found.cost_usd, found.reward
        return record

    def _look(self, scope: str) -> None:
        """Read an account, and those that it is within."""
        while True:
            before = self._views.scopes(scope)
            self._ask(_Step(Find(""), before[-1]))
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
                self._ask(_Step(Amend(scope, text, window, one.amount_usd), scope))
                record = self._views.of[scope].arrivals[level]
                if record is not None and one.horizon != former.horizon:
                    record.expect(one.horizon, self.now())

    def _show(self, step: _Step) -> None:
        """Let a step be seen on this worker's view at once, and have the engine told."""
        step.shown = True
        if step.effect is not None:
            self._views.count(step.windows, step.effect)
        self._steps.append(step)

    def _tell(self, step: _Step) -> None:
        """Send a step, and wait for it where it is not shown."""
        if step.shown:
            with self._lock:
                self._steps.append(step)
        else:
            self._ask(step)

    def _ask(self, step: _Step) -> object:
        """Send a step and return its result; whoever gets to the wire first takes along what the others ask."""
        with self._lock:
            self._start()
            if self._failed_s is not None and self._clock() - self._failed_s < RETRY_S:
                raise self._unavailable("it was tried a moment ago")
            self._steps.append(step)
        while not step.done:
            with self._wire, suppress(StoreError):  # a failure is told to the step
                if not step.done:
                    self._exchange()
        if step.error is not None:
            raise step.error
        return step.result

    def _exchange(self, *, refresh: bool = False) -> None:
        """Send what waits, and read how the accounts stand."""
        with self._lock:
            steps = [self._steps[at] for at in range(min(AT_ONCE, len(self._steps)))]
            started_s = self._clock()
            due = refresh or started_s - self._refreshed_s >= self._refresh_s
            scopes = self._scopes_to_read(steps, due=due)
            extras, names, sums = self._extras(due=due), self._notes_to_read(scopes), self._sums_to_read(due=due)
            leases = self._to_lease(steps, due=due)
        events = [step.event for step in steps] + [*leases.values()] + extras
        try:
            reply = self._engine.exchange(events, Reading(scopes, sums, names))
        except StoreError as error:
            self._fail(len(steps), error)
            raise
        with self._lock:
            self._succeed(started_s, reply)
            lost = self._lost(scopes, reply)
            for _ in steps:
                self._steps.popleft()
            if lost:
                self._restore(lost, steps)
                return
            self._take(steps, list(leases), reply, started_s)
            self._refreshed_s = started_s if due else self._refreshed_s
            peers = list(self._peers) if due else []
        for peer in peers:
            peer.incoming(reply)

    def _take(self, steps: Sequence[_Step], leased: Sequence[str], reply: Reply, asked_s: float) -> None:
        """Take over results, accounts and leases."""
        for step, result in zip(steps, reply.results, strict=False):
            self._conclude(step, result)
        self._take_accounts(reply)
        for scope, granted_usd in zip(leased, reply.results[len(steps) :], strict=False):
            self._take_lease(scope, granted_usd, asked_s)

    def _scopes_to_read(self, steps: Sequence[_Step], *, due: bool) -> list[str]:
        now_s = self.now()
        wanted = {step.scope for step in steps if step.scope}
        if due:
            wanted |= {scope for scope, view in self._views.of.items() if now_s - view.used_s < IDLE_S}
        return sorted({one for scope in wanted for one in self._views.scopes(scope)})

    def _notes_to_read(self, scopes: Iterable[str]) -> list[str]:
        return [name for scope in scopes if scope not in self._views.of for name in self._views.note_names(scope, 4)]

    def _sums_to_read(self, *, due: bool) -> list[str]:
        now_s = self.now()
        return [name for peer in self._peers for name in peer.wanted(now_s)] if due else []

    def _extras(self, *, due: bool) -> list[Event]:
        """Return what goes along now and then: sums of peers, and records of arrivals."""
        if not due:
            return []
        now_s = self.now()
        extras: list[Event] = [learn for peer in self._peers for learn in peer.outgoing(now_s)]
        if self._clock() - self._noted_s >= NOTED_S:
            extras += self._views.notes()
            self._noted_s = self._clock()
        return extras

    def _to_lease(self, steps: Sequence[_Step], *, due: bool) -> dict[str, Lease]:
        """Return the leases to renew, by scope: all now and then, and those that run low.

        What is to be given back cannot be used from now on.
        """
        if self._share is None or self._closed:
            return {}
        now_s = self.now()
        renewed = {scope for scope, view in self._views.of.items() if due and now_s - view.used_s < IDLE_S}
        leases = {}
        for scope in renewed | {step.scope for step in steps if step.scope in self._views.of}:
            account, _ = self._views.account(scope, now_s)
            held_usd = self._lease_left_usd(scope)
            left_usd = min([ledger.left_usd for ledger in account.each])
            target_usd = self._share * max(left_usd + held_usd, 0.0)
            if scope in renewed or held_usd < 0.5 * target_usd:
                ttl_s = self._lease_ttl_s + self._reservation_ttl_s
                leases[scope] = Lease(self._lease_id(scope), self._views.windows(scope), target_usd, ttl_s)
                if held_usd > target_usd:
                    self._leases[scope].held_usd = target_usd
        return leases

    def _take_lease(self, scope: str, granted: object, asked_s: float) -> None:
        """Take over what the engine grants, less what was held on it since."""
        mine = self._lease_id(scope)
        since = [step.event for step in self._steps if isinstance(step.event, Reserve) and step.event.lease == mine]
        held_usd = cast("float", granted) - sum([event.held_usd for event in since])
        self._leases[scope] = _Lease(max(held_usd, 0.0), asked_s + self._lease_ttl_s)

    def _take_accounts(self, reply: Reply) -> None:
        pending = [
            (window, step.effect)
            for step in self._steps
            if step.shown and step.effect is not None
            for window in step.windows
        ]
        for scope, state in reply.accounts.items():
            self._views.take(scope, state, reply.now_s, reply.notes, pending)

    def _conclude(self, step: _Step, result: object) -> None:
        """Hand a result to who waits for it; what nobody waits for is put right where the engine has forgotten it."""
        step.result, step.done = result, True
        if not step.shown or result != "unknown" or step.again:
            return
        event = step.event
        kept = self._records.get(event.id) if isinstance(event, Settle) else None
        if kept is not None:
            self._steps.extend(self._told_again(kept[0], step))
        else:
            logger.warning(
                "%s does not know what an event is about; it is dropped: %s", self.name, type(event).__name__
            )

    def _told_again(self, record: Record, step: _Step) -> list[_Step]:
        """Return the steps that make a decision known, which the engine has lost, and settle it."""
        decision, windows = record.decision, step.windows
        held = decision.reserved_usd, decision.expected_cost_usd
        text = text_of_record(record)
        event = Reserve(decision.id, windows, *held, record.debit == "paper", text, _lost_lease(decision.scope))
        return [
            _Step(event, decision.scope, windows, _effect(Ledger.hold, *held), shown=True, again=True),
            _Step(step.event, decision.scope, windows, step.effect, shown=True, again=True),
        ]

    def _lost(self, scopes: Iterable[str], reply: Reply) -> list[str]:
        """Return the accounts that were there and are there no more: an engine that has lost its memory."""
        return [scope for scope in scopes if scope in self._views.of and scope not in reply.accounts]

    def _restore(self, lost: Sequence[str], steps: Sequence[_Step]) -> None:
        """Have accounts opened again as they were last seen, before what has just been sent is sent once more.

        What was held back and leased there stays so until the time to live of a reservation has passed: the calls may
        still be billed.
        """
        first: list[_Step] = []
        for scope in lost:
            opening, held_usd = self._views.remembered(scope)
            windows = tuple([window.id for window in opening.windows])
            first.append(_Step(opening, scope, shown=True))
            if held_usd > 0.0:
                lease = Lease(_lost_lease(scope), windows, held_usd, self._reservation_ttl_s)
                first.append(_Step(lease, scope, shown=True))
            self._leases.pop(scope, None)
            logger.error("%s has lost the budget of scope %r: opened again as it was last seen", self.name, scope)
        self._steps.extendleft(reversed([*first, *steps]))

    def _succeed(self, started_s: float, reply: Reply) -> None:
        ended_s = self._clock()
        self._offset_s = reply.now_s - 0.5 * (started_s + ended_s)
        self._replied_s = ended_s
        self._exchanges += 1
        if self._failed_s is not None:
            logger.warning("%s answers again; %d events were waiting", self.name, len(self._steps))
            self._failed_s = None

    def _fail(self, n_sent: int, error: StoreError) -> None:
        """Note a failure; who waits is told, all else is sent again later."""
        with self._lock:
            if self._failed_s is None:
                doing = "deciding within the leased share" if self._local else "deciding nothing"
                logger.error("%s; %s until it answers again", error, doing)
            self._failed_s = self._clock()
            self._failures += 1
            waiting = [step for step in self._steps if not step.shown]
            perhaps = [self._steps[at].event for at in range(n_sent) if not self._steps[at].shown]
            self._steps = deque([step for step in self._steps if step.shown])
            for event in perhaps:
                if isinstance(event, Reserve):  # it may have arrived all the same
                    undo = Settle(event.id, "released", os.urandom(8).hex())
                    self._steps.append(_Step(undo, "", shown=True, again=True))
            for step in waiting:
                step.error, step.done = error, True

    def _start(self) -> None:
        """Start the thread that tells the engine what nobody waits for; once per process."""
        if self._process == os.getpid() or self._closed:
            return
        self._process = os.getpid()
        store = weakref.ref(self)
        self._thread = Thread(target=_run, args=(store, self._wake), name="wiserouter-store", daemon=True)
        self._thread.start()
        atexit.register(_close, store)

    def _beat(self) -> float:
        """Send what waits where it is due, and return how long to sleep."""
        with self._lock:
            down = self._failed_s is not None
            due = bool(self._steps) or self._clock() - self._refreshed_s >= self._refresh_s
            waiting = bool(self._views.of) or bool(self._peers) or bool(self._steps)
        if due and waiting:
            try:
                with self._wire:
                    self._exchange()
            except StoreError:  # noted, and logged once
                return RETRY_S
        return RETRY_S if down else min(self._flush_s, self._refresh_s)


def _run(store: weakref.ref[SharedStore], wake: Signal) -> None:
    """Tell the engine what waits, until nobody keeps the store any more."""
    sleep_s = 0.0
    while not wake.wait(sleep_s):
        one = store()
        if one is None:
            return
        sleep_s = one._beat()
        del one


def _close(store: weakref.ref[SharedStore]) -> None:
    one = store()
    if one is not None:
        one.close()


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


def _lost_lease(scope: str) -> str:
    return f"lost|{scope}"


def _amended(budget: Budget, amount_usd: float | None, horizon: int | None, every: str | None) -> Budget:
    """Return a budget with one of its amounts or horizons changed, checked as an account checks it."""
    account = open_account(budget, 0.0)
    account.amend(amount_usd=amount_usd, horizon=horizon, every=every)
    return account.budget
