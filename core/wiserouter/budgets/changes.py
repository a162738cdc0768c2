"""Changes of a running budget by an administrator, and the terms that follow from them.

A change is arithmetic only: it turns the terms of an account and the figures of its running window into new ones. A
store applies the result at once, and only where the terms are still those that it was computed from.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from wiserouter.budgets.budget import NEVER, Budget, Limit
from wiserouter.budgets.increases import Increase, still_running
from wiserouter.budgets.ledger import ROUNDING, Ledger
from wiserouter.budgets.pauses import Pause
from wiserouter.errors import InvalidInput, WiseRouterError
from wiserouter.validation import check_amount, check_count

MOST_WINDOWS = 366
"""The most windows that an increase lasts."""

MOST_INCREASES = 16
"""The most increases of one budget at a time."""

MOST_REASON_CHARS = 200
"""The longest reason of a pause."""


class AccountTerms(NamedTuple):
    """The terms of a running account.

    Attributes
    ----------
    budget : Budget
        The budgets, with the amount of later windows.
    parent : str or None
        The scope whose budgets enclose it.
    increases : tuple of tuple of Increase
        The increases of each budget, the innermost first; empty where there are none.
    pause : Pause or None
        Why nothing is decided.
    configured : str
        The terms that it was last started with, as text, where an administrator has changed them since.
    whole : str
        The terms that its program has started it with, as text, where it is a part of these or has changed them since.
    """

    budget: Budget
    parent: str | None = None
    increases: tuple[tuple[Increase, ...], ...] = ()
    pause: Pause | None = None
    configured: str = ""
    whole: str = ""

    def increases_of(self, level: int) -> tuple[Increase, ...]:
        """Return the increases of one of the budgets."""
        return self.increases[level] if self.increases else ()


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """A change of a running budget; what is left out stays as it is.

    Parameters
    ----------
    amount_usd : float, USD, optional
        The amount from now on, counted from the start of the budget or window; it ends all increases.
    add_usd : float, USD, optional
        An increase of the amount, for good where the budget does not renew.
    windows : int, optional
        How many windows the increase lasts, the running one included; 1 by default.
    horizon : int, optional
        The number of requests, counted likewise.
    limit : {"expected", "hard"}, optional
        The kind of limit. A budget becomes hard only while it is paused and no call is in flight, since such calls
        hold no more than their expected cost.
    paused : bool, optional
        Whether to refuse all calls from now on.
    reason : str, default ""
        Why, for those who are refused.
    pause_s : float, seconds, optional
        The time after which a pause ends by itself.
    ended : bool, default False
        End the budget for good: the configuration has to name other terms to start one again.
    every : str, optional
        The period of the budget to change, where a scope has several; "never" for one that does not renew.

    Raises
    ------
    InvalidInput
        If it changes nothing, a number is out of range, or two terms exclude each other.
    """

    amount_usd: float | None = None
    add_usd: float | None = None
    windows: int | None = None
    horizon: int | None = None
    limit: Limit | None = None
    paused: bool | None = None
    reason: str = ""
    pause_s: float | None = None
    ended: bool = False
    every: str | None = None

    def __post_init__(self) -> None:
        given = (self.amount_usd, self.add_usd, self.horizon, self.limit, self.paused, self.ended or None)
        if all(one is None for one in given):
            raise InvalidInput("a change needs amount_usd, add_usd, horizon, limit, paused or end, got none of them")
        if self.ended and sum(one is not None for one in given) > 1:
            raise InvalidInput("end must stand alone: an ended budget has no other terms")
        if self.amount_usd is not None and self.add_usd is not None:
            raise InvalidInput("amount_usd and add_usd exclude each other: give one of them")
        if self.limit not in (None, "expected", "hard"):
            raise InvalidInput(f"limit must be 'expected' or 'hard', got {self.limit!r}", value=self.limit)
        self._check_numbers()
        self._check_pause()

    def _check_numbers(self) -> None:
        for name in ("amount_usd", "add_usd", "pause_s"):
            if getattr(self, name) is not None:
                check_amount(name, getattr(self, name))
        if self.horizon is not None:
            check_count("horizon", self.horizon, least=1)
        if self.windows is not None and (self.add_usd is None or not 1 <= self.windows <= MOST_WINDOWS):
            raise InvalidInput(f"windows must be 1 to {MOST_WINDOWS}, with add_usd, got {self.windows!r}")

    def _check_pause(self) -> None:
        if (self.reason or self.pause_s is not None) and not (self.paused or self.ended):
            raise InvalidInput("reason and pause_s are for a pause: add paused")
        if len(self.reason) > MOST_REASON_CHARS:
            raise InvalidInput(f"reason must have at most {MOST_REASON_CHARS} characters, got {len(self.reason)}")

    def part(self, share: float) -> BudgetChange:
        """Return the same change of an account that has this share of the budget."""
        if share == 1.0:
            return self
        amount, added = self.amount_usd, self.add_usd
        return replace(
            self,
            amount_usd=None if amount is None else amount * share,
            add_usd=None if added is None else added * share,
            horizon=None if self.horizon is None else max(1, round(self.horizon * share)),
        )


class ChangeRefused(WiseRouterError):
    """A change would break a promise; `figures` are those of the account that stand in its way."""

    def __init__(self, message: str, figures: dict[str, float]) -> None:
        self.figures = figures
        super().__init__(message)


class Changed(NamedTuple):
    """The outcome of a change.

    Attributes
    ----------
    terms : AccountTerms
        The new terms.
    level : int
        The position of the budget that it is about.
    amount_usd : float, USD
        The amount of the running window.
    """

    terms: AccountTerms
    level: int
    amount_usd: float


def changed(change: BudgetChange, terms: AccountTerms, ledgers: Sequence[Ledger], now_s: float) -> Changed:
    """Return the terms of an account after a change.

    Parameters
    ----------
    change : BudgetChange
        The change.
    terms : AccountTerms
        The terms so far.
    ledgers : sequence of Ledger
        The running window of each budget of the account, without those that enclose it.
    now_s : float, seconds since 1970
        The time.

    Raises
    ------
    InvalidInput
        If `every` names none of several budgets, or there are too many increases.
    ChangeRefused
        If the budget has ended.
    """
    if terms.pause is not None and terms.pause.ended:
        raise ChangeRefused("the budget was ended: start another one, with other terms", {})
    level = _level(change, terms.budget)
    amount_usd, regular_usd, increases = _amounts(change, terms, ledgers[level], level, now_s)
    each = list(terms.budget.each)
    each[level] = replace(
        each[level],
        within=None,
        amount_usd=regular_usd,
        horizon=change.horizon or each[level].horizon,
        limit=change.limit or each[level].limit,
    )
    budget = nested(each)
    found = terms._replace(budget=budget, increases=_with(terms, level, increases), pause=_pause(change, terms, now_s))
    return Changed(found, level, amount_usd)


def refusal(
    change: Changed, ledger: Ledger, pause: Pause | None, now_s: float, quiet_s: float = 0.0
) -> ChangeRefused | None:
    """Return why a hard limit forbids a change of the running window of a ledger; None where it does not.

    A budget becomes hard once its pause so far has held for `quiet_s`, so that no worker decides without it any more.
    """
    hard = change.terms.budget.each[change.level].limit == "hard"
    if not hard:
        return None
    figures = used_figures(ledger)
    if not ledger.hard and (ledger.in_flight or pause is None or now_s < pause.since_s + quiet_s):
        return ChangeRefused(
            f"limit 'hard' needs a budget that is paused, without calls in flight, which hold only their expected "
            f"cost: pause it, and try again in {quiet_s:g} s, once {ledger.in_flight} calls in flight are settled",
            figures,
        )
    lowered = change.amount_usd < ledger.budget.amount_usd or not ledger.hard
    used_usd = ledger.spent_usd + ledger.reserved_usd + ledger.leased_usd
    if lowered and change.amount_usd + ledger.carried_usd < used_usd - ROUNDING * change.amount_usd:
        return ChangeRefused(
            f"a hard limit must cover what is used: {change.amount_usd:.6g} USD with {ledger.carried_usd:.6g} carried "
            f"over is less than {ledger.spent_usd:.6g} spent, {ledger.reserved_usd:.6g} reserved by calls in flight "
            f"and {ledger.leased_usd:.6g} leased to workers: give at least {used_usd - ledger.carried_usd:.6g}, or "
            f"pause the budget",
            figures,
        )
    return None


def used_figures(ledger: Ledger) -> dict[str, float]:
    """Return the amounts of a window that a change has to respect."""
    return {
        "amount_usd": ledger.budget.amount_usd,
        "carried_usd": ledger.carried_usd,
        "spent_usd": ledger.spent_usd,
        "reserved_usd": ledger.reserved_usd,
        "leased_usd": ledger.leased_usd,
        "in_flight": ledger.in_flight,
    }


def figures_of(terms: AccountTerms, level: int, amount_usd: float) -> dict[str, Any]:
    """Return the terms of one budget as JSON values, for the answer to a change and for its line in the journal."""
    budget, pause = terms.budget.each[level], terms.pause
    return {
        "every": budget.every or NEVER,
        "amount_usd": amount_usd,
        "later_amount_usd": budget.amount_usd,
        "increases": [[one.usd, one.until_s] for one in terms.increases_of(level)],
        "horizon": budget.horizon,
        "limit": budget.limit,
        "paused": pause is not None and not pause.ended,
        "reason": "" if pause is None else pause.reason,
        "paused_until": None if pause is None else pause.until_s,
        "ended": pause is not None and pause.ended,
    }


class ChangeAnswer(NamedTuple):
    """The answer to a change.

    Attributes
    ----------
    scope : str
        The scope whose budget was changed.
    before, after : dict
        The terms of the budget that it is about, as `figures_of` returns them.
    account : dict
        What is used of its running window.
    replayed : bool
        Whether it answers a request that was made before; then nothing was changed.
    """

    scope: str
    before: dict[str, Any]
    after: dict[str, Any]
    account: dict[str, float]
    replayed: bool = False

    def text(self, request: str) -> str:
        """Return the answer as text, with the request that it belongs to."""
        return json.dumps({"request": request, "answer": list(self[:4])})


def answer_to(scope: str, terms: AccountTerms, found: Changed, ledger: Ledger) -> ChangeAnswer:
    """Return the answer to a change of the terms so far."""
    level = found.level
    before = figures_of(terms, level, ledger.budget.amount_usd)
    account = {**used_figures(ledger), "amount_usd": found.amount_usd}
    return ChangeAnswer(scope, before, figures_of(found.terms, level, found.amount_usd), account)


def first_answer(text: str, request: str) -> ChangeAnswer:
    """Return the answer to the first request of a token; raises `InvalidInput` where that was another request."""
    kept = json.loads(text)
    if kept["request"] != request:
        raise InvalidInput("the idempotency key was used for another change: give each change a key of its own")
    return ChangeAnswer(*kept["answer"])._replace(replayed=True)


def _level(change: BudgetChange, budget: Budget) -> int:
    """Return the position of the budget that a change is about; a pause is about all of them."""
    each = budget.each
    of_one = (change.amount_usd, change.add_usd, change.horizon, change.limit) != (None, None, None, None)
    if change.every is None and (len(each) == 1 or not of_one):
        return 0
    found = [level for level, one in enumerate(each) if change.every is not None and one.renews(change.every)]
    if not found:
        known = ", ".join(repr(one.every or NEVER) for one in each)
        raise InvalidInput(f"every must name the budget to change, one of {known}, got {change.every!r}")
    return found[0]


def _amounts(
    change: BudgetChange, terms: AccountTerms, ledger: Ledger, level: int, now_s: float
) -> tuple[float, float, tuple[Increase, ...]]:
    """Return the amount of the running window, that of later ones, and the increases."""
    regular_usd, present_usd = terms.budget.each[level].amount_usd, ledger.budget.amount_usd
    increases = still_running(terms.increases_of(level), now_s)
    if change.amount_usd is not None:
        return change.amount_usd, change.amount_usd, ()
    if change.add_usd is None:
        return present_usd, regular_usd, increases
    if ledger.window is None:
        return present_usd + change.add_usd, regular_usd + change.add_usd, increases
    if len(increases) >= MOST_INCREASES:
        raise InvalidInput(f"a budget has at most {MOST_INCREASES} increases at a time: give amount_usd to end them")
    until_s = _end_of(ledger, change.windows or 1)
    return present_usd + change.add_usd, regular_usd, (*increases, Increase(change.add_usd, until_s))


def _end_of(ledger: Ledger, windows: int) -> float:
    """Return the end of the last of several windows, of which the running one is the first."""
    window = ledger.window
    for _ in range(windows - 1):
        window = None if window is None else ledger.budget.window(window.end_s)
    return 0.0 if window is None else window.end_s


def _with(terms: AccountTerms, level: int, increases: tuple[Increase, ...]) -> tuple[tuple[Increase, ...], ...]:
    each = [terms.increases_of(at) for at in range(len(terms.budget.each))]
    each[level] = increases
    return tuple(each) if any(each) else ()


def _pause(change: BudgetChange, terms: AccountTerms, now_s: float) -> Pause | None:
    if change.paused is None and not change.ended:
        return terms.pause
    if change.paused is False:
        return None
    until_s = None if change.pause_s is None else now_s + change.pause_s
    return Pause(change.reason, now_s, until_s, change.ended)


def nested(each: Sequence[Budget]) -> Budget:
    """Return budgets, of which each is within the next one."""
    budget: Budget | None = None
    for one in reversed(each):
        budget = replace(one, within=budget)
    if budget is None:
        raise InvalidInput("an account has at least one budget, got none")
    return budget
