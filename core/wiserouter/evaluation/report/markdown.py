"""A bench in Markdown: one table per question."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from wiserouter.evaluation.report.end_to_end import EndToEnd
from wiserouter.evaluation.report.standings import Standings

if TYPE_CHECKING:
    import polars as pl

Row = Mapping[str, Any]

QUALITY = """
Mean score over all test queries (one not served counts 0), ± the standard error over seeds. **Bold**: best, or within
one standard error of the best. † spends more than the budget, and is judged by its quality at equal spend."""
EQUAL_SPEND = """
What each method's own cost-quality hull buys for the budget."""
INTERVALS = """
Bootstrap over seeds and queries."""
SPEND = """
Mean over seeds, and the most of any seed. Not to be exceeded; below 1, money is left."""
OVERALL = """
AIQ: mean quality of the hull between the least and the largest budget. Regret: quality behind the linear program over
single queries, and behind the plan at the true means of the contexts. Off budget: distance of the spend from the
budget. Regret and distance are means over the budgets shown; how often a method is best is counted over all."""
END_TO_END = """
Quality for budgets, in USD per test query, that pay for collecting what a method learns from as well as for serving.
Collected: as a share of the cost of the whole training half."""
LATENCY = """
Prepare: embeddings and contexts, the same for all. Fit: once. Tune: for each budget. Decide: one query, with what it
learns from it, without its embedding. Medians over runs."""


class Report(NamedTuple):
    """What is reported.

    Attributes
    ----------
    title, terms : str
        What was run: a heading, and a paragraph on table, split, seeds and settings.
    standings, spent : Standings, EndToEnd
        What was found.
    shown_usd : tuple of float
        The budgets per query that tables show.
    notes : dict of str to str
        What to say beside a method.
    """

    title: str
    terms: str
    standings: Standings
    spent: EndToEnd
    shown_usd: tuple[float, ...]
    notes: dict[str, str]


def markdown_of(report: Report) -> str:
    """Return the report as a text."""
    by_budget, by_method = report.standings
    shown = by_budget.filter(by_budget["rate_usd"].is_in(list(report.shown_usd)))
    sections = {
        "Quality": (QUALITY, _grid(shown, _quality)),
        "Quality at equal spend": (EQUAL_SPEND, _grid(shown, lambda row: _figure(row["equal_spend"]))),
        "95 % intervals of quality": (INTERVALS, _grid(shown, _interval)),
        "Spend over budget": (SPEND, _grid(shown, _spend)),
        "Over all budgets": (OVERALL, _overall(by_method, shown)),
        "Learning and serving": (END_TO_END, _end_to_end(by_method["method"].to_list(), report.spent)),
        "Latency": (LATENCY, _latency(by_method)),
    }
    notes = "\n".join(f"- `{name}` {note}." for name, note in report.notes.items() if note)
    parts = [f"# {report.title}", report.terms]
    parts += [f"## {name}\n{text}\n\n{table}" for name, (text, table) in sections.items()]
    return "\n\n".join([*parts, f"## Notes\n\n{notes}"] if notes else parts) + "\n"


def table_of(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table.

    Examples
    --------
    >>> print(table_of(["a", "b"], [["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def _grid(rows: pl.DataFrame, cell: Callable[[Row], str]) -> str:
    """Return a table of methods by budgets."""
    lines: dict[str, list[str]] = {}
    for row in rows.iter_rows(named=True):
        lines.setdefault(row["method"], [row["method"]]).append(cell(row))
    rates = rows["rate_usd"].unique(maintain_order=True)
    return table_of(["USD per query", *(f"{rate:.4g}" for rate in rates)], lines.values())


def _quality(row: Row) -> str:
    text = _with_error(row["quality"], row["quality_se"])
    return (f"**{text}**" if row["verdict"] else text) + ("" if row["kept"] else " †")


def _interval(row: Row) -> str:
    return f"{row['quality_low']:.3f} to {row['quality_high']:.3f}"


def _spend(row: Row) -> str:
    return f"{row['spend_ratio']:.3f} ({row['spend_ratio_max']:.3f})"


def _overall(by_method: pl.DataFrame, shown: pl.DataFrame) -> str:
    head = ("method", "AIQ", "over `zero`", "best", "or within 1 s.e.", "regret", "of contexts", "off budget")
    means = shown.group_by("method").mean()
    rows = by_method.join(means, on="method", maintain_order="left").iter_rows(named=True)
    return table_of(head, map(_overall_row, rows))


def _overall_row(row: Row) -> list[str]:
    return [
        row["method"],
        _with_error(row["aiq"], row["aiq_se"]),
        _with_error(row["aiq_over_zero"], row["aiq_over_zero_se"], "+"),
        str(row["best"]) if row["rival"] else "",
        str(row["best_or_within"]) if row["rival"] else "",
        _figure(row["regret"]),
        _figure(row["regret_contexts"], "+"),
        f"{row['off_budget']:.1%}",
    ]


def _end_to_end(methods: Sequence[str], spent: EndToEnd) -> str:
    head = ["method", "collected", *(f"{name}: {usd:.4g}" for name, usd in spent.budgets_usd.items())]
    each = zip(methods, spent.collected.tolist(), spent.quality.tolist(), strict=True)
    return table_of(head, ([name, f"{share:.1%}", *map(_figure, quality)] for name, share, quality in each))


def _latency(by_method: pl.DataFrame) -> str:
    head = ("method", "prepare, s", "fit, s", "tune, s", "decide, us", "99th percentile, us")
    columns = {"prepare_s": 2, "fit_s": 3, "start_s": 3, "decide_us": 1, "decide_p99_us": 1}
    rows = by_method.iter_rows(named=True)
    return table_of(head, ([row["method"], *(f"{row[name]:.{n}f}" for name, n in columns.items())] for row in rows))


def _with_error(value: float, error: float, sign: str = "") -> str:
    return _figure(value, sign) if math.isnan(error) else f"{_figure(value, sign)} ± {error:.4f}"


def _figure(value: float, sign: str = "") -> str:
    return "-" if math.isnan(value) else f"{value:{sign}.4f}"
