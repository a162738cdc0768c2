"""Frozen values that pass between the steps of a request."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wiserouter.errors import InvalidInput

NO_CONTEXT = -1
"""The context of a query that could not be placed: what is known of all contexts together decides."""

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Embedding = NDArray[np.float32]


def check_amount(name: str, value: float) -> float:
    """Return `value` as a float if it is finite and at least 0, else raise `InvalidInput` naming `name`."""
    if not (isinstance(value, int | float | np.number) and math.isfinite(value) and value >= 0):
        raise InvalidInput(f"{name} must be a finite number of at least 0, got {value!r}", value=value)
    return float(value)


def check_reward(value: float) -> float:
    """Return `value` as a float if it lies in [0, 1], else raise `InvalidInput`."""
    if not (isinstance(value, int | float | np.number) and 0.0 <= value <= 1.0):
        raise InvalidInput(f"reward must lie in [0, 1], got {value!r}: rescale the score", value=value)
    return float(value)


def check_delta(name: str, value: float) -> float:
    """Return `value` as a float if it lies between 0 and 1, both left out, else raise `InvalidInput`."""
    if not (isinstance(value, int | float | np.number) and 0.0 < value < 1.0):
        raise InvalidInput(f"{name} must lie between 0 and 1, both left out, got {value!r}", value=value)
    return float(value)


def check_count(name: str, value: int, *, least: int = 0) -> int:
    """Return `value` as an int if it is a whole number of at least `least`, else raise `InvalidInput`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InvalidInput(f"{name} must be a whole number of at least {least}, got {value!r}", value=value)
    return int(value)


@dataclass(frozen=True, slots=True)
class Price:
    """What a provider asks, in USD per token.

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
        If a price is negative, infinite or NaN.

    Examples
    --------
    >>> Price(input=1e-6, output=2e-6).cache_read_usd
    1e-06
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
                check_amount(f"Price.{name}", value)

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
            check_count(f"Usage.{name}", getattr(self, name))
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


@dataclass(frozen=True, slots=True)
class Model:
    """One model of the pool.

    Parameters
    ----------
    name : str
        The name that decisions carry.
    price : Price, optional
        Needed to turn token counts into USD.
    max_output_tokens : int, optional
        The most tokens that a call may return; bounds the cost of a call under a hard budget.
    max_input_tokens : int, optional
        The context window; a longer query makes the model ineligible.
    max_cost_usd : float, optional
        The most that one call can cost, where prices or token counts do not say it.
    score : float, optional
        What a leaderboard says of it, as a mean reward in [0, 1].
    score_weight : float, default 20
        How many observations that score counts for.
    retired : bool, default False
        Whether it gets no more queries; what is known of it is kept.

    Examples
    --------
    >>> Model("gpt-mini", Price(input=1e-6, output=2e-6)).name
    'gpt-mini'
    """

    name: str
    price: Price | None = None
    max_output_tokens: int | None = None
    max_input_tokens: int | None = None
    max_cost_usd: float | None = None
    score: float | None = None
    score_weight: float = 20.0
    retired: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise InvalidInput(f"Model.name must be a string that is not empty, got {self.name!r}", value=self.name)
        for field in ("max_output_tokens", "max_input_tokens"):
            if getattr(self, field) is not None:
                check_count(f"Model.{field}", getattr(self, field), least=1)
        if self.max_cost_usd is not None:
            check_amount("Model.max_cost_usd", self.max_cost_usd)
        if self.score is not None:
            check_reward(self.score)
        check_amount("Model.score_weight", self.score_weight)


class Decision(NamedTuple):
    """The model to call for one query, and why.

    Attributes
    ----------
    id : str
        Names the decision in `charge`, `release` and `reward`.
    model : str
        The model to call.
    context : int
        The context that the query fell into; `NO_CONTEXT` where it could not be placed.
    probability : float
        The chance with which this model was drawn, for off-policy evaluation.
    rate_usd : float
        Budget left per request left when it was decided.
    shadow_price : float
        Reward that one more USD would buy at that rate; 0 where the budget does not bind.
    expected_cost_usd, expected_reward : float
        The estimates that the decision rests on.
    reserved_usd : float
        What is held back until the call is charged or released.
    scope : str
        The budget that pays.
    decided_at : float
        Seconds of the store's clock.
    ask_feedback : bool
        Whether a score of this answer is worth asking for, where a label budget is kept.
    """

    id: str
    model: str
    context: int
    probability: float
    rate_usd: float
    shadow_price: float
    expected_cost_usd: float
    expected_reward: float
    reserved_usd: float
    scope: str
    decided_at: float
    ask_feedback: bool = False
