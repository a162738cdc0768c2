r"""The gain of the router's choices as a judge of blind pairs sees it, from a sample of the calls where they differ.

A choice that equals what ran gains nothing. Where it differs, the gain of a call is 1 for a better would-be answer, -1
for a worse one and 0 for a tie: with answers that are right or wrong and a judge without error its mean is the
difference in reward. The mean of `n` such values has the interval of Bonett and Price (British Journal of Mathematical
and Statistical Psychology 2012) for the difference of two paired proportions: Wald's, with one win and one loss added,
which holds its level from few pairs on, and also where all are ties. The errors of a judge draw the gain toward 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from wiserouter.evaluation.off_policy.estimators import LEVEL, Estimate, ips
from wiserouter.evaluation.off_policy.observed_calls import ObservedCall
from wiserouter.evaluation.off_policy.would_be_verdicts import WouldBeVerdict
from wiserouter.types import FloatArray

_Z = NormalDist().inv_cdf(0.5 + LEVEL / 2.0)  # of a normal interval


class JudgedGain(NamedTuple):
    """What the judged sample shows.

    Attributes
    ----------
    judged : int
        Number of verdicts.
    better, worse, alike : float
        Shares of the would-be answers.
    reward : Estimate
        The gain per observed call.
    cost_usd : Estimate or None
        The change of the spend per observed call, from the costs of the would-be answers; None with fewer than two.
    """

    judged: int
    better: float
    worse: float
    alike: float
    reward: Estimate
    cost_usd: Estimate | None


def judged_gain(
    pairs: Sequence[tuple[ObservedCall, WouldBeVerdict]], differing: int, observed: int
) -> JudgedGain | None:
    """Return the gain that the verdicts on a random sample show; None without a verdict.

    Parameters
    ----------
    pairs : sequence of tuple
        Judged calls with their verdicts.
    differing, observed : int
        Number of calls whose choice differs from what ran, and of all that were observed.
    """
    values = np.array([2.0 * one.preference - 1.0 for _, one in pairs if one.preference is not None])
    if not len(values):
        return None
    changes = np.array([one.answer_usd - call.cost_usd for call, one in pairs if one.answer_usd is not None])
    share = differing / observed
    chance = _Z * math.sqrt(share * (1.0 - share) / observed)  # reach of the interval of the share
    cost = None
    if len(changes) > 1:
        spread = ips(np.full(len(changes), share), changes)
        cost = _widened(spread, abs(float(changes.mean())) * chance)
    pairs_mean = mean_of_pairs(values)
    reward = _widened(Estimate(*(share * figure for figure in pairs_mean)), abs(pairs_mean.mean) * chance)
    better, worse = float((values > 0.0).mean()), float((values < 0.0).mean())
    return JudgedGain(len(values), better, worse, 1.0 - better - worse, reward, cost)


def mean_of_pairs(values: FloatArray) -> Estimate:
    """Return the mean of values in [-1, 1] with the interval of Bonett and Price.

    Examples
    --------
    >>> [round(figure, 3) for figure in mean_of_pairs(np.zeros(100))[:3]]
    [0.0, -0.027, 0.027]
    """
    n = len(values) + 2
    middle = float(values.sum()) / n
    se = math.sqrt(((float(values @ values) + 2.0) / n - middle**2) / n)
    reach = _Z * se
    return Estimate(float(values.mean()), max(middle - reach, -1.0), min(middle + reach, 1.0), se)


def _widened(one: Estimate, reach: float) -> Estimate:
    """Return an estimate whose interval reaches further by an independent error."""
    low, high = math.hypot(one.mean - one.low, reach), math.hypot(one.high - one.mean, reach)
    return one._replace(low=one.mean - low, high=one.mean + high)
