"""The pool: its models by name, those that may take a query, and bounds on the cost of a call."""

import pytest

from wiserouter import Model, Price
from wiserouter.errors import InvalidInput, NoEligibleModel, UnknownModel, UnknownPrice
from wiserouter.pricing.pool import Pool

UNIT = 2.0**-17
PRICE = Price(input=UNIT, output=10.0 * UNIT)


def pool(*models):
    return Pool([Model(name, **settings) for name, settings in models])


def test_models_are_found_by_name():
    both = pool(("small", {}), ("large", {"price": PRICE}))
    assert (len(both), both.names, both.index("large")) == (2, ("small", "large"), 1)
    assert both.by_name["large"].price is PRICE
    with pytest.raises(UnknownModel, match="tiny"):
        both.index("tiny")


@pytest.mark.parametrize(
    ("models", "says"),
    [
        ([], "at least one model, got none"),
        (["small"], "must be Model values"),
        ([Model("a"), Model("b"), Model("a")], "unique, got 'a' 2 times"),
        ([Model("a", retired=True)], "not retired, got none"),
    ],
)
def test_a_pool_without_models_to_serve_is_refused(models, says):
    with pytest.raises(InvalidInput, match=says):
        Pool(models)


# eligible models


@pytest.mark.parametrize("price", [0.15, "0.15", {"input": 1e-6}])
def test_a_price_that_is_a_number_is_refused(price):
    for name in ("price", "batch_price"):
        with pytest.raises(InvalidInput, match=rf"Model.{name} must be a Price, got .*Price.per_million"):
            Model("small", **{name: price})


def test_without_restrictions_all_models_are_eligible():
    assert pool(("a", {}), ("b", {})).unrestricted
    assert pool(("a", {}), ("b", {})).eligible(None, 10**9) is None
    windows = pool(("a", {"max_input_tokens": 10}), ("b", {}))
    assert not windows.unrestricted
    assert windows.eligible(None, None) is None  # the length is not known


def test_names_windows_and_retirement_restrict_together():
    models = pool(("a", {"max_input_tokens": 100}), ("b", {"retired": True}), ("c", {}), ("d", {}))
    assert models.eligible(None, 100) == {0, 2, 3}
    assert models.eligible(None, 101) == {2, 3}
    assert models.eligible(None, None) == {0, 2, 3}
    assert models.eligible(["a", "b", "c"], 101) == {2}
    with pytest.raises(UnknownModel, match="e"):
        models.eligible(["e"], 1)


def test_where_no_model_is_left_the_error_gives_the_reason_of_each():
    models = pool(("a", {"max_input_tokens": 100}), ("b", {"retired": True}), ("c", {}))
    with pytest.raises(NoEligibleModel) as error:
        models.eligible(["a", "b"], 101)
    assert error.value.reasons == {"a": "needs 101 tokens, window is 100", "b": "retired", "c": "not in eligible"}


# bounds on the cost of a call


def test_tokens_are_needed_for_windows_and_under_a_hard_limit_for_prices():
    assert [pool(("a", {})).needs_tokens(hard=hard) for hard in (False, True)] == [False, False]
    assert [pool(("a", {"price": PRICE})).needs_tokens(hard=hard) for hard in (False, True)] == [False, True]
    assert pool(("a", {"max_input_tokens": 9}), ("b", {})).needs_tokens(hard=False)


def test_the_worst_case_takes_the_tighter_limit_of_the_output():
    other = {"price": PRICE, "max_cost_usd": 5.0 * UNIT}
    models = pool(("a", {"price": PRICE, "max_output_tokens": 3}), ("b", other))
    assert models.worst_cases_usd(7, 2) == [27.0 * UNIT, 27.0 * UNIT]
    assert models.worst_cases_usd(7, 4) == [37.0 * UNIT, 47.0 * UNIT]
    assert models.worst_cases_usd(7, None) == [37.0 * UNIT, 5.0 * UNIT]  # with no output limit the bound counts


def test_given_bounds_are_used_where_no_tokens_are_known():
    models = pool(("a", {"max_cost_usd": UNIT}), ("b", {"price": PRICE, "max_cost_usd": 5.0 * UNIT}))
    assert models.worst_cases_usd(None, None) == models.worst_cases_usd(7, None) == [UNIT, 5.0 * UNIT]


def test_a_model_without_any_bound_is_refused_under_a_hard_limit():
    models = pool(("a", {"price": PRICE}), ("b", {}))
    with pytest.raises(UnknownPrice, match="b"):
        models.check_bounded()
    with pytest.raises(UnknownPrice, match="a"):
        models.worst_cases_usd(7, None)
    pool(("a", {"price": PRICE}), ("b", {"max_cost_usd": 1.0})).check_bounded()


def test_models_of_unknown_cost_are_ordered_by_price_then_by_bound():
    models = pool(("a", {"price": PRICE, "max_cost_usd": 0.1 * UNIT}), ("b", {"max_cost_usd": 3.0 * UNIT}), ("c", {}))
    assert [models.list_price_usd(k) for k in range(3)] == [11.0 * UNIT, 3.0 * UNIT, float("inf")]
