"""What a call costs in USD, after it (`cost_usd`) and at most, before it (`worst_case_usd`).

Both are sums of tokens times price and know no catalogue: a model without a price is refused where the pool is built.
"""

from __future__ import annotations

from wiserouter.types import Price, Usage, check_count


def cost_usd(price: Price, usage: Usage) -> float:
    """Return what `usage` costs at `price`.

    Parameters
    ----------
    price : Price
        USD per token, of each kind.
    usage : Usage
        Tokens of the call; cached tokens are part of the input, reasoning tokens of the output.

    Returns
    -------
    float, USD
        Never more than `worst_case_usd` of the same tokens, not even by a rounding error.

    Examples
    --------
    >>> price = Price(input=2.0, output=8.0, cache_read=0.5)
    >>> cost_usd(price, Usage(input_tokens=100, output_tokens=10, cache_read_tokens=60))
    190.0
    """
    rounded = _input_usd(price, usage) + _output_usd(price, usage)
    return min(rounded, worst_case_usd(price, usage.input_tokens, usage.output_tokens))


def _input_usd(price: Price, usage: Usage) -> float:
    """Return the cost of the prompt: plain, read from the cache and written to it."""
    plain = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
    cached = usage.cache_read_tokens * price.cache_read_usd + usage.cache_write_tokens * price.cache_write_usd
    return plain * price.input + cached


def _output_usd(price: Price, usage: Usage) -> float:
    """Return the cost of the completion: visible and reasoning tokens."""
    visible = usage.output_tokens - usage.reasoning_tokens
    return visible * price.output + usage.reasoning_tokens * price.reasoning_usd


def worst_case_usd(price: Price, input_tokens: int, max_output_tokens: int) -> float:
    """Return the most that a call can cost: every token at the dearest price of its side.

    Parameters
    ----------
    price : Price
        USD per token, of each kind.
    input_tokens : int
        An upper bound on the prompt's tokens (`TokenCount.at_most`).
    max_output_tokens : int
        The most tokens that the call may return, reasoning included.

    Raises
    ------
    InvalidInput
        If a count is negative or not whole.

    Examples
    --------
    >>> worst_case_usd(Price(input=2.0, output=8.0, cache_write=2.5), input_tokens=100, max_output_tokens=10)
    330.0
    """
    inputs = check_count("input_tokens", input_tokens)
    outputs = check_count("max_output_tokens", max_output_tokens)
    dearest_input = max(price.input, price.cache_read_usd, price.cache_write_usd)
    return inputs * dearest_input + outputs * max(price.output, price.reasoning_usd)
