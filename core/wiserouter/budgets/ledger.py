"""The ledger of one budget: the amounts spent, reserved and left, and the spending rate that follows from them.

The rate is the paper's b / tau (Algorithms 1 and 2): budget left over requests left. Departure: a call debits its true
cost when it is charged and its expected cost while it is in flight; the paper debits the estimated mean, which the
policies offer as `accounting="paper"`. A hard limit also reserves the worst case of every call in flight.

The ledger is arithmetic only: the time is an argument, and there is no lock, no input and no output.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil, floor

from wiserouter.budgets.arrivals import Arrivals
from wiserouter.budgets.budget import NEVER, Budget
from wiserouter.budgets.funds import BudgetSnapshot, Funds
from wiserouter.budgets.increases import Increase, amount_usd_at, still_running
from wiserouter.budgets.periods import Window, requests_left
from wiserouter.budgets.rollover import carried_usd, requests_per_window
from wiserouter.errors import BudgetError, BudgetExhausted, HorizonExhausted, InvalidInput

INFINITE = float("inf")

ROUNDING = 1e-12
"""Tolerance for rounding errors of sums, as a share of the amount, within which a reservation still fits."""


@dataclass(slots=True, eq=False)
class Ledger:
    """The running account of one budget.

    Attributes
    ----------
    budget : Budget
        The terms.
    opened_at, now_s : float, seconds
        The time of its opening, and the latest time that it was read at.
    window : Window or None
        Its window, where the budget renews.
    expected_requests : float or None
        Requests expected in a whole window.
    arrivals : Arrivals or None
        The record from which the horizon is forecast where the budget renews; without one, the rate is extrapolated.
    carried_usd : float, USD
        The amount left by the window before, where the budget rolls over; negative after an overspend.
    skipped : int
        Number of windows without a request between that one and this one.
    next_window : Ledger or None
        The account of the next window, where the budget rolls over and this window has ended.
    left_windows : tuple of Ledger
        The accounts that were left: of the window before, and of later ones where the clock was set back.
    regular_usd : float or None, USD
        The amount of later windows, where it is another one; `increases` are added to it.
    hard : bool
        True if the amount must never be exceeded.
    spent_usd : float, USD
        True cost of all charged calls, and the cost at which presumed ones count.
    presumed_usd : float, USD
        The part of it that is presumed: calls and leases whose true cost is not known.
    debited_usd : float, USD
        The amount that planning counts as spent; differs from `spent_usd` only under the paper's accounting.
    reserved_usd, expected_usd : float, USD
        Worst-case and expected cost of the calls in flight.
    leased_usd : float, USD
        The amount leased to workers for future calls, where several share the budget.
    lease_usd : float or None, USD
        The most that this worker may reserve now, where it works on a lease.
    committed_usd : float, USD
        The amount that open runs are expected to spend beyond their calls in flight.
    decided, in_flight, charged, released, presumed : int
        Number of decisions, in total and by state. A call that continues a run is in its state, not in the total.
    continuing : int
        Number of the calls in flight that continue a run.
    """

    budget: Budget
    opened_at: float = 0.0
    now_s: float = 0.0
    window: Window | None = None
    expected_requests: float | None = None
    spent_usd: float = 0.0
    debited_usd: float = 0.0
    reserved_usd: float = 0.0
    expected_usd: float = 0.0
    decided: int = 0
    in_flight: int = 0
    charged: int = 0
    released: int = 0
    presumed: int = 0
    leased_usd: float = 0.0
    presumed_usd: float = 0.0
    lease_usd: float | None = None
    committed_usd: float = 0.0
    continuing: int = 0
    arrivals: Arrivals | None = None
    carried_usd: float = 0.0
    skipped: int = 0
    next_window: Ledger | None = None
    left_windows: tuple[Ledger, ...] = field(default=(), repr=False)
    regular_usd: float | None = None
    increases: tuple[Increase, ...] = ()
    hard: bool = field(init=False)
    each: tuple[Ledger, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.hard, self.each = self.budget.limit == "hard", (self,)

    @classmethod
    def opened(cls, budget: Budget, now_s: float) -> Ledger:
        """Return the account of a budget that starts at `now_s`."""
        window = budget.window(now_s)
        ledger = cls(budget, now_s, now_s, window, budget.horizon)
        if window is not None:
            ledger.arrivals = Arrivals(now_s, window.end_s - window.start_s, budget.timezone)
            ledger.arrivals.expect(budget.horizon, now_s)
        return ledger

    def at(self, now_s: float) -> Ledger:
        """Return the account at `now_s`: this one, or that of the present window where that is another one."""
        if self.window is None or self.window.is_open(now_s):
            if now_s < self.now_s and self.arrivals is not None:
                self.arrivals = self.arrivals.at(now_s)
            self.now_s = now_s
            return self
        self.now_s = min(max(now_s, self.now_s), self.window.end_s)
        return self._renewed(self.window, now_s)

    @property
    def epoch_s(self) -> float:
        """The start of its window, on which all workers agree; 0 where it does not renew."""
        return 0.0 if self.window is None else self.window.start_s

    @property
    def left_usd(self) -> float:
        """The amount that may still be reserved: amount and carry-over less spent, reserved and leased."""
        return self.budget.amount_usd + self.carried_usd - self.spent_usd - self.reserved_usd - self.leased_usd

    @property
    def plannable_usd(self) -> float:
        """The paper's b: amount and carry-over less debits, the expected cost of calls in flight and of open runs."""
        left_usd = self.budget.amount_usd + self.carried_usd - self.debited_usd
        return left_usd - self.expected_usd - self.committed_usd

    @property
    def tightest(self) -> Ledger:
        """The tightest ledger of the account: this one."""
        return self

    @property
    def horizon_left(self) -> int:
        """The paper's tau: requests still to come; forecast from the traffic where the budget renews."""
        if self.window is None:
            return (self.budget.horizon or 0) - self.decided
        start, end = self.window
        if self.arrivals is not None:
            return max(1, round(self.arrivals.requests(self.now_s, end)))
        elapsed_s = self.now_s - max(start, self.opened_at)
        return requests_left(self.decided, elapsed_s, end - self.now_s, end - start, self.expected_requests)

    @property
    def horizon(self) -> int:
        """The total number of requests: planned, or forecast where the budget renews."""
        return (self.budget.horizon or 0) if self.window is None else self.decided + self.horizon_left

    @property
    def horizon_interval(self) -> tuple[int, int] | None:
        """The 80 % interval of the horizon; None where it is planned or there is no record of arrivals."""
        if self.window is None or self.arrivals is None:
            return None
        ahead = self.arrivals.forecast(self.now_s, self.window.end_s)
        return self.decided + floor(ahead.low), self.decided + ceil(ahead.high)

    @property
    def renews_at(self) -> float | None:
        """The time of the next renewal, in seconds since 1970; None where there is none."""
        return None if self.window is None else self.window.end_s

    @property
    def rate_usd(self) -> float:
        """Budget left per request left, b / tau; 0 when either is used up."""
        return self.funds().rate_usd

    def snapshot(self) -> BudgetSnapshot:
        """Return the amounts that a decision reads, at this moment."""
        funds, hard = self.funds(), self.hard
        left_usd, requests, _, _, _ = funds  # and the rate is Funds.rate_usd, without a call
        rate_usd = left_usd / requests if requests > 0 and left_usd > 0.0 else 0.0
        room_usd = self.room_usd() if hard or self.lease_usd is not None else INFINITE
        margin_usd, bearable_usd = self.margin_usd() if hard else 0.0, self.bearable_usd()
        return tuple.__new__(  # in half the time of a call of the class
            BudgetSnapshot, (funds, rate_usd, hard, room_usd, margin_usd, bearable_usd, self, self.committed_usd)
        )

    def funds(self) -> Funds:
        """Return the funds with which a policy plans."""
        requests = self.horizon_left
        share = requests / total if (total := self.decided + requests) > 1 else float(requests)
        return tuple.__new__(Funds, (self.plannable_usd, requests, (), 0.0, share))  # in half the time of a call

    def room_usd(self) -> float:
        """Return the largest worst case that a hard limit, or a lease, still admits; infinite under neither."""
        rounding_usd = ROUNDING * self.budget.amount_usd
        if self.lease_usd is not None:
            return self.lease_usd + rounding_usd
        return self.left_usd + rounding_usd if self.hard else INFINITE

    def reachable_usd(self) -> float:
        """Return the room as it would be if the calls in flight cost nothing; a lease regains nothing from them."""
        return self.room_usd() + (0.0 if self.lease_usd is not None else self.reserved_usd)

    def margin_usd(self) -> float:
        """Return the amount that a hard limit reserves for the calls in flight beyond their expected cost."""
        return self.reserved_usd - self.expected_usd

    def bearable_usd(self) -> float:
        """Return the largest expected cost that the budget left covers; infinite under a hard limit: `room_usd`."""
        return INFINITE if self.hard else self.plannable_usd + ROUNDING * self.budget.amount_usd

    def refusal(self, needed_usd: float) -> BudgetError | None:
        """Return the error for a used-up horizon or amount; None where the cheapest model continues."""
        if self.budget.on_exhausted == "cheapest":
            return None
        if self.horizon_left <= 0:
            return HorizonExhausted(self.horizon, self.left_usd)
        return self.exhausted(needed_usd, self.committed_usd)

    def exhausted(self, needed_usd: float, committed_usd: float = 0.0) -> BudgetExhausted:
        """Return the error with the amounts spent, reserved, committed, left and needed, and count the refusal."""
        self.note_refusal()
        return BudgetExhausted(
            amount_usd=self.budget.amount_usd,
            carried_usd=self.carried_usd,
            spent_usd=self.spent_usd,
            reserved_usd=self.reserved_usd,
            held_usd=self.reserved_usd if self.hard else self.expected_usd,
            leased_usd=self.leased_usd if self.hard else 0.0,
            committed_usd=committed_usd,
            needed_usd=needed_usd,
            decided=self.decided,
            horizon=self.horizon,
            every=self.budget.every,
            renews_at=self.renews_at,
            hard=self.hard,
        )

    def note_refusal(self) -> None:
        """Record that a request was refused: arrivals are unobserved until the next admitted one."""
        if self.arrivals is not None:
            self.arrivals.note_refusal(self.now_s)

    def reserve(self, reserved_usd: float, expected_usd: float, counts: bool = True) -> None:
        """Reserve the cost of one call, or raise `BudgetExhausted`."""
        if reserved_usd > self.room_usd():
            raise self.exhausted(reserved_usd)
        self.hold(reserved_usd, expected_usd, counts)

    def hold(self, reserved_usd: float, expected_usd: float, counts: bool = True) -> None:
        """Reserve the cost of one admitted call, which uses a request of the horizon where it `counts`."""
        self.reserved_usd += reserved_usd
        self.expected_usd += expected_usd
        self.in_flight += 1
        if not counts:
            self.continuing += 1
            return
        self.decided += 1
        if self.arrivals is not None:
            self.arrivals.add(self.now_s)

    def settle(
        self, reserved_usd: float, expected_usd: float, cost_usd: float, debit_usd: float, counts: bool = True
    ) -> None:
        """Turn a reservation into a charge of `cost_usd`, of which planning debits `debit_usd`."""
        self.charged += 1
        self.spent_usd += cost_usd
        self.debited_usd += debit_usd
        self._return(reserved_usd, expected_usd, counts)

    def spend(self, cost_usd: float, debit_usd: float) -> None:
        """Count a cost that has no reservation."""
        self.spent_usd += cost_usd
        self.debited_usd += debit_usd
        if self.next_window is not None:
            self._carry_over()

    def release(self, reserved_usd: float, expected_usd: float, counts: bool = True) -> None:
        """Return the reservation of a call that failed; it no longer uses up the horizon."""
        self._return(reserved_usd, expected_usd, counts)
        self._count(-int(counts))
        self.released += 1

    def presume(
        self, reserved_usd: float, expected_usd: float, cost_usd: float, debit_usd: float, counts: bool = True
    ) -> None:
        """Count `cost_usd` as spent on a call whose outcome is unknown; it uses up the horizon."""
        self._return(reserved_usd, expected_usd, counts)
        self.presumed += 1
        self.presumed_usd += cost_usd
        self.spend(cost_usd, debit_usd)

    def charge_presumed(
        self, presumed_usd: float, presumed_debit_usd: float, *, cost_usd: float, debit_usd: float
    ) -> None:
        """Replace the presumed cost of a call by its true one."""
        self._end_presumption(presumed_usd)
        self.charged += 1
        self.spend(cost_usd - presumed_usd, debit_usd - presumed_debit_usd)

    def release_presumed(self, presumed_usd: float, presumed_debit_usd: float, counts: bool = True) -> None:
        """Give back the presumed cost of a call that cost nothing; it no longer uses up the horizon."""
        self._end_presumption(presumed_usd)
        self._count(-int(counts))
        self.released += 1
        self.spend(-presumed_usd, -presumed_debit_usd)

    def charge_released(self, cost_usd: float, debit_usd: float, counts: bool = True) -> None:
        """Charge a call that was released."""
        self.released -= 1
        self._count(int(counts))
        self.charged += 1
        self.spend(cost_usd, debit_usd)

    def amend(self, *, amount_usd: float | None = None, horizon: int | None = None, every: str | None = None) -> None:
        """Change the amount or the horizon, both counted from the start of the budget.

        Raises
        ------
        InvalidInput
            If `every` is given and the budget does not renew so often.
        """
        if every is not None and not self.budget.renews(every):
            raise InvalidInput(f"every must be {self.budget.every or NEVER!r} or left out, got {every!r}", value=every)
        self.budget = replace(
            self.budget,
            amount_usd=self.budget.amount_usd if amount_usd is None else amount_usd,
            horizon=self.budget.horizon if horizon is None else horizon,
        )
        if amount_usd is not None:
            self.regular_usd, self.increases = None, ()
        if horizon is not None:
            self.expected_requests = horizon
            if self.arrivals is not None:
                self.arrivals.expect(horizon, self.now_s)

    def take_terms(self, terms: Budget, amount_usd: float, increases: tuple[Increase, ...]) -> None:
        """Take new terms, of which this window has another amount than later ones."""
        self.budget, self.hard = replace(terms, within=None, amount_usd=amount_usd), terms.limit == "hard"
        self.regular_usd = None if terms.amount_usd == amount_usd else terms.amount_usd
        self.increases = increases

    def revise(self, regular_usd: float, increases: tuple[Increase, ...], at_s: float) -> None:
        """Take the amount of the window that begins at a time: the regular one with what is added to it."""
        amount_usd = amount_usd_at(regular_usd, increases, at_s)
        self.budget = replace(self.budget, amount_usd=amount_usd)
        self.increases = still_running(increases, at_s)
        self.regular_usd = regular_usd if self.increases else None

    def _renewed(self, former: Window, now_s: float) -> Ledger:
        """Return the account of the window that contains `now_s`; an earlier one has nothing carried over."""
        window, left = self.budget.window(now_s), self.left_windows
        renewed = known = next((one for one in left if one.window == window), None)
        if renewed is None:
            seen_s = self.now_s - max(former.start_s, self.opened_at)
            expected = requests_per_window(former, seen_s, self.decided) if self.decided else self.expected_requests
            renewed = Ledger(self.budget, now_s, expected_requests=expected, arrivals=self.arrivals)
        renewed.now_s, renewed.window, renewed.committed_usd = now_s, window, self.committed_usd
        renewed.budget, renewed.hard, renewed.regular_usd, renewed.increases = self.budget, self.hard, None, ()
        later = [one for one in left if one is not known and now_s < one.epoch_s]
        renewed.left_windows, self.left_windows = (self, *later), ()
        renewed.arrivals = None if renewed.arrivals is None else renewed.arrivals.at(now_s)
        if self.regular_usd is not None and window is not None:
            renewed.revise(self.regular_usd, self.increases, window.start_s)
        if self.budget.rollover and known is None and window is not None and former.end_s <= window.start_s:
            renewed.skipped = self.budget.windows_between(former, window)
            self.next_window = renewed
            self._carry_over()
        return renewed

    def _carry_over(self) -> None:
        """Pass on to the later windows what this one leaves; repeated when a call of this window is billed late."""
        ledger, later = self, self.next_window
        while later is not None:
            later.carried_usd = carried_usd(ledger.left_usd, later.skipped, later.budget.amount_usd)
            ledger, later = later, later.next_window

    def _end_presumption(self, presumed_usd: float) -> None:
        self.presumed, self.presumed_usd = self.presumed - 1, self.presumed_usd - presumed_usd

    def _count(self, n: int) -> None:
        self.decided += n
        if n and self.arrivals is not None:
            self.arrivals.add(self.now_s, n)

    def _return(self, reserved_usd: float, expected_usd: float, counts: bool) -> None:
        self.in_flight, self.continuing = self.in_flight - 1, self.continuing - int(not counts)
        empty = self.in_flight == 0  # leaves no rounding error
        self.reserved_usd = 0.0 if empty else self.reserved_usd - reserved_usd
        self.expected_usd = 0.0 if empty else self.expected_usd - expected_usd
        if self.next_window is not None:
            self._carry_over()
