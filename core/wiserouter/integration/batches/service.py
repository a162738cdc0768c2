"""A batch service over HTTP: files are sent and written in parts, and a request that creates something is sent once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.error import HTTPError
from urllib.request import Request

from wiserouter.fitting.platforms.http import refusal_of, request_json
from wiserouter.fitting.platforms.redirections import check_address, opened

_CHUNK_BYTES = 1 << 20
_TIMEOUT_S = 600.0


class BatchService(Protocol):
    """The batch service of a provider; each batch it returns has the fields of one of OpenAI's.

    Every method raises `HttpRefused` if the service refuses, and `OSError` if it cannot be reached.
    """

    def upload(self, path: Path) -> str:
        """Upload a batch file, and return its id; "" where a batch is made without one."""
        ...

    def create(self, file_id: str, path: Path, model: str, mark: str) -> Mapping[str, Any]:
        """Create the batch of a file, once: a request that fails is not repeated."""
        ...

    def find(self, path: Path, mark: str) -> Mapping[str, Any] | None:
        """Return the batch of a file, or None if there is none; raise `InvalidInput` while this cannot be told."""
        ...

    def batch(self, batch_id: str) -> Mapping[str, Any]:
        """Return a batch as it stands."""
        ...

    def download(self, file_id: str, path: Path) -> None:
        """Write a file of results; it appears whole or not at all."""
        ...


class HttpService:
    """What the services have in common.

    Parameters
    ----------
    url : str
        The address of the service.
    headers : mapping of str to str
        Headers of each request, with the key.
    """

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        check_address(url)
        self._url, self._headers = url.rstrip("/"), dict(headers)

    def _get(self, route: str, query: Mapping[str, object] | None = None) -> dict[str, Any]:
        return dict(request_json(self._url + route, query=query, headers=self._headers))

    def _post(self, route: str, body: object) -> dict[str, Any]:
        data, headers = json.dumps(body).encode(), {"content-type": "application/json"}
        with self._answer(self._url + route, headers, data) as answer:
            return dict(json.loads(answer.read()))

    def _send(self, url: str, path: Path, headers: Mapping[str, str], head: bytes = b"", tail: bytes = b"") -> Any:
        """Return the JSON that answers a file."""
        length = str(len(head) + path.stat().st_size + len(tail))
        with self._answer(url, {**headers, "content-length": length}, _parts(head, path, tail)) as answer:
            return json.loads(answer.read())

    def _write(self, route: str, path: Path) -> None:
        """Write what a route answers; the file appears whole or not at all."""
        unfinished = path.with_name(f"{path.name}.unfinished")
        with self._answer(self._url + route) as answer, unfinished.open("wb") as written:
            while chunk := answer.read(_CHUNK_BYTES):
                written.write(chunk)
        unfinished.replace(path)

    def _answer(
        self, url: str, headers: Mapping[str, str] | None = None, data: bytes | Iterable[bytes] | None = None
    ) -> Any:
        request = Request(url, data=data, headers={**self._headers, **(headers or {})})  # noqa: S310 - checked above
        try:
            return opened(request, _TIMEOUT_S)
        except HTTPError as error:
            raise refusal_of(error, request.full_url) from None


def _parts(head: bytes, path: Path, tail: bytes) -> Iterator[bytes]:
    yield head
    with path.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            yield chunk
    yield tail
