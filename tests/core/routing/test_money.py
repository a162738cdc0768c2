"""Whatever happens to a router in whatever order, its money is that of a plain account, and so is what it learns."""

import json
import random
import uuid
from math import fsum

import pytest

from wiserouter import Budget, Decision, Growing, MemoryStore, Model, Optimistic, Price, WiseRouter
from wiserouter.budgets.changes import BudgetChange
from wiserouter.errors import AlreadySettled, WiseRouterError
from wiserouter.stores.engines.sqlite import SQLiteEngine
from wiserouter.stores.shared import SharedStore
from wiserouter.testing import FakeClock

MODELS = [
    Model("small", Price(1e-6, 2e-6), max_output_tokens=1_000),
    Model("large", Price(1e-5, 3e-5), max_cost_usd=0.4),
]
TTL_S, HOUR_S = 900.0, 3_600.0
WEIGHTS = {"decide": 8, "charge": 5, "release": 2, "presume": 1, "reward": 3, "wait": 1, "spend": 0.5}
WEIGHTS |= {"change_budget": 0.5, "set_budget": 0.3, "restart": 0.3, "look": 0.5, "reserve_decision": 1, "again": 0.1}


class Account:
    """One budget in one window: the calls that it pays for, by their state, and other costs."""

    def __init__(self):
        self.calls, self.others_usd = [], []

    def figures(self):
        """Return what a ledger of these calls must show."""
        found = {"reserved_usd": fsum(call["held"] for call in self.calls if call["state"] == "in flight")}
        paid = [call["cost"] for call in self.calls if call["state"] in ("charged", "presumed")]
        found["spent_usd"] = fsum([*paid, *self.others_usd])
        states = [call["state"] for call in self.calls]
        return (
            found
            | {name: states.count(name) for name in ("charged", "released", "presumed")}
            | {
                "in_flight": states.count("in flight"),
                "decided": len(states) - states.count("released"),
            }
        )


class Traffic:
    """Two workers of one budget per hour within one for good, on one store; a store in memory has one worker."""

    def __init__(self, folder, kind, rng):
        self.path, self.kind, self.rng, self.clock = folder / "budget.db", kind, rng, FakeClock(10 * HOUR_S)
        self.limit = rng.choice(["hard", "expected"])
        self.grows = kind == "memory" and rng.random() < 0.5  # workers share a query's context in proportion only
        self.memory = MemoryStore(self.clock, reservation_ttl_s=TTL_S)
        self.terms = Budget(1.0, 500, every="1h", limit=self.limit, within=Budget(3.0, 1_000, limit=self.limit))
        self.amounts, self.paused = [1.0, 3.0], False
        self.accounts, self.whole, self.calls = {}, Account(), []
        self.learned = {"calls": 0.0, "cost": 0.0, "labels": 0.0, "invoked": 0.0}
        self.workers = [self.opened() for _ in range(1 if kind == "memory" else 2)]

    def step(self):
        """Let one thing happen, at one of the workers."""
        names = list(WEIGHTS) if self.calls else ["decide"]
        (name,) = self.rng.choices(names, [WEIGHTS[one] for one in names])
        getattr(self, name)(self.rng.choice(self.workers))
        self.check()

    def opened(self):
        store = self.memory
        if self.kind == "sqlite":
            engine = SQLiteEngine(self.path, self.clock, reservation_ttl_s=TTL_S)
            store = SharedStore(engine, clock=self.clock, reservation_ttl_s=TTL_S)
        growing = Growing(3, first_after=10, per_context=3, background=False) if self.grows else None
        worker = WiseRouter(MODELS, policy=Optimistic(), watch=None, growing=growing, store=store, seed=0)
        worker.start(self.terms, restart=False)
        return worker

    @property
    def hourly(self):
        """The account of the present hour."""
        return self.accounts.setdefault(self.clock() // HOUR_S, Account())

    def attempt(self, step):
        """Return the error of a step that is refused, which changes nothing; None for any other."""
        before, refused = self.seen(), None
        try:
            step()
        except WiseRouterError as error:
            refused = error
        assert refused is None or self.seen() == before
        return refused

    def seen(self):
        self.exchange()
        learned = [{name: table.tolist() for name, table in one.estimates.arrays().items()} for one in self.workers]
        planned = dict.fromkeys(("shadow_price", "expected_reward", "mix"))  # of the plan, which any decision solves
        return [one.status().as_dict() | planned for one in self.workers], learned

    def exchange(self):
        for _ in range(3):
            for worker in self.workers:
                worker.estimates  # noqa: B018, merges what was read
                worker.refresh()

    def any_call(self):
        """Return one of the latest calls."""
        return self.rng.choice(self.calls[-8:])

    def decide(self, worker):
        text, tokens, decisions = self.rng.choice(["hi", "fix it", "sum up"]), self.rng.choice([10, 9_000]), []
        limits = {"input_tokens": tokens, "max_output_tokens": 99}
        if self.attempt(lambda: decisions.append(worker.decide(text, **limits))) is not None:
            return
        assert not self.paused
        (decision,) = decisions
        self.is_in_flight(decision)

    def reserve_decision(self, worker):
        """Reserve what was decided elsewhere, as for a batch, and once more at any worker; contexts must not grow."""
        if self.grows:
            return
        held_usd, model = self.rng.choice([0.001, 0.7]), self.rng.choice(MODELS).name
        figures = (0.0, 0.0, 0.5 * held_usd, 0.5, held_usd, "default", self.clock())
        decision = Decision(uuid.uuid4().hex, model, 0, 1.0, *figures, False)
        if self.attempt(lambda: worker.reserve_decision(decision)) is not None:
            return
        self.rng.choice(self.workers).reserve_decision(decision)
        self.is_in_flight(decision)

    def is_in_flight(self, decision):
        call = {"decision": decision, "state": "in flight", "held": decision.reserved_usd, "cost": 0.0, "weight": 0.0}
        self.calls.append(call)
        self.learned["invoked"] += 1.0
        for account, amount_usd in zip((self.hourly, self.whole), self.amounts, strict=True):
            account.calls.append(call)
            figures = account.figures()
            assert self.limit != "hard" or figures["spent_usd"] + figures["reserved_usd"] <= amount_usd + 1e-9

    def charge(self, worker):
        call = self.any_call()
        cost_usd = self.rng.random() * call["held"]
        error = self.attempt(lambda: worker.charge(call["decision"].id, cost_usd))
        assert isinstance(error, AlreadySettled) == (call["state"] == "charged")
        if error is None:
            call["state"], call["cost"] = "charged", cost_usd
            self.learned["calls"] += 1.0
            self.learned["cost"] += cost_usd

    def release(self, worker):
        call = self.any_call()
        error = self.attempt(lambda: worker.release(call["decision"].id))
        assert isinstance(error, AlreadySettled) == (call["state"] in ("charged", "released"))
        if error is None:
            call["state"] = "released"
            self.learned["invoked"] -= 1.0

    def presume(self, worker):
        call = self.any_call()
        error = self.attempt(lambda: worker.presume(call["decision"].id))
        assert isinstance(error, AlreadySettled) == (call["state"] != "in flight")
        if error is None:
            self.is_presumed(call)

    def is_presumed(self, call):
        decision = call["decision"]
        call["state"] = "presumed"
        call["cost"] = decision.reserved_usd if self.limit == "hard" else decision.expected_cost_usd

    def reward(self, worker):
        call, weight = self.any_call(), self.rng.choice([1.0, 0.5, 0.0])
        error = self.attempt(lambda: worker.reward(call["decision"].id, 1.0, weight=weight))
        assert isinstance(error, AlreadySettled) == (call["state"] == "released")
        if error is None:
            self.learned["labels"] += weight - call["weight"]
            call["weight"] = weight

    def spend(self, worker):
        cost_usd = self.rng.choice([0.2, -0.1])
        if self.attempt(lambda: worker.spend(cost_usd)) is None:
            for account in (self.hourly, self.whole):
                account.others_usd.append(cost_usd)

    def change_budget(self, worker):
        amount_usd, paused = self.rng.choice([0.3, 2.0]), self.rng.choice([None, None, True, False, False])
        change = BudgetChange(amount_usd=amount_usd, paused=paused, every="1h")
        if self.attempt(lambda: worker.change_budget(change)) is None:
            self.amounts[0], self.paused = amount_usd, self.paused if paused is None else paused

    def set_budget(self, worker):
        self.amounts[1] = self.rng.choice([2.0, 8.0])
        worker.set_budget(amount_usd=self.amounts[1], every="never")

    def wait(self, _):
        self.clock.advance(self.rng.choice([60.0, 1_000.0, HOUR_S]))
        for call in self.calls:
            if call["state"] == "in flight" and call["decision"].decided_at <= self.clock() - TTL_S:
                self.is_presumed(call)

    def restart(self, worker):
        self.exchange()
        if self.kind == "sqlite":
            worker.close()
            self.workers[self.workers.index(worker)] = self.opened()
        else:
            worker.start(self.terms, restart=False)
        self.exchange()
        found = [one.budget.amount_usd for one in self.workers[0].account().each]
        assert all(one in pair for one, *pair in zip(found, self.amounts, (1.0, 3.0), strict=True))
        self.amounts = found

    def again(self, worker):
        """Start the budgets again: the calls so far no longer count in them, however late they are settled."""
        worker.start(self.terms, restart=True)
        self.amounts, self.paused, self.accounts, self.whole = [1.0, 3.0], False, {}, Account()

    def look(self, worker):
        json.dumps(worker.status().as_dict())
        for call in self.calls[-2:]:
            json.dumps(worker.explain(call["decision"].id).as_dict())

    def check(self):
        self.exchange()
        for worker in self.workers:
            for ledger, account in zip(worker.account().each, (self.hourly, self.whole), strict=True):
                figures = account.figures()
                assert {name: getattr(ledger, name) for name in figures} == pytest.approx(figures, abs=1e-9)
            assert [one.budget.amount_usd for one in worker.account().each] == self.amounts
            sums = {name: getattr(worker.estimates, name).sum() for name in self.learned}
            assert sums == pytest.approx(self.learned, abs=1e-6)


@pytest.mark.parametrize(("kind", "seed"), [*[("memory", seed) for seed in range(6)], ("sqlite", 0), ("sqlite", 1)])
def test_no_order_of_events_loses_money_or_counts_it_twice(kind, seed, tmp_path):
    traffic = Traffic(tmp_path, kind, random.Random(seed))
    for _ in range(150):
        traffic.step()
    for worker in traffic.workers:
        worker.close()
