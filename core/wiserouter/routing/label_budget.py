r"""A label budget: ask for feedback where it would change the plan most, on a set share of the decisions.

The reward of the chosen model `k` in context `j` is known up to about :math:`w = \sqrt{1 / 4(n + 1)}` after `n` labels,
a reward in [0, 1] having a variance of at most 1/4, and the next label moves its mean by at most :math:`1 / (n + 1)`.
With :math:`\Delta` the distance to the decision boundary at the shadow price :math:`\lambda`, that is of
:math:`u_k - \lambda c_k` to the best other model of the envelope, a label is worth

.. math:: \pi_j \cdot \frac{1}{n + 1} \cdot \frac{w}{w + \Delta} :

how often the context is met, how far the estimate would move, and how near the boundary is for what is known. While
exploring there is no boundary yet, and :math:`\Delta` is 0.

A heuristic, and its gain over as many labels drawn at random is small: .007 and .009 of the plan's value, with standard
errors of .005 and .004, in the simulations of tests/core/test_labels.py.
"""

from __future__ import annotations

import math

from wiserouter.errors import InvalidInput
from wiserouter.planning.choice_inputs import ContextFigures
from wiserouter.planning.policies import Choice

STEP = 0.5
"""How far the bar moves, in natural logarithms of the value: the share is exact up to a few / (STEP x decisions)."""

_FURTHEST = 1.0  # rewards are no further apart; also where there is no rival
_LEAST = 1e-6  # a bar that had fallen far would take long to rise


class LabelBudget:
    """Asks for feedback on the decisions whose value is among the highest `share` of the recent ones.

    Parameters
    ----------
    share : float, default 0.1
        Share of the decisions to ask for, above 0 and at most 1.

    Raises
    ------
    InvalidInput
        If the share is not in that range.

    Notes
    -----
    The bar is a stochastic quantile tracker (Robbins and Monro, 1951): it rises by `STEP` x (1 - share) when feedback
    is asked for, and falls by `STEP` x share when not. As the bar cannot leave the range of the values, the share holds
    in the long run for any sequence of them. One number is kept, and nothing is drawn at random.

    Examples
    --------
    >>> budget = LabelBudget(share=0.25)
    >>> round(sum(budget.wants(value) for value in [0.1, 0.2, 0.3, 0.4] * 1_000) / 4_000, 2)
    0.25
    """

    def __init__(self, share: float = 0.1) -> None:
        if not (isinstance(share, int | float) and 0.0 < share <= 1.0):
            raise InvalidInput(f"share must lie above 0 and at most at 1, got {share!r}", value=share)
        self.share = float(share)
        self._bar: float | None = None

    def ask(self, choice: Choice, labels: float, weight: float) -> bool:
        """Return whether a score of this decision is worth asking for.

        Parameters
        ----------
        choice : Choice
            The model and what it was weighed against.
        labels : float
            How many rewards of this model in this context are known.
        weight : float
            How often the context is met.
        """
        return self.wants(weight * value_of(gap_of(choice), labels))

    def wants(self, value: float) -> bool:
        """Return whether a value is above the bar, and move the bar."""
        height = math.log(max(value, _LEAST))
        bar = height if self._bar is None else self._bar
        asked = self.share >= 1.0 or height > bar
        self._bar = bar + STEP * (asked - self.share)
        return asked


def value_of(gap: float, labels: float) -> float:
    """Return what one more label is worth in a context, `gap` from the decision boundary; in rewards.

    Examples
    --------
    >>> value_of(0.0, labels=0), value_of(0.0, labels=99)
    (1.0, 0.01)
    >>> round(value_of(0.2, labels=24), 4)
    0.0133
    """
    width = math.sqrt(0.25 / (labels + 1.0))
    return width / ((labels + 1.0) * (width + min(gap, _FURTHEST)))


def gap_of(choice: Choice) -> float:
    """Return how far the chosen model is from the decision boundary; 0 while exploring, infinite without a rival."""
    figures, price, chosen = choice.figures, choice.shadow_price, choice.model
    if not isinstance(figures, ContextFigures):
        return 0.0
    others = [k for k in figures.envelope if k != chosen]
    if chosen < 0 or not others or not math.isfinite(price):
        return float("inf")
    worth = [reward - price * cost for reward, cost in zip(figures.weighed, figures.costs_usd, strict=True)]
    return abs(worth[chosen] - max(worth[k] for k in others))
