"""What a choice rested on: rows of one context, kept by reference and never changed, so that it can be explained."""

from __future__ import annotations

from typing import NamedTuple

from wiserouter.estimates import Estimates
from wiserouter.types import FloatArray


class Counts(NamedTuple):
    """How many costs and rewards were known when a plan was solved; ndarrays of shape (n_contexts, n_models)."""

    calls: FloatArray
    labels: FloatArray

    @classmethod
    def of(cls, estimates: Estimates) -> Counts:
        """Return the counts as they are now."""
        return cls(estimates.calls.copy(), estimates.labels.copy())

    def of_all_contexts(self) -> Counts:
        """Return the sums over the contexts, as one row."""
        return Counts(self.calls.sum(axis=0, keepdims=True), self.labels.sum(axis=0, keepdims=True))


class Basis(NamedTuple):
    """What a plan knows of one context; lists hold one number per model.

    Attributes
    ----------
    rewards, costs_usd : list of float
        The means that the plan was solved for.
    calls, labels : list of float
        How many costs and rewards are behind them.
    envelope : list of int
        The models that some budget uses, from the cheapest to the best.
    cautious_usd : list of float or None
        What the reserve rule holds against each model; None where no reserve is kept.
    floor_usd : float
        The least mean cost of a request.
    """

    rewards: list[float]
    costs_usd: list[float]
    calls: list[float]
    labels: list[float]
    envelope: list[int]
    cautious_usd: list[float] | None
    floor_usd: float

    def means(self, model: int) -> tuple[float, float]:
        """Return expected reward and cost of a model."""
        return self.rewards[model], self.costs_usd[model]


class Trials(NamedTuple):
    """What exploration knows of one context: counts and sums, one number per model, and how often each was tried."""

    calls: list[float]
    cost: list[float]
    labels: list[float]
    reward: list[float]
    invoked: list[float]

    def means(self, model: int) -> tuple[float, float]:
        """Return the running means of a model; what is unknown is 0."""
        return self.reward[model] / max(self.labels[model], 1.0), self.cost[model] / max(self.calls[model], 1.0)
