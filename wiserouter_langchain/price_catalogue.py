"""What a chat model's calls cost: your own price, or that of the catalogue `genai-prices`, looked up once.

A model without a price is refused at construction, never counted as free.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from langchain_core.language_models import BaseChatModel

from wiserouter import Price, Usage
from wiserouter.errors import UnknownPrice
from wiserouter.pricing.prices import cost_usd, worst_case_usd

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
"""LangChain's names of providers, where the catalogue has others."""

_FIELDS = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
}


@dataclass(frozen=True, slots=True)
class Tariff:
    """The prices of one model.

    Attributes
    ----------
    steps : tuple of (int, Price)
        From how many input tokens on a price holds, for all tokens of the call; the first from 0 on.
    source : str
        Who says so: "user", or "genai-prices".
    """

    steps: tuple[tuple[int, Price], ...]
    source: str

    @property
    def price(self) -> Price:
        """The price of short prompts."""
        return self.steps[0][1]

    def cost_usd(self, usage: Usage) -> float:
        """Return what a call costs."""
        return cost_usd([price for start, price in self.steps if start == 0 or usage.input_tokens > start][-1], usage)

    def worst_case_usd(self, input_tokens: int, output_tokens: int) -> float:
        """Return the most that a call can cost."""
        prices = [price for start, price in self.steps if start == 0 or input_tokens > start]
        return max(worst_case_usd(price, input_tokens, output_tokens) for price in prices)


def tariff_of(name: str, model: BaseChatModel, own: Price | None) -> Tariff:
    """Return the tariff of a chat model.

    Parameters
    ----------
    name : str
        What the router calls it.
    model : BaseChatModel
        Whose provider and model name the catalogue is asked for.
    own : Price, optional
        Your own price, which comes first.

    Raises
    ------
    UnknownPrice
        If there is none, and the catalogue has none or is not installed.
    """
    if own is not None:
        return Tariff(((0, own),), "user")
    params = model._get_ls_params()  # the one place where every chat model names its provider and itself
    found = _of_catalogue(str(params.get("ls_model_name")), params.get("ls_provider"))
    if found is None:
        hint = "" if find_spec("genai_prices") else ", or install the catalogue: pip install 'wiserouter[langchain]'"
        raise UnknownPrice(
            name,
            f"price (as {params.get('ls_model_name')!r}): give prices={{{name!r}: Price(input=..., output=...)}}{hint}",
        )
    return found


def _of_catalogue(model: str, provider: str | None) -> Tariff | None:
    if find_spec("genai_prices") is None:
        return None
    from genai_prices import Usage as Counted  # a second, and only where it is needed
    from genai_prices import calc_price

    try:
        asked = calc_price(Counted(input_tokens=1), model_ref=model, provider_id=_ALIASES.get(provider or "", provider))
    except LookupError:
        return None
    listed = {name: getattr(asked.model_price, field, None) for name, field in _FIELDS.items()}
    if listed["input"] is None or listed["output"] is None:
        return None
    starts = sorted({0, *(tier.start for price in listed.values() for tier in getattr(price, "tiers", ()))})
    return Tariff(tuple((start, _price_from(listed, start)) for start in starts), "genai-prices")


def _price_from(listed: dict[str, Any], start: int) -> Price:
    """Return the price that holds just above `start` input tokens."""
    return Price(**{name: _usd(price, start) for name, price in listed.items()})  # type: ignore[arg-type]


def _usd(price: Any, start: int) -> float | None:
    if price is None:
        return None
    tiers = [tier.price for tier in getattr(price, "tiers", ()) if tier.start <= start]
    return float(tiers[-1] if tiers and start else getattr(price, "base", price)) / 1e6
