"""LangSmith: runs of the type llm, of its client and its exports, and its feedback.

Runs of its second interface (`client.runs.query`) have types in capitals, their metadata beside `extra` and the details
of their tokens under `raw`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from wiserouter.fitting.imports.calls import (
    ImportedCall,
    ImportedScore,
    Recorded,
    first_filled,
    first_number,
    first_time,
    json_of,
    list_of,
    mapping_of,
    seconds_between,
    text_of,
    texts,
    time_of,
)

_SESSIONS = ("session_id", "thread_id", "conversation_id")
_ID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


def calls(record: Recorded) -> Iterator[ImportedCall]:
    """Yield the call of a run."""
    if text_of(record.get("run_type")).lower() != "llm":
        return
    extra = mapping_of(record.get("extra"))
    metadata = {**mapping_of(record.get("metadata")), **mapping_of(extra.get("metadata"))}
    parameters = mapping_of(extra.get("invocation_params"))
    model = text_of(first_filled(metadata, "ls_model_name") or first_filled(parameters, "model", "model_name"))
    started_s, ended_s = time_of(record.get("start_time")), time_of(record.get("end_time"))
    details = mapping_of(record.get("prompt_token_details"))
    details = mapping_of(details.get("raw")) or details
    session = text_of(first_filled(metadata, *_SESSIONS) or record.get("thread_id"))
    parents = _ids_of(record.get("parent_run_ids")) or [record.get("parent_run_id")]
    ids = [record.get("id"), *reversed(parents), record.get("trace_id"), session]
    yield ImportedCall(
        ids=texts(None if one is None else str(one) for one in ids),
        model=model,
        started_s=started_s,
        prompt=json_of(record.get("inputs")),
        input_tokens=first_number(record, "prompt_tokens"),
        output_tokens=first_number(record, "completion_tokens"),
        cached_tokens=first_number(details, "cache_read", "cached_tokens"),
        cost_usd=first_number(record, "total_cost"),
        latency_s=seconds_between(started_s, ended_s),
        conversation=session,
        group=text_of(record.get("name")),
        failed=bool(record.get("error")),
        parent="" if parents[-1] is None else str(parents[-1]),
    )


def scores(record: Recorded) -> Iterator[ImportedScore]:
    """Yield a feedback; one of a root run counts for each call below it."""
    target = first_filled(record, "run_id", "trace_id")
    value = first_filled(record, "score", "value")
    if "key" in record and target is not None and value is not None:
        at_s = first_time(record, "modified_at", "created_at")
        yield ImportedScore(str(target), text_of(record["key"]), value, at_s)


def _ids_of(value: object) -> Sequence[object]:
    """Return a list of ids, also one that a csv holds as text.

    Examples
    --------
    >>> _ids_of("['018f3b2a-0000-7000-8000-000000000001']")
    ['018f3b2a-0000-7000-8000-000000000001']
    """
    return _ID.findall(value) if isinstance(value, str) else list_of(value)
