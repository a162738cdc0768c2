"""Nested budgets, such as one per day within one per month: every budget must bear a call, and the tightest rules.

An account is the ledger of one budget or of several. Both have the same methods, so that stores and the router need not
distinguish them.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from operator import attrgetter

from wiserouter.budgets.budget import NEVER, Budget
from wiserouter.budgets.funds import BudgetSnapshot, Funds
from wiserouter.budgets.ledger import Ledger
from wiserouter.errors import BudgetError, BudgetExhausted, InvalidInput


@dataclass(frozen=True, slots=True)
class NestedLedger:
    """The ledgers of a budget and of those that enclose it.

    A decision keeps the ledgers that it was made on, so that its bill reaches the windows of that time.

    Attributes
    ----------
    each : tuple of Ledger
        One per budget, the innermost first.
    """

    each: tuple[Ledger, ...]

    def at(self, now_s: float) -> NestedLedger:
        """Return the accounts at `now_s`, where a new ledger replaces each one whose window has ended."""
        each = tuple([ledger.at(now_s) for ledger in self.each])
        return self if each == self.each else NestedLedger(each)

    @property
    def budget(self) -> Budget:
        """The current terms; scopes within one another may have budgets that renew equally often."""
        budget, *inner = [ledger.budget for ledger in reversed(self.each)]
        for one in inner:
            terms = copy(one)
            object.__setattr__(terms, "within", budget)  # all of them were checked
            budget = terms
        return budget

    @property
    def hard(self) -> bool:
        """Whether any limit is hard."""
        return any(ledger.hard for ledger in self.each)

    @property
    def epoch_s(self) -> float:
        """The start of the window of the innermost budget."""
        return self.each[0].epoch_s

    @property
    def tightest(self) -> Ledger:
        """The ledger with the lowest rate."""
        return min(self.each, key=_rate_usd)

    def snapshot(self) -> BudgetSnapshot:
        """Return the amounts that a decision reads, at this moment."""
        hard, room_usd = self.hard, self.room_usd()
        funds, margin_usd = self.funds(), self.margin_usd() if hard else 0.0
        committed_usd = self.each[0].committed_usd
        return BudgetSnapshot(
            funds, funds.rate_usd, hard, room_usd, margin_usd, self.bearable_usd(), self, committed_usd
        )

    def funds(self) -> Funds:
        """Return the funds of the tightest budget, with those of each."""
        each = [ledger.funds() for ledger in self.each]
        return min(each, key=_rate_usd)._replace(each=tuple(each))

    def room_usd(self) -> float:
        """Return the largest worst case that all hard limits still admit; a lease was admitted by all of them."""
        if self.each[0].lease_usd is not None:
            return self.each[0].room_usd()
        return min([ledger.room_usd() for ledger in self.each])

    def reachable_usd(self) -> float:
        """Return the room as it would be if the calls in flight cost nothing."""
        return min([ledger.reachable_usd() for ledger in self.each])

    def margin_usd(self) -> float:
        """Return the amount that hard limits reserve for the calls in flight beyond their expected cost."""
        return max([ledger.margin_usd() for ledger in self.each if ledger.hard])

    def bearable_usd(self) -> float:
        """Return the largest expected cost that every budget covers."""
        return min([ledger.bearable_usd() for ledger in self.each])

    def refusal(self, needed_usd: float) -> BudgetError | None:
        """Return the error of the first budget that is used up and rejects calls; None if there is none."""
        for ledger in self.each:
            funds = ledger.funds()
            if funds.requests <= 0 or funds.left_usd <= 0 or needed_usd > ledger.bearable_usd():
                refused = ledger.refusal(needed_usd)
                if refused is not None:
                    self._note_refusal()
                    return refused
        return None

    def exhausted(self, needed_usd: float) -> BudgetExhausted:
        """Return the error of a budget that calls in flight cannot help; else of the one with the least room."""
        self._note_refusal()
        used_up = [ledger for ledger in self.each if needed_usd > ledger.reachable_usd()]
        return min(used_up or self.each, key=Ledger.room_usd).exhausted(needed_usd)

    def reserve(self, reserved_usd: float, expected_usd: float, counts: bool = True) -> None:
        """Reserve the cost of one call in all budgets, or in none and raise `BudgetExhausted`."""
        if reserved_usd > self.room_usd():
            raise self.exhausted(reserved_usd)
        self.hold(reserved_usd, expected_usd, counts)

    def hold(self, reserved_usd: float, expected_usd: float, counts: bool = True) -> None:
        """Reserve the cost of one admitted call."""
        for ledger in self.each:
            ledger.hold(reserved_usd, expected_usd, counts)

    def spend(self, cost_usd: float, debit_usd: float) -> None:
        """Count a cost without a reservation."""
        for ledger in self.each:
            ledger.spend(cost_usd, debit_usd)

    def amend(self, *, amount_usd: float | None = None, horizon: int | None = None, every: str | None = None) -> None:
        """Change the budget that renews `every` so often; raises `InvalidInput` if `every` is None or names none."""
        found = [ledger for ledger in self.each if every is not None and ledger.budget.renews(every)]
        if not found:
            known = ", ".join(repr(ledger.budget.every or NEVER) for ledger in self.each)
            raise InvalidInput(f"every must name the budget to change, one of {known}, got {every!r}", value=every)
        found[0].amend(amount_usd=amount_usd, horizon=horizon)

    def _note_refusal(self) -> None:
        for ledger in self.each:
            ledger.note_refusal()


_rate_usd = attrgetter("rate_usd")

Account = Ledger | NestedLedger


def open_account(budget: Budget, now_s: float) -> Account:
    """Return the account of a budget that starts at `now_s`.

    Examples
    --------
    >>> account = open_account(Budget(30.0, every="day", within=Budget(500.0, every="month")), now_s=0.0)
    >>> account.reserve(1.0, 1.0)
    >>> [ledger.left_usd for ledger in account.each]
    [29.0, 499.0]
    """
    if budget.within is None:
        return Ledger.opened(budget, now_s)
    return NestedLedger(tuple([Ledger.opened(replace(one, within=None), now_s) for one in budget.each]))


def amended(budget: Budget, amount_usd: float | None, horizon: int | None, every: str | None) -> Budget:
    """Return the terms of a budget whose amount or horizon was changed; raises as an account of it does."""
    account = open_account(budget, now_s=0.0)
    account.amend(amount_usd=amount_usd, horizon=horizon, every=every)
    return account.budget


def check_same_shape(
    scope: str, running: Budget, budget: Budget, running_parent: str | None, parent: str | None
) -> None:
    """Raise `InvalidInput` where a budget differs from the running one in more than amounts and horizons."""
    if parent != running_parent or _shape(budget) != _shape(running):
        raise InvalidInput(
            f"the budget that runs for scope {scope!r} is {running} within {running_parent!r}, got {budget} within "
            f"{parent!r}: end it with `wiserouter budget --end` or router.start(budget, restart=True), or name another "
            f"scope",
            value=budget if parent == running_parent else parent,
        )


def with_present_limits(budget: Budget, former: Budget, running: Budget) -> Budget:
    """Return the terms of a start with the limits that an administrator has given to budgets since a former start."""
    if not len(former.each) == len(budget.each) == len(running.each):
        return budget
    joined: Budget | None = None
    for one, was, present in reversed(list(zip(budget.each, former.each, running.each, strict=True))):
        joined = replace(one, limit=present.limit if one.limit == was.limit else one.limit, within=joined)
    return joined or budget


def check_parent(scope: str, parent: str, enclosing: Sequence[str]) -> None:
    """Raise `InvalidInput` where a scope would enclose itself; `enclosing` are the parent and those that enclose it."""
    if scope in enclosing:
        raise InvalidInput(
            f"a scope must not be within itself, got {' within '.join(map(repr, (scope, *enclosing)))}: name another "
            f"parent, or none",
            value=parent,
        )


def _shape(budget: Budget) -> list[tuple[object, ...]]:
    """Return the terms of each budget that cannot change while it runs."""
    return [(one.every, one.timezone, one.limit, one.rollover, one.on_exhausted) for one in budget.each]


def own_ledgers(accounts: Sequence[tuple[str, Account]]) -> dict[str, list[Ledger]]:
    """Return the ledgers of each scope without those of the scopes that enclose it, which have fewer."""
    owner: dict[int, str] = {}
    for scope, account in sorted(accounts, key=lambda one: len(one[1].each)):
        for ledger in account.each:
            owner.setdefault(id(ledger), scope)
    return {scope: [one for one in account.each if owner[id(one)] == scope] for scope, account in accounts}
