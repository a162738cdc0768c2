"""Prices of chat models: the caller's own, or those of the catalogue `genai-prices`, looked up at construction.

A model without a price is refused there, never counted as free. Where the catalogue's prices depend on the time of day,
or new ones are announced, a call is bounded by all that can apply and charged at those of its moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any

from langchain_core.language_models import BaseChatModel

from wiserouter import Price
from wiserouter.errors import UnknownPrice
from wiserouter.integration import RateCard, rates_of
from wiserouter_langchain.billing.search_fees import always_searches

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
_CATALOGUE, _TIER, _SEARCHES = "genai-prices", "service_tier", "web_searches_kcount"
_MEDIA = re.compile(r"output_(image|video|audio)_mtok")


def rate_card_of(
    name: str,
    model: BaseChatModel,
    own: Price | None,
    max_input_tokens: int | None = None,
    max_output_tokens: int | None = None,
    *,
    kept: Price | None = None,
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
    kept : Price, optional
        The price that a router has for it. Where the catalogue has it at any time, it is the catalogue's: others may
        apply to long prompts, service tiers and other hours.

    Raises
    ------
    UnknownPrice
        If there is none, and the catalogue has none or is not installed.
    """
    if own is not None:
        return RateCard(own, tuple(rates_of(own)), "user", max_input_tokens, max_output_tokens)
    found = _found(model)
    listed = {} if found is None else _listed(found.model_price)
    is_priced = listed.get("input_mtok") is not None and listed.get("output_mtok") is not None
    possible = [each for prices in _possible(found) for each in _by_length(_listed(prices))] if is_priced else []
    if kept is not None and (0, kept) not in possible:
        return rate_card_of(name, model, kept, max_input_tokens, max_output_tokens)
    if not possible:
        hint = "" if find_spec("genai_prices") else ", or install the catalogue: pip install 'wiserouter[langchain]'"
        raise UnknownPrice(
            name, f"price (as {model_name(model)!r}): give prices={{{name!r}: Price(input=..., output=...)}}{hint}"
        )
    rates = tuple(rate for above_tokens, price in possible for rate in rates_of(price, above_tokens))
    (_, price), *longs = _by_length(listed)
    return RateCard(
        kept or price,
        rates,
        _CATALOGUE,
        max_input_tokens,
        max_output_tokens,
        tuple(longs),
        tier_prices=tuple(_tier_prices(found, None)),
        search_usd=(_usd(listed.get(_SEARCHES), 0) or 0.0) * 1e3,
    )


def depends_on_time(model: BaseChatModel, source: str) -> bool:
    """Return True if the prices of a chat model, from the source given, are others at other times."""
    found = _found(model) if source == _CATALOGUE else None
    return found is not None and len(_possible(found)) > 1


def at_this_moment(card: RateCard, model: BaseChatModel, now: datetime | None = None) -> RateCard:
    """Return a rate card with the prices that the catalogue has for this moment.

    Parameters
    ----------
    card : RateCard
        The card, whose prices are the catalogue's.
    model : BaseChatModel
        The chat model.
    now : datetime, optional
        The moment.
    """
    found = _found(model, now)
    if found is None:
        return card
    (_, price), *longs = _by_length(_listed(found.model_price))
    return replace(card, price=price, long_prompt_prices=tuple(longs), tier_prices=tuple(_tier_prices(found, now)))


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
    found = _found(model) if source == _CATALOGUE else None
    listed = {} if found is None else _listed(found.model_price)
    media = next((found[1] for name in listed if (found := _MEDIA.fullmatch(name))), None)
    return f"its answers may hold {media} tokens, which have a price of their own" if media else None


def model_name(model: BaseChatModel) -> str:
    """Return the name by which a chat model is known to its provider."""
    return str(model._get_ls_params().get("ls_model_name"))


def _found(model: BaseChatModel, now: datetime | None = None) -> Any:
    """Return the catalogue's entry of a chat model at a moment; None if it has none or is not installed."""
    if find_spec("genai_prices") is None:
        return None
    from genai_prices import Usage as CataloguedUsage  # takes a second to import, and own prices need none of it
    from genai_prices import calc_price

    provider = model._get_ls_params().get("ls_provider")  # where every chat model names its provider and itself
    known_as = _ALIASES.get(provider or "", provider)
    usage = CataloguedUsage(input_tokens=1)
    try:
        return calc_price(usage, model_ref=model_name(model), provider_id=known_as, genai_request_timestamp=now)
    except LookupError:
        return None


def _possible(found: Any) -> list[Any]:
    """Return the prices that can apply from now on: those of today, of other hours, and those that are announced.

    The last that holds counts, so that none before one that holds for good can apply again.
    """
    listed, now = found.model.prices, datetime.now(UTC)
    if not isinstance(listed, list):
        return [listed]
    holds = [at for at, one in enumerate(listed) if one.constraint is None or _has_started(one.constraint, now)]
    return [one.prices for one in listed[max(holds, default=0) :]]


def _has_started(constraint: Any, now: datetime) -> bool:
    return hasattr(constraint, "start_date") and bool(constraint.active(now))


def _tier_prices(found: Any, now: datetime | None) -> Iterator[tuple[str, int, Price]]:
    """Yield the prices of service tiers at a moment, by the prompt length they begin above."""
    variants = getattr(found.model, "price_variants", None) or ()
    for tier in dict.fromkeys(variant.when[_TIER] for variant in variants if _TIER in variant.when):
        prices = found.model.get_prices(now or datetime.now(UTC), {_TIER: tier})
        for start, price in _by_length(_listed(prices)):
            yield tier, start, price


def _listed(prices: Any) -> dict[str, Any]:
    """Return the prices of a model that are known, by the catalogue's names."""
    return {name: price for name, price in vars(prices).items() if price is not None}


def _by_length(listed: dict[str, Any]) -> list[tuple[int, Price]]:
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
