"""Prices of chat models: the caller's own, or those of the catalogue `genai-prices`, looked up once.

A model without a price is refused at construction, never counted as free.
"""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from langchain_core.language_models import BaseChatModel

from wiserouter import Price
from wiserouter.errors import UnknownPrice
from wiserouter.integration import RateCard, rates_of
from wiserouter_langchain.search_fees import always_searches

_ALIASES = {
    "azure_openai": "azure",
    "amazon_bedrock": "aws",
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "google_genai": "google",
    "google_vertexai": "google",
    "mistralai": "mistral",
    "xai": "x-ai",
}
"""LangChain's names of providers that the catalogue calls otherwise."""

_FIELDS = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
}
_SEARCHES = "web_searches_kcount"
_MEDIA = re.compile(r"output_(image|video|audio)_mtok")


def rate_card_of(
    name: str,
    model: BaseChatModel,
    own: Price | None,
    max_input_tokens: int | None = None,
    max_output_tokens: int | None = None,
) -> RateCard:
    """Return the rate card of a chat model.

    Parameters
    ----------
    name : str
        Its name in the router.
    model : BaseChatModel
        Its provider and model name are looked up in the catalogue.
    own : Price or None
        A price that comes before the catalogue's.
    max_input_tokens, max_output_tokens : int, optional
        The context window and the limit of one answer.

    Raises
    ------
    UnknownPrice
        If there is none, and the catalogue has none or is not installed.
    """
    if own is not None:
        return RateCard(own, tuple(rates_of(own)), "user", max_input_tokens, max_output_tokens)
    listed = _catalogued(model)
    if listed.get("input_mtok") is None or listed.get("output_mtok") is None:
        hint = "" if find_spec("genai_prices") else ", or install the catalogue: pip install 'wiserouter[langchain]'"
        raise UnknownPrice(
            name, f"price (as {model_name(model)!r}): give prices={{{name!r}: Price(input=..., output=...)}}{hint}"
        )
    prices = _prices_by_length(listed)
    rates = tuple(rate for above_tokens, price in prices for rate in rates_of(price, above_tokens))
    card = RateCard(prices[0][1], rates, "genai-prices", max_input_tokens, max_output_tokens, tuple(prices[1:]))
    return replace(card, search_usd=(_usd(listed.get(_SEARCHES), 0) or 0.0) * 1e3)


def unbounded_price(model: BaseChatModel, source: str) -> str | None:
    """Return the reason why prices of tokens bound no call of a chat model; None where they do.

    Parameters
    ----------
    model : BaseChatModel
        The chat model.
    source : str
        Where its prices come from: the catalogue also knows those of other media.
    """
    if always_searches(model_name(model)):
        return "it searches the web with each call, for a fee beside its tokens"
    listed = _catalogued(model) if source == "genai-prices" else {}
    media = next((found[1] for name in listed if (found := _MEDIA.fullmatch(name))), None)
    return f"its answers may hold {media} tokens, which have a price of their own" if media else None


def model_name(model: BaseChatModel) -> str:
    """Return the name by which a chat model is known to its provider."""
    return str(model._get_ls_params().get("ls_model_name"))


def _catalogued(model: BaseChatModel) -> dict[str, Any]:
    """Return the prices that the catalogue has of a chat model, by its own names; empty if it has none."""
    if find_spec("genai_prices") is None:
        return {}
    from genai_prices import Usage as CataloguedUsage  # takes a second to import, and own prices need none of it
    from genai_prices import calc_price

    provider = model._get_ls_params().get("ls_provider")  # where every chat model names its provider and itself
    usage = CataloguedUsage(input_tokens=1)
    try:
        found = calc_price(usage, model_ref=model_name(model), provider_id=_ALIASES.get(provider or "", provider))
    except LookupError:
        return {}
    return {name: price for name, price in vars(found.model_price).items() if price is not None}


def _prices_by_length(listed: dict[str, Any]) -> list[tuple[int, Price]]:
    """Return the prices by the prompt length they begin above, the first at 0."""
    prices = {name: listed.get(field) for name, field in _FIELDS.items()}
    starts = sorted({0, *(tier.start for price in prices.values() for tier in getattr(price, "tiers", ()))})
    return [(start, _price_from(prices, start)) for start in starts]


def _price_from(listed: dict[str, Any], start: int) -> Price:
    """Return the price that holds just above `start` input tokens."""
    return Price(**{name: _usd(price, start) for name, price in listed.items()})  # type: ignore[arg-type]


def _usd(price: Any, start: int) -> float | None:
    if price is None:
        return None
    tiers = [tier.price for tier in getattr(price, "tiers", ()) if tier.start <= start]
    return float(tiers[-1] if tiers and start else getattr(price, "base", price)) / 1e6
