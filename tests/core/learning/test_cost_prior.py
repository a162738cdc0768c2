import numpy as np
import pytest

from wiserouter import Budget, Contexts, Estimates, Model, Price, Usage, WiseRouter
from wiserouter.learning.cost_prior import PRIOR_SPREAD, TYPICAL_TOKENS, prior_costs_usd, tokens_per_call
from wiserouter.learning.shrinkage import PRIOR_COUNT

CHEAP, COSTLY = Price(1e-6, 2e-6), Price(1e-5, 2e-5)


def priced(*prices):
    return [Model(f"m{k}", price) for k, price in enumerate(prices)]


def test_before_any_call_a_list_cost_is_price_times_typical_tokens():
    usd = prior_costs_usd(Estimates(2, 2), priced(CHEAP, COSTLY))
    typical = 1e-6 * TYPICAL_TOKENS[0] + 2e-6 * TYPICAL_TOKENS[1]
    assert usd == pytest.approx(np.array([[typical, 10 * typical]] * 2))


def test_a_model_without_a_price_is_listed_at_the_mean_of_the_others():
    usd = prior_costs_usd(Estimates(1, 3), priced(CHEAP, None, COSTLY))
    assert usd[0, 1] == pytest.approx(usd[0, [0, 2]].mean())
    assert prior_costs_usd(Estimates(1, 2), ()).tolist() == [[1.0, 1.0]]


def test_an_untried_model_is_scaled_by_the_costs_of_its_context_and_of_others_by_hand():
    estimates = Estimates(2, 2)
    listed = prior_costs_usd(estimates, priced(CHEAP, COSTLY))
    for _ in range(3):
        estimates.add_cost(0, 0, 4 * listed[0, 0])  # context 0: four times as expensive as listed
    estimates.add_cost(1, 0, listed[1, 0])
    overall = (3 * 4 + 1) / 4
    context = [(12 + PRIOR_COUNT * overall) / (3 + PRIOR_COUNT), (1 + PRIOR_COUNT * overall) / (1 + PRIOR_COUNT)]
    usd = prior_costs_usd(estimates, priced(CHEAP, COSTLY))
    assert usd[:, 1] == pytest.approx(listed[:, 1] * context)
    trust, expected = (PRIOR_COUNT + 1e-3) * overall, 3 * context[0] + context[1]
    assert usd[:, 0] == pytest.approx(listed[:, 0] * context * np.array((13 + trust) / (expected + trust)))


def test_with_neither_price_nor_call_a_model_is_taken_to_be_cheap():
    estimates = Estimates(2, 3)
    estimates.add_cost(0, 0, 0.5)
    estimates.add_cost(1, 1, 0.2)
    usd = prior_costs_usd(estimates, ())
    assert usd[:, 2] == pytest.approx((1 - PRIOR_SPREAD) * usd[:, :2].min(axis=1))
    some = prior_costs_usd(estimates, priced(CHEAP, None, None))
    assert some[:, 2] == pytest.approx((1 - PRIOR_SPREAD) * some[:, :2].min(axis=1))


def test_free_calls_are_finite_and_do_not_make_others_look_free():
    estimates = Estimates(1, 2)
    for _ in range(50):
        estimates.add_cost(0, 0, 0.0)
    listed = prior_costs_usd(Estimates(1, 2), priced(Price(0, 0), COSTLY))
    usd = prior_costs_usd(estimates, priced(Price(0, 0), COSTLY))
    assert usd[0, 1] == pytest.approx(listed[0, 1])
    assert 0 < usd[0, 0] < 0.1 * listed[0, 1]
    assert np.isfinite(prior_costs_usd(estimates, ())).all()


@pytest.mark.parametrize("paid_usd", [(5e-324, 0.0), (1e-3, -2e-3)])
def test_costs_of_next_to_nothing_or_less_leave_all_priors_positive(paid_usd):
    estimates = Estimates(2, 3)
    for cost_usd in paid_usd:  # what is taken back of a call can be more than was charged
        estimates.add_cost(0, 0, cost_usd)
    for model in (None, CHEAP):  # never called
        usd = prior_costs_usd(estimates, priced(Price(1e-3, 1e-3), model, COSTLY))
        assert np.isfinite(usd).all()
        assert (usd > 0).all()


def test_a_model_whose_price_is_0_costs_next_to_nothing_unless_its_calls_were_paid_for():
    models, estimates = priced(Price(0, 0), COSTLY, None), Estimates(1, 3)
    usd = prior_costs_usd(estimates, models)
    assert 0 < usd[0, 0] < 1e-9
    assert usd[0, 1] == usd[0, 2] == pytest.approx(1e-5 * TYPICAL_TOKENS[0] + 2e-5 * TYPICAL_TOKENS[1])
    estimates.add_cost(0, 1, 0.01)
    assert 0 < prior_costs_usd(estimates, models)[0, 0] < 1e-9
    estimates.add_cost(0, 0, 0.01)
    assert prior_costs_usd(estimates, models)[0, 0] > 1e-3


@pytest.mark.parametrize("others", [(), (COSTLY,)])
def test_a_free_model_answers_where_the_budget_pays_for_no_other(others):
    router = WiseRouter(priced(Price(0, 0), *others), seed=0)
    router.start(Budget(amount_usd=0.002, horizon=100))
    assert router.decide("hello").model == "m0"


def test_tokens_are_shared_by_the_models_of_a_context():
    estimates = Estimates(2, 2)
    for _ in range(998):
        estimates.add_cost(0, 0, 0.1, Usage(100, 10))
    tokens_in, tokens_out = tokens_per_call(estimates)
    assert (tokens_in[0], tokens_out[0]) == pytest.approx((100, 10))
    assert (tokens_in[1], tokens_out[1]) == pytest.approx((100, 10))  # what calls were like elsewhere
    estimates.add_cost(1, 0, 0.1, Usage(3_000, 10))
    assert tokens_per_call(estimates)[0][1] > 1_000


def charged_by_usage(models, usage, n=8):
    router = WiseRouter(models, Contexts(np.eye(2), [0.5, 0.5]), seed=0)
    router.start(Budget(10.0, 1_000))
    for t in range(n):
        decision = router.decide(context=t % 2)
        router.charge(decision, usage=usage)
        router.reward(decision, 0.5)
    return router


def test_usage_teaches_tokens():
    router = charged_by_usage(priced(CHEAP, COSTLY), Usage(10_000, 1))
    assert router.estimates.metered.sum() == 8
    assert tokens_per_call(router.estimates)[0] == pytest.approx([10_000, 10_000])
    assert router.plan.cost_usd[0, 1] == pytest.approx(0.1, rel=0.01)  # whether it was tried or not


@pytest.mark.parametrize("factor", [0.1, 3.0])
def test_a_change_of_price_restates_past_costs_at_once(factor):
    router = charged_by_usage(priced(CHEAP, COSTLY), Usage(1_000, 300), n=40)
    before = router.plan.cost_usd
    router.update_model(Model("m1", Price(factor * COSTLY.input, factor * COSTLY.output)))
    after = router.plan.cost_usd
    assert after[:, 1] == pytest.approx(factor * before[:, 1], rel=1e-9)
    assert after[:, 0] == pytest.approx(before[:, 0], rel=1e-9)
    live = router.policy._live.cost_usd
    assert live == pytest.approx(after, rel=1e-9)


def test_where_one_part_of_the_price_changes_the_tokens_determine_the_effect():
    router = charged_by_usage(priced(CHEAP, COSTLY), Usage(1_000, 300), n=40)
    before = router.plan.cost_usd[:, 1]
    router.update_model(Model("m1", Price(COSTLY.input, 4 * COSTLY.output)))
    ratio = (1_000 + 4 * 2 * 300) / (1_000 + 2 * 300)
    assert router.plan.cost_usd[:, 1] == pytest.approx(ratio * before, rel=1e-6)


def test_a_model_that_was_free_costs_its_list_price_by_its_own_tokens_once_it_has_one():
    router = charged_by_usage(priced(CHEAP, COSTLY), Usage(1_000, 300), n=40)
    paid = router.estimates.cost[:, 1].copy()
    router.update_model(Model("m1", Price(0.0, 0.0)))
    assert router.estimates.cost[:, 1].tolist() == [0.0] * len(paid)
    router.update_model(Model("m1", COSTLY))
    assert router.estimates.cost[:, 1] == pytest.approx(paid, rel=1e-6)
    assert router.estimates.cost[:, 0] == pytest.approx(paid * CHEAP.input / COSTLY.input, rel=1e-6)


def test_calls_that_were_free_at_a_price_stay_free():
    router = WiseRouter(priced(CHEAP, COSTLY), seed=0)
    for _ in range(3):
        router.estimates.add_cost(0, 1, 0.0, Usage(1_000, 300))
    router.update_model(Model("m1", Price(2 * COSTLY.input, 2 * COSTLY.output)))
    assert router.estimates.cost[0, 1] == 0.0


def test_a_price_that_was_not_known_before_restates_nothing():
    router = charged_by_usage([Model("m0", CHEAP), Model("m1", CHEAP)], Usage(1_000, 300))
    cost = router.estimates.cost.copy()
    router.update_model(Model("m1"))
    router.update_model(Model("m1", COSTLY))
    assert np.array_equal(router.estimates.cost, cost)
