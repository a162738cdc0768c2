"""What a deployment's calls cost, by the prices that LiteLLM knows: custom prices first, then its map.

Prices of long prompts (`..._above_200k_tokens`) and of service tiers (`..._priority`) count in the worst case of a call
where they can apply. A deployment without a price is refused: LiteLLM itself would count its calls as free.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import litellm

from wiserouter import Model, Price, Usage
from wiserouter.errors import UnknownPrice
from wiserouter.pricing.prices import cost_usd

_RATE = re.compile(
    r"(?P<side>input|output)_cost_per_(?P<kind>token|reasoning_token|image_token|audio_token)"
    r"|(?P<cache>cache_creation_input_token_cost|cache_read_input_token_cost)"
)
_ABOVE = re.compile(r"_above_(\d+)k_tokens")
_TIERS = ("priority", "ultrafast", "balanced")  # flex and batches are never dearer
_LIMITS = ("max_input_tokens", "max_output_tokens")


class Rate(NamedTuple):
    """One price: USD per token of one side, for prompts above some length, at one service tier."""

    is_input: bool
    usd: float
    above_tokens: int
    tier: str


@dataclass(frozen=True, slots=True)
class Tariff:
    """What a deployment asks, and what it can take.

    Attributes
    ----------
    price : Price
        The plain prices.
    rates : tuple of Rate
        All prices that a call may meet.
    source : str
        Who says so: "settings", "deployment", or "litellm" for its map.
    max_input_tokens, max_output_tokens : int or None
        The context window and the longest answer, where they are known.
    """

    price: Price
    rates: tuple[Rate, ...]
    source: str
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None

    def cost_usd(self, usage: Usage) -> float:
        """Return what a call costs at the plain prices."""
        return cost_usd(self.price, usage)

    def worst_case_usd(
        self, input_tokens: int | None, output_tokens: int | None, choices: int = 1, tier: str = ""
    ) -> float:
        """Return the most that a call can cost; infinite where nothing bounds it.

        Parameters
        ----------
        input_tokens : int or None
            An upper bound; None stands for the whole context window.
        output_tokens : int or None
            The most tokens that one answer may have; None stands for the model's own limit.
        choices : int, default 1
            How many answers are asked for.
        tier : str, default ""
            The service tier that the request asks for.
        """
        inputs = self.max_input_tokens if input_tokens is None else input_tokens
        known = [limit for limit in (output_tokens, self.max_output_tokens) if limit is not None]
        if inputs is None or not known:
            return float("inf")
        applying = [rate for rate in self.rates if rate.above_tokens < max(inputs, 1) and rate.tier in {"", tier}]
        dearest = [max((r.usd for r in applying if r.is_input == side), default=0.0) for side in (True, False)]
        return inputs * dearest[0] + choices * min(known) * dearest[1]

    def model(self, name: str) -> Model:
        """Return the core's model of this price and these limits."""
        bound = self.worst_case_usd(None, None)
        return Model(
            name,
            self.price,
            max_output_tokens=self.max_output_tokens,
            max_input_tokens=self.max_input_tokens,
            max_cost_usd=bound if bound < float("inf") else None,
        )


def tariff_of(deployment: Mapping[str, Any], own: Price | None = None) -> Tariff:
    """Return the tariff of a deployment as it stands in a LiteLLM router or configuration.

    Parameters
    ----------
    deployment : mapping
        With `litellm_params` and perhaps `model_info`.
    own : Price, optional
        A price of the caller's table, instead of LiteLLM's.

    Raises
    ------
    UnknownPrice
        If neither the deployment, its base model, LiteLLM's map nor `own` has a price. An explicit 0 is a price.
    """
    info = _figures(deployment)
    if own is None and (info.get("input_cost_per_token") is None or info.get("output_cost_per_token") is None):
        model = str(deployment["litellm_params"].get("model"))
        raise UnknownPrice(
            model,
            "price in LiteLLM's map: set input_cost_per_token and output_cost_per_token in its litellm_params (0 if it "
            "is free), model_info.base_model, or `prices` in callback_settings.wiserouter",
        )
    price = own or Price(
        input=info["input_cost_per_token"],
        output=info["output_cost_per_token"],
        cache_read=info.get("cache_read_input_token_cost"),
        cache_write=info.get("cache_creation_input_token_cost"),
        reasoning=info.get("output_cost_per_reasoning_token"),
    )
    limits = {name: int(info[name]) for name in _LIMITS if info.get(name)}
    rates = tuple(_own_rates(price) if own else _rates(info))
    return Tariff(price, rates, "settings" if own else _source(deployment), **limits)


def _source(deployment: Mapping[str, Any]) -> str:
    """Return whether the deployment itself states the price, or LiteLLM's map."""
    info = deployment.get("model_info") or {}
    stated = {key for key, value in {**info, **deployment["litellm_params"]}.items() if value is not None}
    return "deployment" if "input_cost_per_token" in stated else "litellm"


def _figures(deployment: Mapping[str, Any]) -> dict[str, float]:
    """Return prices and limits: of LiteLLM's map, then of model_info, then of litellm_params."""
    params, info = deployment["litellm_params"], deployment.get("model_info") or {}
    base = info.get("base_model") or params.get("base_model") or params.get("model")
    figures: dict[str, float] = {}
    for source in (_of_map(str(base), params.get("custom_llm_provider")), info, params):
        figures |= {k: number for k, v in source.items() if _counts(k) and (number := _number(v)) is not None}
    asked = _number(params.get("max_tokens") or params.get("max_completion_tokens"))  # what it sends by default
    return figures | ({"max_output_tokens": asked} if asked else {})


def _counts(key: str) -> bool:
    return key in _LIMITS or _RATE.match(key) is not None


def _number(value: object) -> float | None:
    """Return a number, which YAML may have read as text: `1e-6` has no dot."""
    try:
        return float(value) if isinstance(value, int | float | str) else None
    except ValueError:
        return None


def _of_map(model: str, provider: str | None) -> Mapping[str, Any]:
    """Return LiteLLM's entry of a model, or nothing; never one that a deployment without a price has left there."""
    try:
        key = litellm.get_model_info(model=model, custom_llm_provider=provider)["key"]
    except Exception:
        return {}
    entry: Mapping[str, Any] = litellm.model_cost.get(key, {})
    return entry


def _rates(info: Mapping[str, float]) -> Iterable[Rate]:
    for key, usd in info.items():
        found = _RATE.match(key)
        if found is None:
            continue
        rest = key[found.end() :]
        above = _ABOVE.search(rest)
        tier = next((name for name in _TIERS if rest.endswith(f"_{name}")), "")
        if rest.endswith(("_flex", "_batches")):
            continue
        yield Rate(found["side"] != "output", usd, int(above[1]) * 1_000 if above else 0, tier)


def _own_rates(price: Price) -> Iterable[Rate]:
    yield from (Rate(True, usd, 0, "") for usd in (price.input, price.cache_read_usd, price.cache_write_usd))
    yield from (Rate(False, usd, 0, "") for usd in (price.output, price.reasoning_usd))
