"""Which warnings are due on a budget: arithmetic on a ledger and its recent past, without a clock or a store."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from wiserouter.budgets.ledger import Ledger
from wiserouter.errors import InvalidInput
from wiserouter.operating.budget_warnings.notice import Kind, Notice
from wiserouter.validation import check_amount

HOUR_S = 3_600.0
LEAST_S = 600.0
"""The shortest past from which a forecast is made."""

MARGIN = 1.1
"""A forecast warns where it exceeds the amount by this factor."""

SAMPLE_S = 60.0

_LAST_YEAR_S = datetime(9999, 1, 1, tzinfo=UTC).timestamp()


@dataclass(frozen=True, slots=True)
class WarningRules:
    """When to warn.

    Attributes
    ----------
    thresholds : tuple of float
        Shares of the amount that is spent, below 10: a percentage such as 80 would never be reached.
    exhaustion : bool
        Whether to warn where the forecast says that the amount ends before the window, or before its requests.
    pace : float or None
        The multiple of the planned spend per hour beyond which to warn; more than 1. None for no such warning.
    """

    thresholds: tuple[float, ...] = (0.5, 0.8, 0.95)
    exhaustion: bool = True
    pace: float | None = None

    def __post_init__(self) -> None:
        for share in self.thresholds:
            if check_amount("thresholds", share) <= 0.0:
                raise InvalidInput(f"thresholds must be shares above 0, such as 0.8, got {share!r}", value=share)
            if share >= 10.0:
                raise InvalidInput(
                    f"thresholds must be shares of the amount below 10, such as 0.8 for 80 %, got {share!r}: "
                    "divide a percentage by 100",
                    value=share,
                )
        if self.pace is not None and check_amount("pace", self.pace) <= 1.0:
            raise InvalidInput(f"pace must be a multiple above 1, such as 3, got {self.pace!r}", value=self.pace)


class SpendSample(NamedTuple):
    """A budget at one time: its spend, and the number of its decisions."""

    at_s: float
    spent_usd: float
    decided: int


@dataclass(slots=True)
class RecentSpend:
    """The last hour of one budget, in samples a minute apart.

    Attributes
    ----------
    began_at : float
        When its window began: a new window has no past.
    samples : deque of SpendSample
        The oldest one first.
    """

    began_at: float = 0.0
    samples: deque[SpendSample] = field(default_factory=deque)

    def add(self, ledger: Ledger, at_s: float) -> SpendSample:
        """Add the present, forget what is older than an hour, and return the oldest sample."""
        now = SpendSample(at_s, ledger.spent_usd, ledger.decided)
        if ledger.opened_at != self.began_at:
            self.began_at = ledger.opened_at
            self.samples.clear()
        while self.samples and self.samples[-1].at_s > at_s:  # the clock was set back
            self.samples.pop()
        if not self.samples or at_s - self.samples[-1].at_s >= SAMPLE_S:
            self.samples.append(now)
        while len(self.samples) > 1 and at_s - self.samples[1].at_s >= HOUR_S:
            self.samples.popleft()
        return self.samples[0]


def due(
    rules: WarningRules, ledger: Ledger, past: RecentSpend, at_s: float, group: str, scope: str
) -> Iterator[Notice]:
    """Return the warnings that a budget calls for, the most severe first; of shares of the amount, each one reached."""
    first = past.add(ledger, at_s)
    amount_usd = ledger.budget.amount_usd + ledger.carried_usd
    if amount_usd <= 0.0:
        return

    def notice(kind: Kind, level: float, **figures: Any) -> Notice:
        return Notice(
            kind=kind,
            group=group,
            scope=scope,
            window=ledger.budget.every or "never",
            level=level,
            began_at=ledger.opened_at,
            at_s=at_s,
            amount_usd=ledger.budget.amount_usd,
            carried_usd=ledger.carried_usd,
            spent_usd=ledger.spent_usd,
            left_usd=ledger.left_usd,
            renews_at=ledger.renews_at,
            **figures,
        )

    for share in sorted(rules.thresholds, reverse=True):
        if ledger.spent_usd >= share * amount_usd:
            yield notice("budget_threshold", share)
    over_s = at_s - first.at_s
    if over_s < LEAST_S:
        return
    spent_usd = ledger.spent_usd - first.spent_usd
    if rules.exhaustion and _ends_early(ledger, spent_usd, ledger.decided - first.decided):
        yield notice("budget_exhaustion", 1.0, ends_at=_end(ledger, spent_usd / over_s, at_s))
    planned_usd = _planned_per_hour(ledger, amount_usd)
    pace_usd = spent_usd / over_s * HOUR_S
    if rules.pace is not None and planned_usd is not None and pace_usd > rules.pace * planned_usd:
        yield notice("budget_pace", rules.pace, pace_usd=pace_usd, planned_usd=planned_usd)


def _ends_early(ledger: Ledger, spent_usd: float, decided: int) -> bool:
    """Return True if the requests to come, at the cost of the recent ones, cost more than is left."""
    if decided <= 0:
        return False
    left_usd = ledger.budget.amount_usd + ledger.carried_usd - ledger.spent_usd
    return left_usd >= 0.0 and max(ledger.horizon_left, 0) * spent_usd / decided > MARGIN * left_usd


def _end(ledger: Ledger, usd_per_s: float, at_s: float) -> float | None:
    """Return when the amount ends at a pace; None where that is after the renewal, which the forecast knows better.

    Of a budget that does not renew, it is None also where that is beyond the calendar.
    """
    left_usd = ledger.budget.amount_usd + ledger.carried_usd - ledger.spent_usd
    end_s = at_s + left_usd / usd_per_s if usd_per_s > 0.0 else float("inf")
    latest_s = _LAST_YEAR_S if ledger.renews_at is None else ledger.renews_at
    return end_s if end_s < latest_s else None


def _planned_per_hour(ledger: Ledger, amount_usd: float) -> float | None:
    """Return the amount per hour of the window; None where the budget does not renew."""
    if ledger.window is None:
        return None
    return amount_usd / (ledger.window.end_s - max(ledger.window.start_s, ledger.opened_at)) * HOUR_S
