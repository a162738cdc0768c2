"""The systems that calls are imported from, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from wiserouter.errors import InvalidInput
from wiserouter.fitting.imports import langfuse, langsmith, litellm, mlflow, spans
from wiserouter.fitting.imports.calls import ImportedCall, ImportedScore, Recorded


class Source(NamedTuple):
    """How the records of one system are read.

    Attributes
    ----------
    calls, scores : callable
        Yield the calls and the scores that one record holds.
    """

    calls: Callable[[Recorded], Iterator[ImportedCall]]
    scores: Callable[[Recorded], Iterator[ImportedScore]]


SOURCES = {
    "litellm": Source(litellm.calls, litellm.scores),
    "litellm-payloads": Source(litellm.calls, litellm.scores),
    "langfuse": Source(langfuse.calls, langfuse.scores),
    "langsmith": Source(langsmith.calls, langsmith.scores),
    "mlflow": Source(mlflow.calls, mlflow.scores),
    "phoenix": Source(spans.calls, spans.scores),
    "otel": Source(spans.calls, spans.scores),
}


def source_of(name: str) -> Source:
    """Return a source by name; raise `InvalidInput` where there is none of this name."""
    if name not in SOURCES:
        raise InvalidInput(f"a source must be one of {', '.join(SOURCES)}, got {name!r}", value=name)
    return SOURCES[name]
