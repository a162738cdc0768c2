"""Compactions of the responses API: a hard budget refuses them, since no limit of the output bounds what they write.

LiteLLM selects a deployment for one as for a response, and says only when it is sent which of both it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wiserouter_litellm.attempts import OpenAttempt
from wiserouter_litellm.errors import uncountable

_CALL_TYPES = frozenset({"acompact_responses", "compact_responses"})


def refuse_compaction(attempt: OpenAttempt | None, kwargs: Mapping[str, Any]) -> None:
    """Refuse a compaction under a hard limit; its attempt was not sent, so that it is released.

    Parameters
    ----------
    attempt : OpenAttempt or None
        The attempt that is about to be sent.
    kwargs : mapping
        The arguments of its call, with the object that logs it.

    Raises
    ------
    litellm.BadRequestError
        If it is a compaction, and its limit is hard.
    """
    kind = getattr(kwargs.get("litellm_logging_obj"), "call_type", None)
    if attempt is not None and attempt.worst_usd is not None and kind in _CALL_TYPES:
        raise uncountable(attempt.group.name)
