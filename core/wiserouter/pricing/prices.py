"""The cost of a call in USD: its cost after the call (`cost_usd`), and a bound before it (`worst_case_usd`).

Both are sums of tokens times price and use no price catalogue: a model without a price is refused by the pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from wiserouter.errors import InvalidInput
from wiserouter.validation import check_amount, check_count

HIGHEST_USD = 1e-3
"""The highest price of a token that is accepted, in USD: that of a million tokens is 1,000 USD."""

LOWEST_USD = 1e-100
"""The lowest price of a token but 0 that is accepted, in USD: the square of the cost of a call is a number."""

LOWEST_PER_MILLION_USD = 1e-4
"""The lowest price of a million tokens but 0 that is accepted, in USD: a hundredth of the cheapest on the market."""


class UnlikelyPrice(InvalidInput):
    """A price is so high that it is likely one of a million tokens.

    Attributes
    ----------
    name : str
        The price, such as "Price.input".
    value, highest_usd : float, USD per token
        The price given, and the highest that is accepted.
    usd_per_mtok : float
        What a million tokens would cost.
    """

    def __init__(self, name: str, value: float, highest_usd: float) -> None:
        self.name = name
        self.highest_usd = highest_usd
        self.usd_per_mtok = value * 1e6
        super().__init__(
            f"{name} must be at most {highest_usd:g} USD per token, got {value:g}, which is {self.usd_per_mtok:,.0f} "
            f"USD per million tokens: if a million tokens cost {value:g} USD, give {value / 1e6:g} or "
            f"Price.per_million({value:g}, ...)",
            value=value,
        )

    def of(self, model: str, file: Path) -> UnlikelyPrice:
        """Return the same error, which names a model in a file too."""
        return UnlikelyPrice(f"{file}: {self.name} of {model!r}", self.usd_per_mtok / 1e6, self.highest_usd)


def check_price(name: str, usd_per_token: float) -> float:
    """Return a price of one token if it is an amount that is not likely meant for a million tokens.

    Raises
    ------
    InvalidInput
        If it is negative, infinite or NaN, or so low that sums of its squares would be lost.
    UnlikelyPrice
        If it is above `HIGHEST_USD`.
    """
    usd = check_amount(name, usd_per_token)
    if 0.0 < usd < LOWEST_USD:
        raise InvalidInput(f"{name} must be 0 or at least {LOWEST_USD:g} USD per token, got {usd:g}: give 0", value=usd)
    if usd > HIGHEST_USD:
        raise UnlikelyPrice(name, usd, HIGHEST_USD)
    return usd


def _per_million(kind: str, usd: float) -> float:
    """Return a price of a million tokens if it is an amount that is not likely meant for one token."""
    if 0.0 < check_amount(f"{kind} per million", usd) < LOWEST_PER_MILLION_USD:
        rule = f"{kind} per million must be 0 or at least {LOWEST_PER_MILLION_USD:g} USD, got {usd:g}"
        raise InvalidInput(f"{rule}: if one token costs that, give Price({kind}={usd:g}, ...)", value=usd)
    return float(usd)


@dataclass(frozen=True, slots=True)
class Price:
    """The prices of one model, in USD per token.

    Parameters
    ----------
    input, output : float, USD per token
        Price of prompt and completion tokens.
    cache_read, cache_write : float, USD per token, optional
        Price of prompt tokens read from, or written to, the provider's cache; the input price by default.
    reasoning : float, USD per token, optional
        Price of hidden reasoning tokens; the output price by default.

    Raises
    ------
    InvalidInput
        If a price is negative, infinite, NaN, or below 1e-100 and not 0.
    UnlikelyPrice
        If a price is above 1e-3 USD per token, which is then likely the price of a million tokens.

    Examples
    --------
    >>> Price(input=1e-6, output=2e-6).cache_read_usd
    1e-06
    >>> Price.per_million(input=0.15, output=0.6)
    Price(input=1.5e-07, output=6e-07, cache_read=None, cache_write=None, reasoning=None)
    >>> Price(input=0.15, output=0.6)
    Traceback (most recent call last):
        ...
    wiserouter.pricing.prices.UnlikelyPrice: Price.input must be at most 0.001 USD per token, got 0.15, which is 150,000
    USD per million tokens: if a million tokens cost 0.15 USD, give 1.5e-07 or Price.per_million(0.15, ...)
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    reasoning: float | None = None

    def __post_init__(self) -> None:
        for name in ("input", "output", "cache_read", "cache_write", "reasoning"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, check_price(f"Price.{name}", value))

    @classmethod
    def per_million(
        cls,
        input: float,  # noqa: A002 the name of the field
        output: float,
        cache_read: float | None = None,
        cache_write: float | None = None,
        reasoning: float | None = None,
    ) -> Self:
        """Return the price of a model whose prices are given in USD per million tokens, as providers list them.

        Raises
        ------
        InvalidInput
            If one is below 1e-4 USD and not 0, which is then likely the price of one token; and as `Price` does.
        """
        rest = {"cache_read": cache_read, "cache_write": cache_write, "reasoning": reasoning}
        given = {"input": input, "output": output, **{kind: usd for kind, usd in rest.items() if usd is not None}}
        return cls(**{kind: _per_million(kind, usd) / 1e6 for kind, usd in given.items()})

    @property
    def cache_read_usd(self) -> float:
        """Price of one prompt token read from the cache."""
        return self.input if self.cache_read is None else self.cache_read

    @property
    def cache_write_usd(self) -> float:
        """Price of one prompt token written to the cache."""
        return self.input if self.cache_write is None else self.cache_write

    @property
    def reasoning_usd(self) -> float:
        """Price of one reasoning token."""
        return self.output if self.reasoning is None else self.reasoning


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one call, counted as providers report them.

    `input_tokens` includes the cached ones and `output_tokens` the reasoning ones, as in the usage blocks of OpenAI,
    LiteLLM and LangChain.

    Raises
    ------
    InvalidInput
        If a count is negative or not whole, or a part exceeds its whole.
    """

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            tokens = getattr(self, name)
            if type(tokens) is not int or not 0 <= tokens < 2**63:  # a plain count needs no call
                check_count(f"Usage.{name}", tokens)
        cached = self.cache_read_tokens + self.cache_write_tokens
        if cached > self.input_tokens:
            raise InvalidInput(
                f"cached tokens must be part of input_tokens={self.input_tokens}, got {cached}", value=cached
            )
        if self.reasoning_tokens > self.output_tokens:
            raise InvalidInput(
                f"reasoning_tokens must be part of output_tokens={self.output_tokens}, got {self.reasoning_tokens}",
                value=self.reasoning_tokens,
            )

    @classmethod
    def clamped(cls, prompt: int, completion: int, cached: int = 0, written: int = 0, reasoning: int = 0) -> Self:
        """Return the tokens of a call, each part cut to its whole: providers report parts that exceed it.

        Parameters
        ----------
        prompt, completion : int
            All tokens of the prompt and of the answer.
        cached, written : int
            Prompt tokens read from and written to the provider's cache.
        reasoning : int
            Hidden reasoning tokens of the answer.

        Examples
        --------
        >>> Usage.clamped(10, 5, cached=8, written=8).cache_write_tokens
        2
        """
        read = min(cached, prompt)
        return cls(prompt, completion, read, min(written, prompt - read), min(reasoning, completion))


def cost_usd(price: Price, usage: Usage) -> float:
    """Return the cost of `usage` at `price`.

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
    >>> price = Price.per_million(input=2.0, output=8.0, cache_read=0.5)
    >>> round(cost_usd(price, Usage(input_tokens=100, output_tokens=10, cache_read_tokens=60)), 9)
    0.00019
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


def highest_prices(price: Price) -> tuple[float, float]:
    """Return the highest price of an input token and of an output token, in USD."""
    return max(price.input, price.cache_read_usd, price.cache_write_usd), max(price.output, price.reasoning_usd)


def worst_case_usd(price: Price, input_tokens: int, output_tokens: int) -> float:
    """Return the most that a call of so many tokens can cost: every token at the highest price of its side.

    Examples
    --------
    >>> price = Price.per_million(input=2.0, output=8.0, cache_write=2.5)
    >>> round(worst_case_usd(price, input_tokens=100, output_tokens=10), 9)
    0.00033
    """
    highest_input, highest_output = highest_prices(price)
    return input_tokens * highest_input + output_tokens * highest_output
