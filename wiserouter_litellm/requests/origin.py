"""The origin of a request: its metadata, the id of its call, the key that made it, the deployments that failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import uuid4

from wiserouter_litellm.requests.json_objects import MAPPING

CALL_ID_HEADER = "x-litellm-call-id"
"""The header by which a client of the proxy chooses the id of its call."""

TRACE_KEY = "litellm_trace_id"
"""The keyword argument with the id that all attempts of a request share."""

PARENT_SPAN = "litellm_parent_otel_span"
"""The key of the metadata under which LiteLLM hands on the span of a request."""


class Origin(NamedTuple):
    """The origin of a request, as its keyword arguments state it.

    Attributes
    ----------
    metadata : dict
        LiteLLM's own metadata.
    call_id : str
        The id of its call.
    caller : str or None
        The hash of the key that made it.
    chose_id : bool
        Whether the client of a proxy chose the id of its call.
    failed_ids : set of str
        The deployments that failed earlier in the request.
    """

    metadata: dict[str, Any]
    call_id: str
    caller: str | None
    chose_id: bool
    failed_ids: set[str]


def metadata_of(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return LiteLLM's own metadata of a request; `metadata` belongs to the provider where there are both."""
    bucket = kwargs.get("litellm_metadata")
    if not isinstance(bucket, dict):
        bucket = kwargs.get("metadata")
    return bucket if isinstance(bucket, dict) else {}


def origin_of(kwargs: dict[str, Any]) -> Origin:
    """Return the origin of a request; a call without an id gets one, in place.

    A `_target_order` is removed: the order of the deployments is our own, so that any that has not failed may answer.
    """
    metadata = metadata_of(kwargs)
    earlier = [attempt for attempt in metadata.get("previous_models") or () if isinstance(attempt, MAPPING)]
    failed_ids = {str(attempt.get("deployment_id")) for attempt in earlier}
    if kwargs.pop("_target_order", None) is not None and isinstance(info := metadata.get("model_info"), Mapping):
        failed_ids.add(str(info.get("id")))  # it failed before LiteLLM went on to the next `order` of the group
    if "litellm_call_id" not in kwargs:
        kwargs["litellm_call_id"] = str(uuid4())
    return Origin(metadata, str(kwargs["litellm_call_id"]), caller_of(metadata), _chose_id(kwargs), failed_ids)


def _chose_id(kwargs: Mapping[str, Any]) -> bool:
    request = kwargs.get("proxy_server_request")
    headers = request.get("headers") if isinstance(request, MAPPING) else None
    return isinstance(headers, MAPPING) and any(str(name).lower() == CALL_ID_HEADER for name in headers)


def caller_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the hash of the key that made a call."""
    caller = metadata.get("user_api_key_hash") or metadata.get("user_api_key")
    return str(caller) if caller else None
