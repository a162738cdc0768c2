"""What LiteLLM adds to the prices of tokens counts in the worst case: surcharges of regions, and margins."""

import httpx
import litellm
import pytest
from litellm.types.utils import Choices, Message, ModelResponse, Usage

from support.groups import HI, llms
from support.providers import URL, chat, cost_usd, deployment
from wiserouter import Budget
from wiserouter_litellm import attach
from wiserouter_litellm.deployments.price_map import rate_card_of
from wiserouter_litellm.requests.surcharges import discount_of, margin_of_provider

EU = "https://eu.api.openai.com/v1"


def card(model, info=None, **params):
    return rate_card_of({"model_name": "g", "litellm_params": {"model": model, **params}, "model_info": info or {}})


def billed_usd(model, provider, **region):
    usage = Usage(prompt_tokens=1_000, completion_tokens=100, total_tokens=1_100)
    answer = ModelResponse(model=model, usage=usage, choices=[Choices(message=Message(content="yes"))])
    return litellm.completion_cost(answer, model=model, custom_llm_provider=provider, **region)


@pytest.mark.parametrize(
    ("model", "provider", "params", "region"),
    [
        ("gpt-5.4", "openai", {"api_base": EU}, {"data_residency": "eu"}),
        ("gpt-5.4", "openai", {"base_url": "https://us.api.openai.com/v1"}, {"data_residency": "us"}),
        ("gpt-5.4", "openai", {"api_base": "https://api.openai.com/v1"}, {}),
        ("gemini-3.5-flash", "vertex_ai", {"vertex_location": "us-east5"}, {"vertex_location": "us-east5"}),
        ("gemini-3.5-flash", "vertex_ai", {}, {"vertex_location": "us-central1"}),
        ("gemini-3.5-flash", "vertex_ai", {"vertex_location": "global"}, {"vertex_location": "global"}),
    ],
)
def test_the_surcharge_of_a_region_counts_in_the_worst_case(model, provider, params, region):
    plain, regional = card(f"{provider}/{model}", vertex_location="global"), card(f"{provider}/{model}", **params)
    factor = billed_usd(model, provider, **region) / billed_usd(model, provider)
    assert factor == pytest.approx(1.1 if "global" not in params.values() and region else 1.0)
    assert regional.worst_case_usd(1_000, 100) == pytest.approx(factor * plain.worst_case_usd(1_000, 100))
    assert regional.price == plain.price  # deployments of one model in several regions stay one model


def test_prices_that_a_deployment_states_have_the_surcharges_that_it_states():
    own = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
    uplift = {"regional_processing_uplift_multiplier_eu": 1.5}
    assert card("openai/gpt-5.4", api_base=EU, **own).worst_case_usd(10, 0) == pytest.approx(10e-6)
    assert card("openai/gpt-5.4", uplift, api_base=EU, **own).worst_case_usd(10, 0) == pytest.approx(15e-6)


def test_the_surcharge_of_answers_from_the_us_counts_since_an_account_may_have_set_it():
    usage = Usage(prompt_tokens=1_000, completion_tokens=100, total_tokens=1_100, inference_geo="us")
    answer = ModelResponse(model="claude-opus-4-6", usage=usage)
    regional_usd = litellm.completion_cost(answer, model="claude-opus-4-6", custom_llm_provider="anthropic")
    factor = regional_usd / billed_usd("claude-opus-4-6", "anthropic")
    own = card("anthropic/claude-opus-4-6", input_cost_per_token=1e-6, output_cost_per_token=2e-6)
    most_usd = max(rate.usd for rate in card("anthropic/claude-opus-4-6").rates if not rate.tier)
    assert factor == pytest.approx(1.1)
    assert most_usd == pytest.approx(factor * litellm.model_cost["claude-opus-4-6"]["output_cost_per_token"])
    assert own.worst_case_usd(0, 10) == pytest.approx(10 * 2e-6)  # LiteLLM adds nothing to prices that are stated


MARGINS = [{"global": 0.2}, {"openai": {"percentage": 0.1, "fixed_amount": 0.001}}, {"openai": 0.5, "global": 0.2}]


@pytest.mark.parametrize("config", MARGINS)
async def test_a_margin_is_reserved_and_charged(provider, settled, monkeypatch, config):
    monkeypatch.setattr("litellm.cost_margin_config", config)
    litellm_router = llms(deployment("small"))
    callback = attach(litellm_router, "wise", budget=Budget(10.0, 100, limit="hard"))
    group, held_usd = callback.groups["wise"], []

    def answer(_):
        held_usd.append(group.router.status().reserved_usd)
        return httpx.Response(200, json=chat("small", tokens=(4, 50)))

    provider.routes.clear()
    provider.post(f"{URL}/chat/completions").mock(side_effect=answer)
    await litellm_router.acompletion(model="wise", messages=HI, max_tokens=50)
    await settled(lambda: group.router.status().charged == 1)
    charged_usd = group.router.status().spent_usd
    assert charged_usd == pytest.approx(margin_of_provider("openai").added_to(cost_usd("small", (4, 50))))
    assert held_usd[0] >= charged_usd
    assert group.faults["understated_costs"] == 0


def test_no_discount_is_looked_for_where_none_is_set(monkeypatch):
    monkeypatch.setattr("litellm.cost_calculator.resolve_cost_discount", None, raising=False)
    assert discount_of("openai", "gpt-5.4") == 0.0
