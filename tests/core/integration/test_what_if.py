"""The yield of a plan at another rate, checked by hand."""

import pytest

from wiserouter import Plan
from wiserouter.errors import InfeasibleBudget
from wiserouter.integration import what_if

PLAN = Plan(freq=[1.0], reward=[[0.2, 0.9]], cost_usd=[[1.0, 3.0]])
NAMES = ("small", "large")


def test_between_two_models_the_mix_spends_the_rate():
    bought = what_if(PLAN, 2.0, NAMES)
    assert bought.mix == {"small": pytest.approx(0.5), "large": pytest.approx(0.5)}
    assert bought[:3] == (pytest.approx(2.0), pytest.approx(0.55), pytest.approx(0.35))


def test_beyond_the_ceiling_more_money_buys_nothing():
    bought = what_if(PLAN, 5.0, NAMES)
    assert bought == (3.0, pytest.approx(0.9), 0.0, {"small": 0.0, "large": 1.0})


def test_below_the_floor_there_is_no_plan():
    with pytest.raises(InfeasibleBudget):
        what_if(PLAN, 0.5, NAMES)


def test_a_model_that_joined_after_the_plan_has_no_share():
    assert what_if(PLAN, 1.0, (*NAMES, "new")).mix == {"small": 1.0, "large": 0.0}
