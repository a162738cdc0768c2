"""LiteLLM: rows of `LiteLLM_SpendLogs`, lines of `StandardLoggingPayload`, and verdicts of its shadow evaluation.

A row of the spend log has its prompt in `proxy_server_request`, and only where `store_prompts_in_spend_logs` is on;
texts over 2,048 characters are cut there. The payloads of logging callbacks (s3, gcs, ...) have it whole.
"""

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
    number_of,
    prompt_of,
    seconds_between,
    text_of,
    texts,
    time_of,
)
from wiserouter.pricing.arms import EFFORT, EFFORTS, arm_name

CUT = "litellm_truncated"
"""The mark that LiteLLM leaves in a text that it has cut."""

_UNPRICED = "response_cost_failure_debug_info"
"""Filled in a payload whose cost LiteLLM could not compute, as of a model without a price; the cost there is 0."""

REDACTED = "redacted-by-litellm"
"""The text that LiteLLM puts in place of one that must not be logged, here and in what it sends to other systems."""

_TEXT_CALLS = frozenset(
    {
        *("completion", "text_completion", "responses", "anthropic_messages", "generate_content"),
        *("generate_content_stream", "llm_passthrough_route", "pass_through_endpoint"),
    }
)
"""The types of calls that answer with a text, without the `a` of asynchronous ones."""

_VERDICTS = {"real": (1.0, 0.0), "shadow": (0.0, 1.0), "tie": (0.5, 0.5)}
"""Scores of the real and of the shadow answer."""


def calls(record: Recorded) -> Iterator[ImportedCall]:
    """Yield the call of a row of the spend log, or of a line of a logging payload; embeddings and images have none."""
    if not text_of(record.get("model")) and "startTime" not in record:
        return
    kind = text_of(record.get("call_type"))
    if kind and not is_text_call(kind):
        return
    started_s, ended_s = time_of(record.get("startTime")), time_of(record.get("endTime"))
    session = text_of(record.get("session_id"))
    cached, from_cache = _cached_tokens(record), record.get("cache_hit")
    yield ImportedCall(
        ids=texts(record.get(name) for name in ("litellm_call_id", "request_id", "id", "trace_id", "session_id")),
        model=_arm(record),
        started_s=started_s,
        prompt=_prompt(record),
        input_tokens=first_number(record, "prompt_tokens"),
        output_tokens=first_number(record, "completion_tokens"),
        cached_tokens=cached,
        cost_usd=None if record.get(_UNPRICED) else first_number(record, "response_cost", "spend"),
        latency_s=seconds_between(started_s, ended_s),
        conversation=session,
        group=text_of(record.get("model_group")),
        failed=_status(record) == "failure" or str(from_cache).lower() == "true",
    )


def scores(record: Recorded) -> Iterator[ImportedScore]:
    """Yield the score of the real answer by a verdict of the shadow evaluation.

    The answer of the shadow was never sent to anyone: it has no row of its own in the spend log.
    """
    outcome, request = record.get("outcome"), text_of(record.get("request_id"))
    if isinstance(outcome, str) and outcome in _VERDICTS and request:
        yield ImportedScore(request, "shadow", _VERDICTS[outcome][0], first_time(record, "created_at"))


def is_text_call(kind: str) -> bool:
    """Return True if a type of calls answers with a text.

    Examples
    --------
    >>> is_text_call("acompletion"), is_text_call("aembedding")
    (True, False)
    """
    return not _TEXT_CALLS.isdisjoint({kind, kind.removeprefix("a")})


def _status(record: Recorded) -> object:
    """Return the outcome of a call; rows of earlier versions of LiteLLM have it in their metadata alone."""
    return record.get("status") or mapping_of(record.get("metadata")).get("status")


def _arm(record: Recorded) -> str:
    """Return the model of a call, as an arm where its reasoning effort is known."""
    model, (sent, body) = text_of(record.get("model")), (mapping_of(record.get("model_parameters")), _body(record))
    efforts = (params.get(EFFORT) or mapping_of(params.get("reasoning")).get("effort") for params in (sent, body))
    effort = next((effort for effort in efforts if isinstance(effort, str) and effort in EFFORTS), None)
    return model if effort is None or not model else arm_name(model, {EFFORT: effort})


def _body(record: Recorded) -> Recorded:
    request = mapping_of(record.get("proxy_server_request"))
    return mapping_of(request.get("body")) or request


def _prompt(record: Recorded) -> object:
    body = _body(record)
    found = first_filled(body, "messages", "input", "prompt", "contents")
    return found if found is not None else prompt_of(first_filled(record, "messages"))


def _cached_tokens(record: Recorded) -> float | None:
    usage = mapping_of(mapping_of(record.get("metadata")).get("usage_object"))
    details = mapping_of(usage.get("prompt_tokens_details"))
    return number_of(details.get("cached_tokens"))
