import asyncio

import numpy as np
import pytest

from wiserouter import Budget, Contexts, Estimates, Model, Price, WiseRouter
from wiserouter.errors import InfeasibleBudget, InvalidInput, NoEligibleModel, UnknownModel
from wiserouter.planning.batch_allocation import BatchProgram
from wiserouter.routing.batch_methods import BATCH_PRICE
from wiserouter.testing import TableEncoder

REWARD, COST = np.array([[0.2, 0.9], [0.5, 0.6]]), np.array([[0.01, 0.03], [0.01, 0.03]])
TEXTS = ["chat", "code", "code", "chat", "code"]


LONG = "code " * 50
ENCODED = {"code": [1.0, 0.1], "chat": [0.1, 1.0]}


def router(encoded=ENCODED, **large):
    estimates = Estimates(2, 2)
    for noise in (-0.5, 0.5):
        estimates.add_table(np.arange(2), REWARD, COST * (1 + noise))
    contexts = Contexts([[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5])
    models = [Model("small"), Model("large", **large)]
    return WiseRouter(models, contexts, encoder=TableEncoder(encoded), estimates=estimates, seed=0)


def test_the_allocation_is_that_of_the_program_on_the_routers_own_estimates():
    one = router()
    found = one.allocate(TEXTS, 0.11)
    means, at = one.estimates.means(), np.array([1, 0, 0, 1, 0])
    expected = BatchProgram(means.reward[at], means.cost_usd[at]).allocate(0.11)
    assert found.models == tuple(("small", "large")[k] for k in expected.model)
    assert found.models == ("small", "large", "large", "small", "large")
    assert found.expected_cost_usd == pytest.approx(0.11, abs=1e-12)
    assert found.expected_reward == pytest.approx(expected.expected_reward / 5)
    assert sum(found.spend_usd.values()) == pytest.approx(sum(found.costs_usd), abs=1e-12)
    assert found.spend_usd == pytest.approx({"small": 0.02, "large": 0.09})


def test_nothing_is_reserved_or_counted():
    one = router()
    before = {name: array.copy() for name, array in one.estimates.arrays().items()}
    assert one.allocate(TEXTS, 0.11) == one.allocate(TEXTS, 0.11)
    assert all((before[name] == array).all() for name, array in one.estimates.arrays().items())


def test_batch_prices_buy_what_twice_the_budget_buys():
    assert router().allocate(TEXTS, 0.055, price_factor=BATCH_PRICE).models == router().allocate(TEXTS, 0.11).models
    of_one = router().allocate(TEXTS, 0.05 + 0.005 * 3, price_factor={"large": 0.5})
    assert of_one.models.count("large") == 3
    assert of_one.expected_cost_usd == pytest.approx(0.065)


def test_models_that_cannot_take_a_query_are_left_out():
    encoded = {"code": [1.0, 0.1], "chat": [0.1, 1.0], LONG: [1.0, 0.1]}
    found = router(encoded, max_input_tokens=20).allocate([*TEXTS, LONG], 1.0)
    assert found.models == ("large",) * 5 + ("small",)
    with pytest.raises(NoEligibleModel):
        router(encoded, max_input_tokens=20).allocate([*TEXTS, LONG], 1.0, eligible=["large"])
    assert set(router().allocate(TEXTS, 1.0, eligible=["small"]).models) == {"small"}
    with pytest.raises(UnknownModel):
        router().allocate(TEXTS, 1.0, eligible=["huge"])


def test_a_confidence_holds_money_back():
    sure, plain = router().allocate(TEXTS * 40, 5.0, confidence=0.95), router().allocate(TEXTS * 40, 5.0)
    assert sure.margin_usd > 0.0 == plain.margin_usd
    assert sure.expected_cost_usd + sure.margin_usd <= 5.0
    assert sure.expected_cost_usd < plain.expected_cost_usd
    with pytest.raises(InfeasibleBudget):  # four calls of each model do not say so much
        router().allocate(TEXTS * 40, 4.0, confidence=0.95)


@pytest.mark.parametrize("texts", ["chat", [], [None], ["chat", 3]])
def test_texts_that_are_none_are_refused(texts):
    with pytest.raises(InvalidInput):
        router().allocate(texts, 1.0)


def test_budgets_and_factors_that_cannot_be_are_refused():
    with pytest.raises(InfeasibleBudget):
        router().allocate(TEXTS, 0.04)
    for factor in ({"huge": 0.5}, -1.0, {"small": float("nan")}):
        with pytest.raises(InvalidInput):
            router().allocate(TEXTS, 1.0, price_factor=factor)
    with pytest.raises(InvalidInput, match="estimates"):
        WiseRouter([Model("small"), Model("large")]).allocate(TEXTS, 1.0)


def priced(*others):
    models = [Model("large", Price(1e-5, 1e-5)), *others, Model("small", Price(1e-6, 1e-6), max_input_tokens=20)]
    return WiseRouter(models, seed=0)


def test_until_a_call_was_paid_for_queries_go_to_the_cheapest_listed_models_that_take_them():
    found = priced(Model("own")).allocate([*TEXTS, LONG], 1.0, price_factor={"small": 0.5, "own": 0.0})
    assert found.models == ("small",) * 5 + ("large",)
    assert found.costs_usd == pytest.approx([700 * 0.5e-6] * 5 + [700 * 1e-5])
    assert priced().allocate(TEXTS, 1.0, capacities={"small": 2}).models.count("large") == 3
    dearest = Model("dearest", Price(1e-3, 1e-3))
    assert set(priced(dearest).allocate(TEXTS, 100.0, capacities={"small": 4}).models) == {"small", "large"}
    with pytest.raises(InfeasibleBudget):
        priced().allocate(TEXTS, 5 * 699e-6)
    with pytest.raises(InvalidInput, match="confidence needs the costs of calls"):
        priced().allocate(TEXTS, 1.0, confidence=0.9)
    free = WiseRouter([Model("free", Price(0.0, 0.0)), Model("large", Price(1e-5, 1e-5))])
    assert set(free.allocate(TEXTS, 0.0).models) == {"free"}


def test_until_a_call_was_paid_for_a_hard_budget_bounds_the_worst_cases():
    worst = np.tile([0.1, 0.02], (5, 1))
    assert set(priced().allocate(TEXTS, 0.1, worst_case_usd=worst, hard=True).models) == {"small"}
    with pytest.raises(InfeasibleBudget):
        priced().allocate(TEXTS, 0.099, worst_case_usd=worst, hard=True)


def test_a_model_takes_no_more_queries_than_its_capacity():
    found = router().allocate(TEXTS, 1.0, capacities={"large": 2})
    assert [found.models[i] for i in (0, 3)] == ["small", "small"]  # code gains more from the large one
    assert found.models.count("large") == 2
    assert router().allocate(TEXTS, 1.0, capacities={"large": 5}) == router().allocate(TEXTS, 1.0)
    for capacities in ({"huge": 1}, {"large": -1}, {"small": 2, "large": 2}):
        with pytest.raises(InvalidInput):
            router().allocate(TEXTS, 1.0, capacities=capacities)
    with pytest.raises(InfeasibleBudget):
        router().allocate(TEXTS, 0.06, capacities={"small": 2})


def test_the_batch_price_of_each_model_counts_where_it_has_one(tmp_path):
    one = router(price=Price(2e-6, 8e-6), batch_price=Price(1e-6, 3e-6))
    assert one.allocate(TEXTS, 0.065, price_factor="batch") == one.allocate(TEXTS, 0.065, price_factor={"large": 0.5})
    models = [Model("small", Price(1e-3, 1e-3)), one.pool.models[1]]
    one = WiseRouter(models, estimates=one.estimates, contexts=one.contexts)
    one.save(tmp_path / "router.wise")
    assert WiseRouter.load(tmp_path / "router.wise").pool.models == one.pool.models
    with pytest.raises(InvalidInput, match="'batch'"):
        router().allocate(TEXTS, 1.0, price_factor="half")


def test_a_call_at_other_prices_teaches_its_plain_cost():
    one = router()
    one.start(Budget(1.0, horizon=10))
    decision = one.decide("code", eligible=["small"])
    with pytest.raises(InvalidInput, match="learned_usd"):
        one.charge(decision, 0.005, learned_usd=-1.0)
    asyncio.run(one.acharge(decision, 0.005, learned_usd=0.01))
    assert one.status().spent_usd == 0.005
    assert one.estimates.means(shrink=False).cost_usd[0, 0] == pytest.approx(0.01)


def test_a_hard_budget_bounds_the_sum_of_worst_cases():
    worst = np.tile([0.02, 0.1], (5, 1))
    found = router().allocate(TEXTS, 0.26, worst_case_usd=worst, hard=True)
    held = [worst[0, ("small", "large").index(name)] for name in found.models]
    assert sum(held) <= 0.26 < sum(held) + 0.08  # one more would not fit
    assert found.models.count("large") == 2
    assert found.expected_cost_usd == pytest.approx(sum(found.costs_usd)) == pytest.approx(0.09)
    assert found.models[1] == "large"  # the queries that gain most
    with pytest.raises(InfeasibleBudget) as refused:
        router().allocate(TEXTS, 0.05, worst_case_usd=worst, hard=True)
    assert refused.value.floor_usd == pytest.approx(0.02)


def test_a_model_of_infinite_worst_case_takes_no_query():
    worst = np.zeros((5, 2))
    worst[0, 1] = np.inf
    found = router().allocate(TEXTS, 1.0, worst_case_usd=worst)
    assert found.models == ("small",) + ("large",) * 4


@pytest.mark.parametrize(
    "terms",
    [
        {"hard": True},
        {"hard": True, "worst_case_usd": np.zeros((5, 2)), "confidence": 0.9},
        {"worst_case_usd": np.zeros((4, 2))},
        {"worst_case_usd": np.full((5, 2), np.nan)},
        {"worst_case_usd": np.full((5, 2), -1.0)},
    ],
)
def test_worst_cases_that_are_none_are_refused(terms):
    with pytest.raises(InvalidInput, match="worst_case_usd"):
        router().allocate(TEXTS, 1.0, **terms)
