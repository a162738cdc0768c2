"""What was spent on each kind of question, by day."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from wiserouter import WiseRouter

DAY_S = 86_400

MAX_DAYS = 62
"""Most days that are shown."""

OTHER = "other"
"""The kind of the calls that were decided in other contexts than the present ones, or whose kind is not known."""


def spend_by_kind(router: WiseRouter, n_days: int, scope: str | None) -> list[dict[str, Any]]:
    """Return the spend of the latest days by the context of the question.

    A call of a context counts at the mean cost of its model on that day, as the sums per day have it.

    Raises
    ------
    StoreUnavailable, StoreDamaged
        If the store cannot be read.
    """
    today = int(router.now() // DAY_S)
    cells, figures = router.sums_of_days(range(today - n_days + 1, today + 1), scope)
    return [{"date": _date(day), "kinds": _kinds(of_day, figures.contexts)} for day, of_day in sorted(cells.items())]


def _kinds(cells: Mapping[str, float], contexts: str) -> dict[str, float]:
    """Return the spend of one day by context; its sum is all that the calls of the day were charged."""
    spent_usd, compared_usd = defaultdict[str, float](float), 0.0
    for cell, calls in cells.items():
        field, _, model = cell.partition("|")
        name, _, context = field.rpartition(".")
        if name and cells.get(f"compared|{model}"):
            cost_usd = calls * cells.get(f"compared_usd|{model}", 0.0) / cells[f"compared|{model}"]
            spent_usd[context if name == contexts else OTHER] += cost_usd
            compared_usd += cost_usd
    rest_usd = sum(cost for cell, cost in cells.items() if cell.startswith("cost_usd|")) - compared_usd
    if rest_usd > 1e-9:
        spent_usd[OTHER] += rest_usd
    return dict(spent_usd)


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_S, UTC).date().isoformat()
