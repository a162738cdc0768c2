"""Tests of requests that state a value: decisions, budgets, propensities, explanations and the journal."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from support.problems import optimum_of_values
from wiserouter import Budget, Model, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.learning.estimates import Estimates
from wiserouter.planning.plan import Plan
from wiserouter.planning.policies import Offline, Optimistic, Policy
from wiserouter.planning.value_mix import Tier
from wiserouter.prompts.contexts import Contexts
from wiserouter.types import NO_CONTEXT

REWARD = np.array([[0.3, 0.6, 0.9], [0.5, 0.55, 0.8]])
COST_USD = np.array([[0.001, 0.004, 0.02], [0.001, 0.004, 0.02]])


def router_of(policy: Policy | None = None, *, store: str = "memory://", seed: int = 0) -> WiseRouter:
    """Return a router with two contexts and three models that are well known."""
    estimates = Estimates(2, 3)
    for context in range(2):
        for model in range(3):
            for _ in range(400):
                estimates.add_cost(context, model, float(COST_USD[context, model]))
                estimates.add_reward(context, model, float(REWARD[context, model]))
    contexts = Contexts(np.eye(2, dtype=np.float32), np.array([0.5, 0.5]))
    models = [Model(name) for name in ("small", "medium", "large")]
    return WiseRouter(models, contexts, policy=policy or Offline(), estimates=estimates, seed=seed, store=store)


def serve(router: WiseRouter, values: list[float | None], *, scope: str = "default") -> list[tuple[str, float]]:
    """Serve one request of each value, at its mean cost and reward; return models and probabilities."""
    rng, served = np.random.default_rng(7), []
    for value in values:
        context = int(rng.integers(2))
        decision = router.decide(context=context, value=value, scope=scope)
        model = router.pool.names.index(decision.model)
        router.charge(decision, cost_usd=float(COST_USD[context, model]))
        router.reward(decision, float(REWARD[context, model]))
        served.append((decision.model, decision.probability))
    return served


@pytest.mark.parametrize("policy", [Offline, Optimistic])
def test_the_value_1_for_all_decides_bit_for_bit_as_without(policy: type[Offline]) -> None:
    plain, valued = router_of(policy()), router_of(policy())
    for router in (plain, valued):
        router.start(Budget(amount_usd=3.0, horizon=500))
    assert serve(plain, [None] * 500) == serve(valued, [1.0, 1] * 250)
    assert plain.status().spent_usd == valued.status().spent_usd


@pytest.mark.parametrize("policy", [Offline, Optimistic])
@pytest.mark.parametrize("rate_usd", [0.0015, 0.004, 0.01])
def test_the_worth_is_that_of_the_linear_program_and_the_budget_holds(policy: type[Offline], rate_usd: float) -> None:
    n, values, shares = 3_000, [1.0, 3.0, 8.0], [0.6, 0.3, 0.1]
    router = router_of(policy())
    router.start(Budget(amount_usd=rate_usd * n, horizon=n))
    drawn = np.random.default_rng(1).choice(values, n, p=shares)
    contexts = np.random.default_rng(7).integers(2, size=n)
    served = serve(router, drawn.tolist())
    models = [router.pool.names.index(name) for name, _ in served]
    worth = float(np.mean(drawn * REWARD[contexts, models]))
    plan = Plan([0.5, 0.5], REWARD, COST_USD)
    actual = [Tier(v, float(np.mean(drawn == v))) for v in values]
    best = optimum_of_values(plan, actual, rate_usd)
    assert router.status().spent_usd <= rate_usd * n * (1 + 1e-9)
    assert worth >= 0.985 * best
    plain = router_of(policy())
    plain.start(Budget(amount_usd=rate_usd * n, horizon=n))
    unweighed = [plain.pool.names.index(name) for name, _ in serve(plain, [None] * n)]
    assert worth > float(np.mean(drawn * REWARD[contexts, unweighed]))


def test_the_probability_is_the_share_of_the_split() -> None:
    router = router_of()
    router.start(Budget(amount_usd=4.0, horizon=1_000))
    for value in [1.0, 2.0] * 50:
        router.decide(context=0, value=value)
    mixed = 0
    for _ in range(400):
        decision = router.decide(context=0, value=2.0)
        explained = router.explain(decision)
        shares = {one.name: one.probability for one in explained.models}
        assert shares[decision.model] == decision.probability
        assert sum(shares.values()) == pytest.approx(1.0)
        mixed += decision.probability < 1.0
        if decision.probability == 1.0:
            worth = {one.name: one.worth for one in explained.models if one.worth is not None}
            assert worth[decision.model] == pytest.approx(max(worth.values()), abs=1e-9)
    assert mixed


def test_an_explanation_names_the_value_and_why_other_models_lose() -> None:
    router = router_of()
    router.start(Budget(amount_usd=4.0, horizon=1_000))
    for value in [1.0, 8.0] * 20:
        router.decide(context=0, value=value)
    explained = router.explain(router.decide(context=0, value=8.0))
    assert (explained.value, explained.model) == (8.0, "large")
    assert explained.models[0].excluded_by is not None
    assert "worth no more to this query than" in explained.models[0].excluded_by
    unvalued = router.explain(router.decide(context=0))
    assert unvalued.value == 1.0
    assert unvalued.shadow_price == pytest.approx(8.0 * explained.shadow_price, rel=0.25)  # type: ignore[operator]


def test_the_journal_keeps_the_value(tmp_path: Path) -> None:
    router = router_of()
    journal = router.journal_to(tmp_path / "journal.jsonl")
    router.start(Budget(amount_usd=4.0, horizon=1_000))
    router.decide(context=0, value=3.0)
    router.decide(context=0)
    journal.close()
    lines = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert [line["value"] for line in lines if line["event"] == "decision"] == [3.0, 1.0]


@pytest.mark.parametrize(("scope", "value"), [("gold", 5.0), ("free", None)])
def test_each_budget_has_its_own_mix_of_values(scope: str, value: float | None) -> None:
    router, plain = router_of(), router_of()
    router.start(Budget(amount_usd=100.0, horizon=10_000))
    for one in ("gold", "free"):
        router.start(Budget(amount_usd=4.0, horizon=1_000), scope=one, parent="default")
    plain.start(Budget(amount_usd=4.0, horizon=1_000))
    other = {"gold": "free", "free": "gold"}[scope]
    router.decide(context=0, scope=other, value=2.0)
    expected = serve(plain, [None] * 300)
    assert abs(_large(serve(router, [value] * 300, scope=scope)) - _large(expected)) <= 15


def _large(served: list[tuple[str, float]]) -> int:
    return sum(name == "large" for name, _ in served)


def test_scopes_that_share_a_budget_spend_it_by_value() -> None:
    router = router_of()
    router.start(Budget(amount_usd=4.0, horizon=1_000))
    for scope in ("gold", "free"):
        router.start(Budget(amount_usd=100.0, horizon=1_000), scope=scope, parent="default")
    spent = dict.fromkeys(("gold", "free"), 0.0)
    for turn in range(1_000):
        scope, value = ("gold", 5.0) if turn % 4 == 0 else ("free", 1.0)
        decision = router.decide(context=turn % 2, value=value, scope=scope)
        cost = float(COST_USD[0, router.pool.names.index(decision.model)])
        router.charge(decision, cost_usd=cost)
        spent[scope] += cost
    assert sum(spent.values()) <= 4.0 * (1 + 1e-9)
    assert spent["gold"] / 250 > 3.0 * spent["free"] / 750


def test_values_are_weighed_in_a_shared_store_too(tmp_path: Path) -> None:
    router = router_of(store=f"sqlite:///{tmp_path / 'store.db'}")
    router.start(Budget(amount_usd=4.0, horizon=1_000))
    router.start(Budget(amount_usd=100.0, horizon=1_000), scope="gold", parent="default")
    for _ in range(10):
        router.decide(context=0, scope="default")
    decision = router.decide(context=0, value=8.0, scope="gold")
    assert (decision.model, decision.value) == ("large", 8.0)
    router.charge(decision.id, cost_usd=0.02)
    router.close()


def test_a_query_without_a_context_is_weighed() -> None:
    router = router_of(Optimistic())
    router.start(Budget(amount_usd=4.0, horizon=1_000))
    for _ in range(30):
        router.decide(context=NO_CONTEXT)
    decision = asyncio.run(router.adecide(context=NO_CONTEXT, value=20.0))
    assert (decision.model, decision.value) == ("large", 20.0)


def test_a_refused_value_changes_nothing() -> None:
    router = router_of()
    router.start(Budget(amount_usd=4.0, horizon=1_000))
    with pytest.raises(InvalidInput, match="value must be a number"):
        router.decide(context=0, value=0.0)
    with pytest.raises(InvalidInput, match="value must be a number"):
        asyncio.run(router.adecide(context=0, value=float("nan")))
    assert router.status().decided == 0
