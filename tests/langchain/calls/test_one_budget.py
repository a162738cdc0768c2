"""A router's budget is one: copies share it, and what would start it again is refused."""

import copy
import pickle
from contextlib import closing

import pytest
from langchain_core.runnables import ConfigurableField

from support.chat_stub import PRICES, StubChat, hard_core, routed
from wiserouter import Budget, Model, WiseRouter
from wiserouter.budgets.changes import BudgetChange
from wiserouter.budgets.pauses import BudgetPaused
from wiserouter.errors import InvalidInput
from wiserouter_langchain import RunnableWiseRouter


def test_fields_that_would_be_configured_by_call_are_refused_since_each_call_would_start_the_budget_again():
    with pytest.raises(InvalidInput, match="got max_attempts, for each call would start its budget again"):
        routed().configurable_fields(max_attempts=ConfigurableField(id="attempts"))


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda llm: llm.model_copy(deep=True)])
def test_a_copy_spends_the_same_budget(copied):
    models = {name: StubChat(max_tokens=9) for name in PRICES}
    llm = RunnableWiseRouter(models=models, prices=PRICES, router=hard_core())
    twin = copied(llm)
    answers = [llm.invoke("hello"), twin.invoke("hello")]
    assert twin.core is llm.core
    assert llm.core.status().charged == 2
    assert [llm.feedback(answer, 1.0) for answer in reversed(answers)] == [1, 1]


def test_a_router_is_not_pickled_and_the_error_says_what_to_do():
    with pytest.raises(TypeError, match=r"save what it learned by llm.core.save\(file\)"):
        pickle.dumps(routed())


def test_a_field_of_almost_the_right_name_is_refused_and_settings_of_all_chat_models_are_not():
    with pytest.raises(InvalidInput, match="no field 'run_bugdet_usd': do you mean 'run_budget_usd'"):
        routed(unit="run", run_bugdet_usd=0.5)
    assert routed(temperature=0, max_tokens=10, timeout=3, max_retries=2, stop=[], api_key="k", base_url="u")


def test_a_budget_that_is_a_number_and_an_unknown_unit_are_refused_with_a_remedy():
    with pytest.raises(InvalidInput, match=r"budget must be a Budget, such as Budget\(amount_usd=50, .*got 5"):
        routed(budget=5)
    with pytest.raises(InvalidInput, match="unit must be one of 'call', 'conversation', 'run', got 'turn'"):
        routed(unit="turn")


@pytest.mark.parametrize("cap", [0, -5])
def test_a_limit_of_the_output_leaves_at_least_one_token(cap):
    with pytest.raises(InvalidInput, match=f"cap_output_tokens must be at least 1, or None for no limit, got {cap}"):
        routed(cap_output_tokens=cap)


def test_a_second_router_on_one_core_goes_on_with_its_budgets():
    shared = WiseRouter([Model(name, price) for name, price in PRICES.items()])

    def built(amount_usd=10.0, **terms):
        models = {name: StubChat(max_tokens=9) for name in PRICES}
        scopes = {"team-a": Budget(1.0, 100)}
        budget = Budget(amount_usd, 1_000, **terms)
        return RunnableWiseRouter(models=models, prices=PRICES, router=shared, budget=budget, scopes=scopes)

    built().paid_by("team-a").invoke("hello")
    built(amount_usd=20.0).paid_by("team-a").invoke("hello")
    assert [shared.status(scope).charged for scope in ("default", "team-a")] == [2, 2]
    assert shared.status().left_usd == pytest.approx(20.0 - shared.status().spent_usd)
    with pytest.raises(InvalidInput, match=r"or router.start\(budget, restart=True\)"):
        built(limit="hard")
    assert shared.status().charged == 2
    shared.start(Budget(10.0, 1_000, limit="hard"))
    assert built(limit="hard").core.status().charged == 0


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/budget.db"])
def test_what_an_operator_has_changed_stays_where_a_second_router_is_built(url, tmp_path):
    pool = [Model(name, price) for name, price in PRICES.items()]
    with closing(WiseRouter(pool, store=url.format(tmp_path))) as shared:

        def built(amount_usd=10.0, limit="hard", **terms):
            models = {name: StubChat(max_tokens=9) for name in PRICES}
            budget = Budget(amount_usd, 1_000, limit, **terms)
            RunnableWiseRouter(models=models, router=shared, budget=budget)
            return shared.budget().amount_usd, shared.budget().limit

        assert built() == (10.0, "hard")
        shared.change_budget(BudgetChange(amount_usd=5.0))
        shared.change_budget(BudgetChange(limit="expected"))
        assert built() == built() == (5.0, "expected")
        assert built(20.0) == (20.0, "expected")  # on other terms these count, and the limit of the operator
        for _ in range(2):
            with pytest.raises(InvalidInput, match="the budget that runs"):
                built(on_exhausted="cheapest")
        shared.start(Budget(10.0, 1_000, "hard"), restart=True)
        shared.set_budget(amount_usd=7.0)
        assert built() == (10.0, "hard")
        shared.change_budget(BudgetChange(ended=True))
        built()
        with pytest.raises(BudgetPaused):
            shared.decide("hello", worst_case_usd={"small": 0.0, "large": 0.0})
        assert built(30.0) == (30.0, "hard")
        assert shared.decide("hello", worst_case_usd={"small": 0.0, "large": 0.0}).model in PRICES
