"""Costs against hand-checked sums and against the bound that money is reserved by."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiserouter import Budget, Conversations, Model, WiseRouter
from wiserouter.errors import InvalidInput, UnlikelyPrice
from wiserouter.pricing.prices import Price, Usage, cost_usd, worst_case_usd

UNIT = 2.0**-17
"""USD per token in which prices are given here: a power of two, so that sums are exact."""

usd = st.just(0.0) | st.floats(1e-100, 1e-3)
prices = st.builds(
    Price,
    input=usd,
    output=usd,
    cache_read=st.none() | usd,
    cache_write=st.none() | usd,
    reasoning=st.none() | usd,
)


@st.composite
def usages(draw):
    inputs, outputs = draw(st.integers(0, 10**7)), draw(st.integers(0, 10**6))
    read = draw(st.integers(0, inputs))
    return Usage(inputs, outputs, read, draw(st.integers(0, inputs - read)), draw(st.integers(0, outputs)))


def test_plain_call_costs_tokens_times_price():
    price = Price(input=1e-6, output=2e-6)
    assert cost_usd(price, Usage(1_000, 500)) == pytest.approx(0.002)


def test_every_kind_of_token_has_its_price():
    special = {"cache_read": UNIT, "cache_write": 12.5 * UNIT, "reasoning": 60.0 * UNIT}
    price = Price(input=10.0 * UNIT, output=100.0 * UNIT, **special)
    usage = Usage(input_tokens=10, output_tokens=5, cache_read_tokens=4, cache_write_tokens=2, reasoning_tokens=3)
    # 4 plain * 10 + 4 read * 1 + 2 written * 12.5 + 2 visible * 100 + 3 reasoning * 60
    assert cost_usd(price, usage) == (40 + 4 + 25 + 200 + 180) * UNIT


def test_special_prices_default_to_the_plain_ones():
    usage = Usage(input_tokens=10, output_tokens=5, cache_read_tokens=4, cache_write_tokens=2, reasoning_tokens=3)
    assert cost_usd(Price(input=2.0 * UNIT, output=3.0 * UNIT), usage) == (10 * 2 + 5 * 3) * UNIT


def test_an_empty_call_is_free():
    assert cost_usd(Price(input=UNIT, output=UNIT), Usage(0, 0)) == 0.0


@pytest.mark.parametrize(
    ("price", "worst"),
    [
        (Price(input=2.0 * UNIT, output=8.0 * UNIT), 280.0),
        (Price(input=2.0 * UNIT, output=8.0 * UNIT, cache_read=0.5 * UNIT, cache_write=2.5 * UNIT), 330.0),
        (Price(input=2.0 * UNIT, output=8.0 * UNIT, cache_read=3.0 * UNIT), 380.0),
        (Price(input=2.0 * UNIT, output=8.0 * UNIT, reasoning=9.0 * UNIT), 290.0),
        (Price(input=2.0 * UNIT, output=8.0 * UNIT, reasoning=UNIT), 280.0),
    ],
)
def test_worst_case_takes_the_highest_price_of_each_side(price, worst):
    assert worst_case_usd(price, input_tokens=100, output_tokens=10) == worst * UNIT


@given(prices, usages(), st.integers(0, 10**6), st.integers(0, 10**6))
def test_no_call_costs_more_than_the_worst_case_of_its_limits(price, usage, spare_input, spare_output):
    worst = worst_case_usd(price, usage.input_tokens + spare_input, usage.output_tokens + spare_output)
    assert 0.0 <= cost_usd(price, usage) <= worst


@given(prices, usages())
def test_cost_equals_the_sum_over_kinds(price, usage):
    plain = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
    kinds = [
        (plain, price.input),
        (usage.cache_read_tokens, price.cache_read_usd),
        (usage.cache_write_tokens, price.cache_write_usd),
        (usage.output_tokens - usage.reasoning_tokens, price.output),
        (usage.reasoning_tokens, price.reasoning_usd),
    ]
    assert cost_usd(price, usage) == pytest.approx(sum(n * each for n, each in kinds), rel=1e-12, abs=1e-300)


def test_runs_are_served_at_prices_that_are_numbers_of_numpy():
    models = [Model(f"m{k}", Price(*price)) for k, price in enumerate(np.array([[1e-7, 4e-7], [1e-6, 4e-6]]))]
    router = WiseRouter(models, conversations=Conversations(unit="run"), seed=0)
    router.start(Budget(amount_usd=40.0, horizon=400))
    for i in range(20):
        router.charge(router.decide("hello", conversation=f"c{i % 4}"), cost_usd=1e-3, usage=Usage(100, 20))


def test_prices_per_million_tokens_are_those_that_providers_list():
    price = Price.per_million(3.0, 15.0, cache_read=0.3, cache_write=3.75, reasoning=15.0)
    assert [price.input, price.output, price.cache_read, price.cache_write, price.reasoning] == pytest.approx(
        [3e-6, 1.5e-5, 3e-7, 3.75e-6, 1.5e-5]
    )
    assert Price.per_million(3.0, 15.0) == Price(3e-6, 1.5e-5)
    with pytest.raises(InvalidInput, match="output per million must be a finite number of at least 0, got -1"):
        Price.per_million(3.0, -1)


@pytest.mark.parametrize(
    ("prices", "name"), [((1e-7, 0.4), "input"), ((0.1, 4e-7), "output"), ((0.1, 0.4, 1e-8), "cache_read")]
)
def test_prices_of_one_token_are_not_taken_for_those_of_a_million(prices, name):
    told = rf"{name} per million must be 0 or at least 0.0001 USD, got .*: if one token costs that, give Price\({name}="
    with pytest.raises(InvalidInput, match=told):
        Price.per_million(*prices)
    assert Price.per_million(0.0, 1e-4) == Price(0.0, 1e-10)


@pytest.mark.parametrize("kind", ["input", "output", "cache_read", "cache_write", "reasoning"])
def test_a_price_of_a_million_tokens_is_refused(kind):
    with pytest.raises(UnlikelyPrice, match=r"150,000 USD per million tokens: .* give 1.5e-07 or Price\.per") as at:
        Price(**{"input": 1e-7, "output": 1e-7, kind: 0.15})
    assert (at.value.name, at.value.value, at.value.highest_usd) == (f"Price.{kind}", 0.15, 1e-3)
    assert at.value.usd_per_mtok == pytest.approx(150_000)
    assert Price(1e-3, 1e-3).input == 1e-3


@pytest.mark.parametrize("usd", [5e-324, 1e-300, 1e-160])
def test_a_price_whose_costs_have_no_squares_is_refused(usd):
    with pytest.raises(InvalidInput, match=r"^Price\.output must be 0 or at least 1e-100 USD per token, got "):
        Price(0.0, usd)


def test_the_lowest_price_gives_finite_figures():
    router = WiseRouter([Model("small", Price(1e-100, 1e-100)), Model("large", Price(1e-3, 1e-3))], seed=0)
    router.start(Budget(1.0, horizon=20))
    for i in range(10):
        decision = router.decide("q")
        assert math.isfinite(decision.expected_cost_usd)
        assert math.isfinite(decision.expected_reward)
        router.charge(decision, usage=Usage(10, i))
        router.reward(decision, 0.5)
    means = router.estimates.means()
    assert np.isfinite([means.cost_usd, means.reward]).all()
