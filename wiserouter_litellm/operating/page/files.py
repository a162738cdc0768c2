"""The files of the page, which hold no data: every figure comes from the JSON routes, with the key of an administrator.

So the files need no key, as those of LiteLLM's own interface. Their policy lets the page run its own scripts alone and
ask this proxy alone.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Awaitable, Callable
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

CONTENT_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
"""What a browser lets the page do: nothing inline, nothing from elsewhere, and no text turned into HTML."""

HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-cache",
}
"""The headers of every file of the page."""

_TYPES = {".js": "text/javascript", ".LICENSE": "text/plain"}


class PageFile(NamedTuple):
    """One file of the page.

    Attributes
    ----------
    content : bytes
        Its bytes.
    media_type : str
        Its media type.
    tag : str
        Its entity tag, a hash of the content.
    """

    content: bytes
    media_type: str
    tag: str


def page_files() -> APIRouter:
    """Return the routes of the files: the page at the root, each other file by its path below it."""
    router = APIRouter(include_in_schema=False)
    for path, file in _read("", files("wiserouter_litellm.operating.page") / "assets").items():
        router.add_api_route("/" if path == "index.html" else f"/page/{path}", _answering(file), methods=["GET"])
    return router


def _read(prefix: str, folder: Traversable) -> dict[str, PageFile]:
    """Return the files of a folder and of those below it, by path."""
    found: dict[str, PageFile] = {}
    for entry in folder.iterdir():
        path = f"{prefix}{entry.name}"
        found |= _read(f"{path}/", entry) if entry.is_dir() else {path: _file(entry)}
    return found


def _file(entry: Traversable) -> PageFile:
    content, suffix = entry.read_bytes(), f".{entry.name.rpartition('.')[2]}"
    media_type = _TYPES.get(suffix) or mimetypes.guess_type(entry.name)[0] or "text/plain"
    return PageFile(content, media_type, f'"{sha256(content).hexdigest()[:32]}"')


def _answering(file: PageFile) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of one file."""
    headers = {**HEADERS, "etag": file.tag}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, media_type=file.media_type, headers=headers)

    return answer
