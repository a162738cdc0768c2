"""`wiserouter shadow report`: what the router would have spent and gained, from the journal of shadow mode."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wiserouter.cli.judge import function_named
from wiserouter.cli.output import check_writable, err, out, print_json, table
from wiserouter.cli.shadow_judging import judged_figures, judged_lines, texts_of
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.off_policy.observed_calls import observed_calls
from wiserouter.evaluation.off_policy.shadow_judging import ShadowJudging
from wiserouter.evaluation.off_policy.shadow_report import lines_of, report_of_journal
from wiserouter.routing.journal_reader import JournalReader

app = typer.Typer(help="Report on shadow mode, where the router decides but does not act.", no_args_is_help=True)

MOST_SHOWN = 20
"""Most models of the table."""


@app.callback()
def _shadow() -> None:
    """Report on shadow mode, where the router decides but does not act."""


@app.command()
def report(
    journal: Annotated[Path, typer.Argument(help="The journal of a router in shadow mode.")],
    judge: Annotated[
        str | None,
        typer.Option(help="Compares would-be answers: a function of a prompt and two answers, module:function."),
    ] = None,
    answers: Annotated[
        str | None, typer.Option(help="Makes them: a function of model and prompt, as module:function.")
    ] = None,
    texts: Annotated[Path | None, typer.Option(help="Prompts and answers of the calls, by id.")] = None,
    budget: Annotated[float | None, typer.Option(help="The most to spend on answers and judge, in USD.")] = None,
    answer_cost: Annotated[float | None, typer.Option(help="The most that one answer costs, in USD.")] = None,
    judge_cost: Annotated[float | None, typer.Option(help="The most that one judgement costs, in USD.")] = None,
    share: Annotated[float, typer.Option(help="The share of the would-be answers to judge.")] = 1.0,
    verdicts: Annotated[
        Path | None, typer.Option(help="A .jsonl file that keeps the verdicts, so that a next run goes on.")
    ] = None,
    prompt: Annotated[str, typer.Option(help="Column of the prompts.")] = "prompt",
    answer: Annotated[str, typer.Option(help="Column of the answers.")] = "answer",
    concurrency: Annotated[int, typer.Option(help="Calls judged at once.")] = 4,
    seed: Annotated[int, typer.Option(help="Seeds the sample.", min=0)] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="State what judging costs, and ask nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Report what the router would have spent and gained, and how much of that the calls show.

    Example: wiserouter shadow report decisions.jsonl
    """
    figures = report_of_journal(journal)
    if judge is not None:
        if answers is None or texts is None or budget is None:
            raise InvalidInput("--judge needs --answers, --texts and --budget: would-be answers are made and judged")
        check_writable(verdicts)
        calls = observed_calls(JournalReader(journal))
        made, compared = function_named(answers, "--answers"), function_named(judge, "--judge")
        judging = ShadowJudging(made, compared, budget, answer_cost, judge_cost, share, concurrency, seed)
        known = texts_of(texts, prompt, answer, calls)
        figures["judged"] = judged_figures(judging, calls, known, verdicts, dry_run=dry_run)
    elif answers or texts or budget is not None or dry_run:
        raise InvalidInput("--answers, --texts, --budget and --dry-run need --judge, got none")
    if as_json:
        return print_json(figures)
    if figures["skipped_lines"]:
        err.print(f"{journal}: skipped {figures['skipped_lines']} lines that are truncated or damaged", highlight=False)
    return _show(figures)


def _show(figures: dict[str, Any]) -> None:
    n, acted = figures["calls"], figures["acted"]
    rows = [(one["model"], f"{one['incumbent']:.1%}", f"{one['would_be']:.1%}") for one in figures["models"]]
    title = f"{n:,} calls, {acted:,} of them acted on; {figures['spent_usd']:,.4g} USD spent"
    out.print(table(title, ("model", "without the router", "with it"), rows[:MOST_SHOWN]))
    for line in lines_of(figures) + (judged_lines(figures["judged"]) if "judged" in figures else []):
        out.print(line, highlight=False, soft_wrap=True)
