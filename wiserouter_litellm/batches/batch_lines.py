"""The lines of a batch file that a caller uploads."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from wiserouter.errors import InvalidInput
from wiserouter.integration.batches.requests import CHAT_URL

MOST_LINES = 50_000
"""Most lines of a batch, as at OpenAI."""

MOST_BYTES = 200_000_000
"""Most bytes of a batch, as at OpenAI."""


class BatchLine(NamedTuple):
    """A line of a batch file: the caller's id, and the body of the call."""

    custom_id: str
    body: Mapping[str, Any]

    @property
    def model(self) -> str:
        """The model that it names."""
        return str(self.body.get("model"))


def model_of_first_line(content: BinaryIO) -> str:
    """Return the model that the first line of a file names; empty where it is no line of a batch."""
    first = content.readline(MOST_BYTES).removeprefix(b"\xef\xbb\xbf")
    content.seek(0)
    try:
        return str(json.loads(first)["body"]["model"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def read_lines(path: Path) -> Iterator[BatchLine]:
    """Yield the lines of a batch file.

    Raises
    ------
    InvalidInput
        If a line is no request of a chat with an id of its own, names another model than the first one, asks for a
        stream, or there are none or too many of them.
    """
    seen, model = set[str](), ""
    with path.open(encoding="utf-8-sig", errors="surrogateescape") as rows:  # `_object` names the line
        for at, row in enumerate(rows, start=1):
            if not row.strip():
                continue
            line = _line(_object(row, at), at)
            model = model or line.model
            if line.custom_id in seen:
                raise InvalidInput(f"line {at}: custom_id must be unique, got {line.custom_id!r:.80} twice")
            if line.model != model:
                raise InvalidInput(f"line {at}: all lines must have one model, got {line.model!r:.80} beside {model!r}")
            seen.add(line.custom_id)
            if len(seen) > MOST_LINES:
                raise InvalidInput(f"a batch must have at most {MOST_LINES:,} lines, got more: send several")
            yield line
    if not seen:
        raise InvalidInput("a batch must have at least one line, got none")


def check_lines(path: Path, groups: Collection[str]) -> None:
    """Check that a file is a batch for one of some groups.

    Raises
    ------
    InvalidInput
        If it is none.
    """
    if path.stat().st_size > MOST_BYTES:
        raise InvalidInput(f"a batch must have at most {MOST_BYTES:,} bytes, got {path.stat().st_size:,}: send several")
    models = {line.model for line in read_lines(path)}
    if not models <= set(groups):
        raise InvalidInput(f"the model of a batch must be one of {', '.join(groups)}, got {min(models)!r:.80}")


def _object(row: str, at: int) -> Any:
    try:
        row.encode()
        return json.loads(row, parse_constant=_finite, parse_float=_finite)
    except UnicodeEncodeError as error:
        raise InvalidInput(f"line {at} must be UTF-8, got the byte 0x{ord(row[error.start]) - 0xDC00:x}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"line {at} must be JSON: {error}") from None


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"numbers must be finite, got {text:.80}")
    return value


def _line(value: Any, at: int) -> BatchLine:
    fields = value if isinstance(value, dict) else {}
    body, name, url = fields.get("body"), fields.get("custom_id"), fields.get("url")
    if url != CHAT_URL or not isinstance(body, dict) or not isinstance(name, str) or not name:
        raise InvalidInput(
            f"line {at} must be a request to {CHAT_URL} with a custom_id and a body, got url {url!r:.80}"
        )
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise InvalidInput(f"line {at}: body.messages must be a list of messages, got {type(messages).__name__}")
    if body.get("stream"):
        raise InvalidInput(f"line {at}: a batch has no streams: leave stream out")
    return BatchLine(name, body)
