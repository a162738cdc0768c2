"""`wiserouter bench --suite`: the methods on every table of a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wiserouter.cli.bench_output import Ticker, origin_of
from wiserouter.cli.output import out, print_json, progress, table
from wiserouter.errors import LogError
from wiserouter.evaluation.baselines import Method
from wiserouter.evaluation.bench import Bench
from wiserouter.evaluation.bench.oracles import BOUNDS
from wiserouter.evaluation.bench.suite import run_suite
from wiserouter.fitting.log import files
from wiserouter.validation import write_whole

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table

    from wiserouter.evaluation.report import SuiteFigures, SuiteGroup

SPENDER = "wr-offline"
"""The fitted router that shows which budgets can be spent."""

REFERENCES = ("zero", "always-cheapest", "always-best", SPENDER)
"""Single models, their mixture and a fitted router, which are shown with every group."""


class SuiteReport(NamedTuple):
    """The benches of a suite, their methods and the figures of each group."""

    work: list[Bench]
    methods: list[Method]
    groups: list[SuiteFigures]

    @property
    def terms(self) -> str:
        """A paragraph on the tables and settings."""
        first = self.work[0]
        names = ", ".join(f"{each.table.name} ({_size(each)})" for each in self.work)
        return (
            f"{len(self.work)} tables, queries x models: {names}. Half of the queries are to learn from; "
            f"{len(first.seeds)} splits (seeds {first.seeds[0]} to {first.seeds[-1]}), {first.n_contexts} contexts, "
            f"{len(first.budgets.all)} budgets per table from the mean cost of its cheapest model to that of its most "
            f"expensive one."
        )

    def as_dict(self) -> dict[str, object]:
        """Return the report as JSON."""
        return {
            "tables": [_described(each) for each in self.work],
            "seeds": list(self.work[0].seeds),
            "groups": {each.group.name: _figures(each) for each in self.groups},
            "bounds": list(_bounds(self.methods)),
        }


def run_and_report(
    work: list[Bench],
    methods: list[Method],
    folder: Path,
    *,
    jobs: int | None,
    as_json: bool,
    before: Path | None = None,
) -> None:
    """Run the benches, write the report and print it, with the figures of an earlier suite beside."""
    from wiserouter.evaluation.report import suite_figures

    earlier = _read_before(before)
    total = sum(len(bench.keys()) for bench in work)
    with progress(quiet=as_json) as bars:
        ticker = Ticker(total, bars)
        rows = {bench.table.name: frame for bench, frame in run_suite(work, folder / "done", jobs=jobs, tick=ticker)}
    shown = [name for name in REFERENCES if name in {each.name for each in methods}]
    listed = [*shown, *_bounds(methods)]
    groups = [
        suite_figures(rows, group, listed, spender=SPENDER, before=earlier.get(group.name))
        for group in groups_of(methods)
    ]
    report = SuiteReport(work, methods, groups)
    _write(report, folder)
    if as_json:
        return print_json(report.as_dict())
    out.print(report.terms, "", highlight=False, soft_wrap=True)
    for figures in groups:
        out.print(_printed(figures), "")
    out.print(f"Report: {folder / 'suite'}.html and .md, figures: .csv", highlight=False, soft_wrap=True)
    return None


def _read_before(path: Path | None) -> dict[str, pl.DataFrame]:
    """Return `by_budget` of each group in the figures of an earlier suite."""
    import polars as pl

    if path is None:
        return {}
    with files.reading(path):
        frame = pl.read_csv(path)
    if not {"group", "method", "table", "verdict", "behind"} <= set(frame.columns):
        raise LogError("the figures of an earlier suite must be the suite.csv that it wrote", file=path)
    return {str(name): frame.filter(pl.col("group") == name) for name in frame["group"].unique()}


def groups_of(methods: Sequence[Method]) -> list[SuiteGroup]:
    """Return the groups of methods that compete with each other; a group without methods is left out."""
    from wiserouter.evaluation.report import SuiteGroup

    competing = [each for each in methods if not each.sees_truth]
    fitted = tuple(each.name for each in competing if each.learns_from in {"table", "several answers"})
    learners = tuple(each.name for each in competing if each.learns_from in {"one answer", "nothing"})
    groups = (
        SuiteGroup("fitted", "Fitted on the training half", "wr-offline", fitted),
        SuiteGroup("one-answer", "One answer per query", "optimistic", learners),
    )
    return [group for group in groups if group.rivals]


def _bounds(methods: Sequence[Method]) -> tuple[str, ...]:
    return (*BOUNDS, *(each.name for each in methods if each.sees_truth))


def _size(bench: Bench) -> str:
    n, k = bench.table.table.reward.shape
    return f"{n:,} x {k}"


def _described(bench: Bench) -> dict[str, object]:
    n, k = bench.table.table.reward.shape
    loaded = bench.table
    return {
        "table": loaded.name,
        "sha256": loaded.sha256,
        "queries": n,
        "models": k,
        "left_out": list(loaded.left_out),
        "dropped": loaded.dropped,
        "budgets_usd": list(bench.budgets.all),
    }


def _figures(figures: SuiteFigures) -> Mapping[str, object]:
    frames = {"methods": figures.by_method, "tables": figures.by_table, "budgets": figures.by_budget}
    return {name: frame.fill_nan(None).to_dicts() for name, frame in frames.items()}


def _write(report: SuiteReport, folder: Path) -> None:
    import polars as pl

    from wiserouter.evaluation.report import markdown_of, page_of, suite_sections

    notes = {each.name: each.note for each in report.methods}
    sections = suite_sections(report.groups, _bounds(report.methods))
    title, path = "Bench on a suite of tables", folder / "suite"
    write_whole(Path(f"{path}.csv"), pl.concat([_named(each) for each in report.groups]).write_csv())
    write_whole(Path(f"{path}.md"), markdown_of(title, report.terms, sections, notes))
    origin = {"figures": "suite.csv", **origin_of([each.table for each in report.work], report.work[0].seeds)}
    write_whole(Path(f"{path}.html"), page_of(title, report.terms, sections, notes, origin))


def _named(figures: SuiteFigures) -> pl.DataFrame:
    import polars as pl

    return figures.by_budget.select(pl.lit(figures.group.name).alias("group"), pl.all())


def _printed(figures: SuiteFigures) -> Table:
    """Return the group's figures over all tables."""
    before = ["before"] if "held_before" in figures.by_method.columns else []
    columns = ["method", "rank", "held", "share", *before, "regret", "worst", "spend", "least", "most", "us"]
    rows = [_printed_row(row) for row in figures.by_method.filter("rival").iter_rows(named=True)]
    grid = table(f"{figures.group.title}; held: best or within 1 s.e. of it", columns, rows)
    grid.padding = 0
    return grid


def _printed_row(row: Mapping[str, Any]) -> list[str]:
    return [
        row["method"],
        f"{row['rank']:.1f}",
        f"{row['held']}/{row['budgets']}",
        f"{row['share']:.0%}",
        *([str(row["held_before"] or "")] if "held_before" in row else []),
        *(f"{row[name]:.4f}" for name in ("regret", "regret_worst")),
        *(f"{row[name]:.3g}" for name in ("spend_ratio", "spend_ratio_min", "spend_ratio_max")),
        f"{row['decide_us']:.0f}",
    ]
