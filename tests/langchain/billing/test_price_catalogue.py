"""Prices: the caller's own, the catalogue's with those of long prompts, other hours and service tiers, and none."""

from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace

import pytest
from genai_prices import Usage as Counted
from genai_prices import calc_price
from genai_prices.types import ConditionalPrice, ModelPrice, StartDateConstraint
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai import ChatOpenAI

from support.chat_stub import StubChat
from wiserouter import Budget, Price, Usage
from wiserouter.errors import InvalidInput, UnknownPrice
from wiserouter_langchain import RunnableWiseRouter
from wiserouter_langchain.billing.price_catalogue import _possible, at_this_moment, rate_card_of
from wiserouter_langchain.billing.settlement import bill_of_run, reported_usd, usage_of
from wiserouter_langchain.billing.usage_observer import ModelRun, with_stated_usage
from wiserouter_langchain.pool.pool_member import pool_member
from wiserouter_langchain.requests.request import request_of

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
    monkeypatch.setattr("wiserouter_langchain.billing.price_catalogue.find_spec", lambda name: None)
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


class DeepSeek(StubChat):
    """A model whose price is twice as high at some hours."""

    def _get_ls_params(self, stop=None, **kwargs):
        return {"ls_provider": "deepseek", "ls_model_name": "deepseek-v4-pro"}


def test_a_call_is_bounded_by_the_price_of_any_hour_and_charged_at_that_of_its_own():
    member, hours = pool_member("a", DeepSeek(), None), [datetime(2027, 1, 5, hour, tzinfo=UTC) for hour in range(24)]
    counted, usage = Counted(input_tokens=1_000, output_tokens=100), Usage(1_000, 100)
    costs = []
    for now in hours:
        expected = calc_price(counted, "deepseek-v4-pro", provider_id="deepseek", genai_request_timestamp=now)
        costs.append(at_this_moment(member.rate_card, member.model, now).cost_usd(usage))
        assert costs[-1] == pytest.approx(float(expected.total_price))
    assert min(costs) < max(costs) <= member.rate_card.worst_case_usd(1_000, 100) * (1 + 1e-12)
    assert member.depends_on_time
    assert member.present_card().cost_usd(usage) in costs
    priced = member.at_price(Price(5e-6, 6e-6))
    assert (priced.present_card().price, priced.rate_card.worst_case_usd(1, 1)) == (Price(5e-6, 6e-6), 11e-6)


def test_a_router_that_goes_on_has_the_catalogues_prices_whatever_hour_it_began_at():
    llm, budget = RunnableWiseRouter(models={"a": DeepSeek()}, budget=Budget(1.0, 100)), Budget(1.0, 100)
    again = RunnableWiseRouter(models={"a": DeepSeek()}, router=llm.core, budget=budget)
    first, later = (one._environment.members["a"] for one in (llm, again))
    assert (later.rate_card, later.depends_on_time) == (first.rate_card, True)
    for hour in range(24):
        price = at_this_moment(first.rate_card, first.model, datetime(2027, 1, 5, hour, tzinfo=UTC)).price
        card = rate_card_of("a", DeepSeek(), None, kept=price)
        assert (card.price, card.rates, card.source) == (price, first.rate_card.rates, "genai-prices")
    assert rate_card_of("a", DeepSeek(), None, kept=Price(5e-6, 6e-6)).source == "user"


def test_a_price_that_is_announced_can_apply_and_one_that_is_over_cannot():
    def starting(in_days, usd):
        day = date.today() + timedelta(days=in_days)
        return ConditionalPrice(constraint=StartDateConstraint(day), prices=ModelPrice(input_mtok=usd, output_mtok=usd))

    prices = [ConditionalPrice(prices=ModelPrice(input_mtok=9, output_mtok=9)), starting(-9, 1), starting(9, 2)]
    found = _possible(SimpleNamespace(model=SimpleNamespace(prices=prices)))
    assert [each.input_mtok for each in found] == [1, 2]


@pytest.mark.parametrize("tier", ["default", "flex", "priority", "unheard-of", None])
def test_an_answer_of_a_service_tier_costs_what_the_catalogue_says(tier):
    card = rate_card_of("a", ChatOpenAI(model="gpt-5", api_key="x"), None)
    usage = {"input_tokens": 1_000, "output_tokens": 100, "total_tokens": 1_100}
    answer = AIMessage("x", usage_metadata=usage, response_metadata={"service_tier": tier})
    context = {"service_tier": tier} if tier in ("flex", "priority") else None
    counted = Counted(input_tokens=1_000, output_tokens=100)
    expected = calc_price(counted, "gpt-5", provider_id="openai", price_context=context).total_price
    bill = bill_of_run(ModelRun(answer), card, request_of([], {}), hard=False).bill
    assert bill.cost_usd == pytest.approx(float(expected))


def test_an_answer_without_usage_is_estimated_at_the_price_of_its_service_tier():
    card, flex = rate_card_of("a", ChatOpenAI(model="gpt-5", api_key="x"), None), {"service_tier": "flex"}
    plain, cheaper = (ModelRun(AIMessage("some words", response_metadata=metadata)) for metadata in ({}, flex))
    bills = [bill_of_run(run, card, request_of([], {}), hard=False).bill for run in (plain, cheaper)]
    assert bills[1].cost_usd == pytest.approx(bills[0].cost_usd / 2)


def test_tools_of_an_answer_without_usage_are_estimated_by_their_texts():
    card = rate_card_of("a", ChatOpenAI(model="gpt-5", api_key="x"), None)
    tools = [{"type": "function", "function": {"name": "look", "description": "where to look " * 20}}]
    request = request_of([HumanMessage("hi")], {"tools": tools})
    bill = bill_of_run(ModelRun(AIMessage("")), card, request, hard=False).bill
    tokens = bill.cost_usd / card.price_of(Usage(1, 0)).input
    assert 60 < tokens < 150  # and not the 1,000 that a provider may add at most
    assert request.input_bound_tokens > 1_000


@pytest.mark.parametrize(("n", "usd"), [(100_000, 6e-6), (300_000, 12e-6)])
def test_what_is_cached_for_an_hour_costs_twice_the_price_of_a_prompt_of_that_length(n, usd):
    card = rate_card_of("a", MODELS["claude-sonnet-4-5"], None)
    block = {"input_tokens": n, "output_tokens": 0, "input_token_details": {"ephemeral_1h_input_tokens": n}}
    answer = AIMessage("", usage_metadata={**block, "total_tokens": n})
    assert bill_of_run(ModelRun(answer), card, request_of([], {}), hard=False).bill.cost_usd == pytest.approx(n * usd)


class Speaking(StubChat):
    """A model whose service tiers will cost more from another day on."""

    def _get_ls_params(self, stop=None, **kwargs):
        return {"ls_provider": "google_genai", "ls_model_name": "gemini-3.8-flash-tts"}


@pytest.mark.parametrize("now", [datetime(2026, 11, 5, tzinfo=UTC), datetime(2027, 2, 5, tzinfo=UTC)])
def test_a_service_tier_costs_what_the_catalogue_says_at_that_moment(now):
    model, usage, counted = Speaking(), Usage(1_000, 100), Counted(input_tokens=1_000, output_tokens=100)
    card = at_this_moment(rate_card_of("a", model, None), model, now)
    for tier in ("flex", "priority"):
        expected = calc_price(
            counted,
            "gemini-3.8-flash-tts",
            provider_id="google",
            genai_request_timestamp=now,
            price_context={"service_tier": tier},
        )
        assert card.cost_usd(usage, tier) == pytest.approx(float(expected.total_price))


@pytest.mark.parametrize(
    ("message", "usd"),
    [
        (
            AIMessage("x", usage_metadata={"input_tokens": 0, "output_tokens": 0, "total_tokens": 0, "total_cost": 0}),
            0.0,
        ),
        (AIMessage("x", response_metadata={"response_cost": 0.5}), 0.5),
        (AIMessage("x", response_metadata={"response_cost": 0.0}), None),
        (AIMessage("x", response_metadata={"cost": 0.25}), 0.25),
        (AIMessage("x", response_metadata={"token_usage": {"cost": 0.125}}), 0.125),
        (AIMessage("x", response_metadata={"cost": True, "response_cost": "much"}), None),
        (AIMessage("x", response_metadata={"cost": -1, "response_cost": 0.5}), 0.5),
        (AIMessage("x"), None),
    ],
)
def test_a_reported_cost_is_taken(message, usd):
    assert reported_usd(message) == usd


@pytest.mark.parametrize(
    "usage",
    [
        {"input_tokens": 1_000, "output_tokens": 5, "cache_read_input_tokens": 50_000},
        {"prompt_tokens": 1_000, "completion_tokens": 5, "total_tokens": "1005"},
        {"input_token_count": 1_000, "generated_token_count": 5},
        {},
    ],
)
def test_a_usage_in_the_metadata_that_is_not_in_the_format_of_openai_is_none(usage):
    answer = with_stated_usage(AIMessage("x", response_metadata={"token_usage": usage}))
    assert answer.usage_metadata is None


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
