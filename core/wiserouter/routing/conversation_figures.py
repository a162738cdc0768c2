"""The figures of conversations for the status: visits, cache hits, and what other rules would have cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from wiserouter.conversations.call_cost import MIN_CACHEABLE_TOKENS, unread_price_usd
from wiserouter.conversations.conversation import Conversation
from wiserouter.pricing.pool import Pool
from wiserouter.pricing.prices import Price, Usage, cost_usd
from wiserouter.types import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationFigures:
    """The conversations that this worker has served since its start.

    Attributes
    ----------
    unit : {"conversation", "run"}
        The unit of decision.
    calls, ended : int
        Number of calls decided, and of conversations that ended.
    stays, first_visits, returns : int
        Calls by the model of the call before, by one that meets the conversation for the first time, and by one that
        served it earlier.
    hit_rate : dict of str to float
        Share of the prompt tokens that were read from the cache, by model.
    charged_usd : float, USD
        Cost of the calls whose tokens are known.
    missed_usd : float, USD
        The part of it that was paid for tokens of a prefix that a warm model would have read from its cache.
    always_stay_usd : float, USD
        What those calls would have cost, had the first model of each conversation served all of it.
    never_stay_usd : float, USD
        What they would have cost without any cached prefix of their conversation, as for calls that do not know of each
        other.
    """

    unit: str
    calls: int
    ended: int
    stays: int
    first_visits: int
    returns: int
    hit_rate: dict[str, float]
    charged_usd: float
    missed_usd: float
    always_stay_usd: float
    never_stay_usd: float


class ConversationCounts:
    """The counts and sums behind the figures."""

    def __init__(self) -> None:
        self._visits: Counter[str] = Counter()
        self._read_tokens: Counter[str] = Counter()
        self._prompt_tokens: Counter[str] = Counter()
        self._charged_usd = self._missed_usd = self._always_stay_usd = self._never_stay_usd = 0.0
        self.ended = 0

    def decided(self, decision: Decision) -> None:
        """Count a decision."""
        self._visits[decision.visit] += 1

    def charged(
        self, state: Conversation, pool: Pool, model: int, charged_usd: float, usage: Usage, missed_usd: float
    ) -> None:
        """Count a charged call; `state` is that of its conversation before the charge, `missed_usd` its sum after."""
        name, price = pool.names[model], pool.models[model].price
        self._read_tokens[name] += usage.cache_read_tokens
        self._prompt_tokens[name] += usage.input_tokens
        self._charged_usd += charged_usd
        self._missed_usd += missed_usd - state.missed_usd
        self._always_stay_usd += _staying_usd(state, pool, name, charged_usd, usage)
        if price is None or not state.prompt_tokens:  # what a first call reads is not of its conversation
            self._never_stay_usd += charged_usd
        else:
            self._never_stay_usd += cost_usd(price, _with_read(usage, 0))

    def missed_usd(self, state: Conversation, price: Price | None, usage: Usage) -> float:
        """Return the amount paid for tokens of the prefix that a warm model would have read from its cache.

        Examples
        --------
        >>> chat = Conversation("a", "default", "conversation", prompt_tokens=3000)
        >>> price = Price(input=2e-6, output=8e-6, cache_read=5e-7)
        >>> round(ConversationCounts().missed_usd(chat, price, Usage(4000, 10, cache_read_tokens=1000)), 6)
        0.003
        """
        if price is None or price.cache_read_usd >= price.input:
            return 0.0
        tokens = min(state.prompt_tokens, usage.input_tokens) - usage.cache_read_tokens
        if state.prompt_tokens < MIN_CACHEABLE_TOKENS or tokens <= 0:
            return 0.0
        written = usage.cache_write_tokens / max(usage.input_tokens - usage.cache_read_tokens, 1)
        return tokens * (unread_price_usd(price, written) - price.cache_read_usd)

    def figures(self, unit: str) -> ConversationFigures:
        """Return the figures so far."""
        return ConversationFigures(
            unit=unit,
            calls=self._visits.total(),
            ended=self.ended,
            stays=self._visits["stay"],
            first_visits=self._visits["first"],
            returns=self._visits["return"],
            hit_rate={name: self._read_tokens[name] / tokens for name, tokens in self._prompt_tokens.items() if tokens},
            charged_usd=self._charged_usd,
            missed_usd=self._missed_usd,
            always_stay_usd=self._always_stay_usd,
            never_stay_usd=self._never_stay_usd,
        )


def _staying_usd(state: Conversation, pool: Pool, name: str, charged_usd: float, usage: Usage) -> float:
    """Return the cost of a call, had the first model served all of its conversation."""
    first = pool.by_name.get(state.first_model)
    if first is None or first.price is None or {state.first_model, *state.warm} == {name}:
        return charged_usd  # it did serve all of it
    prefix = state.prompt_tokens if state.prompt_tokens >= MIN_CACHEABLE_TOKENS else 0
    return cost_usd(first.price, _with_read(usage, min(max(prefix, usage.cache_read_tokens), usage.input_tokens)))


def _with_read(usage: Usage, read_tokens: int) -> Usage:
    """Return the tokens of a call that reads `read_tokens` from the cache, and writes the rest as this one did."""
    rest = usage.input_tokens - read_tokens
    written = min(usage.cache_write_tokens, rest)
    return Usage(usage.input_tokens, usage.output_tokens, read_tokens, written, usage.reasoning_tokens)
