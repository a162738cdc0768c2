"""Pauses of a budget: an administrator stops its calls for a while, or for good."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from wiserouter.errors import BudgetError


class Pause(NamedTuple):
    """Why a budget decides nothing, since when and until when; `ended` where it never does again."""

    reason: str
    since_s: float
    until_s: float | None = None
    ended: bool = False

    def holds(self, now_s: float) -> bool:
        """Return True if nothing is decided at a time."""
        return self.until_s is None or now_s < self.until_s


class BudgetPaused(BudgetError):
    """An administrator has paused or ended the budget.

    Attributes
    ----------
    scope : str
        The scope whose budget it is, or one that encloses it.
    pause : Pause
        The pause.
    renews_at : float or None, seconds since 1970
        The time at which it ends by itself.
    """

    def __init__(self, scope: str, pause: Pause) -> None:
        self.scope, self.pause, self.renews_at = scope, pause, pause.until_s
        super().__init__(f"{self.account}: {self.remedy}")

    @property
    def account(self) -> str:
        """The state of the budget, and the reason that was given."""
        state = "was ended" if self.pause.ended else "is paused"
        reason = f" ({self.pause.reason})" if self.pause.reason else ""
        return f"the budget of scope {self.scope!r} {state} by an administrator{reason}"

    @property
    def remedy(self) -> str:
        """What a caller can do about it."""
        if self.pause.until_s is None:
            return "ask an administrator to start another one" if self.pause.ended else "wait until it is resumed"
        return f"it goes on at {datetime.fromtimestamp(self.pause.until_s, UTC).isoformat(timespec='seconds')}"


def check_runs(pauses: Iterable[tuple[str, Pause]], now_s: float) -> None:
    """Raise `BudgetPaused` for the first of some scopes whose pause holds."""
    for scope, pause in pauses:
        if pause.holds(now_s):
            raise BudgetPaused(scope, pause)
