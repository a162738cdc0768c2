"""Algorithms 1 and 2 of the paper against numbers worked out by hand, and against a transcription of the page."""

import numpy as np
import pytest
from scipy.optimize import linprog

from support.draws import Scripted
from wiserouter import Budget, Contexts, EpsilonFirst, Estimates, Model, Offline, Plan, WiseRouter
from wiserouter.budgets.funds import Funds
from wiserouter.errors import BudgetExhausted, InvalidInput, QuerySkipped
from wiserouter.planning.mixture import Mixture
from wiserouter.planning.policies import open_policy
from wiserouter.planning.shift import Shift


def history(reward, cost_usd):
    """Return estimates whose plain means are these: one call of each model in each context."""
    estimates = Estimates(*np.shape(reward))
    for j in range(len(reward)):
        estimates.add_table(np.array([j]), np.array([reward[j]]), np.array([cost_usd[j]]))
    return estimates


def two_models(policy, rng, *, reward=((0.2, 0.9),), cost_usd=((1.0, 3.0),), known=True, freq=(1.0,)):
    contexts = Contexts(np.eye(len(freq)), freq)
    estimates = history(reward, cost_usd) if known else None
    models = [Model("small"), Model("large")]
    return WiseRouter(models, contexts, policy=policy, estimates=estimates, seed=rng)


def served(router, true_cost, *, context=0):
    decision = router.decide(embedding=np.eye(router.contexts.n_contexts)[context])
    router.charge(decision, true_cost[decision.model])
    return decision


def test_algorithm_1_by_hand():
    # B = 6, T = 3, u = (.2, .9), c = (1, 3). Draws .4, .3, .6 for the more expensive model.
    # t=1: b/tau = 6/3 = 2    p(large) = (2 - 1) / 2   = .5    .4 < .5  -> large, b = 6 - 3 = 3
    # t=2: b/tau = 3/2 = 1.5  p(large) = (1.5 - 1) / 2 = .25   .3 > .25 -> small, b = 3 - 1 = 2
    # t=3: b/tau = 2/1 = 2    p(large) = .5                    .6 > .5  -> small, b = 2 - 1 = 1
    router = two_models(Offline(accounting="paper"), Scripted(0.4, 0.3, 0.6))
    router.start(Budget(6.0, 3))
    decisions = [served(router, {"small": 1.5, "large": 2.0}) for _ in range(3)]
    assert [d.model for d in decisions] == ["large", "small", "small"]
    assert [d.rate_usd for d in decisions] == [2.0, 1.5, 2.0]
    assert [d.probability for d in decisions] == [0.5, 0.75, 0.5]
    assert [d.shadow_price for d in decisions] == pytest.approx([0.35] * 3)
    status = router.status()
    assert status.spent_usd == 5.0  # the true cost, which the paper's b does not see
    assert router._store.ledger("default").plannable_usd == 1.0


def test_actual_accounting_by_hand():
    # B = 8, T = 4, c = (1, 3), true costs (1, 2): b falls by what was spent, and the mean of large follows
    # t=1: b/tau = 8/4 = 2  c = 3     p(large) = (2 - 1) / 2    = .50  .4 < .50 -> large, b = 6
    # t=2: b/tau = 6/3 = 2  c = 5/2   p(large) = (2 - 1) / 1.5  = .67  .6 < .67 -> large, b = 4
    # t=3: b/tau = 4/2 = 2  c = 7/3   p(large) = (2 - 1) / 1.33 = .75  .8 > .75 -> small, b = 3
    # t=4: b/tau = 3/1 = 3  affords large outright, and its mean and deviation, 2.91, leave the reserve of 0
    router = two_models(Offline(), Scripted(0.4, 0.6, 0.8))
    router.start(Budget(8.0, 4))
    decisions = [served(router, {"small": 1.0, "large": 2.0}) for _ in range(4)]
    assert [d.model for d in decisions] == ["large", "large", "small", "large"]
    assert [d.rate_usd for d in decisions] == [2.0, 2.0, 2.0, 3.0]
    assert [d.expected_cost_usd for d in decisions] == pytest.approx([3.0, 2.5, 1.0, 7 / 3])
    assert [d.probability for d in decisions] == pytest.approx([0.5, 2 / 3, 0.25, 1.0])
    assert router.status().left_usd == 1.0


def test_algorithm_2_by_hand():
    # B = 12, T = 6, exploration 4, one context. True costs 1 and 3, rewards .2 and .9.
    # explore: N = (0, 0) tie -> draw 1 -> large, b = 9; small, b = 8; tie -> draw 0 -> small, b = 7; large, b = 4
    # exploit: u = (.2, .9), c = (1, 3); t=5: b/tau = 4/2 = 2, p(large) = .5, draw .7 -> small, b = 4 - 1 = 3
    #          t=6: b/tau = 3, p(large) = 1 -> large
    router = two_models(EpsilonFirst(4, accounting="paper"), Scripted(1, 0, 0, 0, 0.7), known=False)
    router.start(Budget(12.0, 6))
    models, rates = [], []
    for _ in range(6):
        decision = served(router, {"small": 1.0, "large": 3.0})
        router.reward(decision, {"small": 0.2, "large": 0.9}[decision.model])
        models.append(decision.model)
        rates.append(decision.rate_usd)
    assert models == ["large", "small", "small", "large", "small", "large"]
    assert rates == pytest.approx([12 / 6, 9 / 5, 8 / 4, 7 / 3, 4 / 2, 3 / 1])


def test_algorithm_2_explores_at_real_cost_and_exploits_at_means():
    router = two_models(EpsilonFirst(2, accounting="paper"), Scripted(0, 0, 0.9), known=False)
    router.start(Budget(12.0, 4))
    for cost in ({"small": 1.0}, {"large": 3.0}):
        decision = served(router, {"small": 9.0, "large": 9.0, **cost})
        router.reward(decision, 0.5)
    assert router._store.ledger("default").plannable_usd == 12.0 - 1.0 - 3.0
    decision = served(router, {"small": 7.0, "large": 7.0})  # equal rewards: the cheap one; its mean 1.0 is debited
    assert decision.model == "small"
    assert router._store.ledger("default").plannable_usd == 8.0 - 1.0
    assert router.status().spent_usd == 11.0


def algorithm_1(contexts, freq, u, c, budget, horizon, draws):
    """Transcribe Algorithm 1 line by line, with HiGHS for the linear program; return the models and the budget left."""
    b, tau, chosen = budget, horizon, []
    n_contexts, n_models = np.shape(u)
    weights = np.array(freq)[:, None]
    for j, draw in zip(contexts, draws, strict=True):
        if b <= 0:
            break
        rows = np.kron(np.eye(n_contexts), np.ones(n_models))
        p = linprog(
            -(weights * u).ravel(),
            A_ub=np.vstack([(weights * c).ravel(), rows]),
            b_ub=np.append(b / tau, np.ones(n_contexts)),
            method="highs",
        ).x.reshape(n_contexts, n_models)
        models = [k for k in np.argsort(c[j]) if p[j, k] > 1e-9]
        skip = 1.0 - p[j].sum()
        cheap_first = ([(-1, skip)] if skip > 1e-9 else []) + [(int(k), p[j, k]) for k in models]
        picked = cheap_first[-1][0] if draw < cheap_first[-1][1] else cheap_first[0][0]
        chosen.append(picked)
        b -= c[j, picked] if picked >= 0 else 0.0
        tau -= 1
    return chosen, b


@pytest.mark.parametrize("seed", range(8))
def test_paper_mode_equals_the_transcription(seed):
    rng = np.random.default_rng(seed)
    freq = rng.dirichlet(np.ones(4))
    u, c = rng.random((4, 3)), rng.random((4, 3))
    contexts = rng.choice(4, size=60, p=freq)
    draws = rng.random(60)
    budget = 60 * 0.6 * float(freq @ c.mean(axis=1))
    expected, left = algorithm_1(contexts, freq, u, c, budget, 60, draws)

    estimates = Estimates(4, 3)
    for j in range(4):
        estimates.add_table(np.array([j]), u[[j]], c[[j]])
    scripted = Scripted()
    router = WiseRouter(
        [Model(name) for name in "abc"],
        Contexts(np.eye(4), freq),
        policy=Offline(accounting="paper", allow_skip=True),
        estimates=estimates,
        seed=scripted,
    )
    router.start(Budget(budget, 60))
    chosen = []
    for j, draw in zip(contexts, draws, strict=True):
        scripted.draws = [draw]
        try:
            decision = router.decide(embedding=np.eye(4)[j])
        except QuerySkipped:
            chosen.append(-1)
            continue
        except BudgetExhausted:
            break
        router.charge(decision, float(rng.random()))  # true costs must not matter
        chosen.append("abc".index(decision.model))
    assert chosen == expected
    assert router._store.ledger("default").plannable_usd == pytest.approx(left, abs=1e-9)


def test_exploration_visits_every_pair_evenly_within_its_context():
    contexts = Contexts(np.eye(3), np.full(3, 1 / 3))
    router = WiseRouter([Model(n) for n in "abcd"], contexts, policy=EpsilonFirst(120), seed=0)
    router.start(Budget(1e6, 1_000))
    rng = np.random.default_rng(1)
    for _ in range(120):
        decision = router.decide(embedding=np.eye(3)[rng.integers(3)])
        router.charge(decision, 0.1)
    invoked = router.estimates.invoked
    assert np.all(invoked.max(axis=1) - invoked.min(axis=1) <= 1)
    assert invoked.sum() == 120


def test_a_released_exploration_does_not_count():
    router = WiseRouter([Model("a"), Model("b")], policy=EpsilonFirst(10), seed=0)
    router.start(Budget(1.0, 10))
    first = router.decide()
    router.release(first)
    assert router.estimates.invoked.sum() == 0


def test_without_any_reward_the_plan_takes_the_cheapest():
    router = WiseRouter([Model("cheap"), Model("dear")], policy=EpsilonFirst(4), seed=0)
    router.start(Budget(100.0, 20))
    for _ in range(10):
        served(router, {"cheap": 1.0, "dear": 2.0})
    assert router.decide().model == "cheap"


def test_actual_accounting_keeps_learning_after_exploration():
    router = WiseRouter([Model("a"), Model("b")], policy=EpsilonFirst(2), seed=0)
    router.start(Budget(1_000.0, 400))
    for t in range(200):
        decision = served(router, {"a": 1.0, "b": 2.0})
        good = decision.model == ("a" if t < 2 else "b")
        router.reward(decision, float(good))
    assert router.plan.reward[0, 0] < 0.3


def test_restricted_models_take_the_place_of_the_planned_ones():
    plan = Plan([1.0], [[0.2, 0.6, 0.9]], [[1.0, 2.0, 4.0]])
    rate = Funds(1.5, 1)  # half model 0, half model 1 at .4 per USD
    mixture = Mixture(plan, "actual")
    all_three = mixture.choose(0, rate, Scripted(0.9))
    assert (all_three.model, all_three.probability) == (0, 0.5)
    without_0 = mixture.choose(0, rate, Scripted(0.9), {1, 2})
    assert (without_0.model, without_0.probability) == (1, 1.0)
    only_last = mixture.choose(0, rate, Scripted(0.1), {2})
    assert (only_last.model, only_last.probability, only_last.expected_cost_usd) == (2, 1.0, 4.0)
    broke = mixture.choose(0, Funds(0.1, 1), Scripted(), {1, 2})
    assert (broke.model, broke.shadow_price) == (1, float("inf"))


def test_offline_follows_what_serving_teaches_and_the_paper_does_not():
    for accounting, learned in (("actual", True), ("paper", False)):
        router = two_models(Offline(accounting=accounting), 0, cost_usd=((1.0, 1.5),))
        before = router.plan.reward[0].copy()
        router.start(Budget(400.0, 200))
        for _ in range(60):
            decision = served(router, {"small": 1.0, "large": 1.5})
            router.reward(decision, 0.0)
        assert np.array_equal(router.plan.reward[0], before) != learned


def test_policies_reopen_by_name():
    for policy in (Offline(accounting="paper"), EpsilonFirst(7, allow_skip=True)):
        again = open_policy(policy.name, policy.settings())
        assert again.settings() == policy.settings()
    with pytest.raises(InvalidInput, match="policy must be one of offline, epsilon-first"):
        open_policy("greedy", {})
    with pytest.raises(InvalidInput, match="length"):
        EpsilonFirst(0)


def test_where_the_budget_does_not_bind_the_cheapest_of_equal_models_is_taken_for_this_query():
    plan = Plan(freq=[1.0], reward=[[0.8, 0.8]], cost_usd=[[1.0, 2.0]])
    mixture, rich = Mixture(plan, "actual"), Funds(1e6, 10)
    unmoved, warm = (Shift(np.zeros(2), own_cost_usd=own) for own in (None, np.array([1.0, 0.25])))
    assert mixture.choose(0, rich, np.random.default_rng(0), None, unmoved).model == 0
    choice = mixture.choose(0, rich, np.random.default_rng(0), None, warm)
    assert (choice.model, choice.shadow_price, choice.expected_cost_usd) == (1, 0.0, 0.25)


def test_after_an_exploration_without_a_known_cost_only_models_that_may_answer_are_explored():
    router = two_models(EpsilonFirst(1), 0, known=False)
    router.start(Budget(100.0, 100))
    router.decide(context=0)
    for name in ("small", "large"):
        assert {router.decide(context=0, eligible=[name]).model for _ in range(5)} == {name}
