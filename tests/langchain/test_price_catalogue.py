"""Prices: the caller's own, the catalogue's with those of long prompts, and none at all."""

import pytest
from genai_prices import Usage as Counted
from genai_prices import calc_price
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI

from support.chat_stub import StubChat
from wiserouter import Price, Usage
from wiserouter.errors import InvalidInput, UnknownPrice
from wiserouter_langchain.price_catalogue import rate_card_of
from wiserouter_langchain.settlement import reported_usd, usage_of

NO_TOKENS = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
MODELS = {
    "gpt-4o-mini": ChatOpenAI(model="gpt-4o-mini", api_key="x"),
    "gpt-4.1": ChatOpenAI(model="gpt-4.1", api_key="x"),
    "claude-sonnet-4-5": ChatAnthropic(model="claude-sonnet-4-5", api_key="x"),
}


def test_your_own_price_comes_first():
    card = rate_card_of("a", MODELS["gpt-4.1"], Price(1e-6, 2e-6))
    assert (card.price, card.source, card.long_prompt_prices) == (Price(1e-6, 2e-6), "user", ())


def test_no_price_is_refused_with_the_remedy(monkeypatch):
    with pytest.raises(UnknownPrice, match=r"prices=\{'mine': Price\(input=\.\.\., output=\.\.\.\)\}"):
        rate_card_of("mine", StubChat(model="unheard-of"), None)
    monkeypatch.setattr("wiserouter_langchain.price_catalogue.find_spec", lambda name: None)
    with pytest.raises(UnknownPrice, match=r"pip install 'wiserouter\[langchain\]'"):
        rate_card_of("mini", MODELS["gpt-4o-mini"], None)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(sorted(MODELS)), st.integers(1, 400_000), st.integers(0, 5_000), st.floats(0, 1))
def test_costs_are_the_catalogues(name, inputs, outputs, cached):
    read = int(cached * inputs)
    provider = "anthropic" if name.startswith("claude") else "openai"
    counted = Counted(input_tokens=inputs, output_tokens=outputs, cache_read_tokens=read)
    expected = float(calc_price(counted, model_ref=name, provider_id=provider).total_price)
    card = rate_card_of(name, MODELS[name], None)
    usage = Usage(inputs, outputs, cache_read_tokens=read)
    assert card.cost_usd(usage) == pytest.approx(expected, rel=1e-9, abs=1e-15)
    assert card.cost_usd(usage) <= card.worst_case_usd(inputs, outputs) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("message", "usd"),
    [
        (
            AIMessage("x", usage_metadata={"input_tokens": 0, "output_tokens": 0, "total_tokens": 0, "total_cost": 0}),
            0.0,
        ),
        (AIMessage("x", response_metadata={"response_cost": 0.5}), 0.5),
        (AIMessage("x", response_metadata={"cost": 0.25}), 0.25),
        (AIMessage("x", response_metadata={"token_usage": {"cost": 0.125}}), 0.125),
        (AIMessage("x", response_metadata={"cost": True, "response_cost": "much"}), None),
        (AIMessage("x", response_metadata={"cost": -1, "response_cost": 0.5}), 0.5),
        (AIMessage("x"), None),
    ],
)
def test_a_reported_cost_is_taken(message, usd):
    assert reported_usd(message) == usd


@pytest.mark.parametrize("cost", [-1, float("inf"), float("nan")])
def test_a_reported_cost_that_is_no_amount_is_refused(cost):
    with pytest.raises(InvalidInput, match="finite number of at least 0"):
        reported_usd(AIMessage("x", response_metadata={"cost": cost}))


@pytest.mark.parametrize(
    ("block", "usage"),
    [
        (None, None),
        ({}, None),
        ({"input_tokens": 0, "output_tokens": 0}, None),
        ({"input_tokens": 10, "output_tokens": 5}, Usage(10, 5)),
        (
            {
                "input_tokens": 10,
                "output_tokens": 5,
                "input_token_details": {"cache_read": 8, "cache_creation": 8},
                "output_token_details": {"reasoning": 9},
            },
            Usage(10, 5, cache_read_tokens=8, cache_write_tokens=2, reasoning_tokens=5),
        ),
        (  # by the time for which it is kept, as langchain-anthropic has it
            {
                "input_tokens": 10,
                "output_tokens": 5,
                "input_token_details": {
                    "cache_read": 1,
                    "cache_creation": 0,
                    "ephemeral_5m_input_tokens": 4,
                    "ephemeral_1h_input_tokens": 2,
                },
            },
            Usage(10, 5, cache_read_tokens=1, cache_write_tokens=6),
        ),
        (  # both the sum and its parts
            {
                "input_tokens": 10,
                "output_tokens": 5,
                "input_token_details": {"cache_creation": 6, "ephemeral_5m_input_tokens": 6},
            },
            Usage(10, 5, cache_write_tokens=6),
        ),
        (  # with a service tier, as langchain-openai has it
            {
                "input_tokens": 10,
                "output_tokens": 5,
                "input_token_details": {"flex": 2, "flex_cache_read": 8, "flex_cache_creation": None},
                "output_token_details": {"flex": 2, "flex_reasoning": 3},
            },
            Usage(10, 5, cache_read_tokens=8, reasoning_tokens=3),
        ),
    ],
)
def test_usage_blocks(block, usage):
    assert usage_of(block) == usage
