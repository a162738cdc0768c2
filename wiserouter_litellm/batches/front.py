"""The route in front of LiteLLM's routes of files and batches: it keeps what is ours, and hands on the rest."""

from __future__ import annotations

import json
import re
from tempfile import SpooledTemporaryFile
from typing import IO

from fastapi import FastAPI
from starlette.datastructures import Headers, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import BaseRoute, Match
from starlette.types import Message, Receive, Scope, Send

from wiserouter_litellm.batches.batch_lines import model_of_first_line
from wiserouter_litellm.batches.group_batches import GroupBatches
from wiserouter_litellm.batches.kept_batches import BATCH_ID
from wiserouter_litellm.batches.kept_files import FILE_ID
from wiserouter_litellm.batches.routes import routes_of

MOST_ORDER_BYTES = 1_000_000
"""Most bytes of a body that creates a batch; a longer one is LiteLLM's."""

_IN_MEMORY_BYTES = 1_000_000
_CHUNK_BYTES = 1 << 20
_PREFIXES = ("/v1", "")
_ASKING = re.compile(rf"(?:/v1)?/(?:files/{FILE_ID.pattern}(?:/content)?|batches/{BATCH_ID.pattern}(?:/cancel)?)")
_GIVING = re.compile(r"(?:/v1)?/(?P<kind>files|batches)")


class BatchFront(BaseRoute):
    """Answers requests about files and batches of our groups; all others go on to the routes after it.

    An id of ours says so in the path. A file is ours if its first line names one of our groups, a batch if its file
    is; so these bodies are read, and handed on as they came.

    Parameters
    ----------
    app : FastAPI
        The proxy; its state has the batches of the current configuration, or None.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._own = [route for prefix in _PREFIXES for route in routes_of(lambda: self._ours, prefix).routes]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return a full match for a request that may be ours."""
        if scope["type"] != "http" or self._app.state.wiserouter_batches is None:
            return Match.NONE, {}
        path, posted = _path(scope), scope["method"] == "POST"
        maybe = _ASKING.fullmatch(path) or (posted and _GIVING.fullmatch(path))
        return (Match.FULL if maybe else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        giving = _GIVING.fullmatch(_path(scope))
        if giving is None:
            await _pass_on(self._own, scope, receive, send)
            return
        with SpooledTemporaryFile(_IN_MEMORY_BYTES) as body:
            whole = await _read_body(body, receive, None if giving["kind"] == "files" else MOST_ORDER_BYTES)
            ours = whole and await self._is_ours(scope, giving["kind"], body)
            routes = self._own if ours else [route for route in self._app.router.routes if route is not self]
            await _pass_on(routes, scope, _again(body, receive, whole=whole), send)

    async def _is_ours(self, scope: Scope, kind: str, body: IO[bytes]) -> bool:
        if kind == "files":
            model = await _model_of_upload(scope, body)
            return bool(model) and self._ours.takes(model)
        body.seek(0)
        try:
            order = json.loads(body.read())
        except (ValueError, RecursionError):
            return False
        file_id = order.get("input_file_id") if isinstance(order, dict) else None
        return isinstance(file_id, str) and FILE_ID.fullmatch(file_id) is not None

    @property
    def _ours(self) -> GroupBatches:
        batches: GroupBatches = self._app.state.wiserouter_batches
        return batches


def _path(scope: Scope) -> str:
    """Return the path of a request without the one that the proxy is mounted at."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


async def _pass_on(routes: list[BaseRoute], scope: Scope, receive: Receive, send: Send) -> None:
    """Hand a request to the first route that matches it, as Starlette's router does."""
    for route in routes:
        match, found = route.matches(scope)
        if match is Match.FULL:
            scope["route"] = route
            scope.update(found)
            await route.handle(scope, receive, send)
            return
    await scope["router"].default(scope, receive, send)


async def _read_body(body: IO[bytes], receive: Receive, most_bytes: int | None) -> bool:
    """Read a body; return False where it has more bytes than asked for, which are left where they are."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        size += body.write(message.get("body", b""))
        more = message.get("more_body", False)
        if more and most_bytes is not None and size > most_bytes:
            return False
    return True


def _again(body: IO[bytes], receive: Receive, *, whole: bool) -> Receive:
    """Return a `receive` that begins with what was read already."""
    body.seek(0)
    ended = False

    async def again() -> Message:
        nonlocal ended
        if not ended:
            chunk = body.read(_CHUNK_BYTES)
            ended = len(chunk) < _CHUNK_BYTES
            return {"type": "http.request", "body": chunk, "more_body": not ended or not whole}
        return await receive()

    return again


async def _model_of_upload(scope: Scope, body: IO[bytes]) -> str:
    """Return the model of the first line of an uploaded batch file; empty for any other form."""
    if not Headers(scope=scope).get("content-type", "").startswith("multipart/form-data"):
        return ""
    body.seek(0)
    request = Request(dict(scope), _again(body, _nothing, whole=True))
    try:
        async with request.form() as form:
            file = form.get("file")
            if form.get("purpose") != "batch" or not isinstance(file, UploadFile):
                return ""
            return model_of_first_line(file.file)
    except (MultiPartException, HTTPException):
        return ""  # LiteLLM says what is wrong with it


async def _nothing() -> Message:
    return {"type": "http.disconnect"}
