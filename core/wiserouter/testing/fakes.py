"""Fakes for tests of a router: a clock set by hand, a table of embeddings, models with given skills and prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wiserouter.errors import InvalidInput
from wiserouter.pricing.pool import Model
from wiserouter.pricing.prices import Price, Usage
from wiserouter.types import Embedding


class FakeClock:
    """A clock that stands still until it is advanced.

    Examples
    --------
    >>> clock = FakeClock()
    >>> clock.advance(2.5)
    >>> clock()
    2.5
    """

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Advance the clock by `seconds`."""
        self.now_s += seconds


class TableEncoder:
    """An encoder that looks texts up in a table.

    Examples
    --------
    >>> TableEncoder({"hello": [1.0, 0.0]}).encode("hello").tolist()
    [1.0, 0.0]
    """

    spec = "custom"

    def __init__(self, rows: Mapping[str, ArrayLike]) -> None:
        self._rows = {text: np.asarray(row, dtype=np.float32) for text, row in rows.items()}

    def fit(self, texts: Sequence[str]) -> Self:
        """Learn nothing."""
        return self

    def encode(self, text: str) -> Embedding:
        """Return the row of `text`."""
        try:
            return self._rows[text]
        except KeyError:
            raise InvalidInput(f"text must be in the encoder's table, got {text!r}", value=text) from None

    def encode_many(self, texts: Sequence[str]) -> Embedding:
        """Return one row per text."""
        return np.stack([self.encode(text) for text in texts])

    def state(self) -> dict[str, NDArray[Any]]:
        """Return no arrays: the table is not saved."""
        return {}

    def settings(self) -> dict[str, Any]:
        """Return no settings."""
        return {}


class SimulatedModels:
    """Models that answer queries of known kinds, each with its probability of success and a random number of tokens.

    Parameters
    ----------
    prices : mapping of str to Price
        USD per token of each model.
    skill : mapping of str to mapping of str to float
        Probability that a model answers a query of a kind correctly.
    output_tokens : mapping of str to float
        Mean length of an answer by kind; single answers vary by a log-normal factor.
    rng : numpy.random.Generator
        Source of random answers.

    Examples
    --------
    >>> models = SimulatedModels({"m": Price(1e-6, 2e-6)}, {"m": {"chat": 1.0}}, {"chat": 50}, np.random.default_rng(0))
    >>> reward, usage = models.call("m", "chat", input_tokens=10)
    >>> reward, usage.input_tokens
    (1.0, 10)
    """

    def __init__(
        self,
        prices: Mapping[str, Price],
        skill: Mapping[str, Mapping[str, float]],
        output_tokens: Mapping[str, float],
        rng: np.random.Generator,
    ) -> None:
        self._prices, self._skill, self._output_tokens, self._rng = prices, skill, output_tokens, rng

    @property
    def models(self) -> list[Model]:
        """The pool, with prices."""
        return [Model(name, price) for name, price in self._prices.items()]

    def call(self, model: str, kind: str, input_tokens: int) -> tuple[float, Usage]:
        """Return the reward of one answer and its token usage."""
        reward = float(self._rng.random() < self._skill[model][kind])
        length = self._output_tokens[kind] * self._rng.lognormal(-0.045, 0.3)
        return reward, Usage(input_tokens=input_tokens, output_tokens=max(1, round(length)))
