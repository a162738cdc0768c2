"""The origin of a request: its metadata, the id of its call, the key that made it, the deployments that failed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

CALL_ID_HEADER = "x-litellm-call-id"
"""The header by which a client of the proxy chooses the id of its call."""


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
    """Return the origin of a request; a call without an id gets one."""
    metadata = metadata_of(kwargs)
    earlier = [attempt for attempt in metadata.get("previous_models") or () if isinstance(attempt, Mapping)]
    failed_ids = {str(attempt.get("deployment_id")) for attempt in earlier}
    call_id = str(kwargs.setdefault("litellm_call_id", str(uuid.uuid4())))
    return Origin(metadata, call_id, caller_of(metadata), _chose_id(kwargs), failed_ids)


def _chose_id(kwargs: Mapping[str, Any]) -> bool:
    request = kwargs.get("proxy_server_request")
    headers = request.get("headers") if isinstance(request, Mapping) else None
    return isinstance(headers, Mapping) and any(str(name).lower() == CALL_ID_HEADER for name in headers)


def caller_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the hash of the key that made a call."""
    caller = metadata.get("user_api_key_hash") or metadata.get("user_api_key")
    return str(caller) if caller else None


def failed_before_hop(kwargs: dict[str, Any]) -> set[str]:
    """Return the deployment that failed before LiteLLM's fallback to a higher `order` in the same group.

    The target is removed from the request, in place: the order of the deployments is our own, so that any that has not
    failed may answer.
    """
    if kwargs.pop("_target_order", None) is None:
        return set()
    info = metadata_of(kwargs).get("model_info")
    return {str(info.get("id"))} if isinstance(info, Mapping) else set()


def trace_of(kwargs: Mapping[str, Any]) -> str:
    """Return the id that all attempts of a request share."""
    return str(kwargs.get("litellm_trace_id"))
