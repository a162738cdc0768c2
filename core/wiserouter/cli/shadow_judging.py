"""The judged part of `wiserouter shadow report`: its cost stated beforehand, its verdicts, and what they show."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from wiserouter.cli.alone import alone
from wiserouter.cli.judge import payment_of
from wiserouter.cli.output import err
from wiserouter.errors import LogError
from wiserouter.evaluation.off_policy.judged_gain import JudgedGain, judged_gain
from wiserouter.evaluation.off_policy.observed_calls import ObservedCall
from wiserouter.evaluation.off_policy.shadow_judging import (
    CallTexts,
    JudgingPlan,
    ShadowJudging,
    judge_calls,
    plan_judging,
)
from wiserouter.evaluation.off_policy.would_be_verdicts import VerdictFile
from wiserouter.fitting.log.cell_texts import cell_text
from wiserouter.fitting.log.files import IDS, column_names, reading, scan
from wiserouter.judging.settings import JudgeSettings
from wiserouter.pricing.amounts import usd

TEXT_IDS = ("decision_id", "litellm_call_id", *IDS)
"""Columns that may name a call."""

ROUNDING = 1.0 + 1e-9
"""The bounds of calls add up to the budget in any order."""


def texts_of(path: Path, prompt: str, answer: str, calls: Sequence[ObservedCall]) -> dict[str, CallTexts]:
    """Return prompt and answer of the calls that a log knows, by decision.

    Raises
    ------
    LogError
        If a column is missing, or the file cannot be read.
    """
    import polars as pl

    frame = scan(path)
    names = column_names(frame, path)
    keys = [name for name in TEXT_IDS if name in names]
    for column in (prompt, answer):
        if column not in names:
            raise LogError(f"texts need a column {column!r}, got {', '.join(names)}", file=path, column=column)
    if not keys:
        raise LogError(f"texts need a column of ids, such as {TEXT_IDS[0]}, got {', '.join(names)}", file=path)
    decision_of = {name: call.id for call in calls for name in (call.call_id, call.id) if name}
    known = pl.any_horizontal(pl.col(key).cast(pl.String).is_in(list(decision_of)) for key in keys)
    with reading(path):
        rows = frame.filter(known).select(list(dict.fromkeys([prompt, answer, *keys]))).collect()
    found: dict[str, CallTexts] = {}
    for row in rows.iter_rows(named=True):
        id_ = next((decision_of[str(row[key])] for key in keys if str(row[key]) in decision_of), None)
        texts = CallTexts(cell_text(row[prompt]), cell_text(row[answer]))
        if id_ is not None and all(texts):
            found[id_] = texts
    return found


def judged_figures(
    judging: ShadowJudging,
    calls: Sequence[ObservedCall],
    texts: Mapping[str, CallTexts],
    verdicts: Path | None,
    *,
    dry_run: bool,
) -> dict[str, Any]:
    """State the cost, judge, and return the figures of the report; with a dry run, those of the statement alone."""
    with nullcontext() if verdicts is None or dry_run else alone(verdicts, verdicts):
        return _judged(judging, calls, texts, VerdictFile(verdicts), dry_run=dry_run)


def _judged(
    judging: ShadowJudging,
    calls: Sequence[ObservedCall],
    texts: Mapping[str, CallTexts],
    book: VerdictFile,
    *,
    dry_run: bool,
) -> dict[str, Any]:
    before_usd = book.spent_usd
    try:
        plan = plan_judging(judging, calls, texts, book)
        err.print(statement_of(plan, judging.budget_usd), highlight=False, soft_wrap=True)
        if not dry_run:
            pay = payment_of(JudgeSettings(name="shadow", budget_usd=plan.most_usd * ROUNDING))
            asyncio.run(judge_calls(judging, plan.calls, texts, pay, book))
    finally:
        book.close()
    pairs = [(call, book.verdicts[call.id]) for call in plan.calls if call.id in book.verdicts]
    found = judged_gain(pairs, plan.differing, plan.observed)
    return {
        "observed": plan.observed,
        "differing": plan.differing,
        "with_texts": plan.readable,
        "sampled": len(plan.calls),
        "budget_usd": judging.budget_usd,
        "most_usd": plan.most_usd,
        "expected_answers_usd": plan.expected_answers_usd,
        "spent_usd": book.spent_usd - before_usd,
        "former_usd": before_usd,
        **_shown(found, _unread(plan.calls, book)),
    }


def statement_of(plan: JudgingPlan, budget_usd: float) -> str:
    """Return the line that is printed before anything is asked."""
    return (
        f"Judging {len(plan.calls):,} of {plan.differing:,} would-be answers that differ from what ran "
        f"({plan.readable:,} with texts): at most {usd(plan.most_usd)}, of it {usd(plan.most_answers_usd)} for the "
        f"answers (about {usd(plan.expected_answers_usd)} by the router's estimates) and "
        f"{usd(plan.most_judgements_usd)} for the judge; the budget is {usd(budget_usd)}"
    )


def judged_lines(figures: dict[str, Any]) -> list[str]:
    """Return the sentences of the report."""
    spent = f"{usd(figures['spent_usd'])} of at most {usd(figures['most_usd'])} spent"
    if not figures.get("judged"):
        return [f"No would-be answer was judged; {spent}"]
    counts = f"{figures['judged']:,} would-be answers, {figures['failed']:,} others could not be judged"
    shares = f"{figures['better']:.0%} better, {figures['worse']:.0%} worse, {figures['alike']:.0%} alike"
    lines = [f"Judged: {counts}: {shares}; {spent}"]
    if figures["with_texts"] < figures["differing"]:
        lines.append(
            f"  Only {figures['with_texts']:,} of {figures['differing']:,} calls whose choice differs have texts: they "
            f"stand for the others"
        )
    lines.append(
        f"  Reward per call as the judge sees it: {_change(figures['reward'])}; a judge's errors draw it toward 0"
    )
    if figures["cost_usd"] is not None:
        lines.append(f"  Spend per call by the costs of these answers: {_change(figures['cost_usd'], ' USD')}")
    return lines


def _change(one: dict[str, float], unit: str = "") -> str:
    return f"{one['mean']:+.4g}{unit}, 95 % interval {one['low']:+.4g} to {one['high']:+.4g}"


def _unread(calls: Sequence[ObservedCall], book: VerdictFile) -> int:
    return sum(call.id not in book.verdicts for call in calls)


def _shown(found: JudgedGain | None, failed: int) -> dict[str, Any]:
    if found is None:
        return {"judged": 0, "failed": failed}
    intervals = {
        name: None if one is None else {"mean": one.mean, "low": one.low, "high": one.high}
        for name, one in (("reward", found.reward), ("cost_usd", found.cost_usd))
    }
    shares = {"better": found.better, "worse": found.worse, "alike": found.alike}
    return {"judged": found.judged, "failed": failed, **shares, **intervals}
