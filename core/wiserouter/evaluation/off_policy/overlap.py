r"""The overlap of a log and a target: whether the log contains the target's choices often enough.

It depends on the logged probabilities alone, not on the draws. An action with a weight above n / `LEAST_EFFECTIVE` is
treated as never drawn and left out, as one such decision would make up a hundredth of the estimate. The rest must have
an effective sample size of at least `LEAST_EFFECTIVE`: n times the squared mean of the weights over the mean of their
squares (Kish 1965), where the mean weight is the share of the target's choices that is kept. The part left out moves a
mean reward by no more than its share of the target's choices. With :math:`m` effective decisions the standard error of
a reward is up to :math:`1 / 2 \sqrt m`, so that a share of `LEFT_OUT` / sqrt(m) is at most a fifth of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.evaluation.errors import ThinOverlap
from wiserouter.evaluation.off_policy.logged_decisions import Decisions
from wiserouter.types import FloatArray

LEAST_EFFECTIVE = 100.0
"""Effective decisions below which an estimate is refused."""

LEFT_OUT = 0.1
"""Times 1 / sqrt(effective decisions): the largest share of a target's choices that may be left out."""


class Overlap(NamedTuple):
    """The support of a target by a log.

    Attributes
    ----------
    decisions : int
        Number of decisions.
    effective : float
        Effective sample size: the number of decisions of the target itself that they are worth.
    largest_weight : float
        Largest possible weight of a decision.
    never : float
        Share of the target's choices with logged probability 0.
    left_out : float
        Share of the target's choices that the estimates leave out, including those almost never drawn.
    where : dict of str to float
        Models of the choices left out, largest share first; "" is the null action.
    """

    decisions: int
    effective: float
    largest_weight: float
    never: float
    left_out: float
    where: dict[str, float]

    @property
    def is_thin(self) -> bool:
        """True if the log is too thin for estimates."""
        return self.effective < LEAST_EFFECTIVE or self.left_out > LEFT_OUT / np.sqrt(self.effective)


def weights_of(target: FloatArray, chance: FloatArray, draws: float | None = None) -> FloatArray:
    """Return the weight of each action at each decision; 0 for actions that are left out.

    Parameters
    ----------
    target, chance : ndarray of shape (n, n_actions)
        Probability of each action under the target, and the logged probability that it was taken with a known outcome.
    draws : float, optional
        Number of independent draws behind the n decisions; by default n.

    Examples
    --------
    >>> weights_of(np.array([[0.5, 0.5]] * 200), np.array([[0.25, 0.75]] * 199 + [[1.0, 0.0]])).round(2)[[0, -1]]
    array([[2.  , 0.67],
           [0.5 , 0.  ]])
    """
    ratio = _ratio(target, chance)
    return np.where(ratio <= (draws or len(target)) / LEAST_EFFECTIVE, ratio, 0.0)


def overlap_of(target: FloatArray, chance: FloatArray, models: tuple[str, ...]) -> Overlap:
    """Return the overlap; the parameters are those of `weights_of`, `models` names all actions but SKIP.

    Examples
    --------
    >>> overlap_of(np.array([[1.0, 0.0, 0.0]] * 500), np.array([[0.25, 0.75, 0.0]] * 500), ("a", "b"))
    Overlap(decisions=500, effective=125.0, largest_weight=4.0, never=0.0, left_out=0.0, where={})
    """
    weight, ratio = weights_of(target, chance), _ratio(target, chance)
    second = float((target * weight).sum(axis=1).mean())
    lost = np.where(weight > 0.0, 0.0, target)
    kept = float((target - lost).sum(axis=1).mean())
    shares = dict(zip((*models, ""), lost.mean(axis=0).tolist(), strict=True))
    return Overlap(
        len(target),
        len(target) * kept**2 / second if second else 0.0,
        float(ratio[np.isfinite(ratio)].max(initial=0.0)),
        float(np.where(chance > 0.0, 0.0, target).sum(axis=1).mean()),
        float(lost.sum(axis=1).mean()),
        {name: share for name, share in sorted(shares.items(), key=lambda one: -one[1]) if share},
    )


def check_overlap(overlap: Overlap, outcome: str, decisions: Decisions) -> None:
    """Refuse an overlap that is too thin; raises `ThinOverlap`."""
    if overlap.is_thin:
        raise refusal_of(overlap, outcome, explored=int(decisions.explored.sum()))


def refusal_of(overlap: Overlap, outcome: str, explored: int = 0) -> ThinOverlap:
    """Return the error of an overlap that is too thin."""
    return ThinOverlap(
        outcome,
        decisions=overlap.decisions,
        effective=overlap.effective,
        least_effective=LEAST_EFFECTIVE,
        largest_weight=overlap.largest_weight,
        never=overlap.never,
        left_out=overlap.left_out,
        where=overlap.where,
        explored=explored,
    )


def _ratio(target: FloatArray, chance: FloatArray) -> FloatArray:
    """Return target / chance: 0 where the target is 0, infinite where only the logged probability is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(target > 0.0, target / chance, 0.0)
