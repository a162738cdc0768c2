"""The lines of a batch after its jobs have ended: each charged, released or presumed, and the results merged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wiserouter.errors import AlreadySettled, InvalidInput, UnknownDecision
from wiserouter.integration.batches.openai_files import openai_result
from wiserouter.integration.batches.requests import json_line
from wiserouter.integration.batches.results import BatchResult
from wiserouter.integration.batches.together import together
from wiserouter_litellm.batches.batch_prices import batch_cost_usd
from wiserouter_litellm.batches.kept_batches import PlannedLine, ProviderJob
from wiserouter_litellm.groups.group import Group

UNSENT = {
    "cancelled": ("batch_cancelled", "the batch was cancelled before this line was answered"),
    "expired": ("batch_expired", "the provider did not answer this line within the window"),
    "failed": ("batch_failed", "the provider refused the file"),
}
"""The error of a line without a result, by the state of its job: nothing was billed for it."""

NO_RESULT = ("no_result", "the job is complete, and its files have no result of this line: it counts as spent")

UNREADABLE = ("unreadable_result", "the result of this line cannot be read: it counts as spent")


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
    found, ends = dict[str, dict[str, Any]](), dict[str, tuple[str, str, bool]]()
    for job in jobs:
        rows = [row for name in job.fetched for row in _rows(folder / name)]
        ends |= dict.fromkeys(_custom_ids(folder / job.file), _end_without_result(job, whole=None not in rows))
        found |= {row["custom_id"]: row for row in rows if row is not None}

    def settle(line: PlannedLine) -> SettledLine:
        row = found.get(line.decision_id)
        if row is None:
            return _failed(group, line, *ends[line.decision_id])
        return _settled(group, line, row, price_factor)

    return list(together(settle, lines))


def _settled(group: Group, line: PlannedLine, row: Mapping[str, Any], price_factor: float) -> SettledLine:
    try:
        result = _result(line, row)
        text = _text(line, {"id": row.get("id"), "response": row.get("response"), "error": row.get("error")})
    except Exception as error:  # a provider may send anything, and one line must not keep the others from their results
        group.fault("batches", f"the result of {line.decision_id} cannot be read: {error!r:.200}")
        result = None
    if result is None:
        return _failed(group, line, *UNREADABLE, released=False)
    if result.outcome == "succeeded":
        _charge(group, line, result, price_factor)
    else:
        _end(group, line, released=True)
    return SettledLine(text, result.outcome == "succeeded")


def _result(line: PlannedLine, row: Mapping[str, Any]) -> BatchResult | None:
    try:
        return openai_result(row)
    except InvalidInput:  # an answer whose usage counts no tokens
        return BatchResult(line.decision_id, "succeeded")


def _end_without_result(job: ProviderJob, *, whole: bool) -> tuple[str, str, bool]:
    """Return the error of a line without a result, and whether it is released.

    It is where it was not run. Where the job is complete, or what came cannot all be read, the provider may have billed
    the line.
    """
    if not whole:
        return *UNREADABLE, False
    code, message = UNSENT.get(job.status, NO_RESULT)
    return code, job.error or message, job.status in UNSENT


def _failed(group: Group, line: PlannedLine, code: str, message: str, released: bool) -> SettledLine:
    """Release or presume a line, and return its error."""
    _end(group, line, released=released)
    error = {"code": code, "message": message}
    return SettledLine(_text(line, {"id": None, "response": None, "error": error}), answered=False)


def _charge(group: Group, line: PlannedLine, result: BatchResult, price_factor: float) -> None:
    """Charge a line at batch prices, and learn what a plain call costs; presume one that reports no tokens."""
    info = group.registry.find(line.deployment_id, arm=line.model)
    if result.usage is None or info is None:
        group.fault("unpriced_calls", f"a result of {line.model} reports no tokens, or its deployment is gone")
        _end(group, line, released=False)
        return
    card = info.rate_card
    try:
        billed_usd = batch_cost_usd(card, result.usage, price_factor)
        group.router.charge(line.decision_id, billed_usd, usage=result.usage, learned_usd=card.cost_usd(result.usage))
    except AlreadySettled:
        return
    except (InvalidInput, OverflowError):
        group.fault(
            "unpriced_calls", f"a result of {line.model} reports tokens that have no price: {result.usage!r:.80}"
        )
        _end(group, line, released=False)
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
    return json_line({**result, "custom_id": line.custom_id, "wiserouter": note}).decode()


def _rows(path: Path) -> list[dict[str, Any] | None]:
    """Return the lines of a file of results; None for one that is no JSON with a custom id."""
    with path.open("rb") as lines:
        return [_row(line) for line in lines if line.strip()]


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get("custom_id"), str) else None


def _custom_ids(path: Path) -> list[str]:
    """Return the custom ids of a file that we wrote."""
    with path.open(encoding="utf-8") as lines:
        return [str(json.loads(line)["custom_id"]) for line in lines]
