"""Further calls of a request, which LiteLLM makes itself after an answer, such as with the results of its tools.

It sends them to the deployment of the first call, under the mark of that one's decision. So each is reserved again, as
a call for which LiteLLM selects no deployment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wiserouter_litellm.groups.attempts import OpenAttempt
from wiserouter_litellm.groups.group import DECISION_KEY
from wiserouter_litellm.requests.origin import metadata_of
from wiserouter_litellm.settlement.recorder import REQUEST_NOTE_KEY


def as_further_call(
    attempts: Mapping[str, OpenAttempt], mark: Mapping[str, Any] | None, kwargs: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the arguments of a further call without the mark of the call before it; None where it is the same call.

    LiteLLM shows some calls twice before they are sent, where it translates between the surfaces of providers. And it
    may make a further call before the answer of the first one is reported, whose note is then left to that report.

    Parameters
    ----------
    attempts : mapping of str to OpenAttempt
        The attempts in flight.
    mark : mapping or None
        The mark of the call, where it is one of theirs.
    kwargs : mapping
        Its arguments.
    """
    attempt = None if mark is None else attempts.get(mark["id"])
    if mark is None or (attempt is not None and not attempt.has_called):
        return None
    metadata = _routers_metadata(kwargs)
    if attempt is not None and not attempt.answered:
        attempt.followed = True
        metadata.pop(REQUEST_NOTE_KEY, None)
    plain = {name: value for name, value in kwargs["model_info"].items() if name != DECISION_KEY}
    bucket = "litellm_metadata" if isinstance(kwargs.get("litellm_metadata"), dict) else "metadata"
    return {**kwargs, "model_info": plain, bucket: {**metadata, "model_info": plain}}


def _routers_metadata(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the metadata of LiteLLM's router; some further calls get others of LiteLLM's own beside it."""
    own, first = metadata_of(kwargs), kwargs.get("metadata")
    if "deployment_model_name" in own or not isinstance(first, dict):
        return dict(own)
    return {**first, **own}
