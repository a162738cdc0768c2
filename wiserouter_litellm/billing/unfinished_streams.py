"""Chat streams that end before their provider has said why: LiteLLM reports them as answered in full.

Some providers count their tokens in every piece, or at the start, so such a report bounds no bill. LiteLLM itself gives
the last piece a reason, "stop", where the provider has given none; this is when the call is noted. Streams of Gemini
are not recognised: LiteLLM gives each of their pieces a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import wraps
from typing import Any

from litellm.litellm_core_utils.streaming_handler import CustomStreamWrapper

_NOTE = "wiserouter_unfinished_stream"
"""Key of a log event under which it is noted that the stream of its call was not finished."""

_GIVES_REASON = "finish_reason_handler"
"""The method by which LiteLLM makes the last piece of a stream."""


def note_unfinished_streams() -> None:
    """Let LiteLLM's streams note in their log events that their providers have not finished them; once per process."""
    give: Any = getattr(CustomStreamWrapper, _GIVES_REASON, None)
    if give is None or hasattr(give, "__wrapped__"):
        return

    @wraps(give)
    def give_and_note(stream: Any) -> Any:
        reasons = (stream.received_finish_reason, getattr(stream, "intermittent_finish_reason", None))
        details = getattr(stream.logging_obj, "model_call_details", None)
        if reasons == (None, None) and isinstance(details, dict):
            details[_NOTE] = True
        return give(stream)

    setattr(CustomStreamWrapper, _GIVES_REASON, give_and_note)


def is_unfinished(kwargs: Mapping[str, Any]) -> bool:
    """Return True if a log event is that of a stream that its provider has not finished.

    Examples
    --------
    >>> is_unfinished({"stream": True})
    False
    """
    return kwargs.get(_NOTE) is True
