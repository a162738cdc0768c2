"""The budgets of runs: caps that bear the calls of one run beside the budget of the scope, and expire with the run.

A cap changes what a call may cost, not the plan: funds, horizon and rate are those of the scope.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wiserouter.budgets.budget import Budget
from wiserouter.budgets.funds import BudgetSnapshot
from wiserouter.budgets.ledger import Ledger
from wiserouter.budgets.nested import Account
from wiserouter.errors import BudgetError, BudgetExhausted, RunBudgetExhausted

_PREFIX = "budget "


class RunCap(NamedTuple):
    """The budget of one run.

    Attributes
    ----------
    key : str
        Its key, by `name_of_cap`.
    amount_usd : float, USD
        The most that the run may spend.
    hard : bool
        Whether the amount must never be exceeded: then the worst case of each call is reserved. Otherwise the run stops
        where the expected cost of its next call does not fit.
    ttl_s : float, seconds
        Time after the last call at which it is forgotten.
    """

    key: str
    amount_usd: float
    hard: bool
    ttl_s: float


def name_of_cap(run: str) -> str:
    """Return the key of the budget of a run: not the run's own, which is forgotten while parts of it go on."""
    return f"{_PREFIX}{run}"


def run_of(caps: tuple[RunCap, ...]) -> str:
    """Return the key of the run whose budget pays, given the budgets of a call; "" where there is none.

    Examples
    --------
    >>> run_of((RunCap(name_of_cap("42"), 1.0, hard=True, ttl_s=60.0),))
    '42'
    """
    return caps[-1].key.removeprefix(_PREFIX) if caps else ""


@dataclass(slots=True, eq=False)
class CapLedger(Ledger):
    """The running account of the budget of one run; `now_s` is the time of the last reservation or settlement."""

    ttl_s: float = 0.0

    @classmethod
    def of_cap(cls, cap: RunCap, now_s: float) -> CapLedger:
        """Return the account of a run that begins at `now_s`."""
        budget = Budget(cap.amount_usd, horizon=1, limit="hard" if cap.hard else "expected")
        return cls(budget, now_s, now_s, ttl_s=cap.ttl_s)

    @property
    def plannable_usd(self) -> float:
        """The amount less the spent one and the expected cost of the calls in flight."""
        return self.budget.amount_usd - self.spent_usd - self.expected_usd

    def admits(self, reserved_usd: float, expected_usd: float) -> bool:
        """Return True if a call fits: its worst case under a hard limit, and its expected cost otherwise."""
        return reserved_usd <= self.room_usd() and expected_usd <= self.bearable_usd()

    def exhausted(self, needed_usd: float, committed_usd: float = 0.0) -> BudgetExhausted:
        """Return the error with the amounts spent, reserved, left and needed."""
        return RunBudgetExhausted(
            amount_usd=self.budget.amount_usd,
            spent_usd=self.spent_usd,
            reserved_usd=self.reserved_usd,
            held_usd=self.reserved_usd if self.hard else self.expected_usd,
            needed_usd=needed_usd,
            decided=self.decided,
            hard=self.hard,
        )

    def is_over(self, now_s: float) -> bool:
        """Return True if no call is in flight and the last one is longer ago than the time to live."""
        return self.in_flight == 0 and now_s >= self.now_s + self.ttl_s


@dataclass(frozen=True, slots=True)
class CappedAccount:
    """The account of a scope, and the caps of a run that must also bear its calls; names the one that refuses."""

    account: Account
    caps: tuple[CapLedger, ...]

    @property
    def epoch_s(self) -> float:
        """The start of the window of the account."""
        return self.account.epoch_s

    def refusal(self, needed_usd: float) -> BudgetError | None:
        """Return the error of the first cap that does not bear the expected cost of a call, else of the account."""
        for cap in self.caps:
            if needed_usd > cap.bearable_usd():
                return cap.exhausted(needed_usd)
        return self.account.refusal(needed_usd)

    def reachable_usd(self) -> float:
        """Return the room as it would be if the calls in flight cost nothing."""
        return min([one.reachable_usd() for one in (self.account, *self.caps)])

    def exhausted(self, needed_usd: float) -> BudgetExhausted:
        """Return the error of a budget that calls in flight cannot help; else of the one with the least room."""
        each = (self.account, *self.caps)
        used_up = [one for one in each if needed_usd > one.reachable_usd()]
        return min(used_up or each, key=lambda one: one.room_usd()).exhausted(needed_usd)


class OpenCaps:
    """The caps of the runs that are open, up to a number; the one used longest ago is dropped."""

    def __init__(self, max_caps: int) -> None:
        self._max_caps = max_caps
        self._ledgers: OrderedDict[str, CapLedger] = OrderedDict()

    def ledgers(self, caps: Sequence[RunCap], now_s: float) -> tuple[CapLedger, ...]:
        """Return the account of each cap; a new one where it is not open, which `keep` opens."""
        return tuple([self._open(cap, now_s) or CapLedger.of_cap(cap, now_s) for cap in caps])

    def keep(self, caps: Sequence[RunCap], ledgers: Sequence[CapLedger], now_s: float) -> None:
        """Open caps that are new, and note that they are used; drop those that are over or too many."""
        for cap, ledger in zip(caps, ledgers, strict=True):
            ledger.now_s, ledger.ttl_s = now_s, cap.ttl_s
            self._ledgers[cap.key] = ledger
            self._ledgers.move_to_end(cap.key)
        for _ in range(2 * len(caps)):  # at most: the work of a call stays bounded
            key, oldest = next(iter(self._ledgers.items()))
            if oldest.in_flight:
                self._ledgers.move_to_end(key)
            elif oldest.is_over(now_s) or len(self._ledgers) > self._max_caps:
                del self._ledgers[key]

    def in_use(self, ledgers: Sequence[Ledger], now_s: float) -> list[CapLedger]:
        """Return the caps among the ledgers of a call that are not over; a late bill of the others prolongs none."""
        return [one for one in ledgers if isinstance(one, CapLedger) and not one.is_over(now_s)]

    def end(self, key: str) -> None:
        """Forget a cap unless a call is in flight."""
        ledger = self._ledgers.get(key)
        if ledger is not None and not ledger.in_flight:
            del self._ledgers[key]

    def _open(self, cap: RunCap, now_s: float) -> CapLedger | None:
        ledger = self._ledgers.get(cap.key)
        return None if ledger is None or ledger.is_over(now_s) else ledger


def check_caps(caps: Sequence[CapLedger], reserved_usd: float, expected_usd: float) -> None:
    """Raise `RunBudgetExhausted` if a cap does not admit a call."""
    for cap in caps:
        if not cap.admits(reserved_usd, expected_usd):
            raise cap.exhausted(reserved_usd if cap.hard else expected_usd)


def capped_snapshot(account: Account, caps: tuple[CapLedger, ...]) -> BudgetSnapshot:
    """Return the budget of an account at this moment, with the room that the caps of a run leave.

    Examples
    --------
    >>> account = Ledger.opened(Budget(10.0, horizon=100), now_s=0.0)
    >>> capped = capped_snapshot(account, (CapLedger.of_cap(RunCap("run", 0.5, hard=True, ttl_s=60.0), 0.0),))
    >>> capped.rate_usd, capped.hard, round(capped.room_usd, 6), round(capped.bearable_usd, 6)
    (0.1, True, 0.5, 10.0)
    """
    own = account.snapshot()
    return own._replace(
        hard=own.hard or any(cap.hard for cap in caps),
        room_usd=min([own.room_usd, *[cap.room_usd() for cap in caps]]),
        bearable_usd=min([own.bearable_usd, *[cap.bearable_usd() for cap in caps]]),
        account=CappedAccount(account, caps),
    )
