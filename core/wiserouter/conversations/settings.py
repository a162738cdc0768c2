"""The settings of conversations: the unit of decision, the time to live and the budget of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wiserouter.budgets.budget import Limit
from wiserouter.errors import InvalidInput
from wiserouter.validation import check_positive


@dataclass(frozen=True, slots=True)
class Conversations:
    """The unit in which the calls of a conversation are decided, paid for and rewarded.

    Parameters
    ----------
    unit : {"conversation", "run"}, default "conversation"
        "conversation" decides each turn, priced with the prompt caches that are warm: for chats. "run" decides once for
        all calls of a run, with one reward and one expected cost: for agents.
    ttl_s : float, seconds, default 3600
        Time after the last call at which a conversation is forgotten.
    run_budget_usd : float, USD, optional
        The most that one run may spend, with its sub-agents; only with the unit "run".
    run_limit : {"hard", "expected"}, default "hard"
        "hard" reserves the worst case of each call and never exceeds the budget of the run; "expected" stops a run
        whose next call is expected to exceed it.

    Raises
    ------
    InvalidInput
        If a choice is unknown, `ttl_s` or `run_budget_usd` is not a finite number above 0, or `run_budget_usd` is
        given with another unit.

    Examples
    --------
    >>> Conversations(unit="run", run_budget_usd=0.5).run_limit
    'hard'
    """

    unit: Literal["conversation", "run"] = "conversation"
    ttl_s: float = 3600.0
    run_budget_usd: float | None = None
    run_limit: Limit = "hard"

    def __post_init__(self) -> None:
        _check_choice(
            "unit", self.unit, ("conversation", "run"), ": to decide each call alone, leave conversations= out"
        )
        _check_choice("run_limit", self.run_limit, ("hard", "expected"))
        check_positive("ttl_s", self.ttl_s)
        if self.run_budget_usd is None:
            return
        check_positive("run_budget_usd", self.run_budget_usd)
        if self.unit != "run":
            raise InvalidInput(
                f"run_budget_usd needs unit='run', got unit={self.unit!r} and run_budget_usd={self.run_budget_usd!r}: "
                f"leave it out, or choose unit='run'",
                value=self.run_budget_usd,
            )

    @property
    def has_hard_runs(self) -> bool:
        """True if a run has a budget that must never be exceeded, so that each of its calls needs a bound on its cost.

        Examples
        --------
        >>> Conversations("run").has_hard_runs, Conversations("run", run_budget_usd=0.5).has_hard_runs
        (False, True)
        """
        return self.run_budget_usd is not None and self.run_limit == "hard"


def _check_choice(name: str, value: str, choices: tuple[str, ...], remedy: str = "") -> None:
    if value not in choices:
        raise InvalidInput(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}{remedy}", value=value)
