"""What calls cost in the batch service of a provider."""

from __future__ import annotations

from wiserouter import Price, Usage
from wiserouter.integration import RateCard


def batch_factor(card: RateCard, price_factor: float) -> float:
    """Return the most that a call costs in a batch over its plain price.

    Parameters
    ----------
    card : RateCard
        The prices of the deployment.
    price_factor : float
        The factor where no batch price is known.

    Examples
    --------
    >>> batch_factor(RateCard(Price(2e-6, 8e-6), (), "map", batch_price=Price(1e-6, 4e-6)), 1.0)
    0.5
    """
    if card.batch_price is None:
        return price_factor
    sides = zip(_sides(card.batch_price), _sides(card.price), strict=True)
    return max([batch / plain if plain else float("inf") for batch, plain in sides if batch], default=0.0)


def batch_cost_usd(card: RateCard, usage: Usage, price_factor: float) -> float:
    """Return the cost of a call in a batch from its tokens; long prompts cost their share of the plain price."""
    is_long = any(usage.input_tokens > above for above, _ in card.long_prompt_prices)
    if card.batch_price is None or is_long:
        return batch_factor(card, price_factor) * card.cost_usd(usage)
    return RateCard(card.batch_price, (), "batch").cost_usd(usage)


def _sides(price: Price) -> tuple[float, ...]:
    return price.input, price.output, price.cache_read_usd, price.cache_write_usd, price.reasoning_usd
