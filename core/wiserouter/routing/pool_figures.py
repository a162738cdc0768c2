"""What is known of the models at one moment: prices, lengths of answers and scores per context."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from wiserouter.learning.estimates import Estimates
from wiserouter.pricing.pool import Pool
from wiserouter.pricing.prices import Price
from wiserouter.prompts.contexts import Contexts
from wiserouter.stores.day_buckets import name_of
from wiserouter.types import FloatArray

if TYPE_CHECKING:
    from wiserouter.routing.learner import Learner

SUMS = ("calls", "cost", "labels", "reward", "reward_sq", "metered", "output_tokens")
"""The sums of `Estimates` that are kept."""


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """Prices of models, and sums of what was learned of them.

    Attributes
    ----------
    names : tuple of str
        The models.
    prices : tuple of Price or None
        Their prices at that moment.
    in_service : tuple of bool
        False for a retired model.
    contexts : str
        The name of the contexts.
    freq : ndarray of shape (n_contexts,)
        Share of the queries in each context.
    sums : mapping of str to ndarray of shape (n_contexts, n_models)
        The sums of `Estimates` named in `SUMS`.
    """

    names: tuple[str, ...]
    prices: tuple[Price | None, ...]
    in_service: tuple[bool, ...]
    contexts: str
    freq: FloatArray
    sums: Mapping[str, FloatArray]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for JSON; sums are rounded to 9 digits."""
        return {
            "names": self.names,
            "prices": [None if price is None else asdict(price) for price in self.prices],
            "in_service": self.in_service,
            "contexts": self.contexts,
            "freq": self.freq.tolist(),
            "sums": {
                name: [[float(f"{one:.9g}") for one in row] for row in table] for name, table in self.sums.items()
            },
        }

    @classmethod
    def of_dict(cls, figures: Mapping[str, Any]) -> PoolFigures:
        """Return the figures that `as_dict` returned."""
        return cls(
            tuple(figures["names"]),
            tuple(None if price is None else Price(**price) for price in figures["prices"]),
            tuple(figures["in_service"]),
            figures["contexts"],
            np.array(figures["freq"], dtype=np.float64),
            {name: np.array(figures["sums"][name], dtype=np.float64) for name in SUMS},
        )


def described(learner: Learner, lock: RLock) -> str | None:
    """Return the figures of a learner's models as JSON; None where another thread is at work with it."""
    if not lock.acquire(blocking=False):
        return None
    try:
        figures = figures_of(learner.pool, learner.contexts, learner.estimates)
    finally:
        lock.release()
    return json.dumps(figures.as_dict())


def figures_of(pool: Pool, contexts: Contexts, estimates: Estimates) -> PoolFigures:
    """Return the figures of the models of a pool; later observations do not change them."""
    return PoolFigures(
        pool.names,
        tuple(model.price for model in pool.models),
        tuple(not model.retired for model in pool.models),
        name_of(contexts),
        contexts.freq.copy(),
        {name: getattr(estimates, name).copy() for name in SUMS},
    )
