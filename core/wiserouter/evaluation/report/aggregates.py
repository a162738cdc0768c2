"""The aggregates of the rows of a bench, computed once for all tables and pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from wiserouter.evaluation.report.comparison import Grid, MethodComparison, compare_methods, grid_of
from wiserouter.evaluation.report.end_to_end import EndToEnd, end_to_end
from wiserouter.evaluation.report.results_file import About, Results

if TYPE_CHECKING:
    import polars as pl

OURS = "wr-offline"


class Aggregates(NamedTuple):
    """The description of a bench and its aggregated rows.

    Attributes
    ----------
    about : About
        Table, methods and settings.
    grid : Grid
        The rows as arrays.
    comparison : MethodComparison
        The methods per budget and over all budgets.
    spent : EndToEnd
        Quality under budgets that also pay for learning.
    """

    about: About
    grid: Grid
    comparison: MethodComparison
    spent: EndToEnd

    @property
    def shown(self) -> pl.DataFrame:
        """The comparison at the budgets that tables show."""
        by_budget = self.comparison.by_budget
        return by_budget.filter(by_budget["rate_usd"].is_in(self.about.shown_usd))

    @property
    def queries(self) -> int:
        """Number of test queries of one seed."""
        return int(self.grid.figures["queries"][0, 0, 0])

    @property
    def own(self) -> str:
        """The method that pictures show in colour: WR-Offline, or the first where it was not run."""
        return OURS if OURS in self.grid.methods else self.grid.methods[0]

    def place(self, method: str) -> int:
        """Return the row of a method in the arrays."""
        return self.grid.methods.index(method)


def aggregate(results: Results) -> Aggregates:
    """Return the aggregates of the rows of a bench."""
    rows, about = results
    comparison = compare_methods(rows, about.methods, about.rivals)
    return Aggregates(about, grid_of(rows, about.methods), comparison, end_to_end(rows, about.methods))
