"""`wiserouter bench`: every method on the same splits of a table, under the same budgets."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wiserouter.cli.bench_output import Ticker, origin_of
from wiserouter.cli.bench_suite import run_and_report
from wiserouter.cli.fit import names
from wiserouter.cli.leave_out_option import LeaveOut, left_out
from wiserouter.cli.output import check_no_input, out, print_json, progress, table
from wiserouter.cli.parallel_options import AddressOption, BackendOption, Jobs, workers
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.baselines import Method, open_methods
from wiserouter.evaluation.bench import Bench, run_bench
from wiserouter.evaluation.bench.budget_grid import budgets_of_table
from wiserouter.evaluation.bench.oracles import BOUNDS
from wiserouter.evaluation.bench.splits import DEFAULT_ENCODER
from wiserouter.evaluation.bench.suite import BenchSettings, benches, default_methods, open_suite
from wiserouter.evaluation.datasets import LoadedTable, open_table
from wiserouter.evaluation.datasets.open_table import path_of
from wiserouter.parallel.backends import parallel_backend
from wiserouter.pricing.amounts import usd
from wiserouter.validation import write_whole

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table

    from wiserouter.evaluation.report import Aggregates, Results

SLOWEST = 12
"""Methods of a bench whose times are printed; the report has all."""


def bench(
    log: Annotated[
        str | None, typer.Argument(help="A dense log, by path or name: every model's score and cost on every query.")
    ] = None,
    suite: Annotated[
        Path | None, typer.Option(help="Run on every table of this folder instead, with figures over all of them.")
    ] = None,
    methods: Annotated[str | None, typer.Option(help="Only these methods, separated by commas.")] = None,
    seeds: Annotated[int, typer.Option(help="Number of splits.", min=1)] = 5,
    first_seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
    budgets: Annotated[int, typer.Option(help="Number of budgets on the paper's spacing.", min=1)] = 6,
    log_budgets: Annotated[
        int | None,
        typer.Option(help="Number of further budgets, on a log scale; by default 7, with --suite 0.", min=0),
    ] = None,
    leave_out: LeaveOut = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="tfidf, or minilm (extra); by default the embeddings in the table, else tfidf."),
    ] = None,
    contexts: Annotated[int, typer.Option(help="Number of contexts J.")] = 16,
    jobs: Jobs = None,
    backend: BackendOption = None,
    address: AddressOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
    before: Annotated[
        Path | None, typer.Option(help="The suite.csv of an earlier --suite, whose figures are printed beside.")
    ] = None,
    report: Annotated[Path, typer.Option(help="Folder of the report and of the finished rows.")] = Path("bench"),
) -> None:
    """Run all methods on a table: 50:50 split by seed, six budgets and more.

    Finished rows are kept in REPORT/done, so that an interrupted bench resumes.
    With --suite REPORT/suite.html, .md and .csv compare the methods over all tables:
    rank, budgets held (best or within one standard error), regret and spend;
    fitted methods apart from those that learn from one answer per query.
    Otherwise REPORT/NAME.html is the report on one page, NAME.md the same as text;
    NAME.parquet has one row per method, seed and budget, with the answer, reward
    and cost of every query; NAME.csv has the figures per method and budget.

    Example: wiserouter bench routerbench.parquet --jobs 4 --report out

    Example: wiserouter bench --suite tables --seeds 10 --methods wr-offline,zero

    JSON with --suite: {"tables": [...], "seeds", "groups": {"fitted": {"methods",
    "tables", "budgets"}, "one-answer": ...}, "bounds"}.

    JSON: {"table", "sha256", "left_out", "methods": [{"method", "aiq", ...}],
    "budgets": [{"method", "rate_usd", "quality", "spend_ratio", ...}]}; the
    figures of the report, null where undefined.
    """
    check_source(log, suite)
    n_jobs = workers(jobs, backend, 2)
    seed_numbers = tuple(range(first_seed, first_seed + seeds))
    logging.getLogger("wiserouter").setLevel(logging.ERROR)
    if suite is not None:
        _check_apart(suite, report)
        opened = open_methods(default_methods() if methods is None else names(methods))
        settings = BenchSettings(seed_numbers, budgets, log_budgets or 0, encoder, contexts)
        tables = open_suite(suite, leave_out=left_out(leave_out))
        each = benches(tables, opened, settings)
        with parallel_backend(backend, address):
            return run_and_report(each, opened, report, jobs=n_jobs, as_json=as_json, before=before)
    loaded = open_table(log or "", leave_out=left_out(leave_out))
    for file in _written(report / loaded.name):
        check_no_input(file, [path_of(log or "")])
    opened = open_methods(names(methods))
    budgets_usd = budgets_of_table(loaded, budgets, 7 if log_budgets is None else log_budgets)
    order = (*(method.name for method in opened), *BOUNDS)
    work = Bench(loaded, budgets_usd, order, seed_numbers, encoder, contexts)
    if not as_json:
        out.print(_terms(work), highlight=False, soft_wrap=True)
    with progress(quiet=as_json) as bars, parallel_backend(backend, address):
        rows = run_bench(work, report / "done", jobs=n_jobs, tick=Ticker(len(work.keys()), bars))
    aggregates = _write(_results(work, rows, opened), report)
    if as_json:
        return print_json(_figures(work.table, aggregates))
    out.print(_quality(aggregates), "", _seconds(aggregates), "")
    written = f"Report: {report / loaded.name}.html and .md, rows: .parquet, figures: .csv"
    out.print(written, highlight=False, soft_wrap=True)
    return None


def check_source(log: str | None, suite: Path | None) -> None:
    """Raise `InvalidInput` unless either a table or a suite is given."""
    if (log is None) == (suite is None):
        got = "neither" if log is None else "both"
        raise InvalidInput(f"a bench needs either a table or --suite FOLDER, got {got}", value=(log, suite))


def _check_apart(suite: Path, report: Path) -> None:
    """Raise `InvalidInput` if a suite's report would be written among its tables: suite.csv would be one of them."""
    if suite.resolve() == report.resolve():
        raise InvalidInput(f"--report must be another folder than that of the tables, got {report}", value=report)


def _terms(work: Bench) -> str:
    loaded, rates = work.table, work.budgets.paper
    left = f" without {', '.join(loaded.left_out)}" if loaded.left_out else ""
    n, k = loaded.table.reward.shape
    return (
        f"{loaded.name}{left}: {n:,} queries, of which {n // 2:,} to learn from, {k} models, {len(work.seeds)} splits "
        f"(seeds {work.seeds[0]} to {work.seeds[-1]}), {work.n_contexts} contexts on {_encoder(work)}, "
        f"{len(rates)} budgets from {usd(1_000 * rates[0])} to {usd(1_000 * rates[-1])} per 1,000 queries and "
        f"{len(work.budgets.log)} between "
        f"them. Left out for a missing score or cost: {loaded.dropped} queries."
    )


def _encoder(work: Bench) -> str:
    own = "the table's embeddings" if work.table.embeddings is not None else DEFAULT_ENCODER
    return work.encoder or own


def _results(work: Bench, rows: pl.DataFrame, opened: Sequence[Method]) -> Results:
    from wiserouter.evaluation.report import About, Results

    notes = {method.name: method.note for method in opened}
    rivals = [method.name for method in opened if not method.sees_truth]
    about = About(
        work.table.name,
        _terms(work),
        list(work.methods),
        rivals,
        list(work.budgets.paper),
        notes,
        origin_of([work.table], work.seeds),
    )
    return Results(rows, about)


def _write(results: Results, folder: Path) -> Aggregates:
    from wiserouter.evaluation.report import aggregate, make_sections, markdown_of, page_of

    about = results.about
    aggregates = aggregate(results)
    sections, title = make_sections(aggregates), f"Bench on {about.table}"
    rows, figures, text, page = _written(folder / about.table)
    results.write(rows)
    write_whole(figures, aggregates.comparison.by_budget.write_csv())
    write_whole(text, markdown_of(title, about.terms, sections, about.notes))
    origin = {"rows": rows.name, **about.origin}
    write_whole(page, page_of(title, about.terms, sections, about.notes, origin))
    return aggregates


def _written(path: Path) -> list[Path]:
    """Return the files of a report: rows, figures, text and page."""
    return [path.with_name(f"{path.name}.{ending}") for ending in ("parquet", "csv", "md", "html")]


def _figures(loaded: LoadedTable, aggregates: Aggregates) -> dict[str, object]:
    return {
        "table": loaded.name,
        "sha256": loaded.sha256,
        "left_out": loaded.left_out,
        "methods": aggregates.comparison.by_method.fill_nan(None).to_dicts(),
        "budgets": aggregates.comparison.by_budget.fill_nan(None).to_dicts(),
    }


def _quality(aggregates: Aggregates) -> Table:
    """Return quality by method and budget; * marks the best, and others within one standard error of it."""
    by_budget, by_method = aggregates.comparison
    rates = aggregates.about.shown_usd
    cells = {(row["method"], row["rate_usd"]): _cell(row) for row in by_budget.iter_rows(named=True)}
    rows = [
        [each["method"], *(cells[each["method"], rate] for rate in rates), str(each["best_or_within"])]
        for each in by_method.iter_rows(named=True)
    ]
    title = "Quality by USD per query; * best or within 1 s.e., and at how many budgets; † spends more"
    grid = table(title, ["method", *(f"{rate:.2g}" for rate in rates), "*"], rows)
    grid.padding = 0
    return grid


def _seconds(aggregates: Aggregates) -> Table:
    """Return the processor time of the slowest methods, and of all together."""
    parts = ("all_fit_s", "all_start_s", "all_serve_s")
    each = aggregates.comparison.by_method.select("method", *parts)
    slowest = each.with_columns(all_s=sum(each[part] for part in parts)).sort("all_s", descending=True)
    named, others = slowest.head(SLOWEST), slowest.tail(-SLOWEST)
    sums = [(f"{others.height} others", others), ("all", slowest)] if others.height else [("all", slowest)]
    rows = [*named.iter_rows(), *((name, *frame.drop("method").sum().row(0)) for name, frame in sums)]
    cells = [[name, *(f"{seconds:.1f}" for seconds in row)] for name, *row in rows]
    return table("Seconds of processor time, all seeds and budgets", ["method", "fit", "tune", "serve", "all"], cells)


def _cell(row: Mapping[str, Any]) -> str:
    return f"{row['quality']:.3f}{'' if row['kept'] else '†'}{'*' if row['verdict'] else ''}"
