"""`wiserouter judge`: scores of the answers in a log, by a judge of the caller's."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from wiserouter.budgets.budget import Budget
from wiserouter.cli.output import check_writable, out, print_json
from wiserouter.errors import InvalidInput, LogError
from wiserouter.fitting.log.files import column_names, reading, scan
from wiserouter.judging.judge import Judge, JudgeCounts
from wiserouter.judging.paid_questions import Payment
from wiserouter.judging.settings import JudgeSettings
from wiserouter.pricing.amounts import usd
from wiserouter.stores.memory import MemoryStore
from wiserouter.types import Decision

IDS = ("custom_id", "query_id", "request_id", "call_id", "id")
"""Columns that name a call, the surest first; without one its row number does."""

MOST_REQUESTS = 1_000_000
"""The horizon of the judge's budget: no plan depends on it."""


def judge(
    log: Annotated[Path, typer.Argument(help="Past calls with prompt, answer and model: parquet, csv or jsonl.")],
    ask: Annotated[str, typer.Option("--with", help="The judge: a function of prompt and answer, as module:function.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The scores to write, a .jsonl file.")],
    prompt: Annotated[str, typer.Option(help="Column of the prompts.")] = "prompt",
    answer: Annotated[str, typer.Option(help="Column of the answers.")] = "answer",
    model: Annotated[str, typer.Option(help="Column of the models.")] = "model",
    share: Annotated[float, typer.Option(help="The share of the calls to judge; of rare models a larger one.")] = 1.0,
    budget: Annotated[float | None, typer.Option(help="The most to spend, in USD; needs --cost.")] = None,
    cost: Annotated[float, typer.Option(help="The most that one judgement costs, in USD.")] = 0.0,
    concurrency: Annotated[int, typer.Option(help="Judgements at once.")] = 4,
    name: Annotated[str, typer.Option(help="The name of the judge, for the source of its scores.")] = "default",
    seed: Annotated[int, typer.Option(help="Seeds the sample.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Let a judge score the answers in a log, and write a score per line; `fit --with` joins them by id.

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
    with output.open("w", encoding="utf-8") as file:
        counts = score_calls(calls_of(log, prompt, answer, model), function_named(ask), settings, file, seed)
    if as_json:
        return print_json({"output": str(output), **{field: getattr(counts, field) for field in counts.__slots__}})
    out.print(
        f"{output}: {counts.judged:,} of {counts.offered:,} calls scored, {counts.failed:,} failed, {counts.unpaid:,} "
        f"beyond the budget, {usd(counts.spent_usd)} spent",
        highlight=False,
        soft_wrap=True,
    )
    return None


def calls_of(path: Path, prompt: str, answer: str, model: str) -> Iterator[dict[str, Any]]:
    """Yield id, model, prompt and answer of each call of a log that has an answer.

    Raises
    ------
    LogError
        If a column is missing, or the file cannot be read.
    """
    frame = scan(path)
    names = column_names(frame, path)
    for column in (prompt, answer, model):
        if column not in names:
            raise LogError(
                f"a log to judge needs a column {column!r}, got {', '.join(names)}", file=path, column=column
            )
    key = next((name for name in IDS if name in names), None)
    columns = dict.fromkeys([prompt, answer, model, *([] if key is None else [key])])
    with reading(path):
        rows = frame.select(list(columns)).collect().iter_rows(named=True)
    for number, row in enumerate(rows, start=1):
        if row[answer] not in {None, ""}:
            call_id = str(number if key is None else row[key])
            yield {"id": call_id, "model": str(row[model]), "prompt": str(row[prompt]), "answer": str(row[answer])}


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
    calls: Iterator[dict[str, Any]], ask: Callable[..., Any], settings: JudgeSettings, file: IO[str], seed: int = 0
) -> JudgeCounts:
    """Judge a share of some calls, write the scores as they come, and return what has become of the calls."""
    models: dict[str, str] = {}

    async def write(call_id: str, score: float) -> None:
        line = {"id": call_id, "model": models.pop(call_id, ""), "score": score, "source": settings.source}
        file.write(json.dumps(line) + "\n")

    asked = Judge(ask, settings, write, payment_of(settings), random.Random(seed))  # noqa: S311
    for call in calls:
        while asked.waits() >= settings.max_waiting:
            time.sleep(0.01)
        decision = Decision(call["id"], call["model"], 0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, settings.source, 0.0)
        models[call["id"]] = call["model"]
        if not asked.offer(decision, call["prompt"], call["answer"]):
            del models[call["id"]]
    while not asked.flush():
        continue
    asked.close()
    return asked.counts


def payment_of(settings: JudgeSettings) -> Payment:
    """Return the function that pays from the judge's budget, where it has one."""
    store = MemoryStore()
    if settings.budget_usd is not None:
        store.open(settings.source, Budget(settings.budget_usd, MOST_REQUESTS, limit="hard"))

    async def pay(cost_usd: float, *, billed: bool = False) -> None:
        if settings.budget_usd is not None:
            store.spend(settings.source, cost_usd, billed=billed)

    return pay
