"""Frozen values that pass between the steps of a request."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NO_CONTEXT = -1
"""The context of a query that could not be placed: what is known of all contexts together decides."""

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Embedding = NDArray[np.float32]


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
