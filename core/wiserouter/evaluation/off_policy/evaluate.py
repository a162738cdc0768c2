"""From logged decisions and a target to three estimates, or to a refusal."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wiserouter.errors import InvalidInput
from wiserouter.evaluation.off_policy.estimators import Estimate, doubly_robust, ips, snips
from wiserouter.evaluation.off_policy.logged_decisions import Decisions
from wiserouter.evaluation.off_policy.outcome_model import running_mean_predictions
from wiserouter.evaluation.off_policy.overlap import Overlap, check_overlap, overlap_of, weights_of
from wiserouter.planning.envelope import SKIP
from wiserouter.types import FloatArray, IntArray

OutcomeName = Literal["reward", "cost_usd"]


class Evaluation(NamedTuple):
    """What a target would have yielded or cost per request.

    Attributes
    ----------
    overlap : Overlap
        How far the log supports it.
    ips, snips, dr : Estimate
        Inverse propensity scores, the same self-normalised, and doubly robust.
    """

    overlap: Overlap
    ips: Estimate
    snips: Estimate
    dr: Estimate


def evaluate(
    decisions: Decisions, target: FloatArray, outcome: OutcomeName = "reward", *, level: float = 0.95
) -> Evaluation:
    """Estimate the mean outcome of a target.

    Parameters
    ----------
    decisions : Decisions
        What was done.
    target : ndarray of shape (n, K + 1)
        Probability of each model, and of the null action, at each decision. Rows of NaN, where it is not known yet what
        the target would do, are left out: that must not depend on the query.
    outcome : {"reward", "cost_usd"}, default "reward"
        What to estimate.
    level : float, default 0.95
        Coverage of the intervals.

    Raises
    ------
    ThinOverlap
        If the log hardly ever did what the target does.
    InvalidInput
        If no decision has this outcome, or the target's shape is wrong.

    Notes
    -----
    Outcomes may be missing: whether one is known may depend on context and model, but within these not on the outcome.
    A decision then counts by the inverse of the share of known outcomes among the decisions of its context and model.
    That these are estimated makes intervals wider than they need be, if anything (Hirano, Imbens and Ridder 2003).

    Examples
    --------
    >>> rng, n = np.random.default_rng(0), 10_000
    >>> chosen = rng.integers(2, size=n)
    >>> reward = (rng.random(n) < np.array([0.3, 0.8])[chosen]).astype(float)
    >>> log = Decisions.of_arrays(("a", "b"), chosen, np.full((n, 2), 0.5), reward=reward)
    >>> [round(figure, 2) for figure in evaluate(log, np.tile([0.0, 1.0, 0.0], (n, 1))).dr[:3]]
    [0.8, 0.79, 0.81]
    """
    if target.shape != decisions.logged.shape:
        raise InvalidInput(
            f"target must have the shape {decisions.logged.shape} of decisions.logged, got {target.shape}"
        )
    told = ~np.isnan(target.sum(axis=1))
    decisions, target = decisions.where(told), target[told]
    y: FloatArray = getattr(decisions, outcome)
    known = ~np.isnan(y)
    if not decisions.tells(outcome):
        raise InvalidInput(f"no decision has a {outcome}: there is nothing to estimate from")
    group = np.unique(decisions.context, return_inverse=True)[1]
    chance = decisions.logged * _known_share(group, decisions.chosen, known, target.shape[1])[group]
    overlap = overlap_of(target, chance, decisions.models)
    check_overlap(overlap, outcome, decisions)
    each = np.arange(decisions.n)
    weight = np.where(known, weights_of(target, chance)[each, decisions.chosen], 0.0)
    y = np.where(known, y, 0.0)
    q = running_mean_predictions(group, decisions.chosen, y, known, target.shape[1])
    q[:, SKIP] = 0.0
    terms = weight, y, q[each, decisions.chosen], (target * q).sum(axis=1)
    return Evaluation(overlap, ips(*terms[:2], level), snips(*terms[:2], level), doubly_robust(*terms, level))


def _known_share(group: IntArray, chosen: IntArray, known: NDArray[np.bool_], n_actions: int) -> FloatArray:
    """Return the share of known outcomes per (context, action), with one decision's weight on the action's share.

    That in turn leans on the share of all actions: a few decisions tell little of a share.
    """
    taken, told = np.zeros((2, int(group.max()) + 1, n_actions))
    np.add.at(taken, (group, chosen), 1.0)
    np.add.at(told, (group[known], chosen[known]), 1.0)
    of_action = (told.sum(axis=0) + known.mean()) / (taken.sum(axis=0) + 1.0)
    share: FloatArray = (told + of_action) / (taken + 1.0)
    return share
