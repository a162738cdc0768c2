"""The list of report sections, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from wiserouter.errors import InvalidInput
from wiserouter.evaluation.report.aggregates import OURS, Aggregates
from wiserouter.evaluation.report.all_budgets import aiq, latency, regret
from wiserouter.evaluation.report.head_to_head import verdict
from wiserouter.evaluation.report.learning_cost import bill, end_to_end_section
from wiserouter.evaluation.report.quality import frontier, intervals, table1
from wiserouter.evaluation.report.section import ReportSection
from wiserouter.evaluation.report.spending import ADAPTIVE, STATIC, adaptive, utilisation
from wiserouter.evaluation.report.summary import summary


class SectionMaker(NamedTuple):
    """The function that makes a section, and the methods that must have been run."""

    make: Callable[[Aggregates], ReportSection]
    needs: tuple[str, ...] = ()


SECTIONS: dict[str, SectionMaker] = {
    "summary": SectionMaker(summary, (OURS,)),
    "table1": SectionMaker(table1),
    "verdict": SectionMaker(verdict, (OURS,)),
    "frontier": SectionMaker(frontier),
    "intervals": SectionMaker(intervals),
    "utilisation": SectionMaker(utilisation),
    "aiq": SectionMaker(aiq),
    "regret": SectionMaker(regret),
    "adaptive": SectionMaker(adaptive, (ADAPTIVE, STATIC)),
    "end-to-end": SectionMaker(end_to_end_section),
    "bill": SectionMaker(bill, ("zero",)),
    "latency": SectionMaker(latency),
}
"""In the order of the report."""


def make_section(name: str, aggregates: Aggregates) -> ReportSection:
    """Return one section.

    Raises
    ------
    InvalidInput
        If a method that it needs was not run.
    """
    missing = _missing(SECTIONS[name], aggregates)
    if missing:
        raise InvalidInput(f"{name} needs rows of {', '.join(missing)}: run wiserouter bench with them", value=missing)
    return SECTIONS[name].make(aggregates)


def make_sections(aggregates: Aggregates) -> list[ReportSection]:
    """Return all sections that the rows allow."""
    return [entry.make(aggregates) for entry in SECTIONS.values() if not _missing(entry, aggregates)]


def _missing(entry: SectionMaker, aggregates: Aggregates) -> list[str]:
    return [name for name in entry.needs if name not in aggregates.about.methods]
