"""Further calls of a request, which LiteLLM makes itself after an answer, such as with the results of its tools.

It sends them to the deployment of the first call, under the mark of that one's decision. So each is reserved again, as
a call for which LiteLLM selects no deployment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wiserouter_litellm.attempts import OpenAttempt
from wiserouter_litellm.group import DECISION_KEY
from wiserouter_litellm.origin import metadata_of


def is_further(attempts: Mapping[str, OpenAttempt], mark: Mapping[str, Any] | None) -> bool:
    """Return True if the call of a mark has its answer already, so that one more call is not the same.

    LiteLLM shows some calls twice before they are sent, where it translates between the surfaces of providers.

    Parameters
    ----------
    attempts : mapping of str to OpenAttempt
        The attempts in flight.
    mark : mapping or None
        The mark, where it is one of theirs.
    """
    attempt = None if mark is None else attempts.get(mark["id"])
    return mark is not None and (attempt is None or attempt.answered)


def as_further_call(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call without the mark of the call before it."""
    plain = {name: value for name, value in kwargs["model_info"].items() if name != DECISION_KEY}
    bucket = "litellm_metadata" if isinstance(kwargs.get("litellm_metadata"), dict) else "metadata"
    return {**kwargs, "model_info": plain, bucket: {**metadata_of(kwargs), "model_info": plain}}
