"""Model selection: the estimator with the highest reward on held-out queries, at equal spend.

Every candidate routes the held-out queries at the shadow price where its true spend is the target rate, so that all
spend the same and only rewards differ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.errors import InvalidInput
from wiserouter.learning.residuals.cross_validation import HeldOut
from wiserouter.learning.residuals.held_out_routing import HeldOutRouting, Run
from wiserouter.learning.residuals.sample import Sample

SMOOTHED, MEANS, RIDGE, AUTO = "smoothed", "means", "ridge", "auto"


class CandidateScore(NamedTuple):
    """The result of one candidate on the held-out queries.

    Attributes
    ----------
    estimator : str
        "means" or "ridge".
    value : float
        Mean reward of the held-out queries.
    spend_usd : float
        Their cost per query; the target rate, or less where more spend buys this candidate nothing.
    gain, gain_se : float
        Reward beyond that of context means, less the difference in spend at the shadow price, and its standard error.
    """

    estimator: str
    value: float
    spend_usd: float
    gain: float
    gain_se: float


class Comparison(NamedTuple):
    """All candidates at one rate.

    Attributes
    ----------
    rate_usd : float, USD per query
        The target.
    standings : tuple of CandidateScore
        The first is context means.
    chosen : CandidateScore
        The best one if it gains more than one standard error, else context means.
    """

    rate_usd: float
    standings: tuple[CandidateScore, ...]
    chosen: CandidateScore


def check_estimator(name: str) -> str:
    """Return `name` if it is the name of an estimator or "auto"; raise `InvalidInput` if not."""
    known = SMOOTHED, MEANS, RIDGE, AUTO
    if name not in known:
        raise InvalidInput(f"estimator must be one of {', '.join(known)}, got {name!r}", value=name)
    return name


def compare(sample: Sample, held_out: HeldOut, rate_usd: float) -> Comparison:
    """Return the scores of context means and of every estimator at one rate."""
    predicted = {MEANS: held_out.reward, RIDGE: held_out.ridge.reward}
    runs = {name: HeldOutRouting(sample, one, held_out.cost_usd).at_rate(rate_usd) for name, one in predicted.items()}
    standings = tuple(_score(name, run, runs[MEANS]) for name, run in runs.items())
    best = max(standings, key=lambda one: one.gain)
    return Comparison(rate_usd, standings, best if best.gain > best.gain_se else standings[0])


def _score(estimator: str, run: Run, reference: Run) -> CandidateScore:
    price = reference.shadow_price
    gain = (run.reward - reference.reward) - price * (run.cost_usd - reference.cost_usd)
    se = float(gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else float("inf")
    value, spend = float(run.reward.mean()), float(run.cost_usd.mean())
    return CandidateScore(estimator, value, spend, float(gain.mean()), se)
