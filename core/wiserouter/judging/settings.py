"""The settings of a judge, checked once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wiserouter.errors import InvalidInput
from wiserouter.learning.source_scores import check_source, check_weight
from wiserouter.validation import check_amount, check_count

FIRST_SCORES = 100
"""Scores that are kept back until so many are in: fewer do not show whether a judge prefers cheap models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """What is judged, how, and within which limits; the parameters are those of `WiseRouter.judge_with`.

    Raises
    ------
    InvalidInput
        If a setting is out of range.
    """

    name: str = "default"
    share: float = 0.1
    budget_usd: float | None = None
    every: str | None = None
    cost_usd: float = 0.0
    weight: float = 1.0
    concurrency: int = 4
    max_waiting: int = 256
    attempts: int = 3
    pause_s: float = 0.5
    timeout_s: float = 60.0
    held: int = 256
    first_scores: int = FIRST_SCORES
    incumbent: Callable[..., Any] | None = None
    incumbent_model: str | None = None

    def __post_init__(self) -> None:
        check_source(self.source)
        check_weight(self.weight)
        check_amount("cost_usd", self.cost_usd)
        check_count("concurrency", self.concurrency, least=1)
        check_count("max_waiting", self.max_waiting, least=1)
        check_count("attempts", self.attempts, least=1)
        check_count("held", self.held)
        check_count("first_scores", self.first_scores)
        check_amount("pause_s", self.pause_s)
        if not check_amount("timeout_s", self.timeout_s):
            raise InvalidInput(f"timeout_s must be above 0, got {self.timeout_s!r}", value=self.timeout_s)
        if self.budget_usd is not None:
            check_amount("budget_usd", self.budget_usd)
        elif self.every is not None:
            raise InvalidInput(f"every needs budget_usd, the amount that renews, got every={self.every!r} alone")

    @property
    def source(self) -> str:
        """The source of its scores, which is also the scope of its budget."""
        return f"judge:{self.name}"
