"""The optimum of a plan where money is no limit, which needs no solution of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.planning.plan import Plan


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


def ceiling_of(plan: Plan) -> Ceiling:
    """Return the best mix where money is no limit: in each context the cheapest of the models with the most reward.

    Examples
    --------
    >>> ceiling_of(Plan([0.5, 0.5], [[0.2, 0.9], [0.8, 0.8]], [[1.0, 3.0], [1.0, 3.0]]))
    Ceiling(spend_usd=2.0, model=0)
    """
    freq, reward, cost_usd = plan.freq, plan.reward, plan.cost_usd
    best = reward == reward.max(axis=1, keepdims=True)
    model = np.where(best, cost_usd, np.inf).argmin(axis=1)
    cells = np.arange(len(freq)), model
    taken = freq * (reward[cells] > 0.0) if plan.allow_skip else freq
    return Ceiling(float(taken @ cost_usd[cells]), int(np.bincount(model, taken, reward.shape[1]).argmax()))
