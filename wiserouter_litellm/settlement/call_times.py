"""The times of a finished call as LiteLLM reports them: uses of the resources `latency_s` and `first_token_s`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any


def times_of(kwargs: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds from the start of a call to its end, and to its first token where it was streamed.

    Examples
    --------
    >>> start, end = datetime(2026, 1, 1, 12, 0, 0), datetime(2026, 1, 1, 12, 0, 2)
    >>> times_of({"start_time": start, "end_time": end, "completion_start_time": end})
    {'latency_s': 2.0}
    """
    start, end, first = (kwargs.get(name) for name in ("start_time", "end_time", "completion_start_time"))
    if not isinstance(start, datetime) or not isinstance(end, datetime):
        return {}
    times = {"latency_s": max((end - start).total_seconds(), 0.0)}
    if kwargs.get("stream") and isinstance(first, datetime):
        times["first_token_s"] = max((first - start).total_seconds(), 0.0)
    return times
