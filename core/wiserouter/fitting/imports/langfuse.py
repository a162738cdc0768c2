"""Langfuse: observations of the type GENERATION, of its API and its exports, and its scores."""

from __future__ import annotations

from collections.abc import Iterator

from wiserouter.fitting.imports.calls import (
    ImportedCall,
    ImportedScore,
    Recorded,
    first_filled,
    first_number,
    first_time,
    mapping_of,
    prompt_of,
    seconds_between,
    text_of,
    texts,
    time_of,
)


def calls(record: Recorded) -> Iterator[ImportedCall]:
    """Yield the call of an observation; its fields are named as in the API, `traceId`, or as in clients, `trace_id`."""
    model = text_of(first_filled(record, "model", "providedModelName", "provided_model_name", "internalModelId"))
    kind = str(record.get("type", "GENERATION" if model else "")).upper()
    if kind != "GENERATION":
        return
    usage = mapping_of(first_filled(record, "usageDetails", "usage_details", "usage"))
    counts = {name: record.get(name) for name in _OLD_COUNTS} | dict(usage)
    cost = mapping_of(first_filled(record, "costDetails", "cost_details"))
    cached = first_number(usage, "input_cached_tokens", "input_cache_read", "cache_read_input_tokens", "input_cached")
    new = first_number(counts, "input", "prompt_tokens", "input_tokens", "promptTokens")
    started_s = time_of(first_filled(record, "startTime", "start_time"))
    ended_s = time_of(first_filled(record, "endTime", "end_time"))
    session = text_of(first_filled(record, "sessionId", "session_id"))
    total = first_number(record, "totalCost", "total_cost", "calculatedTotalCost", "calculated_total_cost")
    yield ImportedCall(
        ids=texts(first_filled(record, *names) for names in _IDS),
        model=model,
        started_s=started_s,
        prompt=prompt_of(record.get("input")),
        # Langfuse counts cached tokens apart from the other input
        input_tokens=new if new is None or cached is None or "input" not in usage else new + cached,
        output_tokens=first_number(counts, "output", "completion_tokens", "output_tokens", "completionTokens"),
        cached_tokens=cached,
        cost_usd=first_number(cost, "total") if total is None else total,
        latency_s=seconds_between(started_s, ended_s),
        conversation=session,
        group=text_of(record.get("name")),
        failed=str(record.get("level", "")).upper() == "ERROR" or _is_cached(record),
        parent=text_of(first_filled(record, *_PARENT)),
    )


def _is_cached(record: Recorded) -> bool:
    """Return True if LiteLLM says that its cache has answered, at a cost of 0."""
    return str(mapping_of(record.get("metadata")).get("cache_hit")).lower() == "true"


def scores(record: Recorded) -> Iterator[ImportedScore]:
    """Yield a score; one of a trace or a session counts for each of its calls."""
    subject = mapping_of(record.get("subject")).get("id")  # of `GET /api/public/v3/scores`
    target = next(iter(texts([subject, *(first_filled(record, *names) for names in _TARGETS)])), "")
    value = score_value(record)
    if "name" in record and target and value is not None and "model" not in record:
        yield ImportedScore(target, text_of(record["name"]), value, first_time(record, *_TIMES))


def score_value(record: Recorded) -> object:
    """Return the value of a score: of a categorical one its word, empty where there is none, and of a correction.

    Its number is a place in a mapping of words, and 0 where there is no mapping. A correction is a better answer, which
    may be a word such as "No".

    Examples
    --------
    >>> score_value({"dataType": "CATEGORICAL", "value": 0, "stringValue": "good"})
    'good'
    """
    kind, value = str(first_filled(record, "dataType", "data_type")).upper(), record.get("value")
    word = first_filled(record, "stringValue", "string_value")
    if kind == "CATEGORICAL":
        return word or (value if isinstance(value, str) else "")
    if kind == "CORRECTION":
        return ""
    value = word if value is None else value
    return bool(value) if kind == "BOOLEAN" and value in (0, 1) else value


_OLD_COUNTS = ("promptTokens", "prompt_tokens", "completionTokens", "completion_tokens")  # beside the model
_TIMES = ("updatedAt", "updated_at", "timestamp", "createdAt", "created_at")
_PARENT = ("parentObservationId", "parent_observation_id")
_IDS = (("id",), _PARENT, ("traceId", "trace_id"), ("sessionId", "session_id"))
_TARGETS = (("observationId", "observation_id"), ("traceId", "trace_id"), ("sessionId", "session_id"))
