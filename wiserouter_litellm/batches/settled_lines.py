"""The lines of a batch after its jobs have ended: each charged, released or presumed, and the results merged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wiserouter.errors import AlreadySettled, UnknownDecision
from wiserouter.integration.batches.openai_files import openai_result
from wiserouter.integration.batches.results import BatchResult
from wiserouter.integration.batches.together import together
from wiserouter_litellm.batches.batch_prices import batch_cost_usd
from wiserouter_litellm.batches.kept_batches import PlannedLine, ProviderJob
from wiserouter_litellm.group import Group

UNSENT = {
    "cancelled": ("batch_cancelled", "the batch was cancelled before this line was answered"),
    "expired": ("batch_expired", "the provider did not answer this line within the window"),
    "failed": ("batch_failed", "the provider refused the file"),
}
"""The error of a line without a result, by the state of its job: nothing was billed for it."""

NO_RESULT = ("no_result", "the job is complete, and its files have no result of this line: it counts as spent")


class SettledLine(NamedTuple):
    """A line of the merged results, and whether the provider answered it."""

    text: str
    answered: bool


def settled_lines(
    group: Group, folder: Path, lines: Sequence[PlannedLine], jobs: Iterable[ProviderJob], price_factor: float
) -> list[SettledLine]:
    """Settle the lines of a batch, each once however often this is run, and return the results in order of the input.

    Raises
    ------
    StoreError
        If a store cannot be reached; the next run goes on.
    """
    found, ends = dict[str, dict[str, Any]](), dict[str, ProviderJob]()
    for job in jobs:
        ends |= dict.fromkeys(_custom_ids(folder / job.file), job)
        for name in job.fetched:
            found |= {row["custom_id"]: row for row in _rows(folder / name) if "custom_id" in row}

    def settle(line: PlannedLine) -> SettledLine:
        return _settled(group, line, found.get(line.decision_id), ends[line.decision_id], price_factor)

    return list(together(settle, lines))


def _settled(
    group: Group, line: PlannedLine, row: Mapping[str, Any] | None, job: ProviderJob, price_factor: float
) -> SettledLine:
    result = None if row is None else openai_result(row)
    if row is None or result is None:
        return _without_result(group, line, job)
    if result.outcome == "succeeded":
        _charge(group, line, result, price_factor)
    else:
        _end(group, line, released=True)
    text = _text(line, {"id": row.get("id"), "response": row.get("response"), "error": row.get("error")})
    return SettledLine(text, result.outcome == "succeeded")


def _without_result(group: Group, line: PlannedLine, job: ProviderJob) -> SettledLine:
    """Release a line that was not run; presume one whose job is complete, since the provider may have billed it."""
    _end(group, line, released=job.status in UNSENT)
    code, message = UNSENT.get(job.status, NO_RESULT)
    error = {"code": code, "message": job.error or message}
    return SettledLine(_text(line, {"id": None, "response": None, "error": error}), answered=False)


def _charge(group: Group, line: PlannedLine, result: BatchResult, price_factor: float) -> None:
    """Charge a line at batch prices, and learn what a plain call costs; presume one that reports no tokens."""
    info = group.registry.find(line.deployment_id, arm=line.model)
    if result.usage is None or info is None:
        group.fault("unpriced_calls", f"a result of {line.model} reports no tokens, or its deployment is gone")
        _end(group, line, released=False)
        return
    card = info.rate_card
    billed_usd = batch_cost_usd(card, result.usage, price_factor)
    try:
        group.router.charge(line.decision_id, billed_usd, usage=result.usage, learned_usd=card.cost_usd(result.usage))
    except AlreadySettled:
        return
    except UnknownDecision:
        group.fault("lost_decisions", f"the record of {line.decision_id} is gone: {billed_usd:.6g} USD are not counted")


def _end(group: Group, line: PlannedLine, *, released: bool) -> None:
    try:
        (group.router.release if released else group.router.presume)(line.decision_id)
    except (AlreadySettled, UnknownDecision):
        return


def _text(line: PlannedLine, result: Mapping[str, Any]) -> str:
    """Return a line of the results, with the caller's id, and the decision by which it can be rated."""
    note = {"decision": line.decision_id, "model": line.model}
    return json.dumps({**result, "custom_id": line.custom_id, "wiserouter": note}, ensure_ascii=False)


def _rows(path: Path) -> Iterable[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def _custom_ids(path: Path) -> list[str]:
    return [str(row["custom_id"]) for row in _rows(path)]
