"""MLflow: the spans of its traces that call a model, and the assessments of a trace (`Trace.to_dict`).

Spans of LiteLLM's callback have the model that answered, its cost and the kind of the call in attributes of their own:
MLflow's name of the model is there what the caller asked for, and its span type is that of a model for embeddings too.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator

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
    number_of,
    seconds_between,
    text_of,
    texts,
    time_of,
)
from wiserouter.fitting.imports.litellm import is_text_call

_MODEL_SPANS = frozenset({"LLM", "CHAT_MODEL"})
_SESSION = "mlflow.trace.session"
_ENCODED_ID = re.compile(r"[A-Za-z0-9+/]{11}=")


def calls(record: Recorded) -> Iterator[ImportedCall]:
    """Yield the calls of a trace."""
    record = _trace(record)
    info = mapping_of(record.get("info"))
    kept = mapping_of(first_filled(info, "trace_metadata", "request_metadata"))  # the latter of MLflow 2
    metadata = {**mapping_of(info.get("tags")), **kept}
    trace, session = text_of(first_filled(info, "trace_id", "request_id")), text_of(metadata.get(_SESSION))
    for span in map(mapping_of, list_of(mapping_of(record.get("data")).get("spans"))):
        attributes = {name: json_of(value) for name, value in mapping_of(span.get("attributes")).items()}
        litellm_id = text_of(attributes.get("litellm_call_id"))
        asked = text_of(attributes.get("mlflow.llm.model"))
        own_model = text_of(first_filled(attributes, "model", "ai.model.name"))
        if str(attributes.get("mlflow.spanType")).strip('"') not in _MODEL_SPANS:
            continue
        kind = text_of(attributes.get("call_type"))
        if litellm_id and kind and not is_text_call(kind):
            continue
        usage = mapping_of(attributes.get("mlflow.chat.tokenUsage"))
        answered = mapping_of(mapping_of(attributes.get("raw_llm_response")).get("usage"))
        details = mapping_of(answered.get("prompt_tokens_details"))
        started_s = time_of(first_filled(span, "start_time_unix_nano", "start_time_ns", "start_time"))
        ended_s = time_of(first_filled(span, "end_time_unix_nano", "end_time_ns", "end_time"))
        parent = first_filled(span, "parent_span_id", "parent_id")
        own = span.get("span_id") or mapping_of(span.get("context")).get("span_id")
        yield ImportedCall(
            ids=texts([_span_id(own), litellm_id, _span_id(parent), trace, session]),
            model=own_model or asked if litellm_id else asked or own_model,
            started_s=started_s,
            prompt=attributes.get("mlflow.spanInputs"),
            input_tokens=first_number(usage, "input_tokens"),
            output_tokens=first_number(usage, "output_tokens"),
            cached_tokens=first_number({**details, **usage}, "cache_read_input_tokens", "cached_tokens"),
            cost_usd=_cost_usd(attributes),
            latency_s=seconds_between(started_s, ended_s),
            conversation=session,
            group=asked if litellm_id else text_of(span.get("name")),
            failed="ERROR" in str(first_filled(span, "status", "status_code")) or _is_cached(attributes),
            parent=text_of(_span_id(parent)),
        )


def scores(record: Recorded) -> Iterator[ImportedScore]:
    """Yield the assessments that are valid; one of a trace counts for each of its calls."""
    info = mapping_of(_trace(record).get("info"))
    trace = text_of(first_filled(info, "trace_id", "request_id"))
    for one in list_of(info.get("assessments")):
        assessment = mapping_of(one)
        feedback = mapping_of(assessment.get("feedback"))
        value = feedback.get("value")
        if assessment.get("valid", True) and value is not None and not isinstance(value, list | dict):
            target = text_of(assessment.get("span_id")) or trace
            name = text_of(first_filled(assessment, "assessment_name", "name"))
            yield ImportedScore(target, name, value, first_time(assessment, "last_update_time", "create_time"))


def _trace(record: Recorded) -> Recorded:
    """Return a trace, also of a row of the table that `search_traces` returns, which has it whole in one column."""
    return mapping_of(record.get("trace")) or record


def _span_id(value: object) -> object:
    """Return the id of a span as assessments name it: `Span.to_dict` writes its eight bytes in base64, not in hex.

    Examples
    --------
    >>> _span_id("ASNFZ4mrze8=")
    '0123456789abcdef'
    """
    return b64decode(value).hex() if isinstance(value, str) and _ENCODED_ID.fullmatch(value) else value


def _cost_usd(attributes: Recorded) -> float | None:
    """Return the cost that LiteLLM knows, else that which MLflow has computed."""
    cost = json_of(attributes.get("mlflow.llm.cost"))
    computed = first_number(cost, "total_cost", "total") if isinstance(cost, dict) else number_of(cost)
    reported = number_of(attributes.get("response_cost"))
    return computed if reported is None else reported


def _is_cached(attributes: Recorded) -> bool:
    """Return True if LiteLLM says that its cache has answered, at a cost of 0."""
    return str(attributes.get("cache_hit")).lower() == "true"
