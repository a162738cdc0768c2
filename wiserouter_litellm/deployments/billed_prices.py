"""The prices at which a call is billed, by the length of its prompt and its service tier, as LiteLLM reads its keys."""

from __future__ import annotations

import re
from collections.abc import Mapping

from wiserouter import Price

_INPUT, _OUTPUT, _REASONING = "input_cost_per_token", "output_cost_per_token", "output_cost_per_reasoning_token"
_READ, _WRITE = "cache_read_input_token_cost", "cache_creation_input_token_cost"
_KEY = re.compile(
    rf"(?:{_INPUT}|{_OUTPUT}|{_REASONING}|{_READ}|{_WRITE})"
    r"(?P<above>_above_(?P<thousands>\d+)k_tokens)?(?P<tier>_(?:priority|ultrafast|balanced|flex))?"
)

_LONG_FROM_THE_NUMBER = {"xai"}

LongPromptPrices = tuple[tuple[int, Price], ...]
TierPrices = tuple[tuple[str, int, Price], ...]


def above_tokens(thousands: str, provider: str | None) -> int:
    """Return the number of tokens above which LiteLLM bills the price of a long prompt.

    It bills prompts of exactly the number in the key at that price where the provider does.

    Examples
    --------
    >>> above_tokens("200", "openai"), above_tokens("200", "xai")
    (200000, 199999)
    """
    return int(thousands) * 1_000 - (provider in _LONG_FROM_THE_NUMBER)


def billed_prices(figures: Mapping[str, float], provider: str | None = None) -> tuple[LongPromptPrices, TierPrices]:
    """Return the prices of long prompts and those of tiers, as a `RateCard` has them.

    Parameters
    ----------
    figures : mapping of str to float
        The prices of a model by LiteLLM's keys, those of plain input and output among them.
    provider : str, optional
        LiteLLM's name of the provider.

    Examples
    --------
    >>> plain = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
    >>> [(tier, above, price.input, price.output) for tier, above, price in billed_prices(
    ...     {**plain, "input_cost_per_token_priority": 3e-6})[1]]
    [('priority', 0, 3e-06, 2e-06)]
    """
    found = [match for key in figures if (match := _KEY.fullmatch(key))]
    lengths = [match for match in found if match["above"]]
    longs = sorted({(above_tokens(match["thousands"], provider), str(match["above"])) for match in lengths})
    tiers = sorted({str(match["tier"]) for match in found if match["tier"]})
    return (
        tuple((tokens, _price(figures, above, "")) for tokens, above in longs),
        tuple(
            (tier[1:], tokens, _price(figures, above, tier)) for tier in tiers for tokens, above in [(0, ""), *longs]
        ),
    )


def _price(figures: Mapping[str, float], above: str, tier: str) -> Price:
    """Return the prices of a length and a tier; where one is missing, that of the length, the tier or all calls."""

    def of(key: str) -> float | None:
        names = (f"{key}{above}{tier}", f"{key}{above}", f"{key}{tier}", key)
        return next((figures[name] for name in names if name in figures), None)

    inputs, outputs = of(_INPUT), of(_OUTPUT)
    has_own_output = bool(tier) and f"{_OUTPUT}{tier}" in figures  # it holds for reasoning as well
    reasoning = figures.get(f"{_REASONING}{tier}") if has_own_output else of(_REASONING)
    return Price(inputs or 0.0, outputs or 0.0, of(_READ), of(_WRITE), reasoning)
