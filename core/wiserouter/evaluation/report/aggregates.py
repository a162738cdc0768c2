"""What the rows of a bench come to: worked out once, for all tables and pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from wiserouter.evaluation.report.comparison import Grid, MethodComparison, compare_methods, grid_of
from wiserouter.evaluation.report.end_to_end import EndToEnd, end_to_end
from wiserouter.evaluation.report.results_file import About, Results

if TYPE_CHECKING:
    import polars as pl


class Aggregates(NamedTuple):
    """What was run, and what was found.

    Attributes
    ----------
    about : About
        What was run.
    grid : Grid
        The rows as arrays.
    standings, spent : Standings, EndToEnd
        How the methods stand.
    """

    about: About
    grid: Grid
    comparison: MethodComparison
    spent: EndToEnd

    @property
    def shown(self) -> pl.DataFrame:
        """Standings at the budgets that tables show."""
        by_budget = self.comparison.by_budget
        return by_budget.filter(by_budget["rate_usd"].is_in(self.about.shown_usd))

    @property
    def queries(self) -> int:
        """Test queries of one seed."""
        return int(self.grid.figures["queries"][0, 0, 0])

    def place(self, method: str) -> int:
        """Return the row of a method in the arrays."""
        return self.grid.methods.index(method)


def aggregate(results: Results) -> Aggregates:
    """Work out what the rows come to."""
    rows, about = results
    comparison = compare_methods(rows, about.methods, about.rivals)
    return Aggregates(about, grid_of(rows, about.methods), comparison, end_to_end(rows, about.methods))
