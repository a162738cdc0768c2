"""Runs in generated orders: each store agrees with a plain account of single calls, and no hard cap is exceeded."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.store_worker import record
from wiserouter import Budget, MemoryStore
from wiserouter.budgets.run_caps import RunCap
from wiserouter.conversations.conversation import Conversation
from wiserouter.errors import AlreadySettled, BudgetExhausted, RunBudgetExhausted
from wiserouter.stores.engines.sqlite import SQLiteEngine
from wiserouter.stores.shared import SharedStore
from wiserouter.testing import FakeClock

TTL_S, CAP_TTL_S, KEPT_S = 60.0, 120.0, 90.0
TEAM = {"hard": Budget(4.0, 100, limit="hard"), "expected": Budget(4.0, 100)}
AGENT, CHEAP = RunCap("agent", 1.0, True, CAP_TTL_S), RunCap("cheap", 0.5, False, CAP_TTL_S)
PART = RunCap("part", 0.5, True, CAP_TTL_S)
CAPS = {"agent": (AGENT,), "cheap": (CHEAP,), "part": (PART, AGENT)}  # one is a part of the run "agent"
RUNS = tuple(CAPS)


class FarEngine(SQLiteEngine):
    near = False  # like a server on a network: under an expected limit, steps are applied to the replica first


@dataclass
class Call:
    held_usd: float
    expected_usd: float
    due_s: float
    counts: bool
    caps: list[CapAccount]
    state: str = "in flight"
    cost_usd: float = 0.0
    is_unowed: bool = False  # said to cost nothing, and then billed: no budget can bear that in advance

    @property
    def gone_usd(self) -> float:
        return self.held_usd if self.state == "in flight" else self.cost_usd


@dataclass
class CapAccount:
    cap: RunCap
    used_s: float
    calls: list[Call] = field(default_factory=list)

    def gone_usd(self, hard: bool) -> float:
        held = [call.held_usd if hard else call.expected_usd for call in self.calls if call.state == "in flight"]
        return sum(held) + sum(call.cost_usd for call in self.calls)

    def admits(self, call: Call) -> bool:
        needed_usd = call.held_usd if self.cap.hard else call.expected_usd
        return needed_usd <= self.cap.amount_usd - self.gone_usd(self.cap.hard)

    def is_over(self, now_s: float) -> bool:
        return now_s >= self.used_s + CAP_TTL_S and all(call.state != "in flight" for call in self.calls)


@dataclass
class Ledger:
    """An account that keeps every call and every open run, and computes each figure as a sum over them."""

    hard: bool
    calls: list[Call] = field(default_factory=list)
    caps: dict[str, CapAccount] = field(default_factory=dict)
    kept: dict[str, tuple[float, float]] = field(default_factory=dict)  # the rest of a run, and the end of its time

    def visit(self, now_s: float) -> None:
        for call in self.calls:
            if call.state == "in flight" and call.due_s <= now_s:
                self.settle(call, "presumed", 0.0, now_s)
        self.caps = {key: one for key, one in self.caps.items() if not one.is_over(now_s)}
        self.kept = {key: one for key, one in self.kept.items() if one[1] > now_s}

    def reserve(self, call: Call, caps: tuple[RunCap, ...], now_s: float) -> str:
        if self.hard and call.held_usd > 4.0 - self.gone_usd:
            return "refused"
        call.caps = [self.caps.get(cap.key) or CapAccount(cap, now_s) for cap in caps]
        if not all(one.admits(call) for one in call.caps):
            return "capped"
        for one in call.caps:
            one.used_s = now_s
            one.calls.append(call)
            self.caps[one.cap.key] = one
        self.calls.append(call)
        return "ok"

    def settle(self, call: Call, to: str, cost_usd: float, now_s: float) -> bool:
        final = {"charged": ("charged",), "released": ("charged", "released")}
        if call.state in final.get(to, ("charged", "released", "presumed")):
            return False
        hard = self.hard or any(one.cap.hard for one in call.caps)
        presumed_usd = call.held_usd if hard else call.expected_usd
        call.is_unowed = call.state == "released"
        call.state, call.cost_usd = to, {"charged": cost_usd, "released": 0.0, "presumed": presumed_usd}[to]
        for one in call.caps:
            one.used_s = now_s
        return True

    def end(self, key: str) -> None:
        self.kept.pop(key, None)
        if key in self.caps and all(call.state != "in flight" for call in self.caps[key].calls):
            del self.caps[key]

    @property
    def gone_usd(self) -> float:
        return sum(call.gone_usd for call in self.calls)

    def figures(self) -> dict[str, float]:
        flying = [call for call in self.calls if call.state == "in flight"]
        count = {state: [call for call in self.calls if call.state == state] for state in ("charged", "released")}
        presumed = [call for call in self.calls if call.state == "presumed"]
        return {
            "spent_usd": sum(call.cost_usd for call in self.calls),
            "presumed_usd": sum(call.cost_usd for call in presumed),
            "reserved_usd": sum(call.held_usd for call in flying),
            "expected_usd": sum(call.expected_usd for call in flying),
            "decided": sum(call.counts for call in self.calls if call.state != "released"),
            "in_flight": len(flying),
            "continuing": sum(not call.counts for call in flying),
            "charged": len(count["charged"]),
            "released": len(count["released"]),
            "presumed": len(presumed),
            "committed_usd": sum(rest_usd for rest_usd, _ in self.kept.values()),
        }


class Workers:
    """The stores of two workers, the same one twice in memory; a crash replaces a worker by one that knows nothing."""

    def __init__(self, kind: str, folder: str, clock: FakeClock) -> None:
        self.kind, self.path, self.clock, self.opened = kind, Path(folder) / "b.db", clock, []
        self.memory = MemoryStore(clock, reservation_ttl_s=TTL_S)
        self.two = [self.open(), self.open()]

    def open(self):
        if self.kind == "memory":
            return self.memory
        engine = (SQLiteEngine if self.kind == "near" else FarEngine)(self.path, self.clock, reservation_ttl_s=TTL_S)
        share = 0.25 if self.kind == "leased" else None
        self.opened.append(SharedStore(engine, clock=self.clock, reservation_ttl_s=TTL_S, lease_share=share))
        self.opened[-1].refresh()  # from now on it knows the time of the engine
        return self.opened[-1]

    def crash(self, at: int) -> None:
        self.two[at] = self.open()

    def close(self) -> None:
        for store in self.opened:
            store.close()


EIGHTHS = st.integers(0, 8).map(lambda n: n / 8)  # sums of them are exact
WORKER, WHICH = st.integers(0, 1), st.integers(0, 7)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.sampled_from(RUNS), EIGHTHS, EIGHTHS, st.booleans(), WORKER),
        st.tuples(st.just("call"), st.sampled_from(RUNS), EIGHTHS, EIGHTHS, st.booleans(), WORKER),
        st.tuples(st.just("charged"), WHICH, EIGHTHS, WORKER),
        st.tuples(st.sampled_from(["released", "presumed"]), WHICH, st.just(0.0), WORKER),
        st.tuples(st.just("keep"), st.sampled_from(RUNS), EIGHTHS, WORKER),
        st.tuples(st.just("end"), st.sampled_from(RUNS), WORKER),
        st.tuples(st.just("crash"), WORKER),
        st.tuples(st.just("advance"), st.sampled_from([30.0, TTL_S, KEPT_S, CAP_TTL_S])),
    ),
    max_size=30,
)


@pytest.mark.parametrize("limit", TEAM)
@settings(max_examples=25, deadline=None)
@given(steps=STEPS)
def test_runs_in_memory_agree_with_a_plain_ledger(limit, steps):
    follow("memory", limit, steps)


@pytest.mark.slow
@pytest.mark.parametrize("limit", TEAM)
@pytest.mark.parametrize("kind", ["near", "far", "leased"])
@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_runs_of_two_workers_agree_with_a_plain_ledger(kind, limit, steps):
    follow(kind, limit, steps)


def follow(kind: str, limit: str, steps) -> None:
    """Apply the steps to the stores and to the plain ledger, and compare after each."""
    clock, ledger, names = FakeClock(36_000.0), Ledger(limit == "hard"), []
    with tempfile.TemporaryDirectory() as folder:
        workers = Workers(kind, folder, clock)
        workers.two[0].open("organisation", Budget(100.0, 1_000))
        workers.two[0].open("team", TEAM[limit], parent="organisation")
        try:
            for step in steps:
                apply(step, workers, ledger, names, clock)
                compare(workers, ledger, clock())
        finally:
            workers.close()


def apply(step, workers: Workers, ledger: Ledger, names: list[str], clock: FakeClock) -> None:
    kind, *given, at = step
    if kind == "advance":
        clock.advance(at)
        ledger.visit(clock())
        return
    store = workers.two[at]
    if kind == "crash":
        workers.crash(at)
    elif kind == "call":
        reserve(store, ledger, names, *given, exact=workers.kind != "leased")
    elif kind == "keep":
        keep(store, ledger, *given)
    elif kind == "end":
        store.end_conversation(*given)
        ledger.end(*given)
    elif names:
        which, cost_usd = given
        name, call = names[which % len(names)], ledger.calls[which % len(names)]
        cost_usd = min(cost_usd, call.held_usd)
        verb = {"charged": store.settle, "released": store.release, "presumed": store.presume}[kind]
        settled = False
        with suppress(AlreadySettled):
            verb(name, *([cost_usd] if kind == "charged" else []))
            settled = True
        counts = ledger.settle(call, kind, cost_usd, clock())
        unaware = workers.kind in ("far", "leased") and settled  # of what another worker has settled: not counted twice
        assert settled is counts or unaware


def reserve(store, ledger: Ledger, names: list[str], run: str, *given, exact: bool) -> None:
    held_usd, share, counts = given
    expected_usd, now_s, name = held_usd * share, store.now(), f"{run} {len(names)}"
    one = replace(record(store, "team", name, held_usd, expected_usd), caps=CAPS[run], counts=counts)
    call = Call(held_usd, expected_usd, one.decision.decided_at + TTL_S, counts, [])
    answer = "ok"
    try:
        store.reserve(one)
    except RunBudgetExhausted:
        answer = "capped"
    except BudgetExhausted:
        answer = "refused"
        if not exact:  # another worker has leased the rest
            return
    assert answer == ledger.reserve(call, CAPS[run], now_s)
    if answer == "ok":
        names.append(name)


def keep(store, ledger: Ledger, run: str, rest_usd: float) -> None:
    state = store.conversation(run)
    assert (state is not None) is (run in ledger.kept)
    state = state or Conversation(run, "team", "run")
    assert store.keep_conversation(state._replace(rest_usd=rest_usd), KEPT_S)
    assert not store.keep_conversation(state._replace(rest_usd=9.0), KEPT_S)
    ledger.kept[run] = rest_usd, store.now() + KEPT_S


def compare(workers: Workers, ledger: Ledger, now_s: float) -> None:
    ledger.visit(now_s)
    for store in workers.two:
        store.refresh()
    expected = ledger.figures()
    if workers.kind == "leased":  # the rest of the lease of a worker that crashed is presumed as well
        presumed_usd = [expected.pop(name) for name in ("spent_usd", "presumed_usd")]
        workers.two[0].refresh()
        seen = workers.two[0].ledger("team").each[0]
        assert seen.spent_usd - seen.presumed_usd == pytest.approx(presumed_usd[0] - presumed_usd[1], abs=1e-9)
        assert not ledger.hard or seen.spent_usd <= 4.0 + owed_usd(ledger.calls, unowed=True)
    for store in workers.two:
        store.refresh()
        for one in store.ledger("team").each:
            assert {name: getattr(one, name) for name in expected} == pytest.approx(expected, abs=1e-9)
        for run, caps in CAPS.items():
            seen = store.snapshot("team", caps).account.caps[0]
            kept = ledger.caps.get(run)
            gone_usd = 0.0 if kept is None else kept.gone_usd(True)
            assert seen.spent_usd + seen.reserved_usd == pytest.approx(gone_usd, abs=1e-9)
    assert not ledger.hard or owed_usd(ledger.calls) <= 4.0
    for one in ledger.caps.values():
        assert not one.cap.hard or owed_usd(one.calls) <= one.cap.amount_usd


def owed_usd(calls: list[Call], *, unowed: bool = False) -> float:
    return sum(call.gone_usd for call in calls if call.is_unowed is unowed)
