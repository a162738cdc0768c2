"""Prices of chat models: the caller's own, or those of the catalogue `genai-prices`, looked up once.

A model without a price is refused at construction, never counted as free.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from langchain_core.language_models import BaseChatModel

from wiserouter import Price
from wiserouter.errors import UnknownPrice
from wiserouter.integration import RateCard, rates_of

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
    params = model._get_ls_params()  # the one place where every chat model names its provider and itself
    prices = _catalogue_prices(str(params.get("ls_model_name")), params.get("ls_provider"))
    if not prices:
        hint = "" if find_spec("genai_prices") else ", or install the catalogue: pip install 'wiserouter[langchain]'"
        raise UnknownPrice(
            name,
            f"price (as {params.get('ls_model_name')!r}): give prices={{{name!r}: Price(input=..., output=...)}}{hint}",
        )
    rates = tuple(rate for above_tokens, price in prices for rate in rates_of(price, above_tokens))
    return RateCard(prices[0][1], rates, "genai-prices", max_input_tokens, max_output_tokens, tuple(prices[1:]))


def _catalogue_prices(model: str, provider: str | None) -> list[tuple[int, Price]]:
    """Return the catalogue's prices by the prompt length they begin above, the first at 0; empty if it has none."""
    if find_spec("genai_prices") is None:
        return []
    from genai_prices import Usage as CataloguedUsage  # takes a second to import, and own prices need none of it
    from genai_prices import calc_price

    usage = CataloguedUsage(input_tokens=1)
    try:
        found = calc_price(usage, model_ref=model, provider_id=_ALIASES.get(provider or "", provider))
    except LookupError:
        return []
    listed = {name: getattr(found.model_price, field, None) for name, field in _FIELDS.items()}
    if listed["input"] is None or listed["output"] is None:
        return []
    starts = sorted({0, *(tier.start for price in listed.values() for tier in getattr(price, "tiers", ()))})
    return [(start, _price_from(listed, start)) for start in starts]


def _price_from(listed: dict[str, Any], start: int) -> Price:
    """Return the price that holds just above `start` input tokens."""
    return Price(**{name: _usd(price, start) for name, price in listed.items()})  # type: ignore[arg-type]


def _usd(price: Any, start: int) -> float | None:
    if price is None:
        return None
    tiers = [tier.price for tier in getattr(price, "tiers", ()) if tier.start <= start]
    return float(tiers[-1] if tiers and start else getattr(price, "base", price)) / 1e6
