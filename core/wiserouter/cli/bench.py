"""`wiserouter bench`: every method on the same splits of a table, under the same budgets."""

from __future__ import annotations

import logging
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wiserouter.cli.fit import names
from wiserouter.cli.output import err, out, print_json, progress, table
from wiserouter.evaluation.baselines import Method, open_methods
from wiserouter.evaluation.bench import Bench, budgets_of, run_bench
from wiserouter.evaluation.bench.oracles import BOUNDS
from wiserouter.evaluation.bench.results_cache import code_digest
from wiserouter.evaluation.bench.splits import DEFAULT_ENCODER
from wiserouter.evaluation.datasets import LoadedTable, open_table
from wiserouter.pricing.amounts import usd

if TYPE_CHECKING:
    import polars as pl
    from rich.progress import Progress
    from rich.table import Table

    from wiserouter.evaluation.report import Aggregates, Results

_LIBRARIES = ("wiserouter", "numpy", "scikit-learn", "polars")


def bench(
    log: Annotated[
        str, typer.Argument(help="A dense log, by path or name: every model's score and cost on every query.")
    ],
    methods: Annotated[str | None, typer.Option(help="Only these methods, separated by commas.")] = None,
    seeds: Annotated[int, typer.Option(help="Number of splits.", min=1)] = 5,
    first_seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
    budgets: Annotated[int, typer.Option(help="Number of budgets on the paper's spacing.", min=1)] = 6,
    log_budgets: Annotated[int, typer.Option(help="Number of further budgets, on a log scale.", min=0)] = 7,
    leave_out: Annotated[
        str | None,
        typer.Option(
            help="Models to leave out, separated by commas; '' for none. RouterBench: Yi-34B-Chat by default."
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="tfidf, or minilm (extra); by default the embeddings in the table, else tfidf."),
    ] = None,
    contexts: Annotated[int, typer.Option(help="Number of contexts J.")] = 16,
    jobs: Annotated[int, typer.Option(help="Number of processes.", min=1)] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
    report: Annotated[Path, typer.Option(help="Folder of the report and of the finished rows.")] = Path("bench"),
) -> None:
    """Run all methods on a table: 50:50 split by seed, six budgets and more.

    Finished rows are kept in REPORT/done, so that an interrupted bench resumes.
    REPORT/NAME.html is the report on one page, NAME.md the same as text;
    NAME.parquet has one row per method, seed and budget, with the answer, reward
    and cost of every query; NAME.csv has the figures per method and budget.

    Example: wiserouter bench routerbench.parquet --jobs 4 --report out

    JSON: {"table", "sha256", "left_out", "methods": [{"method", "aiq", ...}],
    "budgets": [{"method", "rate_usd", "quality", "spend_ratio", ...}]}; the
    figures of the report, null where undefined.
    """
    loaded = open_table(log, leave_out=None if leave_out is None else names(leave_out) or ())
    opened = open_methods(names(methods))
    budgets_usd = budgets_of(loaded.table.cost_usd, budgets, log_budgets)
    order = (*(method.name for method in opened), *BOUNDS)
    work = Bench(loaded, budgets_usd, order, tuple(range(first_seed, first_seed + seeds)), encoder, contexts)
    if not as_json:
        out.print(_terms(work), highlight=False, soft_wrap=True)
    logging.getLogger("wiserouter").setLevel(logging.ERROR)
    with progress(quiet=as_json) as bars:
        rows = run_bench(work, report / "done", jobs=jobs, tick=_Ticker(len(work.keys()), bars))
    aggregates = _write(_results(work, rows, opened), report)
    if as_json:
        return print_json(_figures(work.table, aggregates))
    out.print(_quality(aggregates), "")
    written = f"Report: {report / loaded.name}.html and .md, rows: .parquet, figures: .csv"
    out.print(written, highlight=False, soft_wrap=True)
    return None


class _Ticker:
    """Shows the number of finished rows: as a bar, or without a terminal as a line for every tenth."""

    def __init__(self, total: int, bars: Progress) -> None:
        self._total, self._done, self._printed_tenths, self._bars = total, 0, 0, bars
        self._bar = bars.add_task("running", total=total)

    def __call__(self, rows: int) -> None:
        self._done += rows
        self._bars.advance(self._bar, rows)
        tenth = 10 * self._done // self._total
        if not err.is_terminal and tenth > self._printed_tenths:
            err.print(f"{self._done:,} of {self._total:,} done", highlight=False)
            self._printed_tenths = tenth


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
        work.table.name, _terms(work), list(work.methods), rivals, list(work.budgets.paper), notes, _origin(work)
    )
    return Results(rows, about)


def _origin(work: Bench) -> dict[str, str]:
    """Return the origin of the rows: command, data, seeds, code, versions and machine."""
    from importlib.metadata import version

    versions = [f"{name} {version(name)}" for name in _LIBRARIES]
    return {
        "command": shlex.join(["wiserouter", *sys.argv[1:]]),
        "table": f"{work.table.name}, SHA-256 of its content {work.table.sha256}",
        "seeds": ", ".join(map(str, work.seeds)),
        "code": f"SHA-256 of the package's sources {code_digest()}",
        "versions": ", ".join([*versions, f"Python {platform.python_version()}"]),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
    }


def _write(results: Results, folder: Path) -> Aggregates:
    from wiserouter.evaluation.report import aggregate, make_sections, markdown_of, page_of

    about = results.about
    aggregates = aggregate(results)
    sections, title = make_sections(aggregates), f"Bench on {about.table}"
    path = folder / about.table
    results.write(f"{path}.parquet")
    aggregates.comparison.by_budget.write_csv(f"{path}.csv")
    Path(f"{path}.md").write_text(markdown_of(title, about.terms, sections, about.notes), encoding="utf-8")
    page = page_of(title, about.terms, sections, about.notes, {"rows": f"{path.name}.parquet", **about.origin})
    Path(f"{path}.html").write_text(page, encoding="utf-8")
    return aggregates


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


def _cell(row: Mapping[str, Any]) -> str:
    return f"{row['quality']:.3f}{'' if row['kept'] else '†'}{'*' if row['verdict'] else ''}"
