"""A warning on one budget: its figures, and one line of text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal

Kind = Literal["budget_threshold", "budget_exhaustion", "budget_pace"]

MOST_CHARS = 100
"""Most characters of a name in the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A warning on one budget.

    Attributes
    ----------
    kind : {"budget_threshold", "budget_exhaustion", "budget_pace"}
        A share of the amount is spent, the forecast says that the amount ends early, or more is spent in an hour than
        is planned.
    group, scope, window : str
        The router, the scope, and the period after which the budget renews ("never" for none).
    level : float
        The share that is reached, or the multiple of the planned spend per hour; 1 for a forecast.
    began_at, at_s : float, seconds since 1970
        When the window began, and when the warning was made.
    amount_usd, carried_usd, spent_usd, left_usd : float, USD
        The amount, what was carried over from the window before, the charges, and what is left to reserve.
    renews_at, ends_at : float or None, seconds since 1970
        When the budget renews, and when the amount ends by the forecast.
    pace_usd, planned_usd : float or None, USD per hour
        What was spent in the last hour, and what is planned.
    """

    kind: Kind
    group: str
    scope: str
    window: str
    level: float
    began_at: float
    at_s: float
    amount_usd: float
    carried_usd: float
    spent_usd: float
    left_usd: float
    renews_at: float | None = None
    ends_at: float | None = None
    pace_usd: float | None = None
    planned_usd: float | None = None

    @property
    def name(self) -> str:
        """The name of what happens again in each window: the budget, its amount, and what is warned of."""
        return "|".join([self.scope, self.window, f"{self.amount_usd:.9g}", self.kind, f"{self.level:g}"])

    @property
    def id(self) -> str:
        """The id of the warning, the same from all workers."""
        return sha256(f"{self.group}|{self.name}|{self.began_at!r}".encode(errors="replace")).hexdigest()[:32]

    @property
    def text(self) -> str:
        """The warning as one line, its names printable and short."""
        budget = f"The budget of {printable(self.group)}, scope {printable(self.scope)} ({printable(self.window)}),"
        spent = f"{usd(self.spent_usd)} of {usd(self.amount_usd + self.carried_usd)} spent"
        renewal = "" if self.renews_at is None else f", renews {utc(self.renews_at)}"
        if self.kind == "budget_threshold":
            return f"{budget} has reached {self.level:.0%}: {spent}{renewal}."
        if self.kind == "budget_exhaustion":
            end = "before its requests are served" if self.ends_at is None else f"about {utc(self.ends_at)}"
            return f"{budget} ends {end} by the forecast: {spent}{renewal}."
        pace = f"{usd(self.pace_usd or 0.0)} in the last hour, {usd(self.planned_usd or 0.0)} planned"
        return f"{budget} is spent at over {self.level:g} times the planned pace: {pace}; {spent}{renewal}."

    def as_dict(self) -> dict[str, Any]:
        """Return id, text and fields, for JSON; times in UTC."""
        fields = asdict(self)
        for name in ("began_at", "renews_at", "ends_at"):
            fields[name] = None if fields[name] is None else utc(fields[name])
        fields["at"] = utc(fields.pop("at_s"))
        return {"id": self.id, "text": self.text, **fields}


def printable(name: str) -> str:
    r"""Return a name of a client without control characters, shortened.

    Examples
    --------
    >>> printable("team\r\n\x1b[31mred")
    'team [31mred'
    """
    plain = " ".join("".join([char if char.isprintable() else " " for char in name]).split())
    return plain if len(plain) <= MOST_CHARS else f"{plain[: MOST_CHARS - 3]}..."


def usd(amount: float) -> str:
    """Return an amount with cents, or with three digits where it is less than a dollar.

    Examples
    --------
    >>> usd(12.3456), usd(0.012345)
    ('$12.35', '$0.0123')
    """
    return f"${amount:,.2f}" if abs(amount) >= 1.0 or amount == 0.0 else f"${amount:.3g}"


def utc(at_s: float) -> str:
    """Return a time in UTC.

    Examples
    --------
    >>> utc(0.0)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
