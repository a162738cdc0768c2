"""The first day of a router: no log, and no score of any answer."""

import logging

import numpy as np
import pytest

from support.random_effects import toward_price_line
from wiserouter import Budget, Estimates, Model, Price, WiseRouter
from wiserouter.learning.optimistic_estimates import OptimisticEstimates

PRICES = (Price(1e-7, 1e-7), Price(1e-6, 1e-6), Price(1e-5, 1e-5))
COST_USD = (0.0001, 0.001, 0.01)  # of a call: 500 tokens in, 500 out
BEST = (0.3, 0.6, 0.9)


def pool(scores=(None, None, None), prices=PRICES):
    return [Model(name, price, score=one) for name, price, one in zip("abc", prices, scores, strict=True)]


def first_day(models, rate_usd, *, requests=400, scored=0.0, truth=BEST, **settings):
    """Serve requests at a rate, score a share of them, and return the router and the model of each."""
    router = WiseRouter(models, seed=1, **settings)
    router.start(Budget(rate_usd * requests, requests))
    rng, chosen = np.random.default_rng(2), []
    for _ in range(requests):
        decision = router.decide()
        chosen.append("abc".index(decision.model))
        router.charge(decision, COST_USD[chosen[-1]])
        if rng.random() < scored:
            router.reward(decision, float(rng.random() < truth[chosen[-1]]))
    return router, np.array(chosen)


@pytest.mark.parametrize("scores", [(0.3, 0.6, 0.9), (0.5, 0.55, 0.6)])
@pytest.mark.parametrize("rate_usd", [0.0005, 0.006])
def test_without_scores_a_prior_quality_decides_and_the_budget_is_spent(scores, rate_usd):
    router, chosen = first_day(pool(scores), rate_usd)
    status = router.status()
    assert 0.98 <= status.spent_usd / status.amount_usd <= 1.005
    # the plan at the scores and the true costs, but for the first calls
    reward, cost = np.array(scores), np.array(COST_USD)
    best = max(
        (w * reward[i] + (1 - w) * reward[k])
        for i in range(3)
        for k in range(3)
        if cost[i] <= rate_usd <= cost[k]
        for w in [(cost[k] - rate_usd) / (cost[k] - cost[i]) if i != k else 1.0]
    )
    assert reward[chosen].mean() >= best - 0.02 * (scores[2] - scores[0])


def test_a_dear_model_of_a_lower_score_is_left_alone():
    router, chosen = first_day(pool((0.8, 0.6, 0.5)), 0.006)
    assert (chosen[100:] == 0).all()
    over = router.status().unspent  # of its 400 requests
    assert over.startswith("98% of the rate stays unspent: the budget gives $6.00 per 1,000, and by the estimates")
    router.set_budget(horizon=800)
    line = router.status().unspent
    assert line.startswith("98% of the rate stays unspent: the budget gives $5.90 per 1,000, and by the estimates")
    assert "no model is worth more than the plan's, mostly a, at $0.100 per 1,000" in line
    assert "0 scores of 400 calls are known: scores (reward) or prior qualities" in line


def test_where_no_model_costs_more_a_smaller_budget_would_buy_as_much():
    router, _ = first_day(pool((0.3, 0.6, 0.9)), 5 * COST_USD[2])
    router.set_budget(horizon=800)
    says = "scores of 400 calls are known, and no model costs more: a smaller budget buys as much"
    assert router.status().unspent.endswith(says)
    assert router.explain(router.decide()).unspent.endswith(says)


def test_with_prices_alone_the_budget_buys_the_models_of_its_price():
    for rate_usd in (0.0005, 0.003):
        router, chosen = first_day(pool(), rate_usd)
        status = router.status()
        assert status.spent_usd / status.amount_usd >= 0.9
        between_the_ends = BEST[0] + (rate_usd - COST_USD[0]) / (COST_USD[2] - COST_USD[0]) * (BEST[2] - BEST[0])
        assert np.array(BEST)[chosen].mean() >= between_the_ends


def test_scores_that_come_late_bring_the_benefit_of_the_doubt_back():
    models = pool((0.6, 0.5, 0.5))
    estimates = Estimates(1, 3)
    optimistic = OptimisticEstimates(estimates, models, 2.0)
    estimates.met[:] = 1.0
    estimates.add_invoked(0, 0, count=500)
    optimistic.refresh(500, 0.5)
    doubt = np.subtract(optimistic.row(0).reward, optimistic.row(0).mean)
    assert (doubt < 0.01).all()
    for _ in range(20):
        estimates.add_reward(0, 0, 0.6, delay_s=86_400.0)
    estimates.pending = 470.0  # of the 500, those younger than a day
    optimistic.refresh(500, 0.5)
    assert (np.subtract(optimistic.row(0).reward, optimistic.row(0).mean)[1:] > 0.05).all()


def test_a_penalty_for_what_is_unknown_does_not_wane_without_scores():
    estimates = Estimates(1, 3)
    estimates.met[:] = 1.0
    pessimistic = OptimisticEstimates(estimates, pool((0.5, 0.5, 0.5)), -0.3)
    pessimistic.refresh(500, 0.5)
    before = pessimistic.row(0).reward
    estimates.add_invoked(0, 0, count=500)
    pessimistic.refresh(500, 0.5)
    assert pessimistic.row(0).reward[1:] == pytest.approx(before[1:])


def test_capped_bounds_are_ordered_by_their_means_and_still_count_as_equal():
    estimates = Estimates(1, 3)
    estimates.met[:] = 1.0
    optimistic = OptimisticEstimates(estimates, pool((0.5, 0.6, 0.7)), 50.0)
    optimistic.refresh(500, 1.0)
    reward = optimistic.row(0).reward.tolist()
    assert reward == sorted(reward)
    assert len(set(reward)) == 3
    assert reward == pytest.approx([1.0] * 3, abs=1e-5)


def test_the_levels_of_scores_and_rewards_are_aligned():
    """A leaderboard's scores are all .4 below the rewards here: a model that was tried must not stand out for that."""
    models = pool((0.4, 0.5, 0.3))
    estimates = Estimates(1, 3)
    estimates.met[:] = 1.0
    for _ in range(10):
        estimates.add_cost(0, 0, 1.0)
        estimates.add_reward(0, 0, 0.8)
    optimistic = OptimisticEstimates(estimates, models, 0.0)
    optimistic.refresh(100, 1.0)
    mean = optimistic.row(0).mean
    assert mean[1] > mean[0] > mean[2]
    assert mean[0] == pytest.approx(0.8, abs=0.1)


def test_a_scored_model_is_not_drawn_to_the_price_line():
    optimistic = OptimisticEstimates(Estimates(1, 3), pool((0.7, None, 0.6)), 0.0)
    optimistic._estimates.met[:] = 1.0
    optimistic.refresh(100, 1.0)
    assert optimistic.row(0).mean[0] == pytest.approx(0.7, abs=0.04)  # of what may be anything from 0 to 1
    assert optimistic.row(0).mean[2] == pytest.approx(0.6, abs=0.04)


def test_the_line_rises_slightly_until_rewards_speak():
    log_price, unknown = np.array([-2.0, 0.0, 2.0]), np.full(3, np.inf)
    rising = toward_price_line(np.zeros(3), unknown, log_price)[0]
    assert rising == pytest.approx([0.42, 0.5, 0.58])
    falling = toward_price_line(np.array([0.9, 0.5, 0.1]), np.full(3, 1e-4), log_price)[0]
    assert falling == pytest.approx([0.9, 0.5, 0.1], abs=0.02)


def test_the_log_says_why_money_is_left(caplog):
    with caplog.at_level(logging.INFO, logger="wiserouter"):
        first_day(pool((0.8, 0.6, 0.5)), 0.006, requests=250)
    lines = [record for record in caplog.records if "stays unspent" in record.message]
    assert [record.levelname for record in lines] == ["WARNING", "WARNING"]  # after 100 decisions and after 200
    assert lines[0].message.startswith("budget of default: 99% of the rate stays unspent")


def test_an_explanation_says_why_more_money_buys_nothing():
    router, _ = first_day(pool((0.8, 0.6, 0.5)), 0.006, requests=100)
    router.set_budget(horizon=200)
    why = router.explain(router.decide())
    assert why.unspent.startswith("more money buys nothing here: no model is taken to be better than a; 0 scores of")
    tight, _ = first_day(pool((0.3, 0.6, 0.9)), 0.0005, requests=100)
    tight.set_budget(amount_usd=0.1, horizon=200)
    assert tight.explain(tight.decide()).unspent is None
    assert tight.status().unspent is None


def test_with_enough_scores_a_smaller_budget_is_the_remedy():
    router, _ = first_day(pool(), 0.02, scored=1.0, truth=(0.9, 0.5, 0.4))
    router.set_budget(horizon=800)
    assert router.status().unspent.endswith("scores of 400 calls are known: a smaller budget buys as much")
