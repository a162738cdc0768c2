"""The requests of a batch: lines of an OpenAI batch file, or plain lines with a prompt or messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wiserouter.errors import InvalidInput
from wiserouter.prompts.messages import question_text

CHAT_URL = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """One request of a batch.

    Attributes
    ----------
    id : str
        The caller's id.
    body : mapping
        The body of OpenAI's chat completions, without a model.
    """

    id: str
    body: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The text by which the request is routed."""
        return question_text(self.body["messages"]) or ""


def read_requests(path: Path) -> list[BatchRequest]:
    """Return the requests of a file.

    A line is one of an OpenAI batch (`custom_id`, `url`, `body`), or an object with `prompt` or `messages`, perhaps an
    `id`, and parameters of the call such as `max_tokens`. A line without an id has its number.

    Raises
    ------
    InvalidInput
        If a line is none of these, two have the same id, or there is no request.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "prompts.jsonl"
    >>> _ = path.write_text('{"id": "a", "prompt": "hi"}')
    >>> read_requests(path)
    [BatchRequest(id='a', body={'messages': [{'role': 'user', 'content': 'hi'}]})]
    """
    found = [_request(line, at, path) for at, line in json_lines(path)]
    if not found:
        raise InvalidInput(f"{path} must hold at least one request, got none", value=path)
    seen: set[str] = set()
    for one in found:
        if one.id in seen:
            raise InvalidInput(f"{path}: ids must be unique, got {one.id!r} twice", value=one.id)
        seen.add(one.id)
    return found


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a JSON-lines file with the numbers of their lines; blank lines are left out."""
    with path.open("rb") as lines:
        for at, line in enumerate(lines, start=1):
            try:
                text = line.decode("utf-8-sig").strip()
                if not text:
                    continue
                value = json.loads(text)
            except ValueError as error:
                raise InvalidInput(f"{path}, line {at} must be JSON: {error}: is the file complete?") from error
            except RecursionError as error:
                raise InvalidInput(f"{path}, line {at} must not be nested this deep: flatten it") from error
            if not isinstance(value, dict):
                raise InvalidInput(f"{path}, line {at} must be an object, got {type(value).__name__}")
            yield at, value


def json_line(value: Mapping[str, Any], *, allow_nan: bool = True) -> bytes:
    r"""Return an object as JSON in UTF-8; what UTF-8 cannot hold, half of a surrogate pair, is escaped as it came.

    Examples
    --------
    >>> json_line({"a": "é"}).decode(), json_line({"a": "\ud83d"})
    ('{"a": "é"}', b'{"a": "\\ud83d"}')
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=allow_nan).encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=allow_nan).encode()


def _request(line: Mapping[str, Any], at: int, path: Path) -> BatchRequest:
    where = f"{path}, line {at}"
    if "body" in line:
        body = line["body"]
        url = line.get("url", CHAT_URL)
        if url != CHAT_URL or not isinstance(body, dict):
            raise InvalidInput(f"{where} must be a request to {CHAT_URL} with a body, got {url!r}", value=url)
        name = line.get("custom_id")
    else:
        body, name = {key: value for key, value in line.items() if key != "id"}, line.get("id")
    return BatchRequest(str(at) if name is None else str(name), _body(body, where))


def _body(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    body = {key: value for key, value in given.items() if key not in ("model", "prompt")}
    if "messages" not in body and isinstance(given.get("prompt"), str):
        body = {"messages": [{"role": "user", "content": given["prompt"]}], **body}
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise InvalidInput(f"{where} must have a prompt, a text, or messages, a list of objects; got neither")
    return body
