"""Rankings of models by reward less shadow price x cost."""

import pytest

from wiserouter import Decision, Model, Plan, Price
from wiserouter.planning.mixture import Mixture, cheapest_choice
from wiserouter.planning.ranking import ranked, ranked_by_plan, worth_order
from wiserouter.pricing.pool import Pool
from wiserouter.types import NO_CONTEXT

PLAN = Plan([0.5, 0.5], [[0.2, 0.5, 0.9], [0.6, 0.5, 0.4]], [[1.0, 2.0, 9.0], [1.0, 1.0, 1.0]])
POOL = Pool([Model("a", Price(9e-6, 9e-6)), Model("b", max_cost_usd=2e-6), Model("c", Price(1e-6, 1e-6))])


def decided(model, context, shadow_price):
    return Decision("id", model, context, 1.0, 1.0, shadow_price, 1.0, 0.5, 1.0, "default", 0.0)


def order_in(context, shadow_price):
    order = worth_order(PLAN.reward[context].tolist(), PLAN.cost_usd[context].tolist(), shadow_price)
    return sorted(range(PLAN.n_models), key=order)


def test_models_are_ranked_by_worth_at_a_price():
    assert order_in(0, 0.0) == [2, 1, 0]
    assert order_in(0, 0.1) == [1, 0, 2]  # .1, .3, 0
    assert order_in(0, float("inf")) == [0, 1, 2]
    assert order_in(1, float("inf")) == [0, 1, 2]  # of equal cost, the best first


def test_the_ranking_begins_with_the_decided_model():
    assert ranked_by_plan(PLAN, POOL, decided("a", 0, 0.0)) == ["a", "c", "b"]
    assert ranked_by_plan(PLAN, POOL, decided("b", NO_CONTEXT, 0.0)) == ["b", "c", "a"]  # means .4, .5, .65
    assert ranked_by_plan(None, POOL, decided("b", 0, 0.0)) == ["b", "c", "a"]  # list prices 18e-6, 2e-6, 2e-6


@pytest.mark.parametrize("price", [0.0, 0.02, 0.1, 1.0, float("inf")])
@pytest.mark.parametrize("context", [0, 1])
def test_the_figures_of_a_decision_rank_as_the_plan_does(context, price):
    for model in POOL.names:
        decision = decided(model, context, price)
        assert ranked(Mixture(PLAN, "actual").figures(context), POOL.names, decision) == ranked_by_plan(
            PLAN, POOL, decision
        )


def test_the_cheapest_choice_goes_by_means_or_by_list_price():
    choice = cheapest_choice(PLAN, 0, [1, 2], POOL.list_price_usd)
    assert (choice.model, choice.expected_cost_usd, choice.expected_reward, choice.rule) == (1, 2.0, 0.5, "cheapest")
    anywhere = cheapest_choice(PLAN, NO_CONTEXT, [0, 1, 2], POOL.list_price_usd)
    assert (anywhere.model, anywhere.expected_cost_usd, anywhere.expected_reward) == (0, 1.0, pytest.approx(0.4))
    unknown = cheapest_choice(None, 0, [0, 1], POOL.list_price_usd)
    assert (unknown.model, unknown.figures, unknown.shadow_price) == (1, None, float("inf"))
