"""The sections of the report on a suite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from wiserouter.evaluation.curves import OWN
from wiserouter.evaluation.plots import label_axes, new_figure
from wiserouter.evaluation.report.section import ReportSection, figure, with_error
from wiserouter.evaluation.report.suite_figures import SuiteFigures

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

SUMMARY = """
Over all tables and budgets, methods in the order of their mean rank. held: budgets at which a method is the best of its
group or within one standard error of it. Regret: quality below that of the group's best method at a budget, mean over
the budgets of a table, then over tables; worst: on the table where it is largest. Spend: share of the budget, mean and
range over tables and budgets; least: of the budgets that `wr-offline` spends. Kept: budgets that no run exceeds. Below
single models: the most by which a mixture of single models, chosen by their means in the test half, is better at the
same spend. Methods without a rank do not compete here."""
TABLES = """
Budgets of each table at which a method is the best of its group or within one standard error of it; in brackets its
regret: quality below that of the best method at a budget, mean over budgets. **Bold**: regret of at most 0.002."""
BUDGETS = """
`{ours}` against the best other method of its group at every budget; lead: its quality minus the other's, ± the standard
error of the paired difference over seeds. Runs that spend more than the budget (†: some do) are judged at equal spend.
**Bold**: ahead, or behind by at most one standard error."""
BOUNDS = """
Mean quality over the budgets of each table. Bounds know the test half: the linear program over single queries, the one
over contexts, the best mixture of single models and the best single model, which is judged at equal spend. The other
rows are the best method of each group on that table."""
TIMES = """
Processor time of one thread, means over tables, seeds and budgets: fit (once per split), tune (once per budget), serve
(all test queries of a run, learning included), and one decision: median and 99th percentile."""

SMALL_REGRET = 0.002

Row = dict[str, Any]


def suite_sections(groups: Sequence[SuiteFigures], bounds: Sequence[str]) -> list[ReportSection]:
    """Return all sections: for each group over all tables, per table and per budget; then bounds and times."""
    sections = [make(group) for group in groups for make in (_summary, _tables, _budgets) if _applies(make, group)]
    return [*sections, _bounds(groups, bounds), _times(groups)]


def _applies(make: Callable[[SuiteFigures], ReportSection], figures: SuiteFigures) -> bool:
    return make is not _budgets or (figures.group.ours in figures.group.rivals and len(figures.group.rivals) > 1)


def _summary(figures: SuiteFigures) -> ReportSection:
    before = "held_before" in figures.by_method.columns
    head = ("method", "rank", "held", "share", "regret", "worst", "on", "spend", "range", "least", "kept")
    head = (*head, "below single models", *(("held before", "regret before", "spend before") if before else ()))
    rows = [
        _summary_row(row) + (_before_cells(row) if before else []) for row in figures.by_method.iter_rows(named=True)
    ]
    draw = partial(_draw, figures)
    name, title = figures.group.name, figures.group.title
    return ReportSection(name, f"{title}: all tables", SUMMARY, head, rows, draw)


def _summary_row(row: Row) -> list[str]:
    competing = [
        figure(row["rank"], digits=1),
        f"{row['held']} of {row['budgets']}",
        f"{row['share']:.0%}",
        figure(row["regret"]),
        figure(row["regret_worst"]),
        row["worst_table"],
    ]
    return [
        row["method"],
        *(competing if row["rival"] else [""] * len(competing)),
        figure(row["spend_ratio"], digits=3),
        f"{row['spend_ratio_min']:.3f} to {row['spend_ratio_max']:.3f}",
        "" if row["least_spent"] is None else figure(row["least_spent"], digits=3),
        f"{row['kept']} of {row['budgets']}",
        figure(row["below_single"], "+"),
    ]


def _before_cells(row: Row) -> list[str]:
    if row["held_before"] is None or not row["rival"]:
        return ["", "", ""]
    return [str(row["held_before"]), figure(row["regret_before"]), figure(row["spend_ratio_before"], digits=3)]


def _tables(figures: SuiteFigures) -> ReportSection:
    names = figures.by_table["table"].unique(maintain_order=True).to_list()
    cells = {(row["table"], row["method"]): _held(row) for row in figures.by_table.iter_rows(named=True)}
    competing = figures.by_method.filter("rival")["method"].to_list()
    rows = [[method, *(cells[name, method] for name in names)] for method in competing]
    name, title = figures.group.name, figures.group.title
    return ReportSection(f"{name}-tables", f"{title}: each table", TABLES, ("method", *names), rows)


def _held(row: Row) -> str:
    regret = figure(row["regret"])
    return f"{row['held']} ({f'**{regret}**' if row['regret'] <= SMALL_REGRET else regret})"


def _budgets(figures: SuiteFigures) -> ReportSection:
    ours = figures.group.ours
    head = ("table", "USD per query", ours, "spend/budget", "best other", "quality", "spend/budget", "lead")
    at = {(row["table"], row["budget"], row["method"]): row for row in figures.by_budget.iter_rows(named=True)}
    rows = [
        _lead_row(row, at[row["table"], row["budget"], row["other"]])
        for row in figures.by_budget.filter(method=ours).iter_rows(named=True)
    ]
    title = f"{figures.group.title}: {ours} at every budget"
    return ReportSection(f"{figures.group.name}-budgets", title, BUDGETS.format(ours=ours), head, rows)


def _lead_row(row: Row, other: Row) -> list[str]:
    lead = with_error(row["lead"], row["lead_se"], "+")
    return [
        row["table"],
        f"{row['rate_usd']:.4g}",
        *_spent(row),
        f"`{row['other']}`",
        *_spent(other),
        f"**{lead}**" if row["verdict"] else lead,
    ]


def _spent(row: Row) -> list[str]:
    return [figure(row["judged"]), f"{row['spend_ratio']:.4f}{'' if row['kept'] else ' †'}"]


def _bounds(groups: Sequence[SuiteFigures], bounds: Sequence[str]) -> ReportSection:
    shown = groups[0].by_budget
    names = shown["table"].unique(maintain_order=True).to_list()
    means = {
        (row["table"], row["method"]): row["judged"]
        for figures in groups
        for row in figures.by_budget.select("table", "method", "judged").group_by("table", "method").mean().to_dicts()
    }
    rows = [[bound, *(figure(means[name, bound]) for name in names)] for bound in bounds if (names[0], bound) in means]
    rows += [_best_row(figures, names, means) for figures in groups]
    return ReportSection("bounds", "Bounds", BOUNDS, ("bound", *names), rows)


def _best_row(figures: SuiteFigures, names: Iterable[str], means: dict[tuple[str, str], float]) -> list[str]:
    rivals = figures.group.rivals
    best = [max(rivals, key=lambda method: means[name, method]) for name in names]
    return [
        f"best of: {figures.group.title.lower()}",
        *(f"{figure(means[name, method])} `{method}`" for name, method in zip(names, best, strict=True)),
    ]


def _times(groups: Sequence[SuiteFigures]) -> ReportSection:
    head = ("method", "fit, s", "tune, s", "serve, s", "decide, us", "99th percentile, us")
    rows = [
        [row["method"], *(figure(row[name], digits=digits) for name, digits in _TIMES)]
        for figures in groups
        for row in figures.by_method.filter("rival").iter_rows(named=True)
    ]
    return ReportSection("time", "Time", TIMES, head, rows)


_TIMES = (("fit_s", 3), ("start_s", 3), ("serve_s", 3), ("decide_us", 1), ("decide_p99_us", 1))


def _draw(figures: SuiteFigures) -> Figure:
    competing: pl.DataFrame = figures.by_method.filter("rival").reverse()
    picture = new_figure(height=1.5 + 0.22 * competing.height)
    axes = picture.subplots()
    axes.barh(competing["method"].to_list(), competing["share"].to_list(), color=OWN)
    axes.set_xlim(0.0, 1.0)
    label_axes(axes, figures.group.title, "share of budgets best or within one standard error", "")
    return picture
