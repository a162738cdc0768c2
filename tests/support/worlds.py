"""A simulated world that changes: contexts, models with prices, and the traffic through a router."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from wiserouter import Budget, Contexts, MemoryStore, Model, Plan, Price, Usage, WiseRouter
from wiserouter.errors import BudgetError

SKILL = np.array([[0.55, 0.75, 0.90], [0.80, 0.85, 0.88], [0.30, 0.60, 0.85], [0.60, 0.85, 0.90]])
"""Chance of a right answer per context and model: small, medium, large."""

OUTPUT_USD = (2e-6, 8e-6, 3e-5)
"""Price of an output token; input is free."""

TOKENS = np.array([150.0, 60.0, 400.0, 200.0])
"""Mean length of an answer per context."""

NAMES = ("small", "medium", "large")
MOST = 4.0  # times the mean length


def models(prices=OUTPUT_USD, names=NAMES):
    """Return the pool: output prices, and a cap on the answer that bounds the cost of a call."""
    return [
        Model(name, Price(0.0, price), max_output_tokens=int(MOST * TOKENS.max()))
        for name, price in zip(names, prices, strict=True)
    ]


@dataclass
class World:
    """The present truth, and the history so far; one query every `gap_s` seconds."""

    seed: int
    skill: np.ndarray = field(default_factory=SKILL.copy)
    price: list[float] = field(default_factory=lambda: list(OUTPUT_USD))
    freq: np.ndarray = field(default_factory=lambda: np.array([0.4, 0.3, 0.2, 0.1]))
    now_s: float = 4 * 86_400.0  # a Monday, where windows of days begin
    gap_s: float = 60.0
    worth: list[float] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)
    chosen: list[str] = field(default_factory=list)

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)

    def router(self, policy, budget, **settings):
        """Return a started router without any history, on this world's clock."""
        contexts = Contexts(np.eye(4), np.full(4, 0.25))
        store = MemoryStore(lambda: self.now_s, reservation_ttl_s=1e9, decision_ttl_s=1e9)
        router = WiseRouter(models(), contexts, policy=policy, store=store, seed=self.seed, **settings)
        router.start(budget)
        return router

    def ask(self, router):
        """Send one query through a router; return its decision and score, or None where it was refused."""
        self.now_s += self.gap_s
        context = int(self.rng.choice(4, p=self.freq))
        luck, length = self.rng.random(), np.exp(self.rng.normal(-0.08, 0.4))
        cap = int(MOST * TOKENS[context])
        try:
            decision = router.decide(context=context, input_tokens=0, max_output_tokens=cap)
        except BudgetError:
            self._note("", 0.0, 0.0)
            return None
        k = router.pool.index(decision.model)
        usage = Usage(0, min(int(TOKENS[context] * length) + 1, cap))
        cost_usd = usage.output_tokens * self.price[k]
        router.charge(decision, cost_usd)
        self._note(decision.model, float(self.skill[context, k]), cost_usd)
        return decision, float(luck < self.skill[context, k])

    def serve(self, router, n, *, feedback=True):
        """Send `n` queries, each rewarded at once where there is feedback."""
        for _ in range(n):
            answered = self.ask(router)
            if answered is not None and feedback:
                router.reward(*answered)

    def best(self, rate_usd):
        """Return the mean reward of the best mix at a rate, by the present truth."""
        cost = TOKENS[:, np.newaxis] * np.array(self.price)
        return Plan(self.freq, self.skill, cost).value(rate_usd)

    def recovery(self, since, level, *, span=150):
        """Return the number of requests after `since` until the mean of the last `span` first reaches `level`."""
        mean = np.convolve(self.worth[since:], np.full(span, 1.0 / span), mode="valid")
        reached = np.flatnonzero(mean >= level)
        return int(reached[0]) + span if reached.size else 10**9

    def _note(self, model, worth, cost_usd):
        self.chosen.append(model)
        self.worth.append(worth)
        self.spent.append(cost_usd)


def hard(amount_usd, horizon):
    """Return a hard budget."""
    return Budget(amount_usd, horizon, limit="hard")
