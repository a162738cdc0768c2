"""The protocol of a policy, which turns a context and a rate into a model, and the choice that it returns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from wiserouter.budgets.budget import Debit
from wiserouter.budgets.funds import Funds
from wiserouter.learning.estimates import Estimates
from wiserouter.planning.choice_inputs import ContextFigures
from wiserouter.planning.limited_plan import LimitedPlan
from wiserouter.planning.plan import Plan
from wiserouter.planning.shift import Shift
from wiserouter.pricing.pool import Model
from wiserouter.types import FloatArray

Accounting = Literal["actual", "paper"]

Allowed = Collection[int] | None
"""The models that may take a query; None for all."""

Rule = Literal["plan", "explore", "first", "cheapest", "hold"]
"""The rule that chose: the plan's mix, exploration, the cheapest model because no call was paid for yet or because the
budget is used up, or the model that holds the run."""

Mix = tuple[tuple[int, float], ...]
"""The models that could be drawn (`SKIP` for the null action), each with its probability; they sum to 1."""


class Choice(NamedTuple):
    """A drawn model (`SKIP` for the null action), the figures behind it, and the mix that it was drawn from.

    Cost and reward are those expected of this query; `figures` holds the means of its context, `floor_usd` the least
    mean cost of a request, and `limited` the plan under limits beside the budget, where there are some.
    """

    model: int
    probability: float
    shadow_price: float
    expected_cost_usd: float
    expected_reward: float
    debit: Debit
    mix: Mix = ()
    figures: ContextFigures | None = None
    rule: Rule = "plan"
    floor_usd: float = 0.0
    limited: LimitedPlan | None = None


class Policy(Protocol):
    """Chooses a model for each query, so that the workload's budget buys the most reward."""

    @property
    def name(self) -> str:
        """Its name in an artifact."""
        ...

    @property
    def plan(self) -> Plan | None:
        """The linear program at the current estimates; None before anything is known."""
        ...

    def bind(self, freq: FloatArray, estimates: Estimates, models: Sequence[Model] = ()) -> None:
        """Take the context frequencies, the estimates that the router keeps up to date, and the pool."""
        ...

    def choose(
        self, context: int, funds: Funds, rng: np.random.Generator, allowed: Allowed = None, shift: Shift | None = None
    ) -> Choice:
        """Draw a model for a query of `context`, or of `NO_CONTEXT`, among `allowed` where that is given.

        `shift` is the deviation of the query from the means of its context, where that is estimated.
        """
        ...

    def settings(self) -> dict[str, object]:
        """Return the keyword arguments that make an equal policy, for an artifact."""
        ...


@runtime_checkable
class DrawsFromPlan(Protocol):
    """A policy whose choices are drawn from a linear program, to which limits can be added."""

    @property
    def live_plan(self) -> Plan | None:
        """The program that choices are drawn from at this moment; None before any cost is known."""
        ...


@runtime_checkable
class PlansAhead(Protocol):
    """A policy that takes in an observation when it comes, and not only when it next chooses."""

    def learned(self, context: int) -> None:
        """Take in that the estimates of a context, or of `NO_CONTEXT`, have changed."""
        ...
