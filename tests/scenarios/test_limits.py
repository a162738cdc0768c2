"""A limit on latency beside the budget: how close the mean stays to it, and the quality to the optimum."""

from typing import NamedTuple

import numpy as np
import pytest

from wiserouter import Budget, Contexts, Estimates, Limit, Limits, Model, Optimistic, Plan, Price, WiseRouter
from wiserouter.planning.limited_plan import Constraint, LimitedPlan, limited_plan

N_CONTEXTS, N_MODELS = 4, 5


class World(NamedTuple):
    freq: np.ndarray
    reward: np.ndarray
    cost_usd: np.ndarray
    latency_s: np.ndarray

    def uses(self, threshold_s: float | None) -> np.ndarray:
        """Return the mean latency, or the share of calls above a threshold; latencies are exponential."""
        return self.latency_s if threshold_s is None else np.exp(-threshold_s / self.latency_s)

    def bound(self, rate_usd: float, use: np.ndarray, most: float) -> LimitedPlan:
        """Return the best plan at the true means."""
        return limited_plan(
            self.freq,
            self.reward,
            [Constraint("usd", self.cost_usd, rate_usd, elastic=False), Constraint("s", use, most)],
        )


def world(seed: int) -> World:
    rng = np.random.default_rng(seed)
    shape, size = (N_CONTEXTS, N_MODELS), np.sort(rng.random(N_MODELS))
    cost = 1e-3 * np.exp(3 * size) * rng.uniform(0.7, 1.4, shape)
    latency = rng.permuted(np.exp(1.5 * rng.random(N_MODELS))) * rng.uniform(0.7, 1.4, shape)
    reward = np.clip(0.3 + 0.6 * size + rng.normal(0, 0.12, shape), 0.05, 0.95)
    return World(rng.dirichlet(np.full(N_CONTEXTS, 3.0)), reward, cost, latency)


def router_of(one: World, policy: str, prior: float | None) -> WiseRouter:
    price = [Price(usd / 1e3, usd / 1e3) for usd in one.cost_usd.mean(axis=0)]
    priors = [{} if prior is None else {"latency_s": prior * s} for s in one.latency_s.mean(axis=0)]
    models = [Model(f"m{k}", price=price[k], resources=priors[k]) for k in range(N_MODELS)]
    contexts = Contexts(np.eye(N_CONTEXTS), one.freq)
    if policy == "optimistic":
        return WiseRouter(models, contexts, policy=Optimistic(), seed=0, watch=None)
    estimates, rng = Estimates(N_CONTEXTS, N_MODELS), np.random.default_rng(7)
    queries = np.repeat(np.arange(N_CONTEXTS), 4_000)
    rewards = (rng.random((len(queries), N_MODELS)) < one.reward[queries]).astype(float)
    estimates.add_table(queries, rewards, one.cost_usd[queries] * rng.exponential(size=rewards.shape))
    return WiseRouter(models, contexts, estimates=estimates, seed=0)


def served(one: World, router: WiseRouter, n: int, threshold_s: float | None) -> tuple[float, float]:
    """Serve requests and return mean latency, or share above the threshold, and mean expected reward."""
    rng = np.random.default_rng(11)
    used, quality = 0.0, 0.0
    for context in rng.permutation(np.repeat(np.arange(N_CONTEXTS), np.round(n * one.freq).astype(int))):
        decision = router.decide(context=int(context))
        k = int(decision.model[1:])
        latency_s = one.latency_s[context, k] * rng.exponential()
        router.charge(decision, one.cost_usd[context, k] * rng.exponential(), resources={"latency_s": latency_s})
        router.reward(decision, float(rng.random() < one.reward[context, k]))
        used += latency_s if threshold_s is None else latency_s > threshold_s
        quality += one.reward[context, k]
    return used / n, quality / n


def check(
    seed: int, policy: str, n: int, *, prior: float | None = None, percentile: bool = False, parts: int = 2
) -> tuple[float, float]:
    """Return quality over that of the best plan in the last part; the mean stays within 2 % of the limit in each."""
    one = world(seed)
    plan = Plan(one.freq, one.reward, one.cost_usd)
    rate = plan.floor_usd + 0.5 * (plan.ceiling_usd - plan.floor_usd)
    threshold_s = 1.5 * float(np.median(one.latency_s)) if percentile else None
    use = one.uses(threshold_s)
    unlimited = float(one.freq @ (plan.mix(rate) * use).sum(axis=1))
    least = one.bound(rate, use, 1e-9).bounds[1]
    most = least + 0.5 * (unlimited - least)
    best = one.bound(rate, use, most)
    assert best.prices[1] > 0.0
    limit = Limit(mean=most) if threshold_s is None else Limit(share_above=(threshold_s, most))
    router = router_of(one, policy, prior)
    for part in range(1, parts + 1):
        router.start(Budget(amount_usd=rate * n, horizon=n, on_exhausted="cheapest"))
        router.set_limits(Limits({"latency_s": limit}))
        mean, quality = served(one, router, n, threshold_s)
        figures = f"use {mean / most:.4f} of the limit, quality {quality / best.value:.4f} of the optimum"
        print(f"\n{policy:<10} seed {seed} part {part}, {n:>6,} requests: {figures}", end="")
        assert mean / most == pytest.approx(1.0, abs=0.02)
    return quality / best.value


@pytest.mark.parametrize("seed", [1, 2])
def test_the_mean_stays_at_its_limit_and_the_quality_near_the_optimum(seed):
    assert check(seed, "offline", 4_000, prior=0.8) >= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_bound_on_a_percentile_is_kept(seed):
    assert check(seed, "offline", 8_000, prior=0.8, percentile=True) >= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_router_that_starts_from_nothing_keeps_the_limit(seed):
    assert check(seed, "optimistic", 10_000, parts=3) >= 0.99  # in the first ones it explores rewards, too
