"""The score by which RouterArena ranks routers: accuracy, and cost on a logarithmic scale.

S = (1 + b) A C / (b A + C) with b = 0.1, where A is the mean accuracy, and C falls with the logarithm of the cost from
1 at 0.0044 USD per 1,000 queries to 0 at 200 USD.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

from wiserouter.errors import InvalidInput
from wiserouter.validation import check_amount

COST_WEIGHT = 0.1
LEAST_USD, MOST_USD = 0.0044, 200.0
"""Ends of the scale of costs, in USD per 1,000 queries."""


def arena_score(accuracy: float, usd_per_1000: float) -> float:
    """Return the score of a router, from 0 to 1.

    Parameters
    ----------
    accuracy : float
        Mean accuracy over the queries, from 0 to 1.
    usd_per_1000 : float
        Cost of 1,000 queries in USD; beyond the ends of the scale it counts as its end.

    Raises
    ------
    InvalidInput
        If the accuracy is not from 0 to 1, or the cost is not an amount above 0.

    Examples
    --------
    >>> round(100 * arena_score(0.7814, 0.27), 2)
    76.28
    """
    if not 0.0 <= accuracy <= 1.0:
        raise InvalidInput(f"accuracy must lie from 0 to 1, got {accuracy!r}: divide a percentage by 100")
    if check_amount("usd_per_1000", usd_per_1000) <= 0.0:
        raise InvalidInput(f"usd_per_1000 must be above 0, got {usd_per_1000!r}: was any query served?")
    cost = min(max(usd_per_1000, LEAST_USD), MOST_USD)
    cheapness = (log2(MOST_USD) - log2(cost)) / (log2(MOST_USD) - log2(LEAST_USD))
    most = COST_WEIGHT * accuracy + cheapness
    return (1.0 + COST_WEIGHT) * accuracy * cheapness / most if most else 0.0


def robustness(choices: Sequence[str], paraphrased: Sequence[str]) -> float:
    """Return the share of queries whose paraphrase goes to the same model.

    Examples
    --------
    >>> robustness(["small", "large"], ["small", "small"])
    0.5
    """
    same = sum(one == other for one, other in zip(choices, paraphrased, strict=True))
    return same / len(choices)
