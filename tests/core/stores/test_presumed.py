"""Calls of unknown outcome: whatever happens in whatever order, each store agrees with an account of single calls."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.store_worker import record
from wiserouter import Budget, MemoryStore
from wiserouter.errors import AlreadySettled, BudgetExhausted
from wiserouter.stores.engines.sqlite import SQLiteEngine
from wiserouter.stores.shared import SharedStore
from wiserouter.testing import FakeClock

HOUR_S, TTL_S, START_S = 3_600.0, 60.0, 36_000.0
HARD, EXPECTED = Budget(4.0, 100, limit="hard"), Budget(4.0, 100)
BUDGETS = {
    "hard": HARD,
    "expected": EXPECTED,
    "expected within hard": Budget(2.0, every="1d", within=HARD),
    "hard within expected": Budget(2.0, every="1d", limit="hard", within=EXPECTED),
    "rolling": Budget(4.0, every="1h", limit="hard", rollover=True),
    "rolling, expected": Budget(4.0, every="1h", rollover=True),
}


class FarEngine(SQLiteEngine):
    near = False  # like a server on a network: under an expected limit, steps are applied to the replica first


def opened(kind: str, clock: FakeClock, folder: str) -> MemoryStore | SharedStore:
    if kind == "memory":
        return MemoryStore(clock, reservation_ttl_s=TTL_S)
    engine = (FarEngine if kind == "far" else SQLiteEngine)(Path(folder) / "b.db", clock, reservation_ttl_s=TTL_S)
    return SharedStore(engine, clock=clock, reservation_ttl_s=TTL_S)


@dataclass
class Call:
    held_usd: float
    expected_usd: float
    due_s: float
    windows: list[int]
    state: str = "in flight"
    cost_usd: float = 0.0


@dataclass
class Oracle:
    """An account that keeps every call, and computes each figure as a sum over them."""

    budget: Budget
    calls: list[Call] = field(default_factory=list)
    visited: list[list[int]] = field(default_factory=list)

    def visit(self, now_s: float) -> None:
        """Note the window of each budget, and presume what is overdue."""
        self.visited = self.visited or [[] for _ in self.budget.each]
        for one, seen in zip(self.budget.each, self.visited, strict=True):
            window = one.window(now_s)
            number = 0 if window is None else int(window.start_s // (window.end_s - window.start_s))
            if number not in seen:
                seen.append(number)
        for call in self.calls:
            if call.state == "in flight" and call.due_s <= now_s:
                self.settle(call, "presumed", 0.0)

    def left_usd(self, level: int, number: int) -> float:
        one, seen = self.budget.each[level], self.visited[level]
        at = seen.index(number)
        carried_usd = 0.0
        if one.rollover and at:
            former = seen[at - 1]
            skipped_usd = (number - former - 1) * one.amount_usd
            carried_usd = min(self.left_usd(level, former) + skipped_usd, one.amount_usd)
        figures = self.figures(level, number)
        return one.amount_usd + carried_usd - figures["spent_usd"] - figures["reserved_usd"]

    def admits(self, held_usd: float) -> bool:
        hard = [level for level, one in enumerate(self.budget.each) if one.limit == "hard"]
        return all(held_usd <= self.left_usd(level, self.visited[level][-1]) for level in hard)

    def settle(self, call: Call, to: str, cost_usd: float) -> bool:
        """Settle a call as the rules allow; return False where they do not."""
        final = {"charged": ("charged",), "released": ("charged", "released")}
        if call.state in final.get(to, ("charged", "released", "presumed")):
            return False
        presumed_usd = call.held_usd if self.budget.hard else call.expected_usd
        call.state = to
        call.cost_usd = {"charged": cost_usd, "released": 0.0, "presumed": presumed_usd}[to]
        return True

    def figures(self, level: int, number: int) -> dict[str, float]:
        mine = [call for call in self.calls if call.windows[level] == number]
        count = {state: [call for call in mine if call.state == state] for state in STATES}
        return {
            "spent_usd": sum(call.cost_usd for call in mine),
            "presumed_usd": sum(call.cost_usd for call in count["presumed"]),
            "reserved_usd": sum(call.held_usd for call in count["in flight"]),
            "expected_usd": sum(call.expected_usd for call in count["in flight"]),
            "decided": len(mine) - len(count["released"]),
            **{state.replace(" ", "_"): len(count[state]) for state in STATES},
        }


STATES = ("in flight", "charged", "released", "presumed")
SIXTEENTHS = st.integers(0, 32).map(lambda n: n / 16)  # sums of them are exact
WHICH = st.integers(0, 7)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), SIXTEENTHS, SIXTEENTHS),
        st.tuples(st.just("charged"), WHICH, SIXTEENTHS),
        st.tuples(st.sampled_from(["released", "presumed"]), WHICH, st.just(0.0)),
        st.tuples(st.just("advance"), st.sampled_from([30.0, TTL_S, HOUR_S, 2 * HOUR_S]), st.just(0.0)),
    ),
    max_size=25,
)


@pytest.mark.parametrize("budget", BUDGETS)
@given(steps=STEPS)
def test_every_figure_of_a_store_in_memory_is_the_sum_over_single_calls(budget, steps):
    follow("memory", BUDGETS[budget], steps)


@pytest.mark.parametrize("kind", ["near", "far"])
@pytest.mark.parametrize("budget", BUDGETS)
@settings(max_examples=15, deadline=None)
@given(steps=STEPS)
def test_every_figure_of_two_workers_is_the_sum_over_single_calls(kind, budget, steps):
    follow(kind, BUDGETS[budget], steps)


def follow(kind, budget, steps):
    """Make the same steps with stores and with the oracle, and compare all figures after each."""
    clock, oracle = FakeClock(START_S), Oracle(budget)
    with tempfile.TemporaryDirectory() as folder:
        stores = [opened(kind, clock, folder) for _ in range(1 if kind == "memory" else 2)]
        stores[0].open("s", budget)
        for number, (step, first, second) in enumerate(steps):
            store = stores[number % len(stores)]
            oracle.visit(clock())
            store.ledger("s")
            if step == "reserve":
                reserve(store, oracle, clock, first, min(first, second))
            elif step == "advance":
                clock.advance(first)
            elif oracle.calls:
                settle(store, oracle, first % len(oracle.calls), step, second, aware=kind != "far")
            check(stores, oracle, clock)
        for store in stores:
            store.close()


def reserve(store, oracle, clock, held_usd, expected_usd):
    one = record(store, "s", f"call {len(oracle.calls)}", held_usd, expected_usd)
    if oracle.admits(held_usd):
        store.reserve(one)
        windows = [seen[-1] for seen in oracle.visited]
        oracle.calls.append(Call(held_usd, expected_usd, one.decision.decided_at + TTL_S, windows))
    else:
        with pytest.raises(BudgetExhausted):
            store.reserve(one)


def settle(store, oracle, number, to, cost_usd, *, aware):
    """Settle a call; a worker that is not `aware` of what another one did may not refuse it, which changes nothing."""
    name, call = f"call {number}", oracle.calls[number]
    verbs = {"charged": lambda: store.settle(name, cost_usd), "released": lambda: store.release(name)}
    verb = verbs.get(to, lambda: store.presume(name))
    if oracle.settle(call, to, cost_usd):
        found = verb()
        assert (found.state, found.cost_usd) == (to, None if to == "released" else call.cost_usd)
        return
    with pytest.raises(AlreadySettled) if aware else suppress(AlreadySettled):
        verb()


def check(stores, oracle, clock):
    oracle.visit(clock())
    for store in stores * 2:  # each sees what the others did
        store.ledger("s")
        store.refresh()
    for store in stores:
        for level, ledger in enumerate(store.ledger("s").each):
            number = oracle.visited[level][-1]
            for name, value in oracle.figures(level, number).items():
                assert getattr(ledger, name) == pytest.approx(value, rel=0, abs=1e-12), name
            assert ledger.left_usd == pytest.approx(oracle.left_usd(level, number), rel=0, abs=1e-12)
