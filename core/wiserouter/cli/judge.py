"""`wiserouter judge`: scores of the answers in a log, by a judge of the caller's."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from wiserouter.budgets.budget import Budget
from wiserouter.cli.alone import alone
from wiserouter.cli.judged_log import CallToJudge, judged_log
from wiserouter.cli.output import check_no_input, check_writable, err, out, print_json
from wiserouter.cli.score_file import ScoreFile
from wiserouter.errors import InvalidInput
from wiserouter.fitting.log.files import JSONL
from wiserouter.judging.judge import Judge, JudgeCounts
from wiserouter.judging.paid_questions import Payment
from wiserouter.judging.sampling import SystematicSample
from wiserouter.judging.settings import JudgeSettings
from wiserouter.pricing.amounts import usd
from wiserouter.stores.memory import MemoryStore
from wiserouter.types import Decision

MOST_REQUESTS = 1_000_000
"""The horizon of the judge's budget: no plan depends on it."""


def judge(
    log: Annotated[Path, typer.Argument(help="Past calls with prompt, answer and model: parquet, csv or jsonl.")],
    ask: Annotated[str, typer.Option("--with", help="The judge: a function of prompt and answer, as module:function.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The scores, a .jsonl file that is added to.")],
    prompt: Annotated[str, typer.Option(help="Column of the prompts.")] = "prompt",
    answer: Annotated[str, typer.Option(help="Column of the answers.")] = "answer",
    model: Annotated[str, typer.Option(help="Column of the models.")] = "model",
    share: Annotated[float, typer.Option(help="The share of the calls to judge; of rare models a larger one.")] = 1.0,
    budget: Annotated[float | None, typer.Option(help="The most to spend, in USD; needs --cost.")] = None,
    cost: Annotated[float, typer.Option(help="The most that one judgement costs, in USD.")] = 0.0,
    concurrency: Annotated[int, typer.Option(help="Judgements at once.")] = 4,
    name: Annotated[str, typer.Option(help="The name of the judge, for the source of its scores.")] = "default",
    seed: Annotated[int, typer.Option(help="Seeds the sample.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Let a judge score the answers in a log, and write a score per line; `fit --with` joins them to the log.

    A call that has a score in the file is not judged again: a run that was stopped goes on with the same command.
    A file with scores of other texts, or by another judge, is refused.

    Example: wiserouter judge calls.parquet --with my_judges:correct --share 0.2 -o scores.jsonl
    """
    if budget is not None and not cost:
        raise InvalidInput("--budget needs --cost, the most that one judgement costs, got none")
    settings = JudgeSettings(
        name=name,
        share=share,
        budget_usd=budget,
        cost_usd=cost,
        concurrency=concurrency,
        held=0,
        max_waiting=1_000,
        first_scores=0,  # all are written; a fit learns them
    )
    check_writable(output)
    check_no_input(output, [log])
    if not output.name.lower().endswith(JSONL) and (output.is_file() or not output.exists()):
        raise InvalidInput(f"--output must be a .jsonl file, whose lines fit reads, got {output}", value=output)
    graded, found = function_named(ask), judged_log(log, prompt, answer, model)
    sample = SystematicSample(share, random.Random(seed))  # noqa: S311
    drawn = [call for call in found.calls if sample.takes(0, call.model)]
    with alone(output, output):
        scores = ScoreFile(output, found.key, model, prompt, answer, settings.source, ask)
        scored = {call.id for call in found.calls if scores.has(call)}
        asked = [call for call in drawn if call.id not in scored]
        counts = score_calls(asked, graded, settings, scores, seed)
    counts.offered = len(found.calls)
    before = len(drawn) - len(asked)
    if as_json:
        figures = {field: getattr(counts, field) for field in counts.__slots__}
        print_json({"output": str(output), **figures, "before": before, "incomplete": found.incomplete})
    else:
        notes = ((before, "scored before"), (found.incomplete, "left out: no prompt, answer or model"))
        out.print(
            f"{output}: {counts.judged:,} of {counts.offered:,} calls scored, {counts.failed:,} failed, "
            f"{counts.unpaid:,} beyond the budget, {usd(counts.spent_usd)} spent"
            + "".join(f"; {n:,} {text}" for n, text in notes if n),
            highlight=False,
            soft_wrap=True,
        )
    if counts.failed and not counts.judged:
        raise InvalidInput(f"--with must name a judge that scores calls, {ask!r} failed for all {counts.failed:,}")


def function_named(name: str, option: str = "--with") -> Callable[..., Any]:
    """Return the function that an option names as `module:function`; the module may lie in the working directory.

    Raises
    ------
    InvalidInput
        If there is none.
    """
    module, _, function = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(f"{option} must name a function as module:function, got {name!r}: {error}") from error
    if not callable(found):
        raise InvalidInput(f"{option} must name a function, got {type(found).__name__} for {name!r}")
    return found  # type: ignore[no-any-return]


def score_calls(
    calls: Iterable[CallToJudge], ask: Callable[..., Any], settings: JudgeSettings, scores: ScoreFile, seed: int = 0
) -> JudgeCounts:
    """Judge calls, keep the scores as they come, and return what has become of the calls.

    Raises
    ------
    OSError
        If a score cannot be written, after which nothing more is paid for.
    """
    waiting: dict[str, CallToJudge] = {}
    unwritten: list[OSError] = []

    async def keep(decision_id: str, score: float) -> None:
        call = waiting.pop(decision_id)
        try:
            scores.add(call, score)
        except OSError as error:
            unwritten.append(error)
            raise

    asked = Judge(ask, replace(settings, share=1.0), keep, payment_of(settings), random.Random(seed))  # noqa: S311
    with scores:
        try:
            _offer(calls, asked, waiting, unwritten)
        except KeyboardInterrupt:
            asked.forget_waiting()
            err.print("stopping: the judgements under way are paid for and kept; Ctrl-C again gives them up")
            asked.flush(settings.timeout_s)
            raise
        asked.close()
        if unwritten:
            raise unwritten[0]
    return asked.counts


def _offer(
    calls: Iterable[CallToJudge], asked: Judge, waiting: dict[str, CallToJudge], unwritten: list[OSError]
) -> None:
    """Offer calls to a judge, and wait until each is judged or a score cannot be written."""
    settings = asked.settings
    for call in calls:
        while asked.waits() >= settings.max_waiting and not unwritten:
            time.sleep(0.01)
        if unwritten:
            return
        waiting[str(call.id)] = call
        decision = Decision(str(call.id), call.model, 0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, settings.source, 0.0)
        asked.offer(decision, call.prompt, call.answer)
    while not unwritten and not asked.flush(0.1):
        continue


def payment_of(settings: JudgeSettings) -> Payment:
    """Return the function that pays from the judge's budget, where it has one."""
    store = MemoryStore()
    if settings.budget_usd is not None:
        store.open(settings.source, Budget(settings.budget_usd, MOST_REQUESTS, limit="hard"))

    async def pay(cost_usd: float, *, billed: bool = False) -> None:
        if settings.budget_usd is not None:
            store.spend(settings.source, cost_usd, billed=billed)

    return pay
