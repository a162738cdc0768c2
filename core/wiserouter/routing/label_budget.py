r"""A label budget: asks for feedback where it would change the plan most, on a given share of the decisions.

A reward in [0, 1] has a variance of at most 1/4, so after `n` labels the mean reward of the chosen model `k` in context
`j` has a standard error of about :math:`w = \sqrt{1 / 4(n + 1)}`, and the next label moves it by at most
:math:`1 / (n + 1)`. Let :math:`\Delta` be the distance of :math:`u_k - \lambda c_k` to that of the best other model of
the envelope, at the shadow price :math:`\lambda`: the distance to the decision boundary. Then a label is worth

.. math:: \pi_j \cdot \frac{1}{n + 1} \cdot \frac{w}{w + \Delta} :

the frequency of the context, times the largest move of the estimate, times the nearness of the boundary in units of the
error. During exploration there is no boundary yet, and :math:`\Delta` is 0.

This is a heuristic. Its gain over the same number of labels drawn at random is small: .007 and .009 of the plan's
value, with standard errors of .005 and .004, in the simulations of tests/core/routing/test_label_budget.py.
"""

from __future__ import annotations

import math

from wiserouter.errors import InvalidInput
from wiserouter.planning.policies import Choice

_FURTHEST = 1.0  # rewards differ by no more; used also if there is no other model
_LEAST = 1e-6  # a bar that has fallen further would take long to rise


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
    The bar is a stochastic quantile tracker (Robbins and Monro, 1951) of the natural logarithm of the value: it rises
    by 1 - share when feedback is asked for, and falls by the share when not. The bar cannot leave the range of the
    values, so the share holds in the long run for any sequence of values. Only one number is kept, and nothing is drawn
    at random.

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
        """Return True if a score of this decision is worth asking for.

        Parameters
        ----------
        choice : Choice
            The chosen model and the figures of the others.
        labels : float
            Number of known rewards of this model in this context.
        weight : float
            Frequency of the context.
        """
        return self.wants(weight * value_of(gap_of(choice), labels))

    def wants(self, value: float) -> bool:
        """Return True if a value is above the bar, and move the bar."""
        height = math.log(max(value, _LEAST))
        bar = height if self._bar is None else self._bar
        asked = self.share >= 1.0 or height > bar
        self._bar = bar + asked - self.share
        return asked


def value_of(gap: float, labels: float) -> float:
    """Return the value of one more label of a model that is `gap` away from the decision boundary, in rewards.

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
    """Return the distance of the chosen model from the decision boundary; 0 while exploring, infinite if alone."""
    figures, price, chosen = choice.figures, choice.shadow_price, choice.model
    if figures is None or figures.invoked is not None:
        return 0.0
    others = [k for k in figures.envelope if k != chosen]
    if chosen < 0 or not others or not math.isfinite(price):
        return float("inf")
    worth = [reward - price * cost for reward, cost in zip(figures.weighed, figures.costs_usd, strict=True)]
    return abs(worth[chosen] - max(worth[k] for k in others))
