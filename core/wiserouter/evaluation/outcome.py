"""The outcome of one run: the figures by which every method is compared."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from wiserouter.types import FloatArray, IntArray

NOT_SERVED = -1
"""The entry of a query without an answer in an array of chosen models."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One method's run over a test set.

    Attributes
    ----------
    method : str
        Name of the method.
    queries, served : int
        Number of queries, and of those that got an answer.
    quality : float
        Mean reward over all queries; one not served counts 0.
    spend_usd, budget_usd : float, USD
        True cost of the run, and its budget.
    seed : int
        Seed of the split and the draws.
    models : dict of str to float
        Share of all queries that each model served.
    """

    method: str
    queries: int
    served: int
    quality: float
    spend_usd: float
    budget_usd: float
    seed: int
    models: dict[str, float]

    @property
    def spend_ratio(self) -> float:
        """Spend over budget."""
        return self.spend_usd / self.budget_usd if self.budget_usd else float(self.spend_usd > 0)

    def as_dict(self) -> dict[str, object]:
        """Return the fields and the ratio of spend to budget, for JSON."""
        return {**asdict(self), "spend_ratio": self.spend_ratio}


def outcome_of(
    method: str,
    chosen: IntArray,
    reward: FloatArray,
    cost_usd: FloatArray,
    *,
    models: tuple[str, ...],
    budget_usd: float,
    seed: int,
) -> Outcome:
    """Return the outcome of sending query i to model `chosen[i]`, or to none where that is `NOT_SERVED`.

    Parameters
    ----------
    chosen : ndarray of int of shape (n_queries,)
        Index of a model, or `NOT_SERVED`.
    reward, cost_usd : ndarray of shape (n_queries, n_models)
        The true table.

    Examples
    --------
    >>> table = np.array([[0.0, 1.0], [0.5, 1.0]])
    >>> outcome_of("x", np.array([1, -1]), table, table, models=("a", "b"), budget_usd=2.0, seed=0).quality
    0.5
    """
    served = np.flatnonzero(chosen != NOT_SERVED)
    picked = chosen[served]
    shares = np.bincount(picked, minlength=len(models)) / len(chosen)
    return Outcome(
        method=method,
        queries=len(chosen),
        served=len(served),
        quality=float(reward[served, picked].sum() / len(chosen)),
        spend_usd=float(cost_usd[served, picked].sum()),
        budget_usd=float(budget_usd),
        seed=seed,
        models={name: float(share) for name, share in zip(models, shares, strict=True)},
    )
