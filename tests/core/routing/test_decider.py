"""The decider by hand-checked numbers: arrays in, a record out; no store and no clock."""

from itertools import count

import numpy as np
import pytest

from wiserouter import Budget, Contexts, Estimates, ExploreShare, LabelBudget, Model, Offline, Price
from wiserouter.artifacts.parts import RouterParts
from wiserouter.budgets import open_account
from wiserouter.errors import BudgetExhausted, HorizonExhausted, InvalidInput, NoEligibleModel
from wiserouter.learning.memory import MEMORY
from wiserouter.prompts.query import Query
from wiserouter.routing.decider import Decider
from wiserouter.routing.learner import Learner
from wiserouter.types import NO_CONTEXT

COST_USD = ((1.0, 3.0), (1.0, 3.0))
REWARD = ((0.2, 0.9), (0.5, 0.6))
MODELS = (
    Model("small", Price(1e-4, 2e-4), max_output_tokens=10_000),
    Model("large", Price(3e-4, 4e-4), max_output_tokens=10_000),
)


def decider(accounting="paper", models=MODELS, **options):
    estimates = Estimates(2, 2)
    estimates.add_table(np.arange(2), np.array(REWARD), np.array(COST_USD))
    contexts = Contexts([[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5])
    parts = RouterParts(models, contexts, None, Offline(accounting=accounting), estimates)
    ticks = count(100.0)
    return Decider(Learner(parts, lambda: 0.0), np.random.default_rng(0), lambda: next(ticks), **options)


def snapshot(amount_usd=8.0, horizon=4, **terms):
    return open_account(Budget(amount_usd, horizon, **terms), 0.0).snapshot()


def test_a_record_holds_the_decision_and_its_trace():
    record = decider().decide(Query(0, None), snapshot(), scope="team")
    decision = record.decision
    # 2 USD per request buy the large model in context 0 (slope .35) and the small one in context 1 (slope .05)
    assert (decision.model, record.model, decision.context, decision.probability) == ("large", 1, 0, 1.0)
    assert (decision.rate_usd, decision.expected_cost_usd, decision.expected_reward) == (2.0, 3.0, 0.9)
    assert (decision.reserved_usd, decision.scope, decision.decided_at) == (3.0, "team", 100.0)
    assert (record.debit, record.state, record.reward, record.cost_usd) == ("paper", "in flight", None, None)
    assert record.trace.funds == snapshot().funds
    assert (record.trace.worst_usd, record.trace.room_usd, record.trace.eligible) == (None, None, None)
    assert decider().decide(Query(1, None), snapshot()).decision.model == "small"


def test_the_caller_restricts_the_models():
    record = decider().decide(Query(0, None), snapshot(), eligible=["small"])
    assert (record.decision.model, record.trace.eligible) == ("small", {0})
    with pytest.raises(NoEligibleModel):
        decider().decide(Query(0, None), snapshot(), eligible=[])


def test_a_hard_limit_holds_the_worst_case_back():
    record = decider("actual").decide(Query(0, 10_000), snapshot(100.0, 10, limit="hard"), max_output_tokens=5_000)
    # 10,000 tokens x .0003 + 5,000 x .0004 = 5; the small model 10,000 x .0001 + 5,000 x .0002 = 2
    assert record.trace.worst_usd == pytest.approx([2.0, 5.0])
    assert record.decision.reserved_usd == pytest.approx(5.0)
    assert record.trace.room_usd == pytest.approx(100.0, abs=1e-6)
    assert record.trace.funds.cushion_usd == pytest.approx(2.0)


def test_the_bound_of_the_caller_replaces_prices_times_tokens():
    hard = snapshot(100.0, 10, limit="hard")
    record = decider("actual").decide(Query(0, None), hard, worst_case_usd={"small": 1.5})
    assert record.decision.model == "small"
    assert record.trace.worst_usd == [1.5, float("inf")]
    with pytest.raises(InvalidInput, match="worst_case_usd"):
        decider("actual").decide(Query(0, None), hard, worst_case_usd={"small": -1.0})


def test_models_beyond_the_room_are_left_out_and_none_is_an_error():
    tight = snapshot(4.0, 2, limit="hard")
    assert decider("actual").decide(Query(0, 10_000), tight, max_output_tokens=5_000).decision.model == "small"
    with pytest.raises(BudgetExhausted) as refused:
        decider("actual").decide(Query(0, 10_000), snapshot(1.0, 2, limit="hard"), max_output_tokens=5_000)
    assert refused.value.needed_usd == pytest.approx(2.0)


def in_flight(amount_usd, *held):
    """Return the budget with calls in flight of these worst and expected costs."""
    account = open_account(Budget(amount_usd, 10, limit="hard"), 0.0)
    for worst_usd, expected_usd in held:
        account.reserve(worst_usd, expected_usd)
    return account.snapshot()


def test_a_call_that_may_wait_is_not_sent_to_a_cheaper_model():
    # the large model's worst case is 5: 3 of 33 USD are free, and 30 are held by a call that is expected to cost 1
    budget, bounds = in_flight(33.0, (30.0, 1.0)), {"small": 2.0, "large": 5.0}
    record = decider("actual").decide(Query(0, None), budget, worst_case_usd=bounds)
    assert record.decision.model == "small"
    with pytest.raises(BudgetExhausted) as refused:
        decider("actual").decide(Query(0, None), budget, worst_case_usd=bounds, may_wait=True)
    assert (refused.value.is_only_held, refused.value.needed_usd) == (True, 5.0)
    later = in_flight(33.0, (20.0, 1.0))
    record = decider("actual").decide(Query(0, None), later, worst_case_usd=bounds, may_wait=True)
    assert record.decision.model == "large"


def test_a_call_that_may_wait_does_not_wait_for_a_model_that_can_never_fit():
    budget, bounds = in_flight(33.0, (30.0, 1.0)), {"small": 2.0, "large": 33.5}
    record = decider("actual").decide(Query(0, None), budget, worst_case_usd=bounds, may_wait=True)
    assert record.decision.model == "small"
    with pytest.raises(BudgetExhausted) as refused:
        decider("actual").decide(Query(0, None), budget, worst_case_usd=dict.fromkeys(bounds, 33.5), may_wait=True)
    assert not refused.value.is_only_held


def test_the_margin_of_calls_in_flight_is_held_back_unless_the_call_may_wait():
    budget, bounds = in_flight(100.0, (30.0, 1.0)), {"small": 2.0, "large": 5.0}
    traces = [
        decider("actual").decide(Query(0, None), budget, worst_case_usd=bounds, may_wait=may_wait).trace
        for may_wait in (False, True)
    ]
    assert [trace.funds.cushion_usd for trace in traces] == pytest.approx([2.0 + 29.0, 2.0])


def test_the_cushion_remembers_the_most_expensive_cheapest_call_and_fades():
    one, hard = decider("actual"), snapshot(1_000.0, 100, limit="hard")
    cushions = [
        one.decide(Query(0, tokens), hard, max_output_tokens=5_000).trace.funds.cushion_usd
        for tokens in (90_000, 10_000, 10_000)
    ]
    assert cushions == pytest.approx([10.0, 10.0 * MEMORY, 10.0 * MEMORY**2])


def test_a_budget_that_is_used_up_refuses_or_goes_on_with_the_cheapest():
    spent = open_account(Budget(4.0, 2), 0.0)
    spent.spend(4.0, 4.0)
    with pytest.raises(BudgetExhausted):
        decider().decide(Query(0, None), spent.snapshot())
    over = open_account(Budget(4.0, 1), 0.0)
    over.reserve(1.0, 1.0)
    with pytest.raises(HorizonExhausted):
        decider().decide(Query(0, None), over.snapshot())
    on = open_account(Budget(4.0, 1, on_exhausted="cheapest"), 0.0)
    on.spend(4.0, 4.0)
    record = decider().decide(Query(0, None), on.snapshot())
    assert (record.decision.model, record.trace.choice.rule) == ("small", "cheapest")


def test_an_expected_limit_refuses_a_call_that_costs_more_than_is_left():
    account = open_account(Budget(4.0, 2), 0.0)
    account.spend(3.5, 3.5)
    with pytest.raises(BudgetExhausted) as refused:
        decider("actual").decide(Query(0, None), account.snapshot())
    assert refused.value.needed_usd == 1.0


def test_labels_are_asked_for_where_there_is_something_to_learn():
    one = decider(labels=LabelBudget(1.0))
    assert one.decide(Query(0, None), snapshot()).decision.ask_feedback
    assert not one.decide(Query(NO_CONTEXT, None), snapshot()).decision.ask_feedback
    assert not decider().decide(Query(0, None), snapshot()).decision.ask_feedback


def test_exploration_varies_the_draw():
    one = decider(explore=ExploreShare(1.0))
    drawn = {one.decide(Query(0, None), snapshot(80.0, 40)).decision.model for _ in range(40)}
    assert drawn == {"small", "large"}


def test_several_budgets_bear_a_call_together():
    day = Budget(2.5, every="day", horizon=1, within=Budget(1_000.0, every="month", horizon=1_000))
    account = open_account(day, 0.0)
    budget = account.snapshot()
    assert (budget.bearable_usd, budget.hard, budget.margin_usd) == (pytest.approx(2.5), False, 0.0)
    assert len(budget.funds.each) == 2
    month = Budget(5.0, 30, every="month")
    mixed = open_account(Budget(9.0, 3, every="day", limit="hard", within=month), 0.0).snapshot()
    assert (mixed.hard, mixed.bearable_usd) == (True, pytest.approx(5.0))
    assert mixed.room_usd == pytest.approx(9.0, abs=1e-6)
