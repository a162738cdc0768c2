"""The terms of a budget: amount, horizon, kind of limit, renewal and rollover."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wiserouter.budgets.periods import Window, check_timezone, parse_period, window_at, windows_between
from wiserouter.errors import InvalidInput
from wiserouter.validation import check_amount, check_count

Limit = Literal["expected", "hard"]
OnExhausted = Literal["reject", "cheapest"]
Debit = Literal["actual", "paper"]

NEVER = "never"
"""The value of `every` that names a budget that does not renew."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The amount that a workload may spend, and the number of requests or the period that it is for.

    Parameters
    ----------
    amount_usd : float, USD
        The whole budget, or that of one window where it renews.
    horizon : int, optional
        Number of requests that it is for; required where the budget does not renew. Where it does, the number of
        requests expected in a window, used until there is traffic to forecast from.
    limit : {"expected", "hard"}, default "expected"
        "expected" plans with mean costs, settles true costs and stops when the amount left does not cover a mean call:
        only calls in flight that cost more than their mean can exceed it. "hard" reserves the worst case of each call
        and never exceeds the amount.
    on_exhausted : {"reject", "cheapest"}, default "reject"
        Behaviour of `decide` when money or horizon is used up: raise an error, or continue with the cheapest model.
        Under a hard limit a call that does not fit is refused in any case.
    every : str, optional
        How often the budget renews: "day", "week", "month", or a number and s, m, h, d, w or mo, such as "30d".
    timezone : str, default "UTC"
        The time zone in which days, weeks and months begin, and whose hours and weekdays the forecast follows.
    rollover : bool, default False
        Whether the amount left at the end of a window is added to the next one, up to one further amount, and an
        overspend is deducted there.
    within : Budget, optional
        Another budget that must also bear each call, such as one per month around one per day. The tightest of them
        rules; each has its own limit.

    Raises
    ------
    InvalidInput
        If the amount is not a finite number of at least 0, the horizon is not a whole number of at least 1, there is
        neither horizon nor `every`, or two budgets renew equally often.

    Examples
    --------
    >>> Budget(amount_usd=50.0, horizon=10_000).rate_usd
    0.005
    >>> Budget(amount_usd=500.0, every="month").window(0.0).end_s / 86_400
    31.0
    >>> [one.every for one in Budget(30.0, every="day", within=Budget(500.0, every="month")).each]
    ['day', 'month']
    """

    amount_usd: float
    horizon: int | None = None
    limit: Limit = "expected"
    on_exhausted: OnExhausted = "reject"
    every: str | None = None
    timezone: str = "UTC"
    rollover: bool = False
    within: Budget | None = None

    def __post_init__(self) -> None:
        check_amount("amount_usd", self.amount_usd)
        if self.horizon is not None:
            check_count("horizon", self.horizon, least=1)
        if self.every is not None:
            parse_period(self.every, self.timezone)
        elif self.horizon is None:
            raise InvalidInput("a budget needs horizon (how many requests it is for) or every (how often it renews)")
        elif self.timezone != "UTC":  # for which no database of zones need be there
            check_timezone(self.timezone)
        _check_choice("limit", self.limit, ("expected", "hard"))
        _check_choice("on_exhausted", self.on_exhausted, ("reject", "cheapest"))
        if self.rollover and self.every is None:
            raise InvalidInput("rollover needs every: a budget that does not renew has nothing to roll over to")
        if not isinstance(self.within, Budget | None):
            raise InvalidInput(f"within must be a Budget, got {self.within!r}: nest several", value=self.within)
        if self.within is not None and any(one.renews(self.every) for one in self.within.each):
            raise InvalidInput(f"budgets within one another must renew differently, got every={self.every!r} twice")

    @property
    def each(self) -> tuple[Budget, ...]:
        """The budget itself and those that enclose it."""
        return (self,) if self.within is None else (self, *self.within.each)

    @property
    def hard(self) -> bool:
        """Whether the limit of this budget or of one that encloses it is hard."""
        return self.limit == "hard" or (self.within is not None and self.within.hard)

    @property
    def rate_usd(self) -> float | None:
        """USD per request; None without a horizon."""
        return None if self.horizon is None else self.amount_usd / self.horizon

    def window(self, now_s: float) -> Window | None:
        """Return the window that contains the instant `now_s`; None where the budget does not renew."""
        return None if self.every is None else window_at(parse_period(self.every, self.timezone), now_s)

    def windows_between(self, earlier: Window, later: Window) -> int:
        """Return the number of windows between two windows of this budget."""
        period = parse_period(self.every or "", self.timezone)
        return windows_between(period, earlier.end_s, later.start_s)

    def renews(self, every: str | None) -> bool:
        """Return True if this budget renews `every` so often; None and "never" stand for a budget that does not."""
        mine, theirs = (None if one in (None, NEVER) else parse_period(one).length for one in (self.every, every))
        return mine == theirs


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidInput(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}", value=value)
