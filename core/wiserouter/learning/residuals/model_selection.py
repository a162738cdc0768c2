"""Model selection: the estimator with the highest reward on held-out queries, at equal spend.

Every candidate routes the held-out queries at the shadow price where its true spend is the target rate, so that all
spend the same and only rewards differ. Where a log lacks some scores, a choice counts only if it was observed, weighted
by the inverse of the share of its context's queries on which its model was (inverse propensity weighting).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wiserouter.errors import InvalidInput
from wiserouter.learning.residuals.cross_validation import HeldOut
from wiserouter.learning.residuals.price_curve import PriceCurve, best_models, price_grid
from wiserouter.learning.residuals.sample import Sample
from wiserouter.types import FloatArray, IntArray

MEANS = "means"
ESTIMATORS = (MEANS, "ridge")
AUTO = "auto"


class CandidateScore(NamedTuple):
    """The result of one candidate on the held-out queries.

    Attributes
    ----------
    estimator : str
        "means" or "ridge".
    token_cost : bool
        Whether costs follow the query's length.
    value : float
        Mean reward of the held-out queries.
    spend_usd : float
        Their cost per query; the target rate, or less where more spend buys this candidate nothing.
    gain, gain_se : float
        Reward beyond that of context means, less the difference in spend at the shadow price, and its standard error.
    """

    estimator: str
    token_cost: bool
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


class _Run(NamedTuple):
    """The contribution of each held-out query to the mean reward and the mean cost, of shape (n_queries,) each."""

    reward: FloatArray
    cost_usd: FloatArray
    shadow_price: float


def check_estimator(name: str) -> str:
    """Return `name` if it is the name of an estimator or "auto"; raise `InvalidInput` if not."""
    if name not in (*ESTIMATORS, AUTO):
        raise InvalidInput(f"estimator must be one of {', '.join((*ESTIMATORS, AUTO))}, got {name!r}", value=name)
    return name


def compare(
    sample: Sample, held_out: HeldOut, rate_usd: float, *, token_costs: Sequence[bool] = (False, True)
) -> Comparison:
    """Return the scores of context means and every estimator, each without and with costs by length, at one rate."""
    weight = observed_weight(sample)
    names = [MEANS, *held_out.reward_shift]
    runs = {
        (name, token_cost): _run(sample, weight, *held_out.predicted(name, token_cost=token_cost), rate_usd)
        for name in names
        for token_cost in token_costs
    }
    reference = runs[MEANS, token_costs[0]]
    standings = tuple(_score(*key, run, reference) for key, run in runs.items())
    best = max(standings, key=lambda one: one.gain)
    return Comparison(rate_usd, standings, best if best.gain > best.gain_se else standings[0])


def price_curve(sample: Sample, reward: FloatArray, cost_usd: FloatArray) -> PriceCurve:
    """Return the true spend, at each price, of queries routed by these held-out predictions."""
    prices = price_grid(cost_usd)
    weight = observed_weight(sample)
    return PriceCurve(prices, np.array([_spend_usd(sample, weight, reward, cost_usd, price) for price in prices]))


def observed_weight(sample: Sample) -> FloatArray:
    """Return the inverse of the observed share of each query's (context, model); 0 where it was not observed itself."""
    seen = (~np.isnan(sample.reward + sample.cost_usd)).astype(np.float64)
    weight = np.zeros(seen.shape)
    for context in np.unique(sample.contexts):
        rows = sample.contexts == context
        weight[rows] = seen[rows] / np.maximum(seen[rows].mean(axis=0), 1e-12)
    return weight


def _run(sample: Sample, weight: FloatArray, reward: FloatArray, cost_usd: FloatArray, rate_usd: float) -> _Run:
    """Route by predictions at the two neighbouring prices that spend more and less than the rate, and mix them."""
    prices = price_grid(cost_usd)
    spend = [_spend_usd(sample, weight, reward, cost_usd, price) for price in prices]
    # the highest price whose spend is still at least the rate, and the next one
    above = int(np.flatnonzero(np.minimum.accumulate(spend) >= rate_usd)[-1]) if spend[0] > rate_usd else 0
    below = min(above + 1, len(prices) - 1) if spend[0] > rate_usd else 0
    gap = spend[above] - spend[below]
    share = float(np.clip((rate_usd - spend[below]) / gap, 0.0, 1.0)) if gap > 0 else 1.0
    (high, high_usd), (low, low_usd) = (
        _taken(sample, weight, best_models(reward, cost_usd, prices[g])) for g in (above, below)
    )
    return _Run(share * high + (1.0 - share) * low, share * high_usd + (1.0 - share) * low_usd, float(prices[above]))


def _spend_usd(sample: Sample, weight: FloatArray, reward: FloatArray, cost_usd: FloatArray, price: float) -> float:
    return float(_taken(sample, weight, best_models(reward, cost_usd, price))[1].mean())


def _taken(sample: Sample, weight: FloatArray, model: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the contribution of each query to the mean reward and mean cost of taking these models."""
    rows = np.arange(len(model))
    w = weight[rows, model]
    w = w / max(float(w.mean()), 1e-12)  # self-normalised
    score, cost = sample.reward[rows, model], sample.cost_usd[rows, model]
    return np.where(w > 0, w * score, 0.0), np.where(w > 0, w * cost, 0.0)


def _score(estimator: str, token_cost: bool, run: _Run, reference: _Run) -> CandidateScore:
    price = reference.shadow_price
    gain = (run.reward - reference.reward) - price * (run.cost_usd - reference.cost_usd)
    se = float(gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else float("inf")
    value, spend = float(run.reward.mean()), float(run.cost_usd.mean())
    return CandidateScore(estimator, token_cost, value, spend, float(gain.mean()), se)
