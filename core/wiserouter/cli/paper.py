"""`wiserouter paper NAME`: the tables and figures of the paper that `wiserouter bench` does not write."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from wiserouter.cli.exploration_length import exploration_length
from wiserouter.cli.leave_out_option import LeaveOut, left_out
from wiserouter.cli.output import out
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.datasets import LoadedTable, open_table
from wiserouter.validation import write_whole

if TYPE_CHECKING:
    from wiserouter.evaluation.report import ReportSection


class _KnownNames(TyperGroup):
    """A group of commands that refuses an unknown name with the list of names."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command of the first argument."""
        if args[0] not in self.commands:
            known = ", ".join(sorted(self.commands))
            raise InvalidInput(
                f"NAME must be one of {known}, got {args[0]!r}; the tables of a bench are in its report "
                f"(wiserouter bench --report)",
                value=args[0],
            )
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_KnownNames,
    help="Tables and figures of the paper, by name. Those of a bench are in the report of wiserouter bench.",
    no_args_is_help=True,
    subcommand_metavar="NAME [ARGS]...",
)
app.command("exploration-length")(exploration_length)

TablePath = Annotated[str, typer.Argument(metavar="TABLE", help="A dense log, by path or name.")]
Folder = Annotated[Path, typer.Option("--out", "-o", help="Folder for the Markdown and the pictures (svg and png).")]
SeedCount = Annotated[int, typer.Option(help="Number of seeds.", min=1)]
EncoderName = Annotated[str | None, typer.Option(help="tfidf, or minilm (extra); by default as wiserouter bench.")]
HERE = Path("paper")


@app.command()
def variance(
    table: TablePath,
    folder: Folder = HERE,
    seeds: SeedCount = 5,
    leave_out: LeaveOut = None,
    encoder: EncoderName = None,
) -> None:
    """Variance of rewards and costs within contexts (paper, appendix)."""
    from wiserouter.evaluation import studies

    loaded = _open(table, leave_out)
    _show(studies.variance(loaded, range(seeds), encoder), loaded.name, _terms(loaded, seeds), folder)


@app.command()
def accuracy(
    table: TablePath,
    folder: Folder = HERE,
    seeds: SeedCount = 5,
    leave_out: LeaveOut = None,
    encoder: EncoderName = None,
) -> None:
    """Accuracy of the estimates after exploration: MAE and Pearson correlation (paper, appendix)."""
    from wiserouter.evaluation import studies

    loaded = _open(table, leave_out)
    _show(studies.accuracy(loaded, range(seeds), encoder), loaded.name, _terms(loaded, seeds), folder)


@app.command()
def ablations(table: TablePath, folder: Folder = HERE, seeds: SeedCount = 5, leave_out: LeaveOut = None) -> None:
    """Other encoders, PCA, J from 8 to 20, DBSCAN instead of k-means (paper, appendix)."""
    from wiserouter.evaluation import studies

    loaded = _open(table, leave_out)
    _show(studies.ablations(loaded, range(seeds)), loaded.name, _terms(loaded, seeds), folder)


@app.command()
def simulation(
    folder: Folder = HERE,
    seeds: SeedCount = 5,
    horizon: Annotated[int, typer.Option(help="Number of requests.", min=1)] = 1_500,
    jobs: Annotated[int, typer.Option(help="Number of processes.", min=1)] = 1,
) -> None:
    """Cumulative cost and amortised regret in the paper's simulation."""
    from wiserouter.evaluation import studies

    _show(studies.simulated(range(seeds), horizon, jobs=jobs), "", f"Seeds 0 to {seeds - 1}.", folder)


@app.command()
def breakpoints(
    folder: Folder = HERE,
    environments: Annotated[int, typer.Option(help="Number of environments.", min=1)] = 10,
    runs: Annotated[int, typer.Option(help="Streams of requests per environment and horizon.", min=1)] = 40,
    most: Annotated[int, typer.Option(help="The longest horizon, of 500 to 50,000 requests.", min=500)] = 50_000,
) -> None:
    """Regret where the budget lies on a breakpoint of the value curve, by how often the plan is solved."""
    from wiserouter.evaluation import studies

    horizons = [horizon for horizon in studies.HORIZONS if horizon <= most]
    section = studies.breakpoints(range(environments), horizons, runs)
    _show(section, "", f"Environments 0 to {environments - 1}, {runs} streams of requests each.", folder)


def _show(section: ReportSection, table: str, terms: str, folder: Path) -> None:
    """Print a section, and write it with its picture to FOLDER/[TABLE-]NAME.md, .svg and .png."""
    from wiserouter.evaluation.plots import save
    from wiserouter.evaluation.report.markdown import section_markdown

    stem = "-".join(part for part in (table, section.name) if part)
    text = f"{section_markdown(section)}\n\n{terms}\n"
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{stem}.md"]
    if section.draw is not None:
        picture = section.draw()
        pictures = [folder / f"{stem}.{kind}" for kind in ("svg", "png")]
        for path in pictures:
            save(picture, path)
        written += pictures
        text += f"\n![{section.title}]({stem}.svg)\n"
    write_whole(written[0], text)
    out.print(text, highlight=False, soft_wrap=True)
    out.print(f"Written: {', '.join(map(str, written))}", highlight=False, soft_wrap=True)


def _open(table: str, leave_out: str | None) -> LoadedTable:
    logging.getLogger("wiserouter").setLevel(logging.ERROR)
    return open_table(table, leave_out=left_out(leave_out))


def _terms(loaded: LoadedTable, seeds: int) -> str:
    n, k = loaded.table.reward.shape
    return f"{loaded.name}: {n:,} queries, {k} models, seeds 0 to {seeds - 1}. SHA-256 of its content {loaded.sha256}."
