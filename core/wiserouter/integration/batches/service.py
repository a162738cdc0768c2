"""A batch service with OpenAI's routes: files, batches and their results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from wiserouter.errors import InvalidInput
from wiserouter.fitting.platforms.http import HttpRefused, request_json
from wiserouter.integration.batches.requests import CHAT_URL
from wiserouter.stores.ids import fresh_id

MARK = "wiserouter"
"""The key of a batch's metadata that tells which file it was made of."""

_CHUNK_BYTES = 1 << 20
_TIMEOUT_S = 600.0
_PAGE = 100


class BatchService:
    """A batch service with OpenAI's routes.

    Parameters
    ----------
    url : str
        Its address, such as https://api.openai.com/v1.
    key : str
        Its key.

    Raises
    ------
    HttpRefused
        From every method, if the service refuses.
    OSError
        From every method, if it cannot be reached.
    """

    def __init__(self, url: str, key: str) -> None:
        if urlsplit(url).scheme not in {"http", "https"}:
            raise InvalidInput(f"an address must begin with http:// or https://, got {url!r:.200}", value=url)
        self._url, self._headers = url.rstrip("/"), {"authorization": f"Bearer {key}"}

    def upload(self, path: Path) -> str:
        """Upload a batch file, and return its id."""
        limit = fresh_id()
        head = (
            f'--{limit}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            f'--{limit}\r\ncontent-disposition: form-data; name="file"; filename="{path.name}"\r\n'
            f"content-type: application/jsonl\r\n\r\n"
        ).encode()
        tail = f"\r\n--{limit}--\r\n".encode()
        headers = {
            "content-type": f"multipart/form-data; boundary={limit}",
            "content-length": str(len(head) + path.stat().st_size + len(tail)),
        }
        return str(self._posted("/files", _parts(head, path, tail), headers)["id"])

    def create(self, file_id: str, mark: str) -> Mapping[str, Any]:
        """Create a batch, once: a request that fails is not repeated."""
        body = {
            "input_file_id": file_id,
            "endpoint": CHAT_URL,
            "completion_window": "24h",
            "metadata": {MARK: mark},
        }
        return self._posted("/batches", json.dumps(body).encode(), {"content-type": "application/json"})

    def find(self, mark: str) -> Mapping[str, Any] | None:
        """Return the batch of a mark, or None."""
        after: str | None = None
        while True:
            page = request_json(f"{self._url}/batches", query={"limit": _PAGE, "after": after}, headers=self._headers)
            for batch in page["data"]:
                if (batch.get("metadata") or {}).get(MARK) == mark:
                    return dict(batch)
            if not page.get("has_more") or not page["data"]:
                return None
            after = page["data"][-1]["id"]

    def batch(self, batch_id: str) -> Mapping[str, Any]:
        """Return a batch as it stands."""
        return dict(request_json(f"{self._url}/batches/{batch_id}", headers=self._headers))

    def download(self, file_id: str, path: Path) -> None:
        """Write a file of the service; it appears whole or not at all."""
        request = Request(f"{self._url}/files/{file_id}/content", headers=self._headers)  # noqa: S310 - checked above
        unfinished = path.with_name(f"{path.name}.unfinished")
        with _answer(request) as answer, unfinished.open("wb") as written:
            while chunk := answer.read(_CHUNK_BYTES):
                written.write(chunk)
        unfinished.replace(path)

    def _posted(self, route: str, data: bytes | Iterable[bytes], headers: Mapping[str, str]) -> Mapping[str, Any]:
        request = Request(self._url + route, data=data, headers={**self._headers, **headers})  # noqa: S310 - as above
        with _answer(request) as answer:
            return dict(json.loads(answer.read()))


def _parts(head: bytes, path: Path, tail: bytes) -> Iterator[bytes]:
    yield head
    with path.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            yield chunk
    yield tail


def _answer(request: Request) -> Any:
    try:
        return urlopen(request, timeout=_TIMEOUT_S)  # noqa: S310 - the scheme is checked
    except HTTPError as error:
        with error:
            raise HttpRefused(error.code, request.full_url, error.read(2_000).decode("utf-8", "replace")) from None
