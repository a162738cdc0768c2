"""A simulated provider that bills tokens and keeps the prefix of each conversation for a while.

A call reads the longest prefix of its prompt that its model has in the cache: that of the conversation's last call with
this model, if that is no longer ago than the time to live, else the system prompt that all conversations share. The
rest of the prompt is written, at the write price where the provider bills writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wiserouter.evaluation.conversations.provider_terms import ProviderTerms
from wiserouter.pricing.prices import Usage, cost_usd


class CallBill(NamedTuple):
    """The bill of one call.

    Attributes
    ----------
    usage : Usage
        Its tokens, as providers report them.
    cost_usd : float, USD
        Its cost.
    wasted_usd : float, USD
        The part of it that would not be there, had the model served all of the conversation.
    """

    usage: Usage
    cost_usd: float
    wasted_usd: float


class CachingProvider:
    """The caches of all models of a pool.

    Parameters
    ----------
    terms : sequence of ProviderTerms
        The models.
    shared_tokens : int, default 0
        Length of the system prompt that all conversations share, and that is always in the cache.

    Examples
    --------
    >>> from wiserouter.pricing.prices import Price
    >>> price = Price.per_million(2.0, 8.0, cache_read=0.5)
    >>> provider = CachingProvider([ProviderTerms("a", price, cache_ttl_s=300.0, min_cacheable_tokens=50)])
    >>> [round(provider.call("chat", 0, tokens, 10, now_s).cost_usd, 9) for tokens, now_s in ((100, 0.0), (160, 60.0))]
    [0.00028, 0.00025]
    """

    def __init__(self, terms: Sequence[ProviderTerms], shared_tokens: int = 0) -> None:
        self._terms, self._shared_tokens = tuple(terms), shared_tokens
        self._cached: dict[tuple[str, int], tuple[int, float]] = {}
        self._last: dict[str, tuple[int, float]] = {}

    def call(self, conversation: str, model: int, prompt_tokens: int, output_tokens: int, now_s: float) -> CallBill:
        """Bill one call, and keep its prefix."""
        usage = self._usage(model, prompt_tokens, output_tokens, self._cached.get((conversation, model)), now_s)
        stayed = self._usage(model, prompt_tokens, output_tokens, self._last.get(conversation), now_s)
        price = self._terms[model].price
        usd = cost_usd(price, usage)
        self._cached[conversation, model] = self._last[conversation] = (prompt_tokens, now_s)
        return CallBill(usage, usd, max(usd - cost_usd(price, stayed), 0.0))

    def forget(self, conversation: str) -> None:
        """Drop the prefixes of a conversation that is over."""
        self._last.pop(conversation, None)
        for model in range(len(self._terms)):
            self._cached.pop((conversation, model), None)

    def _usage(
        self, model: int, prompt_tokens: int, output_tokens: int, cached: tuple[int, float] | None, now_s: float
    ) -> Usage:
        """Return the tokens of a call whose model has read a prefix at a time, or none."""
        terms = self._terms[model]
        if prompt_tokens < terms.min_cacheable_tokens:
            return Usage(prompt_tokens, output_tokens)
        known = 0 if cached is None or now_s - cached[1] > terms.cache_ttl_s else cached[0]
        prefix = min(max(known, self._shared_tokens), prompt_tokens)
        read = prefix if prefix >= terms.min_cacheable_tokens else 0
        bills_writes = terms.price.cache_write is not None
        return Usage(prompt_tokens, output_tokens, read, prompt_tokens - read if bills_writes else 0)
