"""The files of OpenAI's Batch API: https://platform.openai.com/docs/guides/batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wiserouter.integration.batches.requests import CHAT_URL
from wiserouter.integration.batches.results import BatchResult, Outcome
from wiserouter.pricing.usage_shapes import usage_from

_NOT_RUN: dict[str, Outcome] = {"batch_expired": "expired", "batch_cancelled": "canceled", "batch_canceled": "canceled"}


def openai_request(custom_id: str, model: str, body: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
    """Return the line of a request; the output needs no limit here."""
    del max_tokens
    return {"custom_id": custom_id, "method": "POST", "url": CHAT_URL, "body": {**body, "model": model}}


def openai_result(line: Mapping[str, Any]) -> BatchResult | None:
    """Return the result that a line of an output or error file holds; None for another line.

    Examples
    --------
    >>> openai_result({"custom_id": "a", "response": None, "error": {"code": "batch_expired", "message": "late"}})
    BatchResult(custom_id='a', outcome='expired', usage=None, error='late')
    """
    if "custom_id" not in line or not ("response" in line or "error" in line):
        return None
    name, response, error = line["custom_id"], line.get("response") or {}, line.get("error")
    body = response.get("body") or {}
    if not error and response.get("status_code") == 200:
        usage = body.get("usage")
        return BatchResult(name, "succeeded", usage_from(usage) if usage else None)
    error = error or body.get("error") or {}
    text = error.get("message") or error.get("code") or f"status {response.get('status_code')}"
    return BatchResult(name, _NOT_RUN.get(error.get("code", ""), "errored"), error=str(text))
