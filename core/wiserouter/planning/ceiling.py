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
    contexts, model = np.arange(len(freq)), reward.argmax(axis=1)
    most, last = reward[contexts, model], reward.shape[1] - 1 - reward[:, ::-1].argmax(axis=1)
    tied = np.flatnonzero(last != model)
    best = reward[tied] == most[tied, np.newaxis]
    model[tied] = np.where(best, cost_usd[tied], np.inf).argmin(axis=1)
    taken = freq * (most > 0.0) if plan.allow_skip else freq
    spend_usd = float(taken @ cost_usd[contexts, model])
    return Ceiling(spend_usd, int(np.bincount(model, taken, reward.shape[1]).argmax()))
