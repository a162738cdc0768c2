"""Costs against hand-checked sums and against the bound that money is reserved by."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiserouter.errors import InvalidInput
from wiserouter.pricing.prices import Price, Usage, cost_usd, worst_case_usd

usd = st.floats(0, 1e-2)
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
    price = Price(input=10.0, output=100.0, cache_read=1.0, cache_write=12.5, reasoning=60.0)
    usage = Usage(input_tokens=10, output_tokens=5, cache_read_tokens=4, cache_write_tokens=2, reasoning_tokens=3)
    # 4 plain * 10 + 4 read * 1 + 2 written * 12.5 + 2 visible * 100 + 3 reasoning * 60
    assert cost_usd(price, usage) == 40 + 4 + 25 + 200 + 180


def test_special_prices_default_to_the_plain_ones():
    usage = Usage(input_tokens=10, output_tokens=5, cache_read_tokens=4, cache_write_tokens=2, reasoning_tokens=3)
    assert cost_usd(Price(input=2.0, output=3.0), usage) == 10 * 2 + 5 * 3


def test_an_empty_call_is_free():
    assert cost_usd(Price(input=1.0, output=1.0), Usage(0, 0)) == 0.0


@pytest.mark.parametrize(
    ("price", "worst"),
    [
        (Price(input=2.0, output=8.0), 280.0),
        (Price(input=2.0, output=8.0, cache_read=0.5, cache_write=2.5), 330.0),
        (Price(input=2.0, output=8.0, cache_read=3.0), 380.0),
        (Price(input=2.0, output=8.0, reasoning=9.0), 290.0),
        (Price(input=2.0, output=8.0, reasoning=1.0), 280.0),
    ],
)
def test_worst_case_takes_the_highest_price_of_each_side(price, worst):
    assert worst_case_usd(price, input_tokens=100, max_output_tokens=10) == worst


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


@pytest.mark.parametrize(("inputs", "outputs"), [(-1, 0), (0, -1), (1.5, 0), (0, True), (float("nan"), 0)])
def test_worst_case_refuses_what_is_not_a_count(inputs, outputs):
    with pytest.raises(InvalidInput, match="must be a whole number of at least 0, got"):
        worst_case_usd(Price(input=1.0, output=1.0), inputs, outputs)
