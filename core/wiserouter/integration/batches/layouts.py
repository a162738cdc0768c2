"""The batch files of the providers: how requests are written, split at the provider's limits, and results read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from wiserouter.errors import InvalidInput
from wiserouter.integration.batches.anthropic_files import anthropic_request, anthropic_result
from wiserouter.integration.batches.chat_messages import Converter
from wiserouter.integration.batches.gemini_files import gemini_request, gemini_result
from wiserouter.integration.batches.openai_files import openai_request, openai_result
from wiserouter.integration.batches.requests import json_line
from wiserouter.integration.batches.results import BatchResult


class BatchLayout(NamedTuple):
    """The batch files of one provider.

    Attributes
    ----------
    request, result : callable
        Make the line of a request, and read that of a result.
    most_requests, most_bytes : int
        The provider's limits of one file.
    suffix : str
        The end of the names of files.
    head, between, tail : bytes
        What stands before, between and after the requests.
    """

    request: Converter
    result: Callable[[Mapping[str, Any]], BatchResult | None]
    most_requests: int
    most_bytes: int
    suffix: str = ".jsonl"
    head: bytes = b""
    between: bytes = b"\n"
    tail: bytes = b"\n"


LAYOUTS = {
    "openai": BatchLayout(openai_request, openai_result, 50_000, 200_000_000),
    "anthropic": BatchLayout(
        anthropic_request, anthropic_result, 100_000, 256_000_000, ".json", b'{"requests": [\n', b",\n", b"\n]}\n"
    ),
    "gemini": BatchLayout(gemini_request, gemini_result, 200_000, 2_000_000_000),
}

_BY_NAME = {"anthropic": re.compile(r"(anthropic|claude)"), "gemini": re.compile(r"(gemini|google|vertex)")}


class WrittenFile(NamedTuple):
    """A batch file, and what it holds; `sent_as` is the name of the model at its provider."""

    file: str
    provider: str
    model: str
    requests: int
    bytes: int
    sent_as: str = ""


def provider_of(model: str, stated: Mapping[str, str]) -> str:
    """Return the provider whose batches take a model: the stated one, else by its name, else OpenAI.

    Examples
    --------
    >>> provider_of("claude-haiku-4-5", {}), provider_of("gemini/gemini-2.5-flash", {}), provider_of("gpt-5@low", {})
    ('anthropic', 'gemini', 'openai')
    """
    named = next((name for name, pattern in _BY_NAME.items() if pattern.match(model)), "openai")
    found = stated.get(model, named)
    if found not in LAYOUTS:
        raise InvalidInput(f"the provider of a model must be one of {', '.join(LAYOUTS)}, got {found!r}", value=found)
    return found


def result_of(line: Mapping[str, Any]) -> BatchResult | None:
    """Return the result that a line of any provider holds, or None."""
    found = (LAYOUTS[name].result(line) for name in ("anthropic", "openai", "gemini"))
    return next((result for result in found if result is not None), None)


def custom_ids(path: Path) -> list[str]:
    """Return the custom ids of the requests of a batch file; raise `InvalidInput` where it is none."""
    whole = path.suffix == LAYOUTS["anthropic"].suffix
    try:
        text = path.read_text(encoding="utf-8")
        lines = json.loads(text)["requests"] if whole else [json.loads(line) for line in text.splitlines()]
        return [str(line.get("custom_id") or line["key"]) for line in lines]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput(f"{path} must be a batch file of a round, and is none", value=path) from error


def write_files(
    folder: Path, model: str, provider: str, requests: Iterable[Mapping[str, Any]], layout: BatchLayout | None = None
) -> Iterator[WrittenFile]:
    """Write the requests of one model to as many files as the provider's limits ask for, and yield what was written.

    Parameters
    ----------
    folder : Path
        Where the files are written.
    model, provider : str
        The model that takes the requests, and its provider.
    requests : iterable of mapping
        Lines as the converter of the layout makes them.
    layout : BatchLayout, optional
        By default that of the provider.

    Raises
    ------
    InvalidInput
        If one request alone exceeds the limit of a file.
    """
    layout = layout or LAYOUTS[provider]
    stem = f"{provider}-{re.sub(r'[^A-Za-z0-9._=-]+', '-', model)}"
    frame = len(layout.head) + len(layout.tail)
    lines: list[bytes] = []
    size, part = frame, 0
    for request in requests:
        line = json_line(request, allow_nan=False)
        if frame + len(line) > layout.most_bytes:
            raise InvalidInput(
                f"a request must fit into {layout.most_bytes:,} bytes of a batch file, got {len(line):,}: shorten it"
            )
        if lines and (len(lines) >= layout.most_requests or size + len(layout.between) + len(line) > layout.most_bytes):
            part += 1
            yield _written(folder, f"{stem}-{part}{layout.suffix}", provider, model, lines, layout)
            lines, size = [], frame
        size += len(line) + (len(layout.between) if lines else 0)
        lines.append(line)
    if lines:
        yield _written(folder, f"{stem}-{part + 1}{layout.suffix}", provider, model, lines, layout)


def _written(
    folder: Path, name: str, provider: str, model: str, lines: list[bytes], layout: BatchLayout
) -> WrittenFile:
    content = layout.head + layout.between.join(lines) + layout.tail
    (folder / name).write_bytes(content)
    return WrittenFile(name, provider, model, len(lines), len(content))
