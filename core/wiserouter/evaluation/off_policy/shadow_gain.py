r"""The gain of the router over what ran, from the calls of shadow mode, and how much of it the calls identify.

With :math:`h_i` the incumbent's probabilities, :math:`\pi_i` those of the router's choice and `s` the share of calls on
which the router acts, the model that ran was drawn with :math:`m_i = s \pi_i + (1 - s) h_i`. The difference of the
doubly robust estimates of :math:`\pi` and `h` under `m` is the gain, with one interval for the difference. An incumbent
that was not named is taken to be drawn at random in each context, as by a load balancer, with the observed frequencies.
The calls of a conversation are acted on together, or have one model: in what calls show and in intervals they are one
draw.

Where :math:`m_i(a)` is 0 or almost 0, no call says what `a` would have been worth: as a choice of the router or, where
it acts on all calls, as the incumbent. This part is reported apart: by the router's own estimates, and for rewards
within the bounds 0 and 1, which hold whatever the model is worth (Manski 1990).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.evaluation.off_policy.estimators import Estimate, doubly_robust
from wiserouter.evaluation.off_policy.evaluate import OutcomeName, known_share
from wiserouter.evaluation.off_policy.outcome_model import running_mean_predictions
from wiserouter.evaluation.off_policy.overlap import LEAST_EFFECTIVE, weights_of
from wiserouter.evaluation.off_policy.shadow_calls import UNNAMED, ShadowCalls
from wiserouter.types import FloatArray

MIDDLE = 0.5
"""The reward that is taken where the router had no estimate."""

SHOWN_WEIGHT = 2.0
"""A weight up to which what runs without the router counts as shown, however few the calls are."""


class Gain(NamedTuple):
    """The mean difference per call between the router's choices and what runs without it.

    Attributes
    ----------
    total : Estimate
        The whole difference. Its interval holds the bounds of rewards in the part that is not identified, and that of
        rewards ends at -1 and 1; costs there are the estimates of the router, without an interval.
    identified : Estimate
        The part that calls show: the choices that also ran, less what runs without the router.
    baseline : Estimate
        The mean outcome without the router, with bounds and estimates as in `total`.
    share, baseline_share : float
        Share that calls show of the router's choices, and of what runs without it.
    by_estimate : float
        The rest by the router's own estimates, per call.
    effective : float
        Number of draws of the router's own that the calls are worth, those of a conversation being one; 0 where they
        are too few.
    known : int
        Number of calls with this outcome.
    where : dict of str to float
        Models of the choices that are not shown, with their shares, largest first.
    """

    total: Estimate
    identified: Estimate
    baseline: Estimate
    share: float
    baseline_share: float
    by_estimate: float
    effective: float
    known: int
    where: dict[str, float]


def incumbents(calls: ShadowCalls) -> FloatArray:
    """Return the probabilities of the model that runs without the router, of shape (n, K).

    One that was not named is drawn with the frequencies of its context, shrunk toward those of all contexts.
    """
    n_models = len(calls.models)
    group = np.unique(calls.context, return_inverse=True)[1]
    seen = ~calls.acted
    count = np.zeros((int(group.max()) + 1, n_models))
    np.add.at(count, (group[seen], calls.ran[seen]), 1.0)
    overall = count.sum(axis=0) / max(count.sum(), 1.0)
    chance: FloatArray = ((count + overall) / (count.sum(axis=1, keepdims=True) + max(overall.sum(), 1e-12)))[group]
    named = calls.incumbent != UNNAMED
    chance[named] = np.eye(n_models)[calls.incumbent[named]]
    return chance


def gain(calls: ShadowCalls, outcome: OutcomeName = "reward") -> Gain | None:
    """Return the gain in rewards, or in USD where it is negative for savings; None where no call has this outcome."""
    y: FloatArray = getattr(calls, outcome)
    known = ~np.isnan(y)
    draws = _draws(calls)
    if not known.any() or calls.unit.max() < 1:
        return None
    group = np.unique(calls.context, return_inverse=True)[1]
    baseline, target = incumbents(calls), calls.would_be
    share = calls.share[:, np.newaxis]
    drawn = share * target + (1.0 - share) * baseline
    chance = drawn * known_share(group, calls.ran, known, len(calls.models))[group]
    weight = weights_of(target, chance, draws)
    base_weight = weights_of(baseline, chance, max(draws, SHOWN_WEIGHT * LEAST_EFFECTIVE))
    shown, base_shown = np.where(weight > 0.0, target, 0.0), np.where(base_weight > 0.0, baseline, 0.0)
    effective = _effective(shown, weight, draws)
    if effective < LEAST_EFFECTIVE:
        weight, shown, effective = np.zeros_like(weight), np.zeros_like(shown), 0.0
    y, each = np.where(known, y, 0.0), np.arange(calls.n)
    q = running_mean_predictions(group, calls.ran, y, known, len(calls.models))
    ran = q[each, calls.ran]
    weight, base_weight = (np.where(known, one[each, calls.ran], 0.0) for one in (weight, base_weight))
    base = doubly_robust(base_weight, y, ran, (base_shown * q).sum(axis=1), calls.unit)
    expected = ((shown - base_shown) * q).sum(axis=1)
    identified = doubly_robust(weight - base_weight, y, ran, expected, calls.unit)
    lost, base_lost, estimates = target - shown, baseline - base_shown, _estimates(calls, outcome)
    rest, base_rest = (_not_shown(one, estimates, outcome) for one in (lost - base_lost, base_lost))
    shares = dict(zip(calls.models, lost.mean(axis=0).tolist(), strict=True))
    total, whole_base = _plus(identified, rest), _plus(base, base_rest)
    if outcome == "reward":
        total, whole_base = _within(total, -1.0, 1.0), _within(whole_base, 0.0, 1.0)
    return Gain(
        total=total,
        identified=identified,
        baseline=whole_base,
        share=float(shown.sum(axis=1).mean()),
        baseline_share=float(base_shown.sum(axis=1).mean()),
        by_estimate=rest.mean,
        effective=effective,
        known=int(known.sum()),
        where={name: part for name, part in sorted(shares.items(), key=lambda one: -one[1]) if part > 0.0},
    )


def _not_shown(part: FloatArray, estimates: FloatArray, outcome: OutcomeName) -> Estimate:
    """Return the worth of a part that no call shows, by the router's estimates; of rewards within 0 and 1."""
    mean = float((part * estimates).sum(axis=1).mean())
    if outcome != "reward":
        return Estimate(mean, mean, mean, 0.0)
    low, high = (float(bound(part, 0.0).sum(axis=1).mean()) for bound in (np.minimum, np.maximum))
    return Estimate(mean, low, high, 0.0)


def _plus(shown: Estimate, rest: Estimate) -> Estimate:
    return Estimate(shown.mean + rest.mean, shown.low + rest.low, shown.high + rest.high, shown.se)


def _within(one: Estimate, least: float, most: float) -> Estimate:
    """Return an estimate whose interval ends at the bounds of what it estimates."""
    mean, low, high = (min(max(value, least), most) for value in (one.mean, one.low, one.high))
    return Estimate(mean, low, high, one.se)


def estimated_gain(calls: ShadowCalls) -> float:
    """Return the gain in rewards by the router's own estimates alone, for calls without a score."""
    difference = calls.would_be - incumbents(calls)
    return float((difference * _estimates(calls, "reward")).sum(axis=1).mean())


def _draws(calls: ShadowCalls) -> float:
    """Return the number of draws, as many as equal ones would be worth (Kish 1965).

    The calls of a unit are one draw; where the router acts on none, those of its calls that one model has answered.
    """
    apart = np.where(calls.share > 0.0, UNNAMED, calls.ran)
    drawn = np.unique(np.column_stack([calls.unit, apart]), axis=0, return_inverse=True)[1]
    size = np.bincount(drawn.ravel())
    return float(size.sum() ** 2 / (size**2).sum())


def _effective(shown: FloatArray, weight: FloatArray, draws: float) -> float:
    """Return the number of draws that those are worth which show the choices."""
    part, second = float(shown.sum(axis=1).mean()), float((shown * weight).sum(axis=1).mean())
    return draws * part / second if second else 0.0


def _estimates(calls: ShadowCalls, outcome: OutcomeName) -> FloatArray:
    """Return the router's estimates at each call, where it had none those of the model at other calls."""
    table = calls.expected_reward if outcome == "reward" else calls.expected_cost_usd
    known = ~np.isnan(table)
    count = known.sum(axis=0)
    fallback = MIDDLE if outcome == "reward" else float(np.nanmean(calls.cost_usd))
    means = np.where(count > 0, np.where(known, table, 0.0).sum(axis=0) / np.maximum(count, 1), fallback)
    return np.where(known, table, means)
