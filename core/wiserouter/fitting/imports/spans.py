"""Spans of OpenTelemetry: GenAI conventions and OpenInference (Phoenix), as OTLP JSON or as one object per span.

Former names of the conventions are read as well, since released instrumentations still write them, and those of
LiteLLM, OpenLLMetry and the AI SDK. Messages are attributes, or events of the span: one that holds them all, or one for
each. Evaluations are events `gen_ai.evaluation.result`, of a span or a log record of their own, and annotations of
Phoenix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
    prompt_of,
    seconds_between,
    text_of,
    texts,
    time_of,
)
from wiserouter.fitting.imports.litellm import is_text_call

EVALUATION = "gen_ai.evaluation.result"
"""The event of a score."""

_MODEL_OPERATIONS = frozenset({"chat", "text_completion", "generate_content"})


def calls(record: Recorded) -> Iterator[ImportedCall]:
    """Yield the calls of models among the spans of a record."""
    for span in _spans(record):
        attributes = _attributes(span)
        model = text_of(first_filled(attributes, *(_LITELLM_MODELS if _LITELLM_ID in attributes else _MODELS)))
        if not _is_call(span, attributes, model):
            continue
        started_s = time_of(first_filled(span, "startTimeUnixNano", "start_time_unix_nano", "start_time"))
        ended_s = time_of(first_filled(span, "endTimeUnixNano", "end_time_unix_nano", "end_time"))
        session = text_of(first_filled(attributes, "gen_ai.conversation.id", "session.id"))
        parent = _without_mark(first_filled(span, *_PARENTS))
        own = (_span_id(span), attributes.get("gen_ai.response.id"), attributes.get(_LITELLM_ID))
        yield ImportedCall(
            ids=texts([*own, parent, _trace_id(span), session]),
            model=model,
            started_s=started_s,
            prompt=_prompt(attributes) or _prompt_of_events(span, attributes),
            input_tokens=first_number(attributes, *_INPUT),
            output_tokens=first_number(attributes, *_OUTPUT),
            cached_tokens=first_number(attributes, *_CACHED),
            cost_usd=first_number(attributes, *_COSTS),
            latency_s=seconds_between(started_s, ended_s),
            conversation=session,
            group=text_of(first_filled(attributes, "litellm.model_group", "gen_ai.request.model")),
            failed="error.type" in attributes or _has_failed(span),
            parent=parent,
        )


def scores(record: Recorded) -> Iterator[ImportedScore]:
    """Yield the evaluations of a record: events of spans, log records, or annotations."""
    for span in _spans(record):
        for event in list_of(span.get("events")):
            if mapping_of(event).get("name") == EVALUATION:
                yield from _evaluation(event, _span_id(span))
    for log in _log_records(record):
        attributes = _attributes(log)
        if EVALUATION in (log.get("eventName"), log.get("event_name"), attributes.get("event.name")):
            yield from _evaluation(log, _span_id(log))
    annotated = text_of(first_filled(record, "span_id", "trace_id", "session_id"))
    if "annotator_kind" in record and annotated:  # Phoenix, an object or a row of its table
        result = {**_columns(record, "result."), **mapping_of(record.get("result"))}
        value = first_filled(result, "score", "label")
        if value is not None:
            name, at_s = first_filled(record, "name", "annotation_name"), first_time(record, "updated_at", "created_at")
            yield ImportedScore(annotated, text_of(name), value, at_s)


def _is_call(span: Recorded, attributes: Recorded, model: str) -> bool:
    """Return True if a span calls a model by its kind and operation, or has neither and the name of a model."""
    kind = first_filled(attributes, "openinference.span.kind") or span.get("span_kind")
    kind = None if kind == "UNKNOWN" else kind  # how Phoenix shows spans of other conventions
    operation = first_filled(attributes, "gen_ai.operation.name", "llm.request.type")
    if not kind and operation is None:
        return bool(model)
    calls_model = operation is None or str(operation) in _MODEL_OPERATIONS or is_text_call(str(operation))
    return str(kind or "LLM").upper() == "LLM" and calls_model


_MODELS = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
_LITELLM_ID = "litellm.call_id"
_LITELLM_MODELS = ("gen_ai.request.model", "llm.model_name")
"""In its proxy the answer is said to be of the group that was asked for."""

_INPUT = ("gen_ai.usage.input_tokens", "llm.token_count.prompt", "gen_ai.usage.prompt_tokens")
_OUTPUT = ("gen_ai.usage.output_tokens", "llm.token_count.completion", "gen_ai.usage.completion_tokens")
_CACHED = (
    "gen_ai.usage.cache_read.input_tokens",
    "llm.token_count.prompt_details.cache_read",
    "gen_ai.usage.cache_read_input_tokens",
)
_COSTS = ("llm.cost.total", "gen_ai.usage.cost", "gen_ai.cost.total_cost", "operation.cost")
_PROMPTS = ("gen_ai.input.messages", "gen_ai.prompt", "llm.input_messages", "ai.prompt.messages")
_TIMES = ("timeUnixNano", "time_unix_nano", "timestamp", "observedTimeUnixNano", "observed_time_unix_nano")
_PARENTS = ("parentSpanId", "parent_span_id", "parent_id")


def _evaluation(event: Recorded, span_id: str) -> Iterator[ImportedScore]:
    attributes = _attributes(event)
    target = span_id or text_of(attributes.get("gen_ai.response.id"))
    value = first_filled(attributes, "gen_ai.evaluation.score.value", "gen_ai.evaluation.score.label")
    if target and value is not None:
        yield ImportedScore(
            target, text_of(attributes.get("gen_ai.evaluation.name")), value, first_time(event, *_TIMES)
        )


def _spans(record: Recorded) -> Iterator[Recorded]:
    """Yield the spans of a record: of OTLP JSON all of a request, else the record itself."""
    if "resourceSpans" not in record and "resource_spans" not in record:
        yield record
        return
    for resource in list_of(first_filled(record, "resourceSpans", "resource_spans")):
        for scope in list_of(first_filled(mapping_of(resource), "scopeSpans", "scope_spans")):
            yield from map(mapping_of, list_of(mapping_of(scope).get("spans")))


def _log_records(record: Recorded) -> Iterator[Recorded]:
    if "resourceLogs" not in record:
        if "body" in record or "eventName" in record or "event_name" in record:
            yield record
        return
    for resource in list_of(record["resourceLogs"]):
        for scope in list_of(mapping_of(resource).get("scopeLogs")):
            yield from map(mapping_of, list_of(mapping_of(scope).get("logRecords")))


def _attributes(span: Recorded) -> dict[str, Any]:
    """Return attributes by name: of a list of keys and values, of nested objects, or of columns `attributes.<name>`."""
    given = span.get("attributes")
    if isinstance(given, Sequence) and not isinstance(given, str):
        return {str(one.get("key")): _value(one.get("value")) for one in map(mapping_of, given)}
    flat = _flat(mapping_of(given))
    return flat | _flat(_columns(span, "attributes."))


def _columns(row: Recorded, prefix: str) -> dict[str, Any]:
    """Return the filled columns of a table into which an object was spread."""
    filled = ((name, value) for name, value in row.items() if value is not None)
    return {name.removeprefix(prefix): value for name, value in filled if name.startswith(prefix)}


def _flat(attributes: Recorded, prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """Return nested objects by dotted names, beside the objects themselves."""
    found: dict[str, Any] = {}
    for name, value in attributes.items():
        found[prefix + name] = value
        if isinstance(value, Mapping) and depth < _MAX_DEPTH:
            found |= _flat(value, f"{prefix}{name}.", depth + 1)
    return found


_MAX_DEPTH = 10


def _value(value: object) -> object:
    """Return the value of an attribute in OTLP JSON, such as {"stringValue": "a"}."""
    if not isinstance(value, Mapping):
        return value
    if "arrayValue" in value:
        return [_value(one) for one in list_of(mapping_of(value["arrayValue"]).get("values"))]
    if "kvlistValue" in value:
        listed = list_of(mapping_of(value["kvlistValue"]).get("values"))
        return {str(one.get("key")): _value(one.get("value")) for one in map(mapping_of, listed)}
    return next(iter(value.values()), None)


def _prompt(attributes: Recorded) -> object:
    given = json_of(first_filled(attributes, *_PROMPTS))
    if given is None:
        given = _numbered(attributes, "llm.input_messages.") or _numbered(attributes, "gen_ai.prompt.")
    if isinstance(given, list) and given:
        return [_message(mapping_of(one)) for one in given]
    return given or prompt_of(attributes.get("input.value"))


def _prompt_of_events(span: Recorded, attributes: Recorded) -> object:
    """Return the messages of the events of a span, or of those that it keeps as an attribute."""
    messages = []
    for event in map(mapping_of, (*list_of(span.get("events")), *list_of(json_of(attributes.get("events"))))):
        fields = _attributes(event) or event
        if whole := _prompt(fields):
            return whole
        role = _MESSAGE_EVENTS.get(text_of(first_filled(event, "name", "event.name")))
        if role is not None:
            body = mapping_of(fields.get("gen_ai.event.content")) or fields
            messages.append({"role": role, "content": _content(body.get("content"))})
    return messages


def _content(given: object) -> object:
    """Return the parts, or the text, that a text of JSON holds; any other content as it is."""
    found = json_of(given)
    is_content = isinstance(found, str) or all("type" in mapping_of(part) for part in list_of(found) or [None])
    return found if is_content else given


_MESSAGE_EVENTS = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}


def _numbered(attributes: Recorded, prefix: str) -> list[dict[str, Any]]:
    """Return the messages that are kept as attributes such as llm.input_messages.0.message.role."""
    found: dict[int, dict[str, Any]] = {}
    for name, value in attributes.items():
        place, _, field = name[len(prefix) :].partition(".") if name.startswith(prefix) else ("", "", "")
        if place.isdigit() and field:
            found.setdefault(int(place), {})[field.removeprefix("message.")] = value
    return [found[place] for place in sorted(found)]


def _message(given: Recorded) -> dict[str, Any]:
    """Return a message; OpenInference wraps it, and its parts, once more, or the names of their fields."""
    fields = dict(mapping_of(given.get("message"))) or _without_prefix(given, "message.")
    parts = map(mapping_of, list_of(fields.get("contents")) or _numbered(fields, "contents."))
    written = list_of(json_of(fields.get("content")))  # OpenLLMetry writes a content of several parts as JSON
    if written and all("type" in mapping_of(one) for one in written):
        fields["content"] = written
    content = [mapping_of(one.get("message_content")) or _without_prefix(one, "message_content.") for one in parts]
    return {**fields, "content": content} if content and fields.get("content") is None else fields


def _without_prefix(fields: Recorded, prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in fields.items()}


def _span_id(span: Recorded) -> str:
    context = mapping_of(span.get("context"))
    found = first_filled(span, "spanId", "span_id", "context.span_id") or context.get("span_id")
    return _without_mark(found)


def _trace_id(span: Recorded) -> str:
    context = mapping_of(span.get("context"))
    found = first_filled(span, "traceId", "trace_id", "context.trace_id") or context.get("trace_id")
    return _without_mark(found)


def _without_mark(id_: object) -> str:
    """Return an id without the mark of hexadecimal digits, which the Python SDK writes before each."""
    return text_of(id_).removeprefix("0x")


def _has_failed(span: Recorded) -> bool:
    status = span.get("status")
    code = (
        mapping_of(status).get("code", mapping_of(status).get("status_code")) if isinstance(status, Mapping) else None
    )
    return code in (2, "STATUS_CODE_ERROR", "ERROR") or span.get("status_code") == "ERROR"
