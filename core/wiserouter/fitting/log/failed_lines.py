"""The lines of a batch of OpenAI that failed: they have no answer, so that no model was called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wiserouter.fitting.log.columns import ANSWERING_MODEL, expression
from wiserouter.fitting.log.files import reading, schema_of
from wiserouter.fitting.log.layout import Layout
from wiserouter.fitting.log.log_files import LogFile


def without_failed_lines(each: Sequence[LogFile], layout: Layout) -> tuple[tuple[LogFile, ...], int]:
    """Return the files without the lines that failed or expired, and the number of these lines."""
    if ANSWERING_MODEL not in layout.places.get("model", ()):
        return tuple(each), 0
    found = [_answered(one) for one in each]
    return tuple(file for file, _ in found), sum(n for _, n in found)


def _answered(file: LogFile) -> tuple[LogFile, int]:
    failed = expression((ANSWERING_MODEL,), schema_of(file.frame, file.path)).is_null()
    with reading(file.path):
        n = int(file.frame.select(failed.sum()).collect().item())
        kept = file.frame.filter(~failed).collect().lazy() if n else file.frame
    return (replace(file, frame=kept, in_memory=True, url=None) if n else file), n
