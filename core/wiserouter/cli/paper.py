"""`wiserouter paper`: the tables and figures of the paper, and some more, one command each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wiserouter.cli.fit import names
from wiserouter.cli.output import out
from wiserouter.evaluation.datasets import LoadedTable, open_table

if TYPE_CHECKING:
    from wiserouter.evaluation.report import ReportSection

app = typer.Typer(
    help="Tables and figures of the paper. Those of a bench read its rows (REPORT/NAME.parquet) and run nothing.",
    no_args_is_help=True,
)

Rows = Annotated[list[Path], typer.Argument(help="REPORT/NAME.parquet of wiserouter bench; repeatable.")]
TablePath = Annotated[str, typer.Argument(metavar="TABLE", help="A dense log, by path or name.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the Markdown and the pictures (svg and png).")]
Seeds = Annotated[int, typer.Option(help="Number of seeds.", min=1)]
LeaveOut = Annotated[
    str | None, typer.Option(help="Models that take no part, separated by commas. RouterBench: Yi-34B-Chat.")
]
Encoder = Annotated[str | None, typer.Option(help="tfidf, or minilm (extra); by default as wiserouter bench.")]
HERE = Path("paper")

OF_A_BENCH = {
    "table1": "Quality by budget (paper, Table 1).",
    "verdict": "WR-Offline against the best other method at every budget.",
    "utilisation": "Share of each budget that is left (paper, budget utilisation).",
    "latency": "Time of training and of one decision (paper, latency comparison).",
    "adaptive": "Adaptive against static linear program (paper).",
    "end-to-end": "Budgets that pay for learning too (paper, end-to-end budget).",
    "frontier": "Cost and quality of all methods on one picture, and quality at equal spend.",
    "aiq": "AIQ over the Zero router, mean regret, and how often a method is best.",
    "regret": "Regret against the linear program over single queries.",
    "bill": "Dollars spent to learn, and queries that earn them back (SA-BEP).",
    "intervals": "95 % intervals of quality.",
}


def _of_a_bench(name: str) -> Callable[..., None]:
    def command(rows: Rows, folder: Out = HERE) -> None:
        from wiserouter.evaluation.report import exhibit_of, findings_of, read_results

        for path in rows:
            results = read_results(path)
            show(exhibit_of(name, findings_of(results)), results.about.table, results.about.terms, folder)

    return command


for _name, _help in OF_A_BENCH.items():
    app.command(_name, help=_help)(_of_a_bench(_name))


@app.command()
def variance(
    table: TablePath, folder: Out = HERE, seeds: Seeds = 5, leave_out: LeaveOut = None, encoder: Encoder = None
) -> None:
    """Intra-cluster variance of rewards and costs (paper, appendix)."""
    from wiserouter.evaluation import studies

    opened = _open(table, leave_out)
    show(studies.variance(opened, range(seeds), encoder), opened.name, _terms(opened, seeds), folder)


@app.command()
def accuracy(
    table: TablePath, folder: Out = HERE, seeds: Seeds = 5, leave_out: LeaveOut = None, encoder: Encoder = None
) -> None:
    """Estimation accuracy after exploration: MAE and Pearson correlation (paper, appendix)."""
    from wiserouter.evaluation import studies

    opened = _open(table, leave_out)
    show(studies.accuracy(opened, range(seeds), encoder), opened.name, _terms(opened, seeds), folder)


@app.command()
def ablations(table: TablePath, folder: Out = HERE, seeds: Seeds = 5, leave_out: LeaveOut = None) -> None:
    """Other encoders, PCA, J from 8 to 20, DBSCAN instead of k-means (paper, appendix)."""
    from wiserouter.evaluation import studies

    opened = _open(table, leave_out)
    show(studies.ablations(opened, range(seeds)), opened.name, _terms(opened, seeds), folder)


@app.command()
def simulation(
    folder: Out = HERE,
    seeds: Seeds = 5,
    horizon: Annotated[int, typer.Option(help="Number of requests.", min=1)] = 1_500,
    jobs: Annotated[int, typer.Option(help="Number of processes.", min=1)] = 1,
) -> None:
    """Cumulative cost and amortised regret in the paper's simulation."""
    from wiserouter.evaluation import studies

    show(studies.simulated(range(seeds), horizon, jobs=jobs), "", f"Seeds 0 to {seeds - 1}.", folder)


def show(exhibit: ReportSection, table: str, terms: str, folder: Path) -> None:
    """Print an exhibit, and write it with its picture to FOLDER/[TABLE-]NAME.md, .svg and .png."""
    from wiserouter.evaluation.plots import save
    from wiserouter.evaluation.report.markdown import section_of

    stem = "-".join(part for part in (table, exhibit.name) if part)
    text = f"{section_of(exhibit)}\n\n{terms}\n"
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{stem}.md"]
    if exhibit.draw is not None:
        picture = exhibit.draw()
        pictures = [folder / f"{stem}.{kind}" for kind in ("svg", "png")]
        for path in pictures:
            save(picture, path)
        written += pictures
        text += f"\n![{exhibit.title}]({stem}.svg)\n"
    written[0].write_text(text, encoding="utf-8")
    out.print(text, markup=False, highlight=False, soft_wrap=True)
    out.print(f"Written: {', '.join(map(str, written))}", highlight=False, soft_wrap=True)


def _open(table: str, leave_out: str | None) -> LoadedTable:
    logging.getLogger("wiserouter").setLevel(logging.ERROR)
    return open_table(table, leave_out=None if leave_out is None else names(leave_out) or ())


def _terms(opened: LoadedTable, seeds: int) -> str:
    n, k = opened.table.reward.shape
    return f"{opened.name}: {n:,} queries, {k} models, seeds 0 to {seeds - 1}. SHA-256 of its content {opened.sha256}."
