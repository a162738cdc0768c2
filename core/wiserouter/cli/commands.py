"""The commands of the command line, and how they are run."""

from __future__ import annotations

import re
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from wiserouter import __version__
from wiserouter.cli.acting import budget, mode, model
from wiserouter.cli.arena import app as arena
from wiserouter.cli.batch import app as batch
from wiserouter.cli.bench import bench
from wiserouter.cli.data import app as data
from wiserouter.cli.demo import demo
from wiserouter.cli.evaluate import evaluate_journal
from wiserouter.cli.explain import explain
from wiserouter.cli.feedback import app as feedback
from wiserouter.cli.fit import fit
from wiserouter.cli.judge import judge
from wiserouter.cli.log import app as log
from wiserouter.cli.merge import merge
from wiserouter.cli.output import complain, write_anything
from wiserouter.cli.paper import app as paper
from wiserouter.cli.plan import plan
from wiserouter.cli.priors import priors
from wiserouter.cli.replay import replay
from wiserouter.cli.report import report
from wiserouter.cli.shadow import app as shadow
from wiserouter.cli.simulate import simulate
from wiserouter.cli.status import status
from wiserouter.cli.tune import tune
from wiserouter.errors import WiseRouterError


class _WithExamples(TyperGroup):
    """The commands, whose error of a missing argument shows the example of their help."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that is named."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            text = error.ctx.command.help if error.ctx else None
            if not error.message and (found := re.search(r"^Example: (?:.+\n?)+", text or "", re.MULTILINE)):
                error.message = " ".join(found[0].split())
            raise


app = typer.Typer(
    cls=_WithExamples,
    help="Budget-aware LLM routing: one budget for a workload, each query to the model that buys the most quality.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (
    bench,
    budget,
    demo,
    explain,
    fit,
    judge,
    merge,
    mode,
    model,
    plan,
    priors,
    replay,
    report,
    simulate,
    status,
    tune,
):
    app.command()(command)
app.command("evaluate")(evaluate_journal)
app.add_typer(arena, name="arena")
app.add_typer(batch, name="batch")
app.add_typer(data, name="data")
app.add_typer(feedback, name="feedback")
app.add_typer(log, name="log")
app.add_typer(paper, name="paper")
app.add_typer(shadow, name="shadow")


def _version(requested: bool) -> None:
    if requested:
        sys.stdout.write(f"wiserouter {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Budget-aware LLM routing: one budget for a workload, each query to the model that buys the most quality."""


def run() -> None:
    """Run the command line; an error of WISERouter or of the file system is one line on stderr and exit code 2."""
    write_anything()
    try:
        app()
    except (WiseRouterError, OSError) as error:
        complain(error)
        sys.exit(2)
