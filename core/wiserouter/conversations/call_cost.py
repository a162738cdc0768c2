r"""The expected cost of the next call of a conversation, and of the calls after it, given what is warm.

With a prompt of :math:`P` tokens, of which :math:`W` are warm and read with probability :math:`q`, and prices of a read
:math:`r`, of an unread prompt token :math:`w` and of an output token :math:`o`, the next call costs

.. math:: c = q W r + (P - q W)\, w + E[\mathrm{out}]\, o .

The :math:`i`-th call after it has a prompt of :math:`P + i g`, where :math:`g` is the growth from call to call, and all
but the last :math:`g` tokens are warm. The sum over :math:`H` calls is linear in :math:`H` and in the pairs
:math:`H (H - 1) / 2`, whose expectations suffice where the number of calls is random.
"""

from __future__ import annotations

from wiserouter.pricing.prices import Price

MIN_CACHEABLE_TOKENS = 1024
"""The least length of a cached prefix where the price table states none: that of most providers."""


def unread_price_usd(price: Price, write_share: float = 1.0) -> float:
    """Return the price of a prompt token that is not read from the cache: input, or the share that is written at more.

    A write price below the input price does not make the prompt cheaper: tables that state 0 mean that writing costs
    nothing beyond the input price.

    Examples
    --------
    >>> price = Price.per_million(input=2.0, output=8.0, cache_read=0.5, cache_write=2.5)
    >>> round(unread_price_usd(price, write_share=0.5), 9)
    2.25e-06
    """
    return price.input + write_share * max(price.cache_write_usd - price.input, 0.0)


def next_call_usd(
    price: Price,
    prompt_tokens: float,
    warm_tokens: float,
    hit_probability: float,
    output_tokens: float,
    min_cacheable_tokens: float = MIN_CACHEABLE_TOKENS,
    *,
    shared_tokens: float = 0.0,
    write_share: float = 1.0,
) -> float:
    """Return the expected cost of the next call.

    Parameters
    ----------
    price : Price
        USD per token, of each kind.
    prompt_tokens, warm_tokens : float
        Length of the prompt, and of its prefix that the provider has read before.
    hit_probability : float
        Expected share of the warm prefix that is read from the cache.
    output_tokens : float
        Expected tokens of the answer.
    min_cacheable_tokens : float
        The least length of a cached prefix; a shorter one is neither read nor written.
    shared_tokens : float, default 0
        Tokens that are read even at a first visit, such as a system prompt that many conversations share.
    write_share : float, default 1
        Share of the unread prompt that is billed as written.

    Returns
    -------
    float, USD

    Examples
    --------
    >>> price = Price.per_million(input=2.0, output=8.0, cache_read=0.5, cache_write=2.5)
    >>> round(next_call_usd(price, 100, 60, hit_probability=0.5, output_tokens=10, min_cacheable_tokens=50), 9)
    0.00027
    >>> round(next_call_usd(price, 100, 60, hit_probability=0.5, output_tokens=10, min_cacheable_tokens=200), 9)
    0.00028
    """
    output_usd = output_tokens * price.output
    if prompt_tokens < min_cacheable_tokens:
        return prompt_tokens * price.input + output_usd
    warm = min(warm_tokens, prompt_tokens)
    read = hit_probability * warm if warm >= min_cacheable_tokens else 0.0
    read = max(read, min(shared_tokens, prompt_tokens))
    return read * price.cache_read_usd + (prompt_tokens - read) * unread_price_usd(price, write_share) + output_usd


def rest_usd(
    price: Price,
    prompt_tokens: float,
    growth_tokens: float,
    output_tokens: float,
    calls_left: float,
    hit_probability: float,
    *,
    call_pairs: float | None = None,
    write_share: float = 1.0,
) -> float:
    """Return the expected cost of the calls that follow one with `prompt_tokens`, if one model serves all of them.

    Parameters
    ----------
    price : Price
        USD per token, of each kind.
    prompt_tokens, growth_tokens, output_tokens : float
        Prompt of the call before the first of them, its growth from call to call, and tokens of each answer.
    calls_left : float
        Expected number of calls, E[H].
    hit_probability : float
        Expected share of the warm prefix that each of them reads.
    call_pairs : float, optional
        E[H (H - 1) / 2]; by default that of a certain number of calls.
    write_share : float, default 1
        Share of the unread prompt that is billed as written.

    Returns
    -------
    float, USD

    Examples
    --------
    >>> price = Price.per_million(input=2.0, output=8.0, cache_read=0.5)
    >>> one, two = (rest_usd(price, 100, 20, 10, calls, hit_probability=1.0) for calls in (1, 2))
    >>> second = next_call_usd(price, 140, 120, 1.0, 10, 0)
    >>> one == next_call_usd(price, 120, 100, 1.0, 10, 0), round(two - one, 9) == round(second, 9)
    (True, True)
    """
    pairs = max(calls_left * (calls_left - 1.0) / 2.0, 0.0) if call_pairs is None else call_pairs
    unread_usd = unread_price_usd(price, write_share)
    warm_usd = hit_probability * price.cache_read_usd + (1.0 - hit_probability) * unread_usd
    warm_sum_tokens = calls_left * prompt_tokens + pairs * growth_tokens
    return warm_sum_tokens * warm_usd + calls_left * (growth_tokens * unread_usd + output_tokens * price.output)
