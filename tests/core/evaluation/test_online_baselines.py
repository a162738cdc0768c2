"""Published routers that learn or pace while they serve: PILOT, BARouter, ParetoBandit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsRegressor

from support.field import always, fit, queries_of, serve
from wiserouter.evaluation.baselines.barouter import NEIGHBOURS, BaRouter, GrowingNeighbours, VirtualQueue
from wiserouter.evaluation.baselines.base import NOT_SERVED, Answers, Terms
from wiserouter.evaluation.baselines.linear_bandit import LinearArms
from wiserouter.evaluation.baselines.nearest_neighbors import NearestNeighbors
from wiserouter.evaluation.baselines.pareto_bandit import Pacer, ParetoBandit
from wiserouter.evaluation.baselines.pilot import Pilot
from wiserouter.evaluation.bench.splits import split_table
from wiserouter.evaluation.datasets.synthetic import make_table


@pytest.fixture(scope="module")
def split():
    return split_table(make_table(1000, np.random.default_rng(0)), seed=0, n_contexts=4)


def rates(split, n=4):
    mean = split.train.answers.cost_usd.mean(axis=0)
    return np.geomspace(mean.min(), mean.max(), n)


# LinUCB


@pytest.mark.parametrize("forgetting", [1.0, 0.97])
def test_linear_arms_are_discounted_ridge_regressions(forgetting):
    rng = np.random.default_rng(0)
    arms = LinearArms(np.zeros((2, 3, 3)), np.zeros((2, 3)), ridge=2.0, forgetting=forgetting)
    rows, rewards, chosen = rng.normal(size=(40, 3)), rng.random(40), rng.integers(2, size=40)
    for model, row, reward in zip(chosen, rows, rewards, strict=True):
        arms.learn(model, row, reward)
    mean, width = arms.bounds(np.ones(3))
    for k in (0, 1):
        own = np.flatnonzero(chosen == k)
        weight = forgetting ** (own[-1] - own)
        gram = 2.0 * forgetting ** (own[-1] + 1) * np.eye(3) + (weight[:, np.newaxis] * rows[own]).T @ rows[own]
        theta = np.linalg.solve(gram, (weight * rewards[own]) @ rows[own])
        variance = np.ones(3) @ np.linalg.inv(gram) @ np.ones(3) / forgetting ** (39 - own[-1])
        assert mean[k] == pytest.approx(theta.sum())
        assert width[k] == pytest.approx(np.sqrt(variance))


def test_linear_arms_with_forgetting_keep_a_ridge():
    arms = LinearArms(np.zeros((1, 2, 2)), np.zeros((1, 2)), forgetting=0.9)
    for _ in range(500):
        arms.learn(0, np.array([1.0, 0.0]), 1.0)
    mean, width = arms.bounds(np.array([0.0, 1.0]))
    assert mean[0] == pytest.approx(0.0)
    assert 1.0 <= width[0] < 5.0


# PILOT


def test_pilot_takes_the_expensive_model_while_a_usd_buys_enough():
    queries = always(1000, [0.5, 0.9], [1.0, 10.0])
    run = serve(fit(Pilot(), queries), queries, 5.0)
    # 0.09 per USD passes (0.5 e / 0.09)^z 0.09 / e up to z = 0.368: until 184 of the bin's 500 USD are spent
    assert run.given[:100].tolist() == [1] * 19 + [0] * 81
    # 229 of them are left: 268 of 729 in the second bin
    assert run.given[100:200].tolist() == [1] * 27 + [0] * 73


def test_pilot_keeps_within_the_budget(split):
    fitted = Pilot().fit(split.training(), np.random.default_rng(0))
    for rate_usd in rates(split):
        run = serve(fitted, split.test, rate_usd)
        assert run.cost_usd.sum() <= rate_usd * split.test.n + run.cost_usd.max()  # the last call may cost more
    assert run.cost_usd.mean() <= rate_usd
    assert NOT_SERVED not in run.given


def test_pilot_learns_that_its_prior_is_wrong():
    before, after = always(300, [0.9, 0.1], [1.0, 1.0]), always(600, [0.1, 0.9], [1.0, 1.0])
    run = serve(fit(Pilot(), before), after, 2.0)
    assert run.given[0] == 0
    assert (run.given[-100:] == 1).all()


# BARouter


@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=50), st.floats(0.1, 5.0))
def test_the_queue_is_at_least_the_overspending(costs, rate_usd):
    queue = VirtualQueue(Terms(rate_usd * len(costs), len(costs)))
    for cost_usd in costs:
        queue.add_cost(cost_usd)
    assert queue.length_usd >= sum(costs) - rate_usd * len(costs) - 1e-9


def test_barouter_stays_near_the_budget(split):
    fitted = BaRouter().fit(split.training(), np.random.default_rng(0))
    for rate_usd in rates(split):
        terms = Terms(rate_usd * split.test.n, split.test.n)
        run = serve(fitted, split.test, rate_usd)
        queue = VirtualQueue(terms)
        for cost_usd in run.cost_usd:
            queue.add_cost(cost_usd)
        over_usd = run.cost_usd.sum() - terms.budget_usd
        assert over_usd <= queue.length_usd + 1e-12
        assert over_usd <= 0.1 * terms.budget_usd


def test_barouter_calls_the_best_model_until_it_has_overspent():
    queries = always(400, [0.5, 0.9], [1.0, 9.0])
    run = serve(fit(BaRouter(), queries), queries, 3.0)
    # the expensive model is better by 0.4 at a price of 8 Q / (3 * 3 * 20): while Q < 9, so first and at Q = 6
    assert run.given[:3].tolist() == [1, 1, 0]
    assert run.cost_usd.mean() == pytest.approx(3.0, rel=0.02)


def test_neighbours_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    old, late = rng.normal(size=(150, 4)).astype(np.float32), rng.normal(size=(200, 4)).astype(np.float32)
    answers = Answers(rng.random((150, 3)), rng.random((150, 3)))
    grown = GrowingNeighbours(NearestNeighbors(old, answers, NEIGHBOURS), horizon=200)
    chosen, rewards = rng.integers(3, size=200), rng.random(200)
    for row, model, reward in zip(late, chosen, rewards, strict=True):
        grown.add(row, model, reward, 2.0 * reward)
    asked = rng.normal(size=(20, 4)).astype(np.float32)
    for k in range(3):
        rows = np.vstack([old, late[chosen == k]])
        known = KNeighborsRegressor(NEIGHBOURS).fit(rows, np.append(answers.reward[:, k], rewards[chosen == k]))
        assert [grown.means(row).reward[k] for row in asked] == pytest.approx(known.predict(asked).tolist())


# ParetoBandit


def test_the_pacer_follows_its_two_equations():
    pacer, mean, price = Pacer(2.0), 2.0, 0.0
    for cost_usd in np.random.default_rng(0).exponential(3.0, 200):
        mean = 0.95 * mean + 0.05 * cost_usd
        price = float(np.clip(price + 0.05 * (mean / 2.0 - 1.0), 0.0, 5.0))
        pacer.observe(cost_usd)
    assert (pacer.mean_usd, pacer.price) == pytest.approx((mean, price))


def test_the_pacer_rises_while_overspending_and_falls_after():
    pacer, prices = Pacer(1.0), []
    for cost_usd in [4.0] * 100 + [0.0] * 200:
        pacer.observe(cost_usd)
        prices.append(pacer.price)
    assert (np.diff(prices[:49]) > 0.0).all()
    assert prices[99] == 5.0
    assert (np.diff(prices[150:220]) < 0.0).all()
    assert prices[-1] == 0.0


def test_paretobandit_holds_a_feasible_budget():
    rng = np.random.default_rng(0)
    x = rng.random(3000)
    reward = np.column_stack([np.full(3000, 0.5), 0.5 + 0.5 * x])
    queries = queries_of(reward, np.tile([1.0, 10.0], (3000, 1)), x)
    run = serve(fit(ParetoBandit(), queries), queries, 4.0)
    assert run.cost_usd.mean() == pytest.approx(4.0, rel=0.05)
    chosen = run.given == 1
    assert x[chosen].mean() > x[~chosen].mean() + 0.2
