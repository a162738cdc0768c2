"""A model of an engine in dictionaries: every counter is computed as a sum over all calls."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from wiserouter.budgets.run_caps import RunCap
from wiserouter.stores.engines.acknowledgements import KEPT_S, Acknowledge, acknowledged_s
from wiserouter.stores.engines.base import NOTHING, AccountState, CapState, Found, Reply, WindowState
from wiserouter.stores.engines.changes import Change
from wiserouter.stores.engines.events import (
    COUNTERS,
    Alias,
    Amend,
    EndConversation,
    Find,
    FindConversation,
    KeepConversation,
    Learn,
    Lease,
    Note,
    Open,
    Renew,
    Reserve,
    Restore,
    Score,
    Settle,
    Spend,
    WindowOpening,
)


@dataclass
class OpenCap:
    cap: RunCap
    window: str
    used_s: float
    calls: list[Call] = field(default_factory=list)

    def counters(self) -> dict[str, float]:
        rows = [call.counts() for call in self.calls]
        return {name: math.fsum([row.get(name, 0.0) for row in rows]) for name in COUNTERS}

    def state(self) -> CapState:
        return CapState(self.cap.amount_usd, self.cap.hard, self.counters())

    @property
    def is_idle(self) -> bool:
        return not any(call.state == "in flight" for call in self.calls)

    def is_over(self, now_s: float) -> bool:
        return self.is_idle and self.used_s + self.cap.ttl_s <= now_s

    def admits(self, asked: Reserve) -> bool:
        at = self.counters()
        left_usd = self.cap.amount_usd - at["spent_usd"] + 1e-12 * self.cap.amount_usd
        if self.cap.hard:
            return asked.held_usd <= left_usd - at["reserved_usd"]
        return asked.expected_usd <= left_usd - at["expected_usd"]


@dataclass
class Call:
    reserve: Reserve
    due_s: float
    forget_s: float = math.inf
    state: str = "in flight"
    model: int | None = None
    cost_usd: float | None = None
    scores: dict[str, str] = field(default_factory=dict)
    results: dict[tuple[str, str], Any] = field(default_factory=dict)
    caps: list[OpenCap] = field(default_factory=list)

    def counts(self) -> dict[str, float]:
        one = int(self.reserve.counts)
        if self.state == "in flight":
            held = {"reserved_usd": self.reserve.held_usd, "expected_usd": self.reserve.expected_usd}
            return {**held, "decided": one, "in_flight": 1, "continuing": 1 - one}
        if self.state == "charged":
            debited_usd = self.reserve.expected_usd if self.reserve.paper else self.cost_usd
            return {"spent_usd": self.cost_usd, "debited_usd": debited_usd, "decided": one, "charged": 1}
        if self.state == "presumed":
            debited_usd = self.reserve.expected_usd if self.reserve.paper else self.cost_usd
            cost = {"spent_usd": self.cost_usd, "presumed_usd": self.cost_usd, "debited_usd": debited_usd}
            return {**cost, "decided": one, "presumed": 1}
        return {"released": 1}


@dataclass
class Kept:
    window: WindowOpening
    amount_usd: float
    former: str | None = None
    skipped: int = 0
    closed_until_s: float = -math.inf


@dataclass
class Held:
    windows: tuple[str, ...]
    held_usd: float
    due_s: float
    presumed: bool = False

    def counts(self) -> dict[str, float]:
        names = ("spent_usd", "debited_usd", "presumed_usd") if self.presumed else ("leased_usd",)
        return dict.fromkeys(names, self.held_usd)


class ModelEngine:
    """An engine on dictionaries; the test sets `now_s`."""

    near = True

    def __init__(self, reservation_ttl_s=900.0, decision_ttl_s=7 * 86_400.0):
        self.now_s = 1_000.0
        self.lock = RLock()
        self.ttl_s, self.decision_ttl_s, self.max_conversations = reservation_ttl_s, decision_ttl_s, 100_000
        self.accounts: dict[str, AccountState] = {}
        self.restores: dict[str, Restore] = {}
        self.windows: dict[str, Kept] = {}
        self.calls: dict[str, Call] = {}
        self.forgotten: list[Call] = []
        self.spent: dict[str, Spend] = {}
        self.leases: dict[str, Held] = {}
        self.presumed_leases: list[Held] = []
        self.aliases: dict[str, str] = {}
        self.sums: dict[str, dict[str, float]] = defaultdict(dict)
        self.learnt: dict[tuple[str, str], int] = {}
        self.notes: dict[str, str] = {}
        self.answers: dict[str, str] = {}
        self.conversations: dict[str, tuple[KeepConversation, float]] = {}
        self.caps: dict[str, OpenCap] = {}
        self.workers: dict[str, float] = {}

    def exchange(self, events, reading=NOTHING, within_s=None):
        with self.lock:
            return self.exchanged(events, reading)

    def exchanged(self, events, reading):
        for call in self.calls.values():
            if call.state == "in flight" and call.due_s <= self.now_s:
                self.finish(call, "presumed", None, None)
        for name in [name for name, call in self.calls.items() if call.forget_s <= self.now_s]:
            self.forgotten.append(self.calls.pop(name))
        for name, held in list(self.leases.items()):
            if held.due_s <= self.now_s:
                self.end_lease(name, held)
        self.conversations = {key: kept for key, kept in self.conversations.items() if kept[1] > self.now_s}
        self.caps = {key: one for key, one in self.caps.items() if not one.is_over(self.now_s)}
        results = []
        for event in events:
            results.append(getattr(self, _method(event))(event))
            if isinstance(event, Acknowledge) and results[-1] < event.received_s:
                break
        return Reply(
            self.now_s,
            results,
            {scope: self.account(scope) for scope in self.asked(reading.scopes) if scope in self.accounts},
            {name: dict(self.sums[name]) for name in reading.sums},
            {name: self.notes[name] for name in reading.notes if name in self.notes},
            {key: self.caps[key].state() for key in reading.caps if key in self.caps},
        )

    def close(self):
        pass

    def asked(self, scopes):
        return sorted(self.accounts) if scopes is None else scopes

    def account(self, scope):
        account = self.accounts[scope]
        ids = account.windows
        states = [WindowState(i, self.windows[i].amount_usd, self.carried_usd(i), self.counters(i)) for i in ids]
        committing = [kept for kept, _ in self.conversations.values() if scope in kept.scopes]
        committed_usd = math.fsum([kept.committed_usd for kept in committing])
        return account._replace(windows=tuple(states), committed_usd=committed_usd)

    def counters(self, window):
        total = {name: self.windows[window].window.counters.get(name, 0.0) for name in COUNTERS}
        calls = [*self.calls.values(), *self.forgotten]
        rows = [call.counts() for call in calls if window in call.reserve.windows]
        leases = [*self.leases.values(), *self.presumed_leases]
        rows += [held.counts() for held in leases if window in held.windows]
        rows += [
            {"spent_usd": s.cost_usd, "debited_usd": s.cost_usd} for s in self.spent.values() if window in s.windows
        ]
        for row in rows:
            for name, value in row.items():
                total[name] += value
        return total

    def carried_usd(self, window):
        kept = self.windows[window]
        if kept.former is None:
            return kept.window.carried_usd
        return min(self.left_usd(kept.former) + kept.skipped * kept.amount_usd, kept.amount_usd)

    def left_usd(self, window):
        at = self.counters(window)
        gone = at["spent_usd"] + at["reserved_usd"] + at["leased_usd"]
        return self.windows[window].amount_usd + self.carried_usd(window) - gone

    def admits(self, windows, usd):
        if not set(windows) <= set(self.windows):
            return "unknown"
        if usd > 0.0 and self.is_closed(windows):
            return "closed"
        hard = [i for i in windows if self.windows[i].window.hard]
        fits = all(usd <= self.left_usd(i) + 1e-12 * self.windows[i].amount_usd for i in hard)
        return "ok" if fits else "refused"

    def acknowledge(self, event: Acknowledge):
        believed_s = event.received_s if self.now_s - event.received_s >= KEPT_S else 0.0
        known_s = self.workers.get(event.worker, believed_s)
        if known_s >= event.received_s:
            self.workers[event.worker] = acknowledged_s(known_s, self.now_s)
        return known_s

    def open(self, event: Open):
        there = self.accounts.get(event.scope)
        if there is not None and there.generation != event.generation:
            return there.generation
        for window in event.windows:
            self.windows.setdefault(window.id, Kept(window, window.amount_usd))
        ids = tuple([window.id for window in event.windows])
        self.accounts[event.scope] = AccountState(event.generation + 1, event.terms, ids, event.token)
        return event.generation + 1

    def is_replaced(self, there: AccountState | None, event: Restore) -> bool:
        """Return True if an account is in an older state, which is then forgotten."""
        is_former = there is not None and event.former and there.restored == event.former
        if not is_former or event.generation <= there.generation:
            return False
        for window in there.windows:
            del self.windows[window]
        self.leases.pop(event.lease, None)
        del self.accounts[event.scope]
        return True

    def restore(self, event: Restore):
        there, former = self.accounts.get(event.scope), self.restores.get(event.scope)
        if self.is_replaced(there, event):
            there = former = None
        if there is None:
            is_kept = all(window.id in self.windows for window in event.windows)
            self.open(Open(event.scope, event.generation - 1, event.terms, event.windows))
            self.accounts[event.scope] = self.accounts[event.scope]._replace(restored=event.token)
            if is_kept:
                return event.generation
        elif event.former and there.restored == event.former:
            self.accounts[event.scope], former = there._replace(restored=event.token), None
        elif there.generation != event.generation or former is None or former.as_of_s >= event.as_of_s:
            return there.generation
        known = set() if former is None else {window.id for window in former.windows}
        present = self.accounts[event.scope].windows
        for window in event.windows:  # the counters of calls are added to those of the latest view
            self.windows.setdefault(window.id, Kept(window, window.amount_usd)).window = window
            if window.hard and window.id not in known:
                self.windows[window.id].closed_until_s = self.now_s + event.closed_s
        ids = tuple([window.id for window in event.windows])
        latest = [seen if one in known else one for one, seen in zip(present, ids, strict=True)]
        self.accounts[event.scope] = self.accounts[event.scope]._replace(windows=tuple(latest))
        held_usd = self.leases[event.lease].held_usd if event.lease in self.leases else 0.0
        held_usd = max(0.0, held_usd + event.held_usd - (0.0 if former is None else former.held_usd))
        self.leases[event.lease] = Held(ids, held_usd, self.now_s + event.ttl_s)
        self.restores[event.scope] = event
        return event.generation

    def is_closed(self, windows):
        return any(self.windows[i].closed_until_s > self.now_s for i in windows)

    def amend(self, event: Amend):
        if event.scope not in self.accounts:
            return "unknown"
        self.accounts[event.scope] = self.accounts[event.scope]._replace(terms=event.terms)
        if event.window in self.windows:
            self.windows[event.window].amount_usd = event.amount_usd
        return "ok"

    def change(self, event: Change):
        if event.token in self.answers:
            return self.answers[event.token]
        there = self.accounts.get(event.scope)
        if there is None:
            return "unknown"
        if there.terms != event.former or event.window not in there.windows:
            return "other"
        kept = self.windows[event.window]
        was_hard, in_flight = kept.window.hard, self.counters(event.window)["in_flight"]
        if event.hard and not was_hard and in_flight:
            return "busy"
        left_usd = self.left_usd(event.window) + event.amount_usd - kept.amount_usd
        lowered = event.hard and (not was_hard or event.amount_usd < kept.amount_usd)
        if lowered and left_usd < -1e-12 * event.amount_usd:
            return "short"
        self.accounts[event.scope] = there._replace(terms=event.terms)
        kept.amount_usd, kept.window = event.amount_usd, kept.window._replace(hard=event.hard)
        if event.token:
            self.answers[event.token] = event.answer
        return "ok"

    def renew(self, event: Renew):
        there = self.accounts.get(event.scope)
        if there is not None and there.windows[event.level : event.level + 1] == (event.former,):
            created = event.window.id not in self.windows
            kept = self.windows.setdefault(event.window.id, Kept(event.window, event.window.amount_usd))
            kept.closed_until_s = self.windows[event.former].closed_until_s
            if self.windows[event.former].window.rollover and created and event.skipped >= 0:
                kept.former, kept.skipped = event.former, event.skipped
            ids = [*there.windows]
            ids[event.level] = event.window.id
            self.accounts[event.scope] = there._replace(windows=tuple(ids))
        return "ok"

    def reserve(self, event: Reserve):
        if event.id in self.calls and not self.is_stranded(self.calls[event.id]):
            return "ok"
        if event.admitted:
            left = tuple([window for window in event.windows if window in self.windows])
            event = event._replace(windows=left or event.windows)
        answer = self.admits(event.windows, event.held_usd)
        if answer == "unknown" or (answer != "ok" and event.lease is None):
            return answer
        caps = [self.caps.get(cap.key) or OpenCap(cap, f"cap|{cap.key}|{event.id}", self.now_s) for cap in event.caps]
        if not event.admitted and not all(one.admits(event) for one in caps):
            return "capped"
        if event.lease in self.leases:
            held = self.leases[event.lease]
            held.held_usd -= min(held.held_usd, event.held_usd)
        call = self.calls[event.id] = Call(event, self.now_s + self.ttl_s, caps=caps)
        for asked, one in zip(event.caps, caps, strict=True):
            one.cap, one.used_s = one.cap._replace(ttl_s=asked.ttl_s), self.now_s
            one.calls.append(call)
            self.caps[asked.key] = one
        idle = sorted([key for key, one in self.caps.items() if one.is_idle], key=lambda key: self.caps[key].used_s)
        for key in idle[: max(0, len(self.caps) - self.max_conversations)]:
            del self.caps[key]
        return "ok"

    def is_stranded(self, call):
        return call.state == "in flight" and not set(call.reserve.windows) <= set(self.windows)

    def settle(self, event: Settle):
        call = self.calls.get(event.id)
        if call is None or self.is_stranded(call):
            return "unknown"
        key = ("settle", event.token)
        if key not in call.results:
            ways = {("in flight", "presumed"), ("in flight", "released"), ("presumed", "released")}
            possible = (call.state, event.to) in ways or (event.to == "charged" != call.state)
            call.results[key] = call.state if possible else "again"
            if possible:
                self.finish(call, event.to, event.cost_usd, event.model)
        return call.results[key]

    def finish(self, call: Call, to: str, cost_usd: float | None, model: str | None):
        call.state, call.forget_s = to, self.now_s + self.decision_ttl_s
        worst = self.is_hard(call.reserve.windows) or any(one.cap.hard for one in call.caps)
        for one in call.caps:
            one.used_s = self.now_s
        presumed_usd = call.reserve.held_usd if worst else call.reserve.expected_usd
        call.cost_usd = {"charged": cost_usd, "presumed": presumed_usd, "released": None}[to]
        call.model = call.model if to != "charged" or model is None else model

    def is_hard(self, windows):
        return any(self.windows[i].window.hard for i in windows if i in self.windows)

    def end_lease(self, name: str, held: Held):
        if held.presumed:
            self.presumed_leases.append(self.leases.pop(name))
        elif held.held_usd and self.is_hard(held.windows):
            held.presumed, held.due_s = True, self.now_s + self.decision_ttl_s
        else:
            del self.leases[name]

    def score(self, event: Score):
        call = self.calls.get(event.id)
        if call is None:
            return "unknown"
        key = ("score", event.token)
        if key not in call.results:
            call.results[key] = "released" if call.state == "released" else dict(call.scores)
            if call.state != "released":
                call.scores[event.source] = event.text
        return call.results[key]

    def spend(self, event: Spend):
        if event.token in self.spent:
            return "ok"
        answer = self.admits(event.windows, event.cost_usd)
        if answer in ("refused", "closed") and (event.cost_usd <= 0.0 or event.billed):
            answer = "ok"
        if answer == "ok":
            self.spent[event.token] = event
        return answer

    def lease(self, event: Lease):
        ends = event.ttl_s <= 0.0 or not set(event.windows) <= set(self.windows)
        held = self.leases.pop(event.id, None)
        if ends:
            return 0.0
        runs = held is not None and held.windows == event.windows and not held.presumed
        held_usd = held.held_usd if runs else 0.0
        if event.held_usd > held_usd:  # the amount left without this lease, less the amount that it holds
            more_usd = min([self.left_usd(i) - held_usd for i in event.windows] + [event.held_usd - held_usd])
            held_usd += 0.0 if self.is_closed(event.windows) else max(0.0, more_usd)
        else:
            held_usd = event.held_usd
        self.leases[event.id] = Held(event.windows, held_usd, self.now_s + event.ttl_s)
        return held_usd

    def find(self, event: Find):
        name = event.id if event.id in self.calls else self.aliases.get(event.id)
        if name not in self.calls:
            return None
        call = self.calls[name]
        asked, scores = call.reserve, dict(call.scores)
        windows = (*asked.windows, *[one.window for one in call.caps])
        return Found(name, asked.record, call.state, call.model, call.cost_usd, scores, windows)

    def alias(self, event: Alias):
        self.aliases[event.alias] = event.id
        return "ok"

    def learn(self, event: Learn):
        if event.sequence > self.learnt.get((event.sums, event.worker), float("-inf")):
            self.learnt[event.sums, event.worker] = event.sequence
            for cell, delta in event.deltas.items():
                self.sums[event.sums][cell] = self.sums[event.sums].get(cell, 0.0) + delta
        return "ok"

    def note(self, event: Note):
        if event.former is not None and event.former != self.notes.get(event.name, ""):
            return "other"
        self.notes[event.name] = event.text
        return "ok"

    def find_conversation(self, event: FindConversation):
        return self.conversations[event.key][0].text if event.key in self.conversations else None

    def keep_conversation(self, event: KeepConversation):
        kept = self.conversations[event.key][0] if event.key in self.conversations else None
        if kept is not None and kept.token == event.token:
            return "ok"
        if (0 if kept is None else kept.version + 1) != event.version:
            return "other"
        scopes = [scope for scope in event.scopes if scope in self.accounts]
        self.conversations.pop(event.key, None)
        self.conversations[event.key] = event._replace(scopes=scopes), self.now_s + event.ttl_s
        while len(self.conversations) > self.max_conversations:
            del self.conversations[next(iter(self.conversations))]
        return "ok"

    def end_conversation(self, event: EndConversation):
        self.conversations.pop(event.key, None)
        cap = self.caps.get(event.key)
        if cap is not None and cap.is_idle:
            del self.caps[event.key]
        return "ok"


def _method(event) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", type(event).__name__).lower()
