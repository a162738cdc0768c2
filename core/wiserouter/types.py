"""Values that pass between the steps of a request: the decision, and the array types."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NO_CONTEXT = -1
"""The context of a query that could not be assigned: the estimates of all contexts together decide."""

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Embedding = NDArray[np.float32]


class Decision(NamedTuple):
    """The model to call for one query, and the figures behind it.

    Attributes
    ----------
    id : str
        Identifies the decision in `charge`, `release` and `reward`.
    model : str
        The model to call.
    context : int
        The context of the query; `NO_CONTEXT` if it could not be assigned.
    probability : float
        Probability with which this model was drawn, for off-policy evaluation.
    rate_usd : float
        Budget left per request left at the time of the decision.
    shadow_price : float
        Reward that one more USD would buy at that rate; 0 if the budget does not bind.
    expected_cost_usd, expected_reward : float
        The estimates that the decision rests on.
    reserved_usd : float
        Amount held back until the call is charged or released.
    scope : str
        The team, key or tag whose budget pays.
    decided_at : float
        Seconds of the store's clock.
    ask_feedback : bool
        True if a score of this answer is worth asking for; always False without a label budget.
    conversation : str
        The key of the conversation that the call belongs to; "" for a call of its own.
    visit : {"", "first", "stay", "return"}
        Whether the model meets the conversation for the first time, served its last call, or an earlier one.
    run_id : str
        The decision that chose the model of the run; it takes the cost and the reward of the whole run. "" elsewhere.
    would_be : str
        In shadow mode the router's choice, where another model is called; "" where the router acts.
    value : float
        The value of the request, which its reward is multiplied by; `shadow_price` is divided by it.
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
    conversation: str = ""
    visit: str = ""
    run_id: str = ""
    would_be: str = ""
    value: float = 1.0
