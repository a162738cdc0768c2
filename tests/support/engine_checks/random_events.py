"""A check of random events against a model of an engine."""

from __future__ import annotations

import random

from support.engine_model import ModelEngine
from support.engines import assert_same, charge, presume, release, reserve, window
from wiserouter.budgets.run_caps import RunCap
from wiserouter.stores.engines.base import ReadRequest
from wiserouter.stores.engines.changes import Change
from wiserouter.stores.engines.events import (
    Alias,
    Amend,
    EndConversation,
    Event,
    Find,
    FindConversation,
    KeepConversation,
    Learn,
    Lease,
    Note,
    Open,
    Renew,
    Reserve,
    Score,
    Settle,
    Spend,
    WindowOpening,
)


def check_random_events_against_the_model(place):
    """Random batches of events, some delivered twice, at the engine's time."""
    for seed in range(4):
        rng = random.Random(seed)
        ttl_s = place.short_s if seed % 2 else 900.0
        engine, model = place.open(reservation_ttl_s=ttl_s), ModelEngine(ttl_s)
        events = Events(rng, f"{seed}-", place.short_s)
        for step in range(60):
            batch = [events.any() for _ in range(rng.randrange(1, 25))]
            for _ in range(rng.choice([1, 1, 2])):
                reply = engine.exchange(batch, events.reading)
                model.now_s = reply.now_s
                assert_same(reply, model.exchange(batch, events.reading))
            if step % 20 == 19:
                place.advance(place.short_s)


class Events:
    """A source of random events, most of them valid."""

    def __init__(self, rng: random.Random, mark: str, short_s: float):
        self.rng, self.mark, self.short_s = rng, mark, short_s
        self.keys = [f"{mark}k{i}" for i in range(5)]
        self.reading = ReadRequest([f"{mark}s{i}" for i in range(3)], [f"{mark}x"], [f"{mark}n"], self.keys)
        self.windows: list[tuple[str, ...]] = [(f"{mark}s{i} 0 0", f"{mark}s{i} 1 0") for i in range(3)]
        self.old: list[tuple[str, ...]] = []
        self.n = 0

    def any(self) -> Event:
        kinds = {
            self.open: 1, self.amend: 1, self.change: 2, self.renew: 1,
            self.reserve: 12, self.settle: 12, self.score: 3, self.spend: 2,
            self.lease: 4, self.find: 2, self.alias: 1, self.learn: 2, self.note: 1,
            self.in_run: 6, self.keep: 8, self.find_conversation: 2, self.end_conversation: 1,
        }  # fmt: skip
        return self.rng.choices(list(kinds), list(kinds.values()))[0]()

    def name(self) -> str:
        """Return a new name, or a recent one."""
        self.n += self.rng.random() < 0.6
        return f"{self.mark}{self.n - min(self.n, int(self.rng.expovariate(0.3)))}"

    def usd(self) -> float:
        return self.rng.choice([0.0, 0.1, 0.3, self.rng.lognormvariate(-2.0, 1.0)])

    def where(self) -> tuple[str, ...]:
        pairs = self.old if self.old and self.rng.random() < 0.2 else self.windows
        return self.rng.choice([*pairs, ("nowhere",)] if self.rng.random() < 0.1 else pairs)

    def window(self, name: str) -> WindowOpening:
        rolls = name.startswith(f"{self.mark}s2")
        return window(name, self.rng.choice([1.0, 2.5]), hard=" 0 " in name, rollover=rolls)

    def open(self) -> Open:
        i = self.rng.randrange(3)
        generation = self.rng.choice([0, 0, 0, 1])
        pair = self.windows[i] if not generation else tuple([f"{one}'" for one in self.windows[i]])
        return Open(f"{self.mark}s{i}", generation, f"terms {self.n}", tuple([self.window(one) for one in pair]))

    def amend(self) -> Amend:
        i = self.rng.randrange(2)  # carry-over is not computed again when an amount is amended
        terms = self.rng.choice([f"amended {self.n}", "changed"])
        return Amend(f"{self.mark}s{i}", terms, self.windows[i][0], 1.0 + self.usd())

    def change(self) -> Change:
        """Return a change of the first two accounts, whose terms are then the same text, so that one may fit."""
        i = self.rng.randrange(2)
        former = self.rng.choice(["changed", "changed", f"terms {self.n}", f"amended {self.n}"])
        token = self.rng.choice(["", self.name()])
        amount_usd = 1.0 + self.usd()
        return Change(
            f"{self.mark}s{i}", former, "changed", self.windows[i][0], amount_usd, self.rng.random() < 0.7, token, "{}"
        )

    def renew(self) -> Renew:
        i = self.rng.randrange(3)
        former, outer = self.windows[i]
        stem, _, number = former.rpartition(" ")
        follower = f"{stem} {int(number.rstrip(chr(39))) + 1}"
        self.old.append(self.windows[i])
        self.windows[i] = (follower, outer)
        return Renew(f"{self.mark}s{i}", 0, former, self.window(follower), self.rng.randrange(2))

    def reserve(self) -> Reserve:
        lease = self.rng.choice([None, None, None, f"{self.mark}l{self.rng.randrange(4)}"])
        return reserve(self.name(), *self.where(), held_usd=self.usd(), expected_usd=self.usd() / 2, lease=lease,
                       paper=self.rng.random() < 0.2)  # fmt: skip

    def settle(self) -> Settle:
        token = f"{self.n} {self.rng.randrange(3)}"
        if self.rng.random() < 0.6:
            return charge(self.name(), self.usd(), token, self.rng.choice([None, 1, 2]))
        return self.rng.choice([release, presume])(self.name(), token)

    def score(self) -> Score:
        source, text = self.rng.choice(["human", "judge:mini", "rule:a/b"]), repr(self.rng.random())
        return Score(self.name(), source, text, f"{self.n} {self.rng.randrange(3)}")

    def spend(self) -> Spend:
        return Spend(self.name(), self.where(), self.usd())

    def lease(self) -> Lease:
        ttl_s = self.rng.choice([900.0, self.short_s, 0.0])
        return Lease(f"{self.mark}l{self.rng.randrange(4)}", self.where(), self.usd(), ttl_s)

    def find(self) -> Find:
        return Find(self.rng.choice([self.name(), f"{self.mark}a{self.rng.randrange(9)}"]))

    def alias(self) -> Alias:
        return Alias(f"{self.mark}a{self.rng.randrange(9)}", self.name())

    def learn(self) -> Learn:
        cells = {f"c{self.rng.randrange(5)}": self.rng.gauss(0, 1) for _ in range(3)}
        return Learn(f"{self.mark}x", f"worker {self.rng.randrange(2)}", self.rng.randrange(50), cells)

    def note(self) -> Note:
        former = self.rng.choice([None, None, "", f"text {self.n - 1}"])
        return Note(f"{self.mark}n", f"text {self.n}", former)

    def in_run(self) -> Reserve:
        keys = self.rng.sample(self.keys, self.rng.choice([0, 1, 1, 2]))
        caps = [RunCap(key, self.rng.choice([0.5, 1.5]), self.rng.random() < 0.6, self.ttl_s()) for key in keys]
        admitted = self.rng.random() < 0.1
        return self.reserve()._replace(caps=tuple(caps), counts=self.rng.random() < 0.4, admitted=admitted)

    def keep(self) -> KeepConversation:
        version, usd = int(self.rng.expovariate(0.7)), self.usd() * self.rng.choice([0, 1])
        scopes = tuple(self.rng.sample([f"{self.mark}s{i}" for i in range(4)], self.rng.randrange(1, 3)))
        token = f"{self.n} {self.rng.randrange(3)}"
        return KeepConversation(self.rng.choice(self.keys), version, f"text {self.n}", self.ttl_s(), token, scopes, usd)

    def find_conversation(self) -> FindConversation:
        return FindConversation(self.rng.choice(self.keys))

    def end_conversation(self) -> EndConversation:
        return EndConversation(self.rng.choice(self.keys))

    def ttl_s(self) -> float:
        return self.rng.choice([900.0, self.short_s])
