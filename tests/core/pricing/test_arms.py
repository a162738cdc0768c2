"""Arms: one model with several parameters, their names and costs, and the logs and artifacts that hold them."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiserouter import Budget, Contexts, Estimates, Model, Price, RoutingLog, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.fitting.log.survey import survey
from wiserouter.learning.new_model import new_model_prior
from wiserouter.pricing.arms import EFFORTS, arm_name, checked_params, family_numbers, split_arm
from wiserouter.pricing.pool import Pool

NAMES = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
VALUES = st.one_of(
    st.booleans(),
    st.none(),
    st.integers(-9_999, 10**9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.from_regex(r"[a-z][a-z0-9.:_-]{0,12}", fullmatch=True).filter(
        lambda text: text not in {"true", "false", "null"}
    ),
)
PARAMS = st.dictionaries(NAMES, st.one_of(VALUES, st.dictionaries(NAMES, VALUES, min_size=1, max_size=2)), max_size=4)
PRICE = Price(input=1e-6, output=2e-6)


@given(st.from_regex(r"[a-z][a-z0-9/.:@-]{0,20}", fullmatch=True), PARAMS, st.sampled_from([None, *sorted(EFFORTS)]))
def test_a_name_says_the_model_and_the_parameters(model, params, effort):
    params |= {} if effort is None else {"reasoning_effort": effort}
    if params or not split_arm(model).params:
        assert split_arm(arm_name(model, params)) == (model, params)


@given(PARAMS.filter(bool))
def test_the_order_of_the_parameters_does_not_matter(params):
    assert arm_name("m", params) == arm_name("m", dict(reversed(params.items())))


@pytest.mark.parametrize(
    "name", ["gpt-5", "claude-sonnet-4@20250514", "openai/gpt@", "@low", "m@low,", "m@low,high", "a@b=c,d"]
)
def test_other_names_are_those_of_models(name):
    assert split_arm(name) == (name, {})


@pytest.mark.parametrize(
    "params", [{"stop": ["."]}, {"a": "x,y"}, {"a": "x@y"}, {"a.b": 1}, {"a": {}}, {"a": "1"}, {"a b": 1}]
)
def test_a_value_without_a_place_in_a_name_is_refused(params):
    with pytest.raises(InvalidInput, match="family="):
        arm_name("m", params)
    assert Model("mine", params=params, family="m").params == params


@pytest.mark.parametrize(
    "params", ["low", ["low"], {1: 2}, {"": 1}, {"a": {1, 2}}, {"a": math.nan}, {"a": object()}, None]
)
def test_parameters_are_json_values_by_name(params):
    with pytest.raises(InvalidInput, match="params must"):
        checked_params(params)


def test_a_model_with_parameters_is_an_arm_of_its_family():
    low = Model("gpt-5", PRICE, params={"reasoning_effort": "low"})
    assert (low.name, low.family, low.params) == ("gpt-5@low", "gpt-5", {"reasoning_effort": "low"})
    assert replace(low, retired=True).name == "gpt-5@low"
    assert Model("gpt-5@low", PRICE, params={"reasoning_effort": "low"}) == low
    own = Model("quick", params={"reasoning_effort": "low"}, family="gpt-5")
    assert (own.name, own.family) == ("quick", "gpt-5")
    assert (Model("gpt-5").family, Model("gpt-5@low").family) == ("gpt-5", "gpt-5")
    assert hash(low) == hash(replace(low))
    with pytest.raises(InvalidInput, match=r"gpt-5@low.*high"):
        Model("gpt-5@low", params={"reasoning_effort": "high"})
    with pytest.raises(InvalidInput, match="family"):
        Model("gpt-5", family=5)


def test_the_parameters_of_the_caller_stay_apart():
    params = {"thinking": {"budget_tokens": 5}}
    model = Model("m", params=params)
    params["thinking"]["budget_tokens"] = 6
    assert model.params == {"thinking": {"budget_tokens": 5}}
    assert model.name == "m@thinking.budget_tokens=5"


def test_families_are_numbered_in_their_order():
    pool = Pool([Model("a@low"), Model("b"), Model("a@high"), Model("a"), Model("mine", family="b")])
    assert pool.families == family_numbers([model.family for model in pool.models]) == [0, 1, 0, 0, 1]


def test_the_limit_of_an_arm_bounds_a_call_that_sets_none():
    arm = Model("m", PRICE, max_output_tokens=1_000, params={"max_tokens": 100})
    pool = Pool([arm, Model("m", PRICE, max_output_tokens=1_000)])
    assert pool.worst_cases_usd(50, None) == pytest.approx([50e-6 + 200e-6, 50e-6 + 2_000e-6])
    assert pool.worst_cases_usd(50, 600) == pytest.approx([50e-6 + 1_200e-6] * 2)  # the caller's own limit is sent


def test_a_hard_budget_holds_over_arms():
    arms = [Model("m", PRICE, max_output_tokens=4_000, params={"max_tokens": most}) for most in (10, 1_000)]
    router = WiseRouter(arms, seed=0)
    router.start(Budget(amount_usd=3e-3, horizon=40, limit="hard", on_exhausted="cheapest"))
    spent = 0.0
    for _ in range(40):
        decision = router.decide("what?", input_tokens=10)
        most = arms[0].params if decision.model == arms[0].name else arms[1].params
        cost = 10e-6 + most["max_tokens"] * 2e-6
        assert decision.reserved_usd == pytest.approx(cost)
        router.charge(decision, cost)
        spent += cost
        if spent + 30e-6 > 3e-3:
            break
    assert router.status().spent_usd == pytest.approx(spent)
    assert spent <= 3e-3


def test_an_artifact_keeps_arms(tmp_path):
    arms = [Model("m", PRICE, params={"reasoning_effort": effort}) for effort in ("low", "high")]
    other = Model("mine", PRICE, params={"stop": ["."]}, family="m")
    router = WiseRouter([*arms, other, Model("plain@low", PRICE)], contexts=Contexts.single())
    router.save(tmp_path / "arms.wise")
    assert WiseRouter.load(tmp_path / "arms.wise").pool.models == router.pool.models


def test_a_log_with_efforts_is_fitted_by_arms(tmp_path):
    rows = {
        "prompt": ["sort a list"] * 3 + ["prove it"] * 3,
        "model": ["gpt-5", "gpt-5", "mini"] * 2,
        "reasoning_effort": ["low", "High", None] * 2,
        "reward": [0.5, 1.0, 0.2] * 2,
        "input_tokens": [10] * 6,
        "output_tokens": [10, 100, 10] * 2,
    }
    pl.DataFrame(rows).write_parquet(tmp_path / "log.parquet")
    log = RoutingLog.read(tmp_path / "log.parquet")
    assert log.models == ("gpt-5@high", "gpt-5@low", "mini")
    router = WiseRouter.fit(log, n_contexts=1, models=[Model("gpt-5", PRICE), Model("mini", PRICE)])
    assert [model.params for model in router.pool.models] == [
        {"reasoning_effort": "high"},
        {"reasoning_effort": "low"},
        {},
    ]
    assert router.pool.families == [0, 0, 1]
    assert router.estimates.means(shrink=False).cost_usd[0] == pytest.approx([210e-6, 30e-6, 30e-6])
    assert RoutingLog.read(tmp_path / "log.parquet", prices={"gpt-5": PRICE}).prices["gpt-5@low"] == PRICE
    found = survey(log)
    assert found.places["effort"] == "reasoning_effort"
    with pytest.raises(InvalidInput, match="must be in the log"):
        WiseRouter.fit(log, n_contexts=1, models=[Model("gpt-6", PRICE)])


def test_a_new_arm_begins_like_the_arms_of_its_model():
    estimates = Estimates(1, 3)
    estimates.add_table(np.zeros(1, dtype=int), [[0.9, 0.7, 0.1]], [[3.0, 1.0, 0.1]])
    known = [Model("big@high"), Model("big@medium"), Model("small")]
    assert new_model_prior(estimates, Pool([*known, Model("big@low")]), None, None)[:2] == pytest.approx((0.8, 2.0))
    assert new_model_prior(estimates, Pool([*known, Model("new")]), None, None).reward == pytest.approx(1.7 / 3)
