"""The share of a hard budget that is spent with 1, 10 and 100 calls at a time, by the core alone.

There are a fifth more requests than the budget pays for, and a refused one does not come back. The provider takes some
milliseconds and bills exactly. The ideal share is 1.0 where each call costs its worst case and the budget is a multiple
of it. Elsewhere calls end when less than one worst case is left. `-s` prints the shares, and how long requests waited.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from wiserouter import Budget, Contexts, Estimates, Model, Offline, WiseRouter
from wiserouter.errors import BudgetExhausted
from wiserouter.integration import admission_queue

LATENCY_S = 0.003
COST_USD = 0.01


@dataclass
class Load:
    """Callers that make some requests, each once, and the ledger of their provider."""

    router: WiseRouter
    cost_usd: dict[str, float]
    n_requests: int
    max_wait_s: float = 30.0
    spent_usd: float = 0.0
    waits_s: list[float] = field(default_factory=list)

    async def run(self, concurrency: int) -> None:
        requests = iter(range(self.n_requests))
        await asyncio.gather(*[self.ask(requests) for _ in range(concurrency)])

    async def ask(self, requests: Iterator[int]) -> None:
        for _ in requests:
            started_s = time.perf_counter()
            try:
                decision = await self.decide()
            except BudgetExhausted:
                continue
            self.waits_s.append(time.perf_counter() - started_s)
            await asyncio.sleep(LATENCY_S)
            self.spent_usd += self.cost_usd[decision.model]
            await self.router.acharge(decision, self.cost_usd[decision.model])

    async def decide(self):
        def attempt(may_wait):
            return self.router.decide(may_wait=may_wait)

        undo = self.router.release if self.router.waits("default") else None
        return await admission_queue(self.router).aadmit("default", attempt, lambda: 0.0, self.max_wait_s, undo)

    def report(self, what: str, amount_usd: float) -> None:
        p50, p99 = np.percentile(self.waits_s, [50, 99]) * 1e3
        share = self.spent_usd / amount_usd
        print(f"\n{what:<64} {share:7.4f} of the budget, waiting p50 {p50:6.1f} ms, p99 {p99:6.1f} ms", end="")


def single(worst_usd: float, budget: Budget, store: str = "memory://") -> WiseRouter:
    router = WiseRouter([Model("only", max_cost_usd=worst_usd)], store=store, seed=0)
    router.start(budget)
    return router


def demand(calls: int, concurrency: int) -> int:
    """Return a number of requests that is a fifth larger than the budget bears, and at least one per caller."""
    return max(concurrency, calls + calls // 5)


@pytest.mark.parametrize("concurrency", [1, 10, 100])
@pytest.mark.parametrize(("calls", "ratio"), [(5, 1), (500, 1), (500, 15)])
async def test_a_hard_budget_is_spent_whatever_is_in_flight(concurrency, calls, ratio):
    amount_usd, worst_usd = calls * COST_USD, ratio * COST_USD
    router, n_requests = single(worst_usd, Budget(amount_usd, 100_000, limit="hard")), demand(calls, concurrency)
    load = Load(router, {"only": COST_USD}, n_requests)
    await load.run(concurrency)
    load.report(f"{concurrency} at a time, {calls} calls, worst case {ratio} x cost", amount_usd)
    assert load.router.status().spent_usd == pytest.approx(load.spent_usd, rel=1e-9)
    assert load.spent_usd <= amount_usd * (1 + 1e-12)
    if ratio == 1:
        assert load.spent_usd == pytest.approx(amount_usd, rel=1e-9)
    else:
        assert load.spent_usd > amount_usd - worst_usd


@pytest.mark.parametrize("concurrency", [1, 10, 100])
async def test_calls_in_flight_do_not_divert_a_budget_to_the_cheaper_model(concurrency):
    """The budget is for 500 calls of the better model, whose worst case is 15 times its cost."""
    cost_usd, calls = {"small": COST_USD / 10, "large": COST_USD}, 500
    estimates = Estimates(1, 2)
    for model, name in enumerate(cost_usd):
        for _ in range(50):
            estimates.add_cost(0, model, cost_usd[name])
            estimates.add_reward(0, model, 0.1 + 0.8 * model)
    models = [Model(name, max_cost_usd=15 * usd) for name, usd in cost_usd.items()]
    router = WiseRouter(models, Contexts.single(), estimates=estimates, policy=Offline(), seed=0)
    amount_usd = calls * COST_USD
    router.start(Budget(amount_usd, calls, limit="hard"))
    load = Load(router, cost_usd, calls)
    await load.run(concurrency)
    load.report(f"{concurrency} at a time, two models", amount_usd)
    assert load.spent_usd <= amount_usd * (1 + 1e-12)
    assert load.spent_usd > amount_usd - 15 * COST_USD  # the last calls do not fit the larger worst case


async def test_a_hundred_at_a_time_wait_for_a_file(tmp_path):
    amount_usd, worst_usd = 500 * COST_USD, 15 * COST_USD
    router = single(worst_usd, Budget(amount_usd, 100_000, limit="hard"), f"sqlite:///{tmp_path}/budget.db")
    load = Load(router, {"only": COST_USD}, demand(500, 100))
    await load.run(100)
    load.report("100 at a time, 500 calls, worst case 15 x cost, SQLite", amount_usd)
    router.close()
    assert amount_usd - worst_usd < load.spent_usd <= amount_usd * (1 + 1e-12)
    assert max(load.waits_s) < 15.0
