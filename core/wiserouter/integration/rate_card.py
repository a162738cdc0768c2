"""The rate card of a model: its prices and limits, the cost of a call after it and the bound on that cost before it.

Each adapter looks prices up where its framework keeps them and makes a `RateCard` of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from wiserouter.pricing.arms import Params
from wiserouter.pricing.pool import Model
from wiserouter.pricing.prices import Price, Usage, cost_usd
from wiserouter.pricing.prior_scores import PriorScore
from wiserouter.pricing.tokens import count_tokens

PROBE = "naïve"
"""Six bytes, and fewer tokens in every encoding: a count below six is exact."""


class Rate(NamedTuple):
    """One price of a token.

    Attributes
    ----------
    is_input : bool
        Whether it is the price of a prompt token.
    usd : float, USD per token
        The price.
    above_tokens : int
        The rate applies to prompts of more tokens than this; 0 stands for all.
    tier : str
        The service tier that it applies to; "" stands for all.
    """

    is_input: bool
    usd: float
    above_tokens: int = 0
    tier: str = ""


@dataclass(frozen=True, slots=True)
class RateCard:
    """The prices and limits of one model.

    Attributes
    ----------
    price : Price
        The prices of a plain call.
    rates : tuple of Rate
        All prices that a call may meet.
    source : str
        Where the prices come from.
    max_input_tokens, max_output_tokens : int or None
        The context window and the limit of one answer, where they are known.
    long_prompt_prices : tuple of (int, Price)
        Prices of all tokens of a call whose prompt is longer than the given number of tokens, by rising number.
    prior : PriorScore or None
        The prior quality of the model, where one is known.
    params : mapping of str to JSON value
        The parameters of the arm, where it is one.
    family : str
        The model that it is an arm of; "" where the name says it.
    batch_price : Price or None
        The prices of the provider's batch service, where they are known.
    tier_prices : tuple of (str, int, Price)
        Prices of the calls of a service tier whose prompt is longer than a number of tokens, by rising number from 0.
    search_usd : float, USD
        The fee of a web search that the provider runs for an answer; 0 where it is not known.
    answer_usd : float, USD
        The most that each answer costs beside its tokens, such as where a model searches with each call.

    Examples
    --------
    >>> price = Price.per_million(input=2.0, output=8.0)
    >>> round(RateCard(price, tuple(rates_of(price)), "settings", max_output_tokens=10).worst_case_usd(100, None), 9)
    0.00028
    """

    price: Price
    rates: tuple[Rate, ...]
    source: str
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    long_prompt_prices: tuple[tuple[int, Price], ...] = ()
    prior: PriorScore | None = None
    params: Params = field(default_factory=dict, hash=False)
    family: str = ""
    batch_price: Price | None = None
    tier_prices: tuple[tuple[str, int, Price], ...] = ()
    search_usd: float = 0.0
    answer_usd: float = 0.0

    def cost_usd(self, usage: Usage, tier: str = "") -> float:
        """Return the cost of a call from its tokens, and from the service tier that served it."""
        return cost_usd(self.price_of(usage, tier), usage)

    def price_of(self, usage: Usage, tier: str = "") -> Price:
        """Return the price of the tokens of a call, from their number and from the service tier that served it."""
        price = self.price
        for above_tokens, long_prompt_price in self.long_prompt_prices:
            if usage.input_tokens > above_tokens:
                price = long_prompt_price
        for name, above_tokens, tier_price in self.tier_prices:
            if name == tier and (not above_tokens or usage.input_tokens > above_tokens):
                price = tier_price
        return price

    def worst_case_usd(
        self, input_tokens: int | None, output_tokens: int | None, choices: int = 1, tier: str = ""
    ) -> float:
        """Return the most that a call can cost; infinite where nothing bounds it.

        Parameters
        ----------
        input_tokens : int or None
            An upper bound; None stands for the whole context window.
        output_tokens : int or None
            The limit that the call sets on one answer; None stands for the model's own limit.
        choices : int, default 1
            The number of answers asked for.
        tier : str, default ""
            The service tier asked for.
        """
        inputs = self.max_input_tokens if input_tokens is None else input_tokens
        limit = self.max_output_tokens
        if output_tokens is not None:
            limit = output_tokens if limit is None or output_tokens < limit else limit
        if inputs is None or limit is None:
            return float("inf")
        input_usd, output_usd = self._highest_usd(inputs, tier)
        return inputs * input_usd + choices * (limit * output_usd + self.answer_usd)

    def output_tokens_within(self, usd: float, input_tokens: int | None, choices: int = 1, tier: str = "") -> int:
        """Return the largest limit of one answer with which a call costs at most `usd`; 0 where there is none.

        The other parameters are those of `worst_case_usd`.
        """
        inputs = self.max_input_tokens if input_tokens is None else input_tokens
        if inputs is None:
            return 0
        input_usd, output_usd = self._highest_usd(inputs, tier)
        left_usd, each_usd = usd - inputs * input_usd - choices * self.answer_usd, choices * output_usd
        if left_usd <= 0.0 or each_usd == 0.0:
            return 0
        tokens = int(left_usd / each_usd * (1.0 + 1e-12))
        return tokens if self.max_output_tokens is None else min(tokens, self.max_output_tokens)

    def _highest_usd(self, inputs: int, tier: str) -> tuple[float, float]:
        """Return the highest prices of one input and one output token that a call of that length can meet."""
        input_usd = output_usd = 0.0
        for is_input, usd, above_tokens, rate_tier in self.rates:
            if (rate_tier and rate_tier != tier) or (above_tokens and above_tokens >= inputs):
                continue
            if not is_input:
                output_usd = usd if usd > output_usd else output_usd
            elif usd > input_usd:
                input_usd = usd
        return input_usd, output_usd

    def model(self, name: str) -> Model:
        """Return the router's model of this price, these limits and this prior quality."""
        bound_usd, prior = self.worst_case_usd(None, None), self.prior
        model = Model(
            name,
            self.price,
            max_output_tokens=self.max_output_tokens,
            max_input_tokens=self.max_input_tokens,
            max_cost_usd=bound_usd if bound_usd < float("inf") else None,
            params=self.params,
            family=self.family,
            batch_price=self.batch_price,
        )
        return model if prior is None else replace(model, score=prior.score, score_weight=prior.weight)


def rates_of(price: Price, above_tokens: int = 0) -> Iterable[Rate]:
    """Yield the rates of a price that holds for prompts of more than `above_tokens` tokens."""
    for usd in (price.input, price.cache_read_usd, price.cache_write_usd):
        yield Rate(True, usd, above_tokens)
    for usd in (price.output, price.reasoning_usd):
        yield Rate(False, usd, above_tokens)


def exact_encoding(model: str) -> str | None:
    """Return the encoding that counts the tokens of a model exactly, or None where there is only a bound."""
    probe = count_tokens(PROBE, model)
    return probe.encoding if probe.at_most < len(PROBE.encode()) else None
