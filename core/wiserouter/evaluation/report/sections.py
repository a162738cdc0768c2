"""Every table and picture that the rows of a bench give, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from wiserouter.errors import InvalidInput
from wiserouter.evaluation.report.aggregates import Aggregates
from wiserouter.evaluation.report.all_budgets import aiq, latency, regret
from wiserouter.evaluation.report.head_to_head import OURS, verdict
from wiserouter.evaluation.report.learning_cost import bill, end_to_end_section
from wiserouter.evaluation.report.quality import frontier, intervals, table1
from wiserouter.evaluation.report.section import ReportSection
from wiserouter.evaluation.report.spending import ADAPTIVE, STATIC, adaptive, utilisation


class Entry(NamedTuple):
    """How an exhibit is made, and which methods must have been run."""

    make: Callable[[Aggregates], ReportSection]
    needs: tuple[str, ...] = ()


SECTIONS: dict[str, Entry] = {
    "table1": Entry(table1),
    "verdict": Entry(verdict, (OURS,)),
    "frontier": Entry(frontier),
    "intervals": Entry(intervals),
    "utilisation": Entry(utilisation),
    "aiq": Entry(aiq),
    "regret": Entry(regret),
    "adaptive": Entry(adaptive, (ADAPTIVE, STATIC)),
    "end-to-end": Entry(end_to_end_section),
    "bill": Entry(bill, ("zero",)),
    "latency": Entry(latency),
}
"""In the order of a report."""


def make_section(name: str, aggregates: Aggregates) -> ReportSection:
    """Return one exhibit.

    Raises
    ------
    InvalidInput
        If a method that it is about was not run.
    """
    missing = _missing(SECTIONS[name], aggregates)
    if missing:
        raise InvalidInput(f"{name} needs rows of {', '.join(missing)}: run wiserouter bench with them", value=missing)
    return SECTIONS[name].make(aggregates)


def make_sections(aggregates: Aggregates) -> list[ReportSection]:
    """Return all exhibits that the rows allow."""
    return [entry.make(aggregates) for entry in SECTIONS.values() if not _missing(entry, aggregates)]


def _missing(entry: Entry, aggregates: Aggregates) -> list[str]:
    return [name for name in entry.needs if name not in aggregates.about.methods]
