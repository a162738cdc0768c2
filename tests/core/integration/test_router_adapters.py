"""The router as adapters use it: new models, queries without a context, answers of other models, other costs."""

import numpy as np
import pytest

from wiserouter import NO_CONTEXT, Budget, Contexts, EpsilonFirst, Estimates, Model, Offline, Price, WiseRouter
from wiserouter.errors import AlreadySettled, BudgetExhausted, InvalidInput, UnknownModel

REWARD = np.array([[0.2, 0.9], [0.8, 0.9]])
COST = np.array([[1.0, 3.0], [1.0, 3.0]])
MODELS = [Model("small", Price(1e-6, 1e-6)), Model("large", Price(3e-6, 3e-6))]


def make(policy=None, models=MODELS, n=50, seed=0) -> WiseRouter:
    estimates = Estimates(2, 2)
    for context in (0, 1):
        estimates.add_table(np.full(n, context), np.tile(REWARD[context], (n, 1)), np.tile(COST[context], (n, 1)))
    contexts = Contexts(np.eye(2, dtype=np.float32), np.array([0.5, 0.5]))
    return WiseRouter(models, contexts, policy=policy or Offline(), estimates=estimates, seed=seed)


def test_a_new_model_is_assumed_as_good_as_the_others_at_a_cost_in_proportion_to_its_price():
    router = make()
    router.start(Budget(100.0, 50))
    router.add_model(Model("new", Price(2e-6, 2e-6)))
    means = router.estimates.means(shrink=False)
    assert means.reward[:, 2] == pytest.approx(REWARD.mean(axis=1), abs=0.01)  # the others' means are shrunk
    assert means.cost_usd[:, 2] == pytest.approx([2.0, 2.0])
    assert "new" in router.status().mix
    decision = router.decide(context=0, eligible=["new"])
    router.charge(decision, 5.0)
    assert router.estimates.calls[0, 2] == 2.0


def test_a_new_model_that_is_stated_to_be_best_and_cheap_is_taken():
    router = make()
    router.start(Budget(100.0, 50))
    router.add_model(Model("new"), reward=1.0, cost_usd=0.5)
    assert {router.decide(context=j).model for j in (0, 1)} == {"new"}


def test_a_new_model_is_explored_as_the_others_before_any_observation():
    router = WiseRouter(MODELS, Contexts.single(), policy=EpsilonFirst(9), seed=0)
    router.start(Budget(100.0, 100))
    router.add_model(Model("new"))
    for _ in range(9):
        router.charge(router.decide("q"), 0.1)
    assert router.estimates.calls.tolist() == [[3.0, 3.0, 3.0]]


@pytest.mark.parametrize("bad", [{"reward": 2.0}, {"cost_usd": -1.0}])
def test_an_invalid_new_model_changes_nothing(bad):
    router = make()
    with pytest.raises(InvalidInput):
        router.add_model(Model("new"), **bad)
    with pytest.raises(InvalidInput, match="unique"):
        router.add_model(Model("small"))
    assert (len(router.pool), router.estimates.shape) == (2, (2, 2))


def test_calls_in_flight_survive_a_new_model():
    router = make()
    router.start(Budget(100.0, 50))
    decision = router.decide(context=1)
    router.add_model(Model("new", Price(1e-6, 1e-6)))
    router.charge(decision, 2.5)
    router.reward(decision, 0.5)
    assert router.status().spent_usd == 2.5


def test_without_a_context_the_means_over_all_contexts_decide():
    router = make()
    router.start(Budget(200.0, 100))
    chosen = [router.decide(context=NO_CONTEXT) for _ in range(60)]
    share = np.mean([d.model == "large" for d in chosen])
    assert 0.3 < share < 0.7  # rate 2 between costs 1 and 3
    assert all(d.context == NO_CONTEXT for d in chosen)
    assert chosen[0].expected_reward == pytest.approx(0.9 if chosen[0].model == "large" else 0.5, abs=0.01)


@pytest.mark.parametrize("policy", [Offline(), EpsilonFirst(200)], ids=["offline", "exploring"])
def test_without_a_context_money_counts_and_nothing_is_learned(policy):
    router = make(policy)
    before = {name: array.copy() for name, array in router.estimates.arrays().items()}
    router.start(Budget(200.0, 100))
    kept, failed = router.decide(context=NO_CONTEXT), router.decide(context=NO_CONTEXT)
    router.charge(kept, 1.5)
    router.reward(kept, 1.0)
    router.release(failed)
    assert router.status().spent_usd == 1.5
    for name, array in router.estimates.arrays().items():
        assert np.array_equal(array, before[name])


def test_a_used_up_budget_without_a_context_goes_to_the_cheapest():
    router = make()
    router.start(Budget(0.5, 1, on_exhausted="cheapest"))
    assert {router.decide(context=NO_CONTEXT).model for _ in range(3)} == {"small"}


@pytest.mark.parametrize("context", [-2, 2])
def test_a_context_outside_is_refused(context):
    router = make()
    router.start(Budget(1.0, 1))
    with pytest.raises(InvalidInput, match=r"context must be NO_CONTEXT or in 0\.\.1"):
        router.decide(context=context)


def test_the_model_that_answered_is_charged_and_rewarded():
    router = make()
    router.start(Budget(100.0, 50))
    decision = router.decide(context=0, eligible=["small"])
    router.charge(decision, 3.5, model="large")
    router.reward(decision, 0.1)
    assert (router.estimates.calls[0] - 50).tolist() == [0.0, 1.0]
    assert (router.estimates.labels[0] - 50).tolist() == [0.0, 1.0]
    with pytest.raises(UnknownModel):
        router.charge(router.decide(context=0), 1.0, model="unknown")


def test_a_cached_answer_costs_nothing_and_teaches_nothing():
    router = make()
    router.start(Budget(100.0, 50))
    router.charge(router.decide(context=0), 0.0, learn=False)
    assert (router.status().charged, router.estimates.calls.sum()) == (1, 200.0)


def test_a_bill_that_comes_after_the_release_counts_once():
    router = make()
    router.start(Budget(100.0, 50))
    decision = router.decide(context=0)
    router.release(decision)
    assert router.status().decided == 0
    router.charge(decision, 2.0)
    status = router.status()
    assert (status.spent_usd, status.decided, status.charged, status.released) == (2.0, 1, 1, 0)
    for again in (lambda: router.charge(decision, 2.0), lambda: router.release(decision)):
        with pytest.raises(AlreadySettled):
            again()
    assert router.status() == status


def test_the_callers_worst_case_bounds_a_hard_budget():
    router = make(models=[Model("small", max_cost_usd=9.0), Model("large", max_cost_usd=9.0)])
    router.start(Budget(5.0, 2, limit="hard"))
    decision = router.decide(context=0, eligible=["small", "large"], worst_case_usd={"small": 4.0, "large": 6.0})
    assert (decision.model, decision.reserved_usd) == ("small", 4.0)
    with pytest.raises(BudgetExhausted):
        router.decide(context=0, eligible=["small"], worst_case_usd={"small": 4.0})


@pytest.mark.parametrize("bad", [float("nan"), -1.0])
def test_a_worst_case_that_is_no_amount_is_refused(bad):
    router = make(models=[Model("small", max_cost_usd=9.0), Model("large", max_cost_usd=9.0)])
    router.start(Budget(5.0, 2, limit="hard"))
    with pytest.raises(InvalidInput, match="worst_case_usd must be a finite number of at least 0"):
        router.decide(context=0, worst_case_usd={"small": bad, "large": 1.0})
    assert router.status().decided == 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_other_costs_must_be_finite(bad):
    router = make()
    router.start(Budget(5.0, 2))
    with pytest.raises(InvalidInput, match="must be a finite number"):
        router.spend(bad)
    assert router.status().spent_usd == 0.0


def test_other_costs_are_paid_from_the_same_budget():
    router = make(models=[Model("small", max_cost_usd=1.0), Model("large", max_cost_usd=3.0)])
    router.start(Budget(2.0, 50, limit="hard"))
    router.spend(0.5)
    router.spend(-0.25)
    assert router.status().spent_usd == 0.25
    with pytest.raises(BudgetExhausted):
        router.spend(2.0)
    assert router.status().spent_usd == 0.25


def test_the_ranking_starts_with_the_choice_and_goes_on_by_worth():
    router = make()
    router.start(Budget(150.0, 50))
    assert router.ranking(router.decide(context=0)) == ["large", "small"]
    assert router.ranking(router.decide(context=0, eligible=["small"])) == ["small", "large"]
    assert len(router.ranking(router.decide(context=NO_CONTEXT))) == 2
    before = router.decide(context=0)
    router.retire_model("small")
    assert router.ranking(router.decide(context=0)) == ["large"]
    assert before.model in router.ranking(before)


def test_prices_and_limits_can_change_at_run_time():
    router = make(models=[Model("small"), Model("large")])
    with pytest.raises(UnknownModel):
        router.update_model(Model("unknown"))
    for name in ("small", "large"):
        router.update_model(Model(name, max_cost_usd=3.0))
    router.start(Budget(9.0, 3, limit="hard"))
    assert router.decide(context=0).reserved_usd == 3.0
