"""Published list prices of the models of the known tables, for methods that start from prices."""

from __future__ import annotations

from collections.abc import Mapping

from wiserouter.pricing.prices import HIGHEST_USD, Price

USD_PER_MTOK: dict[str, tuple[float, float]] = {
    "gpt-3.5-turbo-1106": (1.0, 2.0),
    "claude-instant-v1": (0.8, 2.4),
    "claude-v1": (8.0, 24.0),
    "claude-v2": (8.0, 24.0),
    "gpt-4-1106-preview": (10.0, 30.0),
    "llama-2-70b-chat": (0.9, 0.9),
    "mixtral-8x7b-chat": (0.6, 0.6),
    "Yi-34B-Chat": (0.8, 0.8),
    "WizardLM-13B-V1.2": (0.3, 0.3),
    "code-llama-instruct-34b-chat": (0.776, 0.776),
    "mistral-7b-chat": (0.2, 0.2),
    "llama-3.1-8b-instruct": (0.02, 0.03),
    "mistral-large-2512": (0.5, 1.5),
    "gemini-2.5-pro": (1.25, 10.0),
    "gemini-2.5-flash": (0.3, 2.5),
    "llama-4-maverick": (0.2, 0.6),
    "claude-sonnet-4-20250514": (3.0, 15.0),
    "o4-mini-2025-04-16": (1.1, 4.4),
    "claude-4-opus-20250514": (15.0, 75.0),
    "qwen3-coder-480b-a35b-instruct": (0.9, 3.0),
    "gpt-5": (1.25, 10.0),
    "gpt-5-mini": (0.25, 2.0),
    "gpt-5-nano": (0.05, 0.4),
    "gpt-oss-120b": (0.1, 0.5),
}
"""USD per million tokens of input and output, by the model's name in its table."""


TYPICAL_CALL_TOKENS = 700
"""Input and output tokens of a typical call, at which the price of a model that is not listed gives its mean cost."""


def list_prices(mean_cost_usd: Mapping[str, float]) -> dict[str, Price]:
    """Return the list prices of models, and for those not listed prices at which a typical call costs its mean cost.

    Where such a price is higher than any price of a token, as with runs of many calls, the typical call of all models
    that are not listed has as many more tokens.

    Examples
    --------
    >>> {name: price.output for name, price in list_prices({"gpt-5": 1.0, "in-house": 0.07}).items()}
    {'gpt-5': 1e-05, 'in-house': 0.0001}
    >>> {name: price.output for name, price in list_prices({"runs": 5.0, "long runs": 10.0}).items()}
    {'runs': 0.0005, 'long runs': 0.001}
    """
    priced = {name: Price.per_million(*USD_PER_MTOK[name]) for name in mean_cost_usd if name in USD_PER_MTOK}
    rest = {name: usd for name, usd in mean_cost_usd.items() if name not in priced}
    tokens = max(TYPICAL_CALL_TOKENS, max(rest.values(), default=0.0) / HIGHEST_USD)
    return priced | {name: Price(usd / tokens, usd / tokens) for name, usd in rest.items()}
