"""Prices of deployments: LiteLLM's map, custom prices, tiers, and the worst case against LiteLLM's own calculator."""

import litellm
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter import Budget, Price, Usage
from wiserouter.errors import InvalidInput, UnknownPrice, UnlikelyPrice
from wiserouter_litellm import attach
from wiserouter_litellm.deployments.price_map import rate_card_of, states_its_prices, unbounded_price


def dep(model, info=None, **params):
    return {"model_name": "g", "litellm_params": {"model": model, **params}, "model_info": info or {}}


def test_prices_of_the_map():
    card = rate_card_of(dep("openai/gpt-4o-mini"))
    assert (card.price.input, card.price.output, card.price.cache_read) == (1.5e-7, 6e-7, 7.5e-8)
    assert (card.max_input_tokens, card.max_output_tokens) == (128_000, 16_384)


def test_batch_prices_of_the_map_stand_beside_plain_ones_of_the_map():
    card = rate_card_of(dep("openai/gpt-4o-mini"))
    assert (card.batch_price.input, card.batch_price.output) == (7.5e-8, 3e-7)
    assert card.model("mini").batch_price == card.batch_price
    own = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
    assert rate_card_of(dep("openai/gpt-4o-mini", **own)).batch_price is None
    assert rate_card_of(dep("openai/gpt-4o-mini"), own=Price(1e-6, 2e-6)).batch_price is None
    both = own | {"input_cost_per_token_batches": 0.5e-6, "output_cost_per_token_batches": 1e-6}
    assert rate_card_of(dep("openai/gpt-4o-mini", **both)).batch_price.output == 1e-6


@pytest.mark.parametrize("where", ["params", "info"])
def test_custom_prices_come_first(where):
    price = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
    deployment = dep("openai/gpt-4o-mini", **price) if where == "params" else dep("openai/gpt-4o-mini", price)
    assert (rate_card_of(deployment).price.input, rate_card_of(deployment).price.output) == (1e-6, 2e-6)


def test_prices_that_yaml_read_as_text():
    assert rate_card_of(dep("x/y", input_cost_per_token="1e-6", output_cost_per_token="2e-6")).price == Price(
        1e-6, 2e-6
    )


def test_a_base_model_lends_its_price():
    deployment = dep("azure/my-deployment", {"base_model": "azure/gpt-4o"})
    assert rate_card_of(deployment).price.input == litellm.model_cost["azure/gpt-4o"]["input_cost_per_token"]


def test_the_limit_that_a_deployment_sends_by_default_is_not_that_of_its_model():
    assert rate_card_of(dep("openai/gpt-4o-mini", max_tokens=50)).max_output_tokens == 16_384


def test_an_explicit_zero_is_a_price_and_nothing_is_not():
    assert rate_card_of(dep("a/b", input_cost_per_token=0, output_cost_per_token=0)).price == Price(0.0, 0.0)
    with pytest.raises(UnknownPrice, match="model 'openai/unheard-of' has no price in LiteLLM's map: set input_cost"):
        rate_card_of(dep("openai/unheard-of"))


@pytest.mark.parametrize("where", ["params", "info"])
@pytest.mark.parametrize("key", ["input_cost_per_token", "output_cost_per_token_above_200k_tokens"])
def test_a_price_of_a_million_tokens_is_refused_by_its_key(where, key):
    price = {"input_cost_per_token": 1.5e-7, "output_cost_per_token": 6e-7, key: 0.15}
    deployment = dep("openai/mine", **price) if where == "params" else dep("openai/mine", price)
    with pytest.raises(UnlikelyPrice, match=f"{key} of 'openai/mine' must be at most .*, got 0.15, .* give 1.5e-07"):
        rate_card_of(deployment)


def test_a_price_of_litellms_map_that_cannot_be_is_refused_until_there_is_an_own_one():
    assert litellm.model_cost["azure_ai/jais-30b-chat"]["output_cost_per_token"] > 1e-3  # listed per 1,000 tokens
    with pytest.raises(UnlikelyPrice, match="put_cost_per_token of 'azure_ai/jais-30b-chat'"):
        rate_card_of(dep("azure_ai/jais-30b-chat"))
    assert rate_card_of(dep("azure_ai/jais-30b-chat"), Price(3.2e-6, 9.71e-6)).source == "settings"


def test_the_source_of_a_price_is_told():
    assert rate_card_of(dep("openai/gpt-4o-mini")).source == "litellm"
    assert rate_card_of(dep("a/b", input_cost_per_token=1e-6, output_cost_per_token=1e-6)).source == "deployment"
    assert rate_card_of(dep("a/b"), Price(1e-6, 1e-6)).source == "settings"


def test_what_a_router_has_registered_without_a_price_is_no_price():
    litellm.Router([dep("openai/unheard-of", api_key="x")])
    with pytest.raises(UnknownPrice):
        rate_card_of(dep("openai/unheard-of"))


@pytest.mark.parametrize("model", ["openai/gpt-4o-mini", "openai/unheard-of"])
def test_the_limits_of_one_deployment_are_not_those_of_another_one_of_the_model(model):
    price = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6, "api_key": "x"}
    limits = {"max_output_tokens": 50, "max_input_tokens": 60}
    before = rate_card_of(dep(model, **price))
    litellm.Router([dep(model, {"id": "free"}, **price), dep(model, {"id": "limited", **limits}, **price)])
    assert rate_card_of(dep(model, **price)) == before
    assert rate_card_of(dep(model, limits, **price)).max_output_tokens == 50


def test_the_limits_that_a_program_registers_are_those_of_its_model(monkeypatch):
    monkeypatch.setattr(litellm.utils, "_runtime_registered_model_cost", {})
    price = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
    litellm.register_model({"openai/of-my-own": {**price, "max_output_tokens": 70, "litellm_provider": "openai"}})
    assert rate_card_of(dep("openai/of-my-own")).max_output_tokens == 70


def test_a_table_of_ones_own_wins():
    assert rate_card_of(dep("openai/gpt-4o-mini"), Price(7e-6, 8e-6)).worst_case_usd(1, 1) == pytest.approx(15e-6)


TIERED = {
    "input_cost_per_token": 1e-6,
    "output_cost_per_token": 2e-6,
    "input_cost_per_token_above_200k_tokens": 10e-6,
    "output_cost_per_token_above_200k_tokens": 20e-6,
    "input_cost_per_token_priority": 3e-6,
    "output_cost_per_token_priority": 4e-6,
    "input_cost_per_token_batches": 99e-6,
    "cache_creation_input_token_cost": 1.5e-6,
    "output_cost_per_reasoning_token": 2.5e-6,
    "max_output_tokens": 10,
}


@pytest.mark.parametrize(
    ("inputs", "outputs", "choices", "tier", "usd"),
    [
        (10, 4, 1, "", 10 * 1.5 + 4 * 2.5),
        (10, 100, 1, "", 10 * 1.5 + 10 * 2.5),
        (10, None, 3, "", 10 * 1.5 + 30 * 2.5),
        (10, 4, 1, "priority", 10 * 3.0 + 4 * 4.0),
        (200_000, 4, 1, "", 200_000 * 1.5 + 4 * 2.5),
        (200_001, 4, 1, "", 200_001 * 10.0 + 4 * 20.0),
        (None, 4, 1, "", float("inf")),
    ],
)
def test_the_worst_case_takes_every_price_that_can_apply(inputs, outputs, choices, tier, usd):
    worst_usd = rate_card_of(dep("a/b", **TIERED)).worst_case_usd(inputs, outputs, choices, tier)
    assert worst_usd == pytest.approx(usd * 1e-6)


MODELS = ["gpt-4o-mini", "gpt-4o", "claude-sonnet-4-5", "gemini/gemini-2.5-pro", "o3-mini"]


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(MODELS), st.integers(0, 400_000), st.integers(0, 5_000), st.floats(0, 1))
def test_the_worst_case_bounds_what_litellm_computes(model, prompt, completion, cached):
    card = rate_card_of(dep(model))
    completion = min(completion, card.max_output_tokens)
    parts = litellm.cost_per_token(
        model=model,
        prompt_tokens=prompt,
        completion_tokens=completion,
        cache_read_input_tokens=int(cached * prompt),
    )
    assert sum(parts) <= card.worst_case_usd(prompt, completion) * (1 + 1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_the_plain_cost_is_litellms(model):
    usage = Usage(1_000, 200)
    parts = litellm.cost_per_token(model=model, prompt_tokens=1_000, completion_tokens=200)
    assert rate_card_of(dep(model)).cost_usd(usage) == pytest.approx(sum(parts))


STEPPED = [name for name, one in litellm.model_cost.items() if "tiered_pricing" in one and one["mode"] == "chat"]


@pytest.mark.parametrize("prompt", [100, 32_000, 32_001, 128_001, 300_000])
def test_models_of_the_map_that_have_steps_cost_what_litellm_computes(prompt):
    assert len(STEPPED) > 40
    for model in STEPPED:
        card = rate_card_of(dep(model))
        usd = sum(litellm.cost_per_token(model=model, prompt_tokens=prompt, completion_tokens=200))
        assert card.cost_usd(Usage(prompt, 200)) == pytest.approx(usd, rel=1e-12), model
        assert card.worst_case_usd(prompt, 200) >= usd * (1 - 1e-12), model


STEPS = [
    {"range": [1_000, 50_000], "input_cost_per_token": "5e-6", "output_cost_per_token": 9e-6},
    {"range": [0, 1_000], "input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6},
]


@pytest.mark.parametrize("model", ["xai/grok-4.3", "gemini/gemini-2.5-pro"])
@pytest.mark.parametrize("prompt", [199_999, 200_000, 200_001])
def test_the_price_of_a_long_prompt_holds_from_where_litellm_bills_it(model, prompt):
    bare, provider, *_ = litellm.get_llm_provider(model)
    used = litellm.Usage(prompt_tokens=prompt, completion_tokens=10, total_tokens=prompt + 10)
    usd = sum(litellm.cost_calculator.cost_per_token(bare, custom_llm_provider=provider, usage_object=used))
    card = rate_card_of(dep(model))
    assert card.cost_usd(Usage(prompt, 10)) == pytest.approx(usd)
    assert card.worst_case_usd(prompt, 10) >= usd * (1 - 1e-9)


GOV_EAST = "https://bedrock-mantle.us-gov-east-1.api.aws"


@pytest.mark.parametrize(
    ("model", "params", "region"),
    [
        ("bedrock_mantle/us-gov-west-1/openai.gpt-5.4", {}, None),
        ("bedrock_mantle/openai.gpt-5.4", {"aws_region_name": "us-gov-west-1"}, "us-gov-west-1"),
        ("bedrock_mantle/openai.gpt-5.4", {"api_base": GOV_EAST}, "us-gov-east-1"),
        ("perplexity/perplexity/sonar", {}, None),
    ],
    ids=["region-in-name", "region", "host", "provider-twice"],
)
@pytest.mark.parametrize("prompt", [1_000, 272_001])
def test_the_worst_case_bounds_what_litellm_bills_by_another_name_of_the_model(model, params, region, prompt):
    bare, provider, *_ = litellm.get_llm_provider(model)
    used = litellm.Usage(prompt_tokens=prompt, completion_tokens=10, total_tokens=prompt + 10)
    answer = litellm.ModelResponse(model=bare, usage=used)
    usd = litellm.completion_cost(answer, model=bare, custom_llm_provider=provider, region_name=region)
    assert rate_card_of(dep(model, **params)).worst_case_usd(prompt, 10) >= usd * (1 - 1e-9)


def test_tokens_of_video_count_in_the_worst_case():
    video = litellm.types.utils.CompletionTokensDetailsWrapper(video_tokens=10, text_tokens=0)
    used = litellm.Usage(prompt_tokens=10, completion_tokens=10, total_tokens=20, completion_tokens_details=video)
    model, of = "gemini/gemini-omni-flash-preview", {"custom_llm_provider": "gemini", "usage_object": used}
    usd = sum(litellm.cost_calculator.cost_per_token("gemini-omni-flash-preview", **of))
    assert rate_card_of(dep(model)).worst_case_usd(10, 10) == pytest.approx(usd)


@pytest.mark.parametrize("where", ["params", "info"])
def test_steps_by_the_length_of_a_prompt_count_in_the_worst_case(where):
    own = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6, "tiered_pricing": STEPS}
    card = rate_card_of(dep("a/b", **own) if where == "params" else dep("a/b", own))
    assert card.worst_case_usd(1_000, 10) == pytest.approx(1_000 * 1e-6 + 10 * 2e-6)
    assert card.worst_case_usd(1_001, 10) == pytest.approx(1_001 * 5e-6 + 10 * 9e-6)


def test_a_prompt_in_a_gap_of_the_steps_may_have_the_last_price():
    own = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6, "tiered_pricing": STEPS[:1]}
    assert rate_card_of(dep("a/b", **own)).worst_case_usd(10, 10) == pytest.approx(10 * 5e-6 + 10 * 9e-6)


def test_reasoning_is_billed_as_output_where_a_deployment_states_the_price_of_output_only():
    model, own = "perplexity/sonar-deep-research", {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
    usage = Usage(7, 100, reasoning_tokens=80)
    assert litellm.model_cost[model]["output_cost_per_reasoning_token"] > 2e-6
    assert rate_card_of(dep(model, **own)).cost_usd(usage) == pytest.approx(207e-6)
    both = own | {"output_cost_per_reasoning_token": 4e-6}
    assert rate_card_of(dep(model, **both)).cost_usd(usage) == pytest.approx(367e-6)


@pytest.mark.parametrize(("audio_usd", "is_least"), [(1e-7, False), (1e-5, True)])
def test_the_least_charge_holds_where_no_medium_costs_less_than_text(audio_usd, is_least):
    own = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6, "input_cost_per_audio_token": audio_usd}
    assert states_its_prices(dep("a/b", **own)) is is_least


@pytest.mark.parametrize("where", ["params", "info"])
def test_a_price_of_time_bounds_nothing(where):
    by_time = {"input_cost_per_second": 1e-3}
    row = dep("openai/gpt-4o-mini", **by_time) if where == "params" else dep("openai/gpt-4o-mini", by_time)
    assert unbounded_price(row) == "input_cost_per_second"
    with pytest.raises(InvalidInput, match="nothing bounds input_cost_per_second"):
        attach(litellm.Router([row]), "g", budget=Budget(10.0, 100, limit="hard"), cap_output_tokens=100)
    assert unbounded_price(dep("a/b", by_time, input_cost_per_token=1e-6)) is None
    assert unbounded_price(dep("a/b", {"input_cost_per_second": 0})) is None


def test_a_model_that_is_billed_by_the_song_is_refused_under_a_hard_limit():
    rows = [dep("gemini/lyria-3-clip-preview", api_key="none")]
    with pytest.raises(InvalidInput, match="nothing bounds output_cost_per_image in the"):
        attach(litellm.Router(rows), "g", budget=Budget(10.0, 100, limit="hard"), cap_output_tokens=100)
    attach(litellm.Router(rows), "g", budget=Budget(10.0, 100))
    assert unbounded_price(dep("gemini/gemini-2.5-flash-image")) is None
    assert unbounded_price(dep("gemini/lyria-3-clip-preview", input_cost_per_token=0, output_cost_per_token=0)) is None


@pytest.mark.parametrize("model", ["azure/model-router", "azure_ai/model_router"])
def test_a_model_that_chooses_a_model_itself_needs_prices_of_its_own_under_a_hard_limit(model):
    with pytest.raises(InvalidInput, match=r"nothing bounds model_router .*: state the highest prices"):
        attach(litellm.Router([dep(model, api_key="none")]), "g", budget=Budget(10.0, 100, limit="hard"))
    assert unbounded_price(dep(model, input_cost_per_token=3e-6, output_cost_per_token=15e-6)) is None
    assert unbounded_price(dep(model, {"base_model": "gpt-4o"})) is None


def test_a_model_that_litellm_replaces_by_another_one_is_refused_under_a_hard_limit(monkeypatch):
    monkeypatch.setattr(litellm, "model_alias_map", {"openai/gpt-4o-mini": "openai/gpt-4o"})
    with pytest.raises(InvalidInput, match="nothing bounds model_alias_map"):
        attach(litellm.Router([dep("openai/gpt-4o-mini")]), "g", budget=Budget(10.0, 100, limit="hard"))


SEARCHING = [
    "openai/gpt-4o-search-preview",
    "openai/gpt-4o-mini-search-preview-2025-03-11",
    "openai/gpt-5-search-api",
    "perplexity/sonar-deep-research",
    "gemini/deep-research-preview-04-2026",
]


@pytest.mark.parametrize("model", SEARCHING)
def test_a_model_that_searches_with_each_call_is_refused_under_a_hard_limit(model):
    with pytest.raises(InvalidInput, match="nothing bounds search_context_cost_per_query"):
        attach(litellm.Router([dep(model)]), "g", budget=Budget(10.0, 100, limit="hard"), cap_output_tokens=100)
    attach(litellm.Router([dep(model)]), "g", budget=Budget(10.0, 100), cap_output_tokens=100)


def test_the_fee_of_the_one_search_of_an_answer_is_reserved():
    card = rate_card_of(dep("perplexity/sonar-pro"))
    assert card.worst_case_usd(100, 200, 2) == pytest.approx(100 * 3e-6 + 2 * (200 * 15e-6 + 0.014))
    assert card.output_tokens_within(100 * 3e-6 + 0.014 + 200 * 15e-6, 100) == 200
    own = Price(3e-6, 15e-6)
    assert rate_card_of(dep("perplexity/sonar-pro"), own).answer_usd == 0.014


@pytest.mark.parametrize(
    ("row", "searches"),
    [
        (dep("openai/mine", {"base_model": "gpt-4o-search-preview"}), True),
        (dep("openrouter/openai/gpt-4o:online", input_cost_per_token=1e-6, output_cost_per_token=1e-6), True),
        (dep("openrouter/openai/gpt-4o", input_cost_per_token=1e-6, output_cost_per_token=1e-6), False),
        (dep("perplexity/preset/pro-search", input_cost_per_token=1e-6, output_cost_per_token=1e-6), True),
        (dep("perplexity/openai/gpt-5"), False),
        (dep("perplexity/sonar-pro"), False),  # its fee is reserved
        (dep("perplexity/sonar-pro", input_cost_per_token=1e-6, output_cost_per_token=1e-6), True),
        (dep("openai/gpt-4o"), False),  # it has a fee in LiteLLM's map, for calls that ask for a search
        (dep("openai/our-search-7b", input_cost_per_token=1e-6, output_cost_per_token=1e-6), False),
    ],
    ids=["base-model", "online", "router", "preset", "perplexity", "reserved", "own-price", "may-search", "own"],
)
def test_a_search_fee_is_known_by_the_model_that_is_called(row, searches):
    assert (unbounded_price(row) == "search_context_cost_per_query") is searches
