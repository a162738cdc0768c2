"""The figures behind a choice: rows of one context, kept by reference and never changed, to explain it later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wiserouter.planning.shift import Shift
from wiserouter.types import FloatArray


class Counts(NamedTuple):
    """Numbers of costs and rewards when a plan was solved; ndarrays of shape (n_contexts, n_models)."""

    calls: FloatArray
    labels: FloatArray


class ContextFigures(NamedTuple):
    """The figures of one context in a plan; sequences hold one number per model.

    Attributes
    ----------
    rewards, costs_usd : sequence of float
        The means.
    calls, labels : sequence of float
        Numbers of costs and rewards behind them.
    envelope : sequence of int
        The models that some budget uses, from the cheapest to the best.
    guarded_cost_usd : sequence of float or None
        The cost of each model in the reserve rule; None where no reserve is kept.
    planned : sequence of float or None
        The rewards that the plan was solved for, where these are not the means.
    drift_margin_usd : float or None
        The margin of the reserve rule for one call to come; None where there is none.
    invoked : sequence of float or None
        While exploring, how often each model was invoked; the means are then running ones, 0 without observations.
    """

    rewards: Sequence[float]
    costs_usd: Sequence[float]
    calls: Sequence[float]
    labels: Sequence[float]
    envelope: Sequence[int]
    guarded_cost_usd: Sequence[float] | None = None
    planned: Sequence[float] | None = None
    drift_margin_usd: float | None = None
    invoked: Sequence[float] | None = None

    @property
    def weighed(self) -> Sequence[float]:
        """The rewards that the choice compared: those of the plan."""
        return self.rewards if self.planned is None else self.planned

    def means(self, model: int) -> tuple[float, float]:
        """Return mean reward and mean cost of a model."""
        return self.rewards[model], self.costs_usd[model]

    def shifted(self, shift: Shift) -> ContextFigures:
        """Return the figures of one query that deviates from the means of its context.

        Examples
        --------
        >>> shift = Shift([0.25], own_cost_usd=[3.0])
        >>> ContextFigures([0.5], [2.0], [9.0], [9.0], [0], [3.0, 0.0]).shifted(shift)[:2]
        ([0.75], [3.0])
        """
        rewards, means_usd, _, _, _, guarded, planned, *_ = self
        cost = shift.costs_usd(means_usd)
        if guarded is not None:  # index -1 is the null action, which does not deviate
            own_usd = [usd + (own - mean) for usd, own, mean in zip(guarded, cost, means_usd, strict=False)]
            guarded = [*own_usd, 0.0]
        if shift.reward is not None:
            weighed = shift.rewards(self.weighed)
            if planned is None:
                rewards = weighed
            else:
                rewards = [own - was + mean for own, was, mean in zip(weighed, planned, rewards, strict=True)]
                planned = weighed
        return self._replace(rewards=rewards, costs_usd=cost, guarded_cost_usd=guarded, planned=planned)
