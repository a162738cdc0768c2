"""The evaluation of a target on logged decisions: three estimates, or a refusal."""

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
    """The estimated outcome of a target per request.

    Attributes
    ----------
    overlap : Overlap
        Support of the target by the log.
    ips, snips, dr : Estimate
        Inverse propensity scores, the same self-normalised, and doubly robust.
    """

    overlap: Overlap
    ips: Estimate
    snips: Estimate
    dr: Estimate


def evaluate(decisions: Decisions, target: FloatArray, outcome: OutcomeName = "reward") -> Evaluation:
    """Estimate the mean outcome of a target.

    Parameters
    ----------
    decisions : Decisions
        The logged decisions.
    target : ndarray of shape (n, K + 1)
        Probability of each model, and of the null action, at each decision. Rows of NaN, where the target is not
        defined yet, are left out; this must not depend on the query.
    outcome : {"reward", "cost_usd"}, default "reward"
        The outcome to estimate.

    Raises
    ------
    ThinOverlap
        If the log has too few of the target's choices.
    InvalidInput
        If no decision has this outcome, or the target's shape is wrong.

    Notes
    -----
    Outcomes may be missing at random given context and model. A decision is then weighted by the inverse share of known
    outcomes among the decisions of its context and model. Estimating these shares can only make the intervals wider
    than necessary (Hirano, Imbens and Ridder 2003).

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
    defined = ~np.isnan(target.sum(axis=1))
    decisions, target = decisions.where(defined), target[defined]
    y: FloatArray = getattr(decisions, outcome)
    known = ~np.isnan(y)
    if not decisions.has_outcome(outcome):
        raise InvalidInput(f"no decision has a {outcome}: there is nothing to estimate from")
    group = np.unique(decisions.context, return_inverse=True)[1]
    chance = decisions.logged * known_share(group, decisions.chosen, known, target.shape[1])[group]
    overlap = overlap_of(target, chance, decisions.models)
    check_overlap(overlap, outcome, decisions)
    each = np.arange(decisions.n)
    weight = np.where(known, weights_of(target, chance)[each, decisions.chosen], 0.0)
    y = np.where(known, y, 0.0)
    q = running_mean_predictions(group, decisions.chosen, y, known, target.shape[1])
    q[:, SKIP] = 0.0
    terms = weight, y, q[each, decisions.chosen], (target * q).sum(axis=1)
    return Evaluation(overlap, ips(*terms[:2]), snips(*terms[:2]), doubly_robust(*terms))


def known_share(group: IntArray, chosen: IntArray, known: NDArray[np.bool_], n_actions: int) -> FloatArray:
    """Return the share of known outcomes per (context, action), shrunk toward that of the action in all contexts.

    The latter is shrunk toward the share over all actions; each prior counts as one decision.
    """
    taken, observed = np.zeros((2, int(group.max()) + 1, n_actions))
    np.add.at(taken, (group, chosen), 1.0)
    np.add.at(observed, (group[known], chosen[known]), 1.0)
    of_action = (observed.sum(axis=0) + known.mean()) / (taken.sum(axis=0) + 1.0)
    share: FloatArray = (observed + of_action) / (taken + 1.0)
    return share
