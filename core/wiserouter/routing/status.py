"""The status of a budget: its account, and the yield of the plan for what is left of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from wiserouter.budgets.ledger import Ledger
from wiserouter.budgets.nested import Account
from wiserouter.learning.estimates import Estimates
from wiserouter.planning.plan import Plan
from wiserouter.routing.conversation_figures import ConversationFigures
from wiserouter.routing.judge_figures import JudgeFigures, figures_of
from wiserouter.routing.score_warnings import score_warnings
from wiserouter.routing.status_text import html_of, text_of
from wiserouter.routing.unspent import LEAST_SHARE, why_unspent

if TYPE_CHECKING:
    from wiserouter.judging.judge import Judge
    from wiserouter.routing.learner import Learner
    from wiserouter.routing.limit_figures import LimitFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountFigures:
    """The figures of one budget; of its current window, if it renews.

    Attributes
    ----------
    amount_usd, carried_usd, spent_usd, presumed_usd, reserved_usd, leased_usd, left_usd : float, USD
        The budget, the amount carried over from the window before, the charges, the part of them that is presumed, the
        reservations of calls in flight, the leases of workers for calls to come, and the rest.
    horizon, horizon_left : int
        Requests planned for, and those still to come; forecasts if the budget renews.
    horizon_low, horizon_high : int or None
        The 80 % interval of the horizon, if that is a forecast.
    rate_usd : float
        Budget left per request left.
    decided, charged, in_flight, released, presumed : int
        Number of decisions, and of the outcomes of their calls; presumed ones have no known outcome.
    renews_at : float or None, seconds since 1970
        Time of the renewal; None if the budget does not renew.
    """

    amount_usd: float
    carried_usd: float
    spent_usd: float
    presumed_usd: float
    reserved_usd: float
    leased_usd: float
    left_usd: float
    horizon: int
    horizon_left: int
    horizon_low: int | None
    horizon_high: int | None
    rate_usd: float
    decided: int
    charged: int
    in_flight: int
    released: int
    presumed: int
    renews_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStatus(AccountFigures):
    """The account of one budget of a scope: its figures and its terms.

    Attributes
    ----------
    every : str or None
        Period after which it renews; None if it does not.
    limit : {"expected", "hard"}
        "expected" plans with mean costs, "hard" is never exceeded.
    rules : bool
        True for the tightest budget, which sets the rate.
    """

    every: str | None
    limit: Literal["expected", "hard"]
    rules: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Status(AccountFigures):
    """The account of one scope and the plan at its rate; of several budgets, the figures of the tightest.

    Attributes
    ----------
    scope : str
        The team, key or tag.
    shadow_price, expected_reward : float or None
        Reward per USD at the margin, and mean reward of the requests to come; None before anything is known.
    mix : dict of str to float
        Planned share of each model.
    windows : tuple of WindowStatus
        Each budget of the scope, the innermost first.
    conversations : ConversationFigures or None
        The conversations of this worker, of all scopes; None where each call is decided alone.
    unspent : str or None
        Why the plan leaves money of the rate unspent, and what would help; None where it uses all of it.
    judge : JudgeFigures or None
        What the judge has done in this process, of all scopes; None without one.
    warnings : tuple of str
        What speaks against the scores that the router has learned from: a judge that prefers cheap models, failures
        alone; and the limits that no mix of models keeps.
    limits : tuple of LimitFigures
        The limits beside the budget; with them, price, reward and mix are those of the plan under all of them.
    """

    scope: str
    shadow_price: float | None
    expected_reward: float | None
    mix: dict[str, float]
    windows: tuple[WindowStatus, ...]
    conversations: ConversationFigures | None = None
    unspent: str | None = None
    judge: JudgeFigures | None = None
    warnings: tuple[str, ...] = ()
    limits: tuple[LimitFigures, ...] = ()

    def __str__(self) -> str:
        return text_of(self.as_dict())

    def _repr_html_(self) -> str:
        return html_of(self.as_dict())

    def as_dict(self) -> dict[str, object]:
        """Return the fields as a dictionary, for JSON."""
        return {"scope": self.scope, **asdict(self)}


class WhatIf(NamedTuple):
    """The yield of a plan at one rate.

    Attributes
    ----------
    expected_spend_usd, expected_reward : float
        Means per request.
    shadow_price : float
        Reward per USD at the margin.
    mix : dict of str to float
        Planned share of each model.
    """

    expected_spend_usd: float
    expected_reward: float
    shadow_price: float
    mix: dict[str, float]


def what_if(plan: Plan, rate_usd: float, names: tuple[str, ...]) -> WhatIf:
    """Return the yield of a plan at another rate; raises `InfeasibleBudget` below the plan's floor."""
    shares = plan.freq @ plan.mix(rate_usd)
    mix = {name: float(share) for name, share in zip(names, shares, strict=False)}
    return WhatIf(plan.spend_usd(rate_usd), plan.value(rate_usd), plan.shadow_price(rate_usd), mix)


def status_of(
    scope: str,
    account: Account,
    plan: Plan | None,
    names: tuple[str, ...],
    conversations: ConversationFigures | None = None,
    estimates: Estimates | None = None,
) -> Status:
    """Return the status of an account, with the yield of `plan` at its rate, and why money is left."""
    ledger = account.tightest
    unspent = None if plan is None or estimates is None else _unspent(plan, ledger, names, estimates)
    bought = None if plan is None else what_if(plan, max(ledger.rate_usd, plan.floor_usd), names)
    return Status(
        scope=scope,
        **_figures(ledger),
        shadow_price=None if bought is None else bought.shadow_price,
        expected_reward=None if bought is None else bought.expected_reward,
        mix={} if bought is None else bought.mix,
        windows=tuple(
            [
                WindowStatus(every=one.budget.every, limit=one.budget.limit, rules=one is ledger, **_figures(one))
                for one in account.each
            ]
        ),
        conversations=conversations,
        unspent=unspent,
    )


def _unspent(plan: Plan, ledger: Ledger, names: tuple[str, ...], estimates: Estimates) -> str | None:
    """Return why money is left; of a horizon that is over by what the budget gave for each of its requests."""
    if ledger.horizon_left > 0:
        return why_unspent(plan, ledger.rate_usd, names, estimates)
    amount_usd = ledger.budget.amount_usd
    if not ledger.left_usd > LEAST_SHARE * amount_usd:
        return None
    return why_unspent(plan, amount_usd / ledger.horizon, names, estimates)


def status_with_judge(status: Status, judge: Judge | None, learner: Learner) -> Status:
    """Return a status with the figures of the judge, and with what speaks against the scores."""
    figures = None if judge is None else figures_of(judge, learner.agreements)
    return replace(status, judge=figures, warnings=score_warnings(learner))


def _figures(ledger: Ledger) -> dict[str, Any]:
    """Return the fields of `AccountFigures`."""
    low, high = ledger.horizon_interval or (None, None)
    return {
        "amount_usd": ledger.budget.amount_usd,
        "carried_usd": ledger.carried_usd,
        "spent_usd": ledger.spent_usd,
        "presumed_usd": ledger.presumed_usd,
        "reserved_usd": ledger.reserved_usd,
        "leased_usd": ledger.leased_usd,
        "left_usd": ledger.left_usd,
        "horizon": ledger.horizon,
        "horizon_left": max(ledger.horizon_left, 0),
        "horizon_low": low,
        "horizon_high": high,
        "rate_usd": ledger.rate_usd,
        "decided": ledger.decided,
        "charged": ledger.charged,
        "in_flight": ledger.in_flight,
        "released": ledger.released,
        "presumed": ledger.presumed,
        "renews_at": ledger.renews_at,
    }
