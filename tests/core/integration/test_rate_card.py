"""Rate cards: costs, worst cases with tiers and long prompts, and the router's model of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiserouter import Price, Usage
from wiserouter.integration import Rate, RateCard, count_tokens, exact_encoding, rates_of

UNIT = 2.0**-17
"""USD per token in which prices are given here: a power of two, so that sums are exact."""

PRICE = Price(input=UNIT, output=2.0 * UNIT, cache_write=1.5 * UNIT, reasoning=2.5 * UNIT)
LONG = Price(input=10.0 * UNIT, output=20.0 * UNIT)
RATES = (
    *rates_of(PRICE),
    *rates_of(LONG, 200_000),
    Rate(True, 3.0 * UNIT, tier="priority"),
    Rate(False, 4.0 * UNIT, tier="priority"),
)


def card(**fields) -> RateCard:
    return RateCard(PRICE, RATES, "settings", **fields)


def test_the_rates_of_a_price():
    assert list(rates_of(PRICE, 7)) == [
        Rate(True, UNIT, 7),
        Rate(True, UNIT, 7),
        Rate(True, 1.5 * UNIT, 7),
        Rate(False, 2.0 * UNIT, 7),
        Rate(False, 2.5 * UNIT, 7),
    ]


@pytest.mark.parametrize(
    ("inputs", "outputs", "choices", "tier", "usd"),
    [
        (10, 4, 1, "", 10 * 1.5 + 4 * 2.5),
        (10, 100, 1, "", 10 * 1.5 + 10 * 2.5),
        (10, None, 3, "", 10 * 1.5 + 30 * 2.5),
        (10, 4, 1, "priority", 10 * 3.0 + 4 * 4.0),
        (200_000, 4, 1, "", 200_000 * 1.5 + 4 * 2.5),
        (200_001, 4, 1, "", 200_001 * 10.0 + 4 * 20.0),
        (0, 4, 1, "", 4 * 2.5),
        (None, 4, 1, "", float("inf")),
    ],
)
def test_the_worst_case_takes_every_rate_that_can_apply(inputs, outputs, choices, tier, usd):
    assert card(max_output_tokens=10).worst_case_usd(inputs, outputs, choices, tier) == usd * UNIT


def test_an_unknown_input_stands_for_the_whole_window():
    assert card(max_input_tokens=100).worst_case_usd(None, 4) == (100 * 1.5 + 4 * 2.5) * UNIT


def test_an_output_without_a_limit_is_unbounded():
    assert card(max_input_tokens=100).worst_case_usd(10, None) == float("inf")


def test_the_cost_is_that_of_a_plain_call_where_no_long_prompt_prices_are_given():
    assert card().cost_usd(Usage(300_000, 2)) == (300_000 * 1.0 + 2 * 2.0) * UNIT


@pytest.mark.parametrize(("inputs", "usd"), [(200_000, 200_004.0), (200_001, 2_000_050.0), (500_001, 50_000_300.0)])
def test_the_cost_of_a_long_prompt_is_at_the_price_of_its_length(inputs, usd):
    longest = Price(input=100.0 * UNIT, output=100.0 * UNIT)
    assert card(long_prompt_prices=((200_000, LONG), (500_000, longest))).cost_usd(Usage(inputs, 2)) == pytest.approx(
        usd * UNIT
    )


def test_the_model_is_bounded_where_both_limits_are_known():
    model = card(max_input_tokens=100, max_output_tokens=10).model("m")
    assert (model.name, model.price, model.max_input_tokens, model.max_output_tokens) == ("m", PRICE, 100, 10)
    assert model.max_cost_usd == (100 * 1.5 + 10 * 2.5) * UNIT


@pytest.mark.parametrize("limits", [{}, {"max_input_tokens": 100}, {"max_output_tokens": 10}])
def test_the_model_is_unbounded_where_a_limit_is_missing(limits):
    assert card(**limits).model("m").max_cost_usd is None


prices = st.just(0.0) | st.floats(1e-100, 1e-3)


@given(st.builds(Price, prices, prices, prices, prices, prices), st.integers(0, 10**6), st.integers(0, 10**5))
def test_no_cost_exceeds_the_worst_case(price, inputs, outputs):
    one = RateCard(price, tuple(rates_of(price)), "settings")
    usage = Usage(inputs, outputs, cache_read_tokens=inputs // 2, reasoning_tokens=outputs // 2)
    assert one.cost_usd(usage) <= one.worst_case_usd(inputs, outputs)


def test_only_a_model_whose_own_encoding_is_at_hand_counts_exactly():
    assert exact_encoding("some-open-model") is None
    counted = count_tokens("x", "gpt-4o")
    assert exact_encoding("gpt-4o") == (counted.encoding if counted.encoding == "o200k_base" else None)
