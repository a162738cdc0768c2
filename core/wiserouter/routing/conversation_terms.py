"""The terms that a conversation sets for the decision of one of its calls."""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import isnan
from typing import NamedTuple

from wiserouter.budgets.run_caps import RunCap
from wiserouter.learning.residuals import Deviations
from wiserouter.planning.policies import Choice
from wiserouter.planning.shift import Shift


class ConversationTerms(NamedTuple):
    """The terms of one call.

    Attributes
    ----------
    conversation : str
        The key of the conversation.
    held : Choice or None
        The model that holds the run, if it is to go on.
    counts : bool
        Whether the call uses up one request of the horizon.
    run_id : str or None
        The decision that the cost and the reward of the run belong to: "" for this one, None where the unit is no run.
    rest_usd : float, USD
        The part of the budget that is committed to this run.
    caps : tuple of RunCap
        The budgets of the run and of those that it is part of.
    last_model : str
        The model that served the last call; "" before the first one.
    met : collection of str
        The models that served the conversation before.
    next_usd : callable or None
        Returns the expected cost of this call with a model, NaN where it is not known; None where none is.
    own_usd : list of float of length n_models, or None
        The cost that the choice weighs, in place of the mean of its context; NaN where it is not known.
    learned_shift_usd : list of float of length n_models, or None
        The deviation that is subtracted from its true cost before that is learned.
    """

    conversation: str
    held: Choice | None = None
    counts: bool = True
    run_id: str | None = None
    rest_usd: float = 0.0
    caps: tuple[RunCap, ...] = ()
    last_model: str = ""
    met: Collection[str] = ()
    next_usd: Callable[[int], float] | None = None
    own_usd: list[float] | None = None
    learned_shift_usd: list[float] | None = None

    def call_usd(self, model: int, mean_usd: float) -> float:
        """Return the expected cost of this call with a model; `mean_usd` where it is not known.

        Examples
        --------
        >>> terms = ConversationTerms("a", next_usd=[0.5, float("nan")].__getitem__)
        >>> terms.call_usd(0, 2.0), terms.call_usd(1, 2.0)
        (0.5, 2.0)
        """
        if self.next_usd is None:
            return mean_usd
        usd = self.next_usd(model)
        return mean_usd if isnan(usd) else usd

    def weighed(self, shift: Shift | None) -> Shift | None:
        """Return the deviation of the query for the choice, with the cost of this call."""
        if self.own_usd is None:
            return shift
        if shift is None:
            return Shift(own_cost_usd=self.own_usd)
        return shift._replace(own_cost_usd=self.own_usd)

    def learned_from(self, predicted: Deviations | None) -> Deviations | None:
        """Return the deviations to learn with, with that of the cost of this call."""
        if self.learned_shift_usd is None:
            return predicted
        return Deviations(None if predicted is None else predicted.reward, self.learned_shift_usd)

    def of_decision(self, decision_id: str, model: str) -> tuple[str, str, str, str, float]:
        """Return the last fields of its decision: conversation, visit, run, would-be model and value.

        Examples
        --------
        >>> ConversationTerms("a", last_model="small", met=["small"]).of_decision("d1", "small")
        ('a', 'stay', '', '', 1.0)
        """
        visit = "stay" if model == self.last_model else "return" if model in self.met else "first"
        return self.conversation, visit, "" if self.run_id is None else self.run_id or decision_id, "", 1.0
