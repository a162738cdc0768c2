"""A linear program that was not solved, and its optimum where money is no limit, which needs no solution."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from wiserouter.types import FloatArray


class Program(Protocol):
    """The figures of a linear program, such as those of a `Plan`; arrays as there."""

    @property
    def freq(self) -> FloatArray:
        """Share of each context."""
        ...

    @property
    def reward(self) -> FloatArray:
        """Mean rewards."""
        ...

    @property
    def cost_usd(self) -> FloatArray:
        """Mean costs."""
        ...

    @property
    def allow_skip(self) -> bool:
        """Whether the null action is allowed."""
        ...


class Unsolved(NamedTuple):
    """The figures of a program that was not solved."""

    freq: FloatArray
    reward: FloatArray
    cost_usd: FloatArray
    allow_skip: bool


@runtime_checkable
class PlansAtBounds(Protocol):
    """A policy that plans at bounds of the rewards: of the program at their means it knows only the figures."""

    @property
    def at_means(self) -> Program | None:
        """The program at the mean rewards; None before any cost is known."""
        ...


class Ceiling(NamedTuple):
    """The best mix where money is no limit.

    Attributes
    ----------
    spend_usd : float
        The mean spend per request beyond which more spend buys nothing.
    model : int
        The model of most requests.
    """

    spend_usd: float
    model: int


def ceiling_of(program: Program) -> Ceiling:
    """Return the best mix where money is no limit: in each context the cheapest of the models with the most reward.

    Examples
    --------
    >>> half = np.array([0.5, 0.5])
    >>> ceiling_of(Unsolved(half, np.array([[0.2, 0.9], [0.8, 0.8]]), np.array([[1.0, 3.0], [1.0, 3.0]]), False))
    Ceiling(spend_usd=2.0, model=0)
    """
    freq, reward, cost_usd = program.freq, program.reward, program.cost_usd
    contexts, model = np.arange(len(freq)), reward.argmax(axis=1)
    most, last = reward[contexts, model], reward.shape[1] - 1 - reward[:, ::-1].argmax(axis=1)
    tied = np.flatnonzero(last != model)
    best = reward[tied] == most[tied, np.newaxis]
    model[tied] = np.where(best, cost_usd[tied], np.inf).argmin(axis=1)
    taken = freq * (most > 0.0) if program.allow_skip else freq
    spend_usd = float(taken @ cost_usd[contexts, model])
    return Ceiling(spend_usd, int(np.bincount(model, taken, reward.shape[1]).argmax()))
