"""What LiteLLM adds to the prices of tokens, or takes off: the surcharge of a region, its margin and its discount.

A margin or a discount may be set after the deployments were read, so they are looked up with each call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import litellm
from litellm import cost_calculator
from litellm.exceptions import BadRequestError


class Margin(NamedTuple):
    """What LiteLLM adds to the cost of a call: a share of it, and an amount.

    Examples
    --------
    >>> margin = Margin(0.5, 2.0)
    >>> margin.added_to(4.0), margin.taken_from(8.0)
    (8.0, 4.0)
    """

    share: float = 0.0
    fixed_usd: float = 0.0

    def added_to(self, usd: float) -> float:
        """Return a cost with the margin."""
        return usd * (1.0 + self.share) + self.fixed_usd

    def taken_from(self, usd: float) -> float:
        """Return the cost that is the given one with the margin."""
        return (usd - self.fixed_usd) / (1.0 + self.share)


NO_MARGIN = Margin()
_OPENAI_HOST = ".api.openai.com"


def margin_of_provider(provider: str | None) -> Margin:
    """Return the margin that LiteLLM is set to for a provider (`litellm.cost_margin_config`), else that for all."""
    config = litellm.cost_margin_config or {}
    stated = config.get(str(provider), config.get("global"))
    if isinstance(stated, Mapping):
        return Margin(float(stated.get("percentage", 0.0)), float(stated.get("fixed_amount", 0.0)))
    return NO_MARGIN if stated is None else Margin(float(stated))


def discount_of(provider: str | None, model: str | None) -> float:
    """Return the discount that LiteLLM is set to for a model, else that for its provider (`cost_discount_config`)."""
    config = litellm.cost_discount_config
    if not config:  # as almost always
        return 0.0
    resolve = getattr(cost_calculator, "resolve_cost_discount", None)  # LiteLLM 1.106 has none for models
    stated = config.get(str(provider)) if resolve is None else resolve(config, provider, model)
    return float(stated or 0.0)


def most_margin(params: Mapping[str, Any]) -> Margin:
    """Return the most that LiteLLM may add to the cost of a call of a deployment with these `litellm_params`."""
    if not litellm.cost_margin_config:  # as almost always
        return NO_MARGIN
    provider = provider_of(params)
    margins = [margin_of_provider(name) for name in (provider, f"text-completion-{provider}")]
    return Margin(max(0.0, *(one.share for one in margins)), max(0.0, *(one.fixed_usd for one in margins)))


def regional_factor(params: Mapping[str, Any], prices: Mapping[str, Any]) -> float:
    """Return the factor of a deployment's region on the prices of its tokens.

    Parameters
    ----------
    params : mapping
        Its `litellm_params`.
    prices : mapping
        The prices by which LiteLLM bills it, with those of regions.

    Examples
    --------
    >>> eu = {"model": "openai/small", "api_base": "https://eu.api.openai.com/v1"}
    >>> regional_factor(eu, {"regional_processing_uplift_multiplier_eu": 1.1})
    1.1
    """
    of_us = _factor_of_us(prices.get("provider_specific_entry"))
    if not any("uplift_multiplier" in key for key in prices):  # as almost always
        return of_us
    provider = provider_of(params) or ""
    names = [f"regional_processing_uplift_multiplier_{params.get('data_residency') or _openai_region(params)}"]
    location = params.get("vertex_location") or params.get("vertex_ai_location")
    if provider.startswith("vertex_ai") and str(location).lower() != "global":  # where none is stated, LiteLLM has one
        names.append("regional_endpoint_uplift_multiplier")
    return max([of_us, *(float(prices[name]) for name in names if prices.get(name) is not None)])


def _factor_of_us(factors: object) -> float:
    """Return the factor of answers from the US, which an account may have asked for (Anthropic's `inference_geo`).

    Examples
    --------
    >>> _factor_of_us({"us": 1.1, "fast": 2.0})
    1.1
    """
    stated = factors.get("us") if isinstance(factors, Mapping) else None
    return 1.0 if stated is None else max(1.0, float(stated))


def _openai_region(params: Mapping[str, Any]) -> str:
    """Return the region of the host that a deployment of OpenAI calls, such as eu.api.openai.com; "" for no region."""
    host = urlsplit(str(params.get("api_base") or params.get("base_url") or "")).hostname or ""
    return host.removesuffix(_OPENAI_HOST) if host.endswith(_OPENAI_HOST) else ""


def provider_of(params: Mapping[str, Any]) -> str | None:
    """Return the provider of a deployment; None where LiteLLM does not know it."""
    try:
        return str(litellm.get_llm_provider(str(params.get("model")), params.get("custom_llm_provider"))[1])
    except BadRequestError:
        return None
