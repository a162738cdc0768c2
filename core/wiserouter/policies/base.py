"""What a policy is: from a context and a rate to a model."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import numpy as np

from wiserouter.budget import Debit, Funds
from wiserouter.estimates import Estimates
from wiserouter.plan import SKIP, Plan
from wiserouter.policies.basis import Basis, Counts, Trials
from wiserouter.policies.caution import Caution
from wiserouter.types import NO_CONTEXT, FloatArray

Accounting = Literal["actual", "paper"]

Rule = Literal["plan", "explore", "cheapest"]
"""What chose: the plan's mix, exploration, or the cheapest model because the budget is used up."""

Mix = tuple[tuple[int, float], ...]
"""The models that could be drawn (`SKIP` for the null action), each with its probability; they sum to 1."""


class Choice(NamedTuple):
    """A drawn model (`SKIP` for the null action), the figures behind it, and what else could have been drawn."""

    model: int
    probability: float
    shadow_price: float
    expected_cost_usd: float
    expected_reward: float
    debit: Debit
    mix: Mix = ()
    basis: Basis | Trials | None = None
    rule: Rule = "plan"


class Policy(Protocol):
    """Chooses a model for each query, so that the workload's budget buys the most reward."""

    @property
    def name(self) -> str:
        """What an artifact calls the policy."""
        ...

    @property
    def plan(self) -> Plan | None:
        """The linear program at the current estimates; None before anything is known."""
        ...

    def bind(self, freq: FloatArray, estimates: Estimates) -> None:
        """Take the context frequencies, and the estimates that the router keeps up to date."""
        ...

    def choose(
        self, context: int, funds: Funds, rng: np.random.Generator, allowed: Collection[int] | None = None
    ) -> Choice:
        """Draw a model for a query of `context`, or of `NO_CONTEXT`, among `allowed` where that is given."""
        ...

    def settings(self) -> dict[str, object]:
        """Return the keyword arguments that make an equal policy, for an artifact."""
        ...


@dataclass(frozen=True, slots=True)
class Mixture:
    """A plan to draw from.

    Attributes
    ----------
    plan : Plan
        The linear program.
    debit : {"actual", "paper"}
        What planning debits for a call: its true, or its expected cost.
    caution : Caution or None
        The reserve rule, where it is kept.
    counts : Counts or None
        How many costs and rewards are behind the plan.
    """

    plan: Plan
    debit: Debit
    caution: Caution | None = None
    counts: Counts | None = None
    _bases: dict[int, Basis] = field(default_factory=dict)

    def choose(
        self, context: int, funds: Funds, rng: np.random.Generator, allowed: Collection[int] | None = None
    ) -> Choice:
        """Draw from the plan's mix; below its floor, take the cheapest models.

        A model that is not allowed, or that caution rules out, is replaced by the permitted one with the best reward
        less shadow price x cost, which is what the linear program itself maximises in each context at that price.
        """
        rate, floor = funds.rate_usd, self.plan.floor_usd
        low, high, share, price = self.plan.split(context, max(rate, floor))
        price = price if rate >= floor else float("inf")
        drawn = high if share and rng.random() < share else low
        if allowed is not None or (self.caution is not None and not self.caution.permits(context, funds, low, high)):
            permitted = self._permitted(context, funds, allowed)
            stand_in = {k: self._stand_in(context, price, permitted, k) for k in (low, high)}
            drawn, low, high = stand_in[drawn], stand_in[low], stand_in[high]
        mixed = share > 0.0 and low != high
        mix = ((low, 1.0 - share), (high, share)) if mixed else ((drawn, 1.0),)
        probability = 1.0 if not mixed else share if drawn == high else 1.0 - share
        basis = self.basis(context)
        reward, cost = basis.means(drawn) if drawn != SKIP else (0.0, 0.0)
        return Choice(drawn, probability, price, cost, reward, self.debit, mix, basis)

    def basis(self, context: int) -> Basis:
        """Return what the plan knows of a context; made once."""
        known = self._bases.get(context)
        if known is None:
            known = self._bases[context] = basis_of(self.plan, context, self.caution, self.counts)
        return known

    def _permitted(self, context: int, funds: Funds, allowed: Collection[int] | None) -> Collection[int]:
        """Return the allowed models that caution permits, or the cheapest allowed one."""
        models = range(self.plan.n_models) if allowed is None else allowed
        caution = self.caution
        prudent = models if caution is None else [k for k in models if caution.permits(context, funds, k)]
        return prudent or [best_at_price(self.plan, context, float("inf"), models)]

    def _stand_in(self, context: int, price: float, permitted: Collection[int], model: int) -> int:
        keep = model == SKIP or model in permitted
        return model if keep else best_at_price(self.plan, context, price, permitted)


def best_at_price(plan: Plan, context: int, shadow_price: float, allowed: Collection[int]) -> int:
    """Return the allowed model with the best reward less shadow price x cost; the cheaper one at a tie.

    Examples
    --------
    >>> plan = Plan(freq=[1.0], reward=[[0.2, 0.5, 0.9]], cost_usd=[[1, 2, 9]])
    >>> best_at_price(plan, 0, 0.1, [0, 1]), best_at_price(plan, 0, float("inf"), [1, 2])
    (1, 1)
    """
    return min(allowed, key=_worth(plan, context, shadow_price))


def by_worth(plan: Plan, context: int, shadow_price: float) -> list[int]:
    """Return all models by falling reward less shadow price x cost."""
    return sorted(range(plan.n_models), key=_worth(plan, context, shadow_price))


def _worth(plan: Plan, context: int, shadow_price: float) -> Callable[[int], tuple[float, float]]:
    """Return the sorting key that puts the best model first; at an infinite price that is the cheapest one."""
    reward, cost = plan.reward[context].tolist(), plan.cost_usd[context].tolist()
    if shadow_price == float("inf"):
        return lambda k: (cost[k], -reward[k])
    return lambda k: (shadow_price * cost[k] - reward[k], cost[k])


def basis_of(plan: Plan, context: int, caution: Caution | None = None, counts: Counts | None = None) -> Basis:
    """Return what a plan, its reserve rule and its counts say of one context."""
    unknown = [0.0] * plan.n_models
    return Basis(
        plan.reward[context].tolist(),
        plan.cost_usd[context].tolist(),
        counts.calls[context].tolist() if counts is not None else unknown,
        counts.labels[context].tolist() if counts is not None else unknown,
        plan.envelope_models(context),
        caution.cautious_usd(context) if caution is not None else None,
        plan.floor_usd,
    )


def cheapest_choice(
    plan: Plan | None, context: int, models: Collection[int], list_price_usd: Callable[[int], float]
) -> Choice:
    """Return the cheapest model of `context`: by the plan's means, or by list price where there is no plan yet."""
    price = float("inf")
    if plan is None:
        model = min(models, key=list_price_usd)
        return Choice(model, 1.0, price, 0.0, 0.0, "actual", ((model, 1.0),), rule="cheapest")
    if context == NO_CONTEXT:
        plan, context = plan.without_context(), 0
    model = best_at_price(plan, context, price, models)
    known = basis_of(plan, context)
    reward, cost = known.means(model)
    return Choice(model, 1.0, price, cost, reward, "actual", ((model, 1.0),), known, "cheapest")
