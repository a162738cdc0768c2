"""Rate cards of deployments from the prices that LiteLLM knows: custom prices first, then its map.

Prices of long prompts (`..._above_200k_tokens`) and of service tiers (`..._priority`) count in the worst case of a call
where they can apply. A deployment without a price is refused: LiteLLM itself would count its calls as free.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import litellm
from litellm.litellm_core_utils.get_model_cost_map import GetModelCostMap
from litellm.llms.bedrock_mantle.common_utils import resolve_mantle_region

from wiserouter import Price
from wiserouter.errors import UnknownPrice
from wiserouter.integration import Rate, RateCard, check_price, rates_of
from wiserouter_litellm.deployments.billed_prices import above_tokens, billed_prices
from wiserouter_litellm.requests.surcharges import provider_of, regional_factor

_RATE = re.compile(
    r"(?P<side>input|output)_cost_per_(?P<kind>token|reasoning_token|image_token|audio_token|video_token)"
    r"|(?P<cache>cache_creation_input_token_cost|cache_read_input_token_cost)"
)
_PRICE = re.compile(r"(input|output)_cost_per_")
_ABOVE = re.compile(r"_above_(\d+)k_tokens")
_TIERS = ("priority", "ultrafast", "balanced")  # flex and batches are never more expensive
_OTHER_PRICES = {"off_peak_pricing", "tiered_pricing"}
_SIDES = ("input_cost_per_token", "output_cost_per_token")
_PER_SECOND = ("cost_per_second", "input_cost_per_second", "output_cost_per_second")
_REASONING = "output_cost_per_reasoning_token"
_MEDIA = ("audio", "image", "video")
_FEES = ("search_context_cost_per_query", "input_cost_per_request")
_ALWAYS_SEARCHES = re.compile(r":online$|^perplexity/preset/")  # of OpenRouter; agents of Perplexity
_MAY_BE_SEARCHING = re.compile(r"[-/]search-|deep-research|(^|/)sonar|-online$")  # where LiteLLM's map has a fee
MODEL_ROUTER = "model_router"
"""What nothing bounds in a model that chooses a model itself, at a price that is not that of its choice."""
_CHOOSES = re.compile(r"(^|/)model[-_]router(/|$)")  # Azure's: LiteLLM's map has a fee of its input alone
_SEARCHES_ONCE = re.compile(r"^perplexity/sonar(-pro)?$|^perplexity/sonar-reasoning(-pro)?$")  # and reports its fee
_LIMITS = ("max_input_tokens", "max_output_tokens")


_NO_PRICE = (
    "price in LiteLLM's map: set input_cost_per_token and output_cost_per_token in its litellm_params (0 if it is "
    "free), model_info.base_model, or `prices` in callback_settings.wiserouter"
)
_AUTO_ROUTER = (
    "price: it is one of LiteLLM's auto routers, which only choose another group; take it out of this group, or give "
    "the budget to the groups that it chooses"
)


def rate_card_of(deployment: Mapping[str, Any], own: Price | None = None) -> RateCard:
    """Return the rate card of a deployment as it stands in a LiteLLM router or configuration.

    Parameters
    ----------
    deployment : mapping
        With `litellm_params` and perhaps `model_info`.
    own : Price, optional
        A price from the settings, which comes before LiteLLM's.

    Raises
    ------
    UnknownPrice
        If neither the deployment, its base model, LiteLLM's map nor `own` has a price. An explicit 0 is a price.
    UnlikelyPrice
        If a price is that of a million tokens, as that of a few models in LiteLLM's map, and there is no `own`.
    """
    figures = _figures(deployment)
    if own is None and (figures.get("input_cost_per_token") is None or figures.get("output_cost_per_token") is None):
        model = str(deployment["litellm_params"].get("model"))
        raise UnknownPrice(model, _AUTO_ROUTER if model.startswith("auto_router/") else _NO_PRICE)
    if own is None:
        _check_prices(deployment, figures)
    rates = tuple(rates_of(own) if own else _rates(figures, deployment))
    if _source(deployment) == "deployment" and _REASONING not in _stated(deployment):  # LiteLLM bills it as output
        figures = {key: usd for key, usd in figures.items() if not key.startswith(_REASONING)}
    price = own or _price(figures)
    input_limit, output_limit = (int(figures[name]) if figures.get(name) else None for name in _LIMITS)
    source = "settings" if own else _source(deployment)
    known = _stated(deployment) if source == "deployment" else figures
    batch = None if own or any(f"{side}_batches" not in known for side in _SIDES) else _price(figures, "_batches")
    billed = {} if own else {key: usd for key, usd in figures.items() if key in known or _RATE.fullmatch(key)}
    longs, tiers = billed_prices(billed, provider_of(deployment["litellm_params"]))
    card = RateCard(price, rates, source, input_limit, output_limit, longs, batch_price=batch, tier_prices=tiers)
    return replace(card, answer_usd=max(_fees_of_one_search(deployment), default=0.0))


def states_its_prices(deployment: Mapping[str, Any]) -> bool:
    """Return True if a deployment itself states the prices of its tokens, and none that a rate card cannot hold.

    Examples
    --------
    >>> states_its_prices({"litellm_params": {"model": "a/b", "input_cost_per_token": 1e-6}})
    True
    """
    stated = _stated_values(deployment)
    is_held = stated.keys().isdisjoint(_OTHER_PRICES) and not _media_is_less(stated)
    return is_held and _source(deployment) == "deployment"


def unbounded_price(deployment: Mapping[str, Any]) -> str | None:
    """Return the key of a price by which calls are billed in place of their tokens; None where tokens have prices.

    It is that of LiteLLM's map of aliases where LiteLLM calls another model in place of the deployment's.
    LiteLLM bills by the time that a deployment states. A model of its map whose tokens are free, but not its images or
    songs, is billed by the provider. A model that searches with each call has a fee for that beside its tokens, and one
    that chooses a model itself costs what that one does.

    Examples
    --------
    >>> unbounded_price({"litellm_params": {"model": "openai/gpt-4o-mini", "input_cost_per_second": 1e-3}})
    'input_cost_per_second'
    >>> unbounded_price({"litellm_params": {"model": "openai/gpt-4o-search-preview"}})
    'search_context_cost_per_query'
    """
    if str(deployment["litellm_params"].get("model")) in (litellm.model_alias_map or {}):
        return "model_alias_map"
    if fee := _search_fee(deployment):
        return fee
    if _source(deployment) != "deployment" and _CHOOSES.search(_base_of(deployment)):
        return MODEL_ROUTER
    stated = _stated_values(deployment)
    if any(_number(stated.get(side)) for side in _SIDES) or "tiered_pricing" in stated:
        return None
    if by_time := next((key for key in _PER_SECOND if _number(stated.get(key))), None):
        return by_time
    published = {} if _source(deployment) == "deployment" else _base_entry(deployment)
    prices = {key: usd for key, usd in published.items() if _PRICE.match(key) and _number(usd)}
    return None if any(_RATE.match(key) for key in prices) else next(iter(prices), None)


def _search_fee(deployment: Mapping[str, Any]) -> str | None:
    """Return the key of the fee of a model that searches the web with each call, whether the call asks for that."""
    params, info = deployment["litellm_params"], deployment.get("model_info") or {}
    names = [str(name) for name in (params.get("model"), info.get("base_model"), params.get("base_model")) if name]
    if any(map(_ALWAYS_SEARCHES.search, names)):
        return _FEES[0]
    if not any(map(_MAY_BE_SEARCHING.search, names)) or _fees_of_one_search(deployment):
        return None
    published = _base_entry(deployment)
    return next((key for key in _FEES if key in published), None)


def _fees_of_one_search(deployment: Mapping[str, Any]) -> Collection[float]:
    """Return the fees of the one search of each answer of Perplexity's models, at the prices of LiteLLM's map."""
    model = str(deployment["litellm_params"].get("model"))
    if _source(deployment) == "deployment" or _base_of(deployment) != model or not _SEARCHES_ONCE.search(model):
        return ()
    fees = _base_entry(deployment).get(_FEES[0])
    return fees.values() if isinstance(fees, Mapping) else ()


def _check_prices(deployment: Mapping[str, Any], figures: Mapping[str, float]) -> None:
    """Refuse prices of a token that are likely meant for a million tokens; the error names key and model."""
    for key in figures.keys() - set(_LIMITS):
        check_price(f"{key} of {deployment['litellm_params'].get('model')!r}", figures[key])


def _price(figures: Mapping[str, float], suffix: str = "") -> Price:
    """Return the prices of plain calls, or of those whose keys have a suffix."""
    return Price(
        input=figures[f"input_cost_per_token{suffix}"],
        output=figures[f"output_cost_per_token{suffix}"],
        cache_read=figures.get(f"cache_read_input_token_cost{suffix}"),
        cache_write=figures.get(f"cache_creation_input_token_cost{suffix}"),
        reasoning=figures.get(f"output_cost_per_reasoning_token{suffix}"),
    )


def _source(deployment: Mapping[str, Any]) -> str:
    """Return "deployment" if the deployment itself states the price, else "litellm" for its map."""
    return "deployment" if "input_cost_per_token" in _stated(deployment) else "litellm"


def _stated(deployment: Mapping[str, Any]) -> set[str]:
    """Return the keys that a deployment itself gives a value."""
    return set(_stated_values(deployment))


def _stated_values(deployment: Mapping[str, Any]) -> dict[str, Any]:
    values = {**(deployment.get("model_info") or {}), **deployment["litellm_params"]}
    return {key: value for key, value in values.items() if value is not None}


def _media_is_less(stated: Mapping[str, Any]) -> bool:
    """Return True if tokens of audio, images or video cost less than those of text, from which nothing tells them."""
    for side in ("input", "output"):
        text = _number(stated.get(f"{side}_cost_per_token")) or 0.0
        prices = (_number(stated.get(f"{side}_cost_per_{kind}_token")) for kind in _MEDIA)
        if any(price is not None and price < text for price in prices):
            return True
    return False


def may_reason(deployment: Mapping[str, Any]) -> bool:
    """Return True if a deployment, or LiteLLM's map, says that its model can reason before it answers."""
    named = deployment.get("model_info") or {}
    return any(bool(source.get("supports_reasoning")) for source in (named, _base_entry(deployment)))


def _figures(deployment: Mapping[str, Any]) -> dict[str, float]:
    """Return prices and limits: those of litellm_params before those of model_info and of LiteLLM's map."""
    params, info = deployment["litellm_params"], deployment.get("model_info") or {}
    figures: dict[str, float] = {}
    for source in (_base_entry(deployment), info, params):
        figures |= _figures_in(source)
    return figures


def _figures_in(source: Mapping[str, Any]) -> dict[str, float]:
    """Return the prices and limits of a mapping, those that are numbers."""
    return {k: number for k, v in source.items() if _is_figure(k) and (number := _number(v)) is not None}


def _base_entry(deployment: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entry of a deployment's base model in LiteLLM's map, else of its model."""
    return _map_entry(_base_of(deployment), deployment["litellm_params"].get("custom_llm_provider"))


def _base_of(deployment: Mapping[str, Any]) -> str:
    """Return the name of a deployment's base model, else of its model."""
    params, info = deployment["litellm_params"], deployment.get("model_info") or {}
    return str(info.get("base_model") or params.get("base_model") or params.get("model"))


def _other_entries(deployment: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Yield other entries of LiteLLM's map by which it may bill a deployment that states neither prices nor base model.

    It drops a repeated provider from the name of a model. For Bedrock Mantle, it drops a region as well, but bills by
    that which it finds in the parameters or in the environment.
    """
    params, info = deployment["litellm_params"], deployment.get("model_info") or {}
    provider = provider_of(params)
    if provider is None or _source(deployment) == "deployment" or info.get("base_model") or params.get("base_model"):
        return
    bare = str(litellm.get_llm_provider(str(params.get("model")), params.get("custom_llm_provider"))[0])
    if bare.startswith(f"{provider}/"):
        yield litellm.model_cost.get(bare, {})
    elif provider == "bedrock_mantle":
        yield litellm.model_cost.get(f"{provider}/{bare}", {})
        yield litellm.model_cost.get(f"{provider}/{resolve_mantle_region(params)}/{bare}", {})


def _is_figure(key: str) -> bool:
    return key in _LIMITS or _RATE.match(key) is not None


def _number(value: object) -> float | None:
    """Return a number, which YAML may have read as text (`1e-6` has no dot), or None."""
    try:
        return float(value) if isinstance(value, int | float | str) else None
    except ValueError:
        return None


def _map_entry(model: str, provider: str | None) -> Mapping[str, Any]:
    """Return the entry of a model in LiteLLM's map, or an empty one; never one that an unpriced deployment left."""
    try:
        key = litellm.get_model_info(model=model, custom_llm_provider=provider)["key"]
    except Exception:
        return {}
    entry: Mapping[str, Any] = litellm.model_cost.get(key, {})
    stated = {name: value for name, value in entry.items() if name not in _LIMITS} | _stated_limits(key)
    return stated | _prices_of_steps(entry)


def _prices_of_steps(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return `tiered_pricing` by the keys of other models of the map, where each step begins at some thousand tokens.

    Examples
    --------
    >>> of = "input_cost_per_token"
    >>> _prices_of_steps({"tiered_pricing": [{"range": [0, 256e3], of: 1e-7}, {"range": [256e3, 1e6], of: 2e-7}]})
    {'input_cost_per_token': 1e-07, 'input_cost_per_token_above_256k_tokens': 2e-07}
    """
    steps = entry.get("tiered_pricing")
    if not isinstance(steps, list) or any(len(one.get("range") or ()) != 2 or one["range"][0] % 1_000 for one in steps):
        return {}
    prices: dict[str, Any] = {}
    for one in steps:
        begins = int(one["range"][0]) // 1_000
        above = f"_above_{begins}k_tokens" if begins else ""
        prices |= {f"{key}{above}": usd for key, usd in one.items() if _RATE.fullmatch(key)}
    return prices


def _stated_limits(key: str) -> dict[str, Any]:
    """Return the limits of a model that LiteLLM's catalogue and `litellm.register_model` state.

    Its map may hold others: a router writes the limits of each deployment there, for all deployments of the model.
    """
    catalogue, registered = GetModelCostMap.loaded_model_cost_map(), litellm.utils._runtime_registered_model_cost
    stated = {**catalogue.get(key, {}), **registered.get(key, {})}
    return {name: stated[name] for name in _LIMITS if name in stated}


def _regional_factor(deployment: Mapping[str, Any]) -> float:
    """Return the factor of a deployment's region: LiteLLM reads it where it reads the prices."""
    params, info = deployment["litellm_params"], deployment.get("model_info") or {}
    published = {} if _source(deployment) == "deployment" else _base_entry(deployment)
    return regional_factor(params, {**published, **info, **params})


def _rates(figures: Mapping[str, float], deployment: Mapping[str, Any]) -> Iterable[Rate]:
    factor, provider = _regional_factor(deployment), provider_of(deployment["litellm_params"])
    others = [item for entry in _other_entries(deployment) for item in _figures_in(entry).items()]
    for key, usd in [*figures.items(), *others]:
        match = _RATE.match(key)
        suffix = "" if match is None else key[match.end() :]
        if match is None or suffix.endswith(("_flex", "_batches")):
            continue
        above = _ABOVE.search(suffix)
        tier = next((name for name in _TIERS if suffix.endswith(f"_{name}")), "")
        yield Rate(match["side"] != "output", usd * factor, above_tokens(above[1], provider) if above else 0, tier)
    yield from _rates_of_steps(_stated_values(deployment).get("tiered_pricing"), factor)


def _rates_of_steps(stated: object, factor: float) -> Iterable[Rate]:
    """Yield the prices that hold by the length of a prompt; LiteLLM bills one in a gap of them by the last step."""
    steps = [one for one in stated if len(one.get("range") or ()) == 2] if isinstance(stated, list) else []
    steps.sort(key=lambda one: one["range"][0])
    ends = [0, *(one["range"][1] for one in steps)]
    has_gaps = any(one["range"][0] > end for one, end in zip(steps, ends, strict=False))
    for one in steps:
        for key, value in one.items():
            if (match := _RATE.match(key)) is not None and (usd := _number(value)) is not None:
                yield Rate(match["side"] != "output", usd * factor, 0 if has_gaps else int(one["range"][0]))
