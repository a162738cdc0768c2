"""Bounds on the requests to our routes, set before LiteLLM's authentication reads them.

That authentication reads every body as a JSON object, of GET requests as well, and fails on anything else. So a body
that a route has no use for is dropped, and that of feedback is bounded and checked in full: no more of it is read than
feedback can have, and no key but its own gets any further. Few feedbacks are admitted at a time, so that a flood of
them leaves the event loop to the calls of models.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import ClientDisconnect

from wiserouter_litellm.operating.change_bodies import BudgetOrder, ModelOrderBody, ModeOrder, Order

MAX_BODY_BYTES = 65_536
"""Most bytes of a body; the longest feedback in escaped JSON has less than half of that."""

AT_A_TIME = 2
"""Most feedbacks that one worker records at a time."""

MOST_WAITING = 64
"""Most feedbacks that wait for admission in one worker."""

RETRY_AFTER_S = 2
"""Time in seconds after which a client sends refused feedback again."""

LONGEST_ID = 1_024
"""Characters of the longest id that is looked up: LiteLLM's proxy encrypts those of responses together with a user."""

_BODY_HEADERS = frozenset({b"content-type", b"content-length", b"transfer-encoding"})


class Feedback(BaseModel):
    """A score of one answer."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    id: str = Field(
        min_length=1, max_length=LONGEST_ID, description="call, decision or response id of an answer, or a session id"
    )
    score: float = Field(ge=0, le=1, description="0 is useless, 1 is perfect", strict=True)
    comment: str | None = Field(None, max_length=2_000)
    source: str = Field("human", max_length=128, description="human; administrators may name a rule: or a judge:")


class EndedSession(BaseModel):
    """A run or a conversation that is over."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(min_length=1, max_length=LONGEST_ID, description="session id, or the id of one of the calls")


_BODIES: dict[str, type[BaseModel]] = {
    "feedback": Feedback,
    "end": EndedSession,
    "budget": BudgetOrder,
    "model": ModelOrderBody,
    "mode": ModeOrder,
}
"""The body of each route that takes one, by the last part of its path."""


class FeedbackQueue:
    """Lets a few feedbacks pass at a time, in order of arrival; it belongs to one event loop.

    Parameters
    ----------
    at_a_time, most_waiting : int
        Most requests that pass, and most that wait; the rest is refused.
    """

    def __init__(self, at_a_time: int = AT_A_TIME, most_waiting: int = MOST_WAITING) -> None:
        self._free = asyncio.Semaphore(at_a_time)
        self._most_waiting = most_waiting
        self._waiting = 0

    @asynccontextmanager
    async def admit(self) -> AsyncIterator[None]:
        """Wait for admission, which lasts for the context.

        Raises
        ------
        HTTPException
            429, if too many wait already.
        """
        if self._free.locked() and self._waiting >= self._most_waiting:
            raise HTTPException(
                429,
                f"at most {self._most_waiting} feedbacks may wait, send this one again in {RETRY_AFTER_S} s",
                {"retry-after": str(RETRY_AFTER_S)},
            )
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._free.release()


class GuardedRoute(APIRoute):
    """A route whose requests are bounded before anything reads them; only `POST` has a body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request."""
        handler = super().get_route_handler()
        body = _BODIES[self.path.rpartition("/")[2]] if "POST" in (self.methods or ()) else Feedback
        answer = partial(_answer_posted, body) if "POST" in (self.methods or ()) else _answer_without_body

        async def guarded(request: Request) -> Response:
            try:
                response = await answer(handler, request)
                response.headers["cache-control"] = "no-store"  # a key may be in a header that caches do not know
                return response
            except ModuleNotFoundError as error:
                if error.name is None or error.name.partition(".")[0] != "prisma":
                    raise
                # LiteLLM 1.106 without its database fails so where it refuses a key
                raise HTTPException(401, "the key is missing or not valid") from error

        return guarded


Handler = Callable[[Request], Coroutine[Any, Any, Response]]


async def _answer_without_body(handler: Handler, request: Request) -> Response:
    return await handler(_with_body(request, b""))


async def _answer_posted(body: type[BaseModel], handler: Handler, request: Request) -> Response:
    state = request.app.state
    queue: FeedbackQueue = state.wiserouter_order_queue if issubclass(body, Order) else state.wiserouter_feedback_queue
    checked = _with_body(request, _checked(await _bounded_body(request), body))
    async with queue.admit():
        return await handler(checked)


async def _bounded_body(request: Request) -> bytes:
    """Return the body of a request; no more than `MAX_BODY_BYTES` and one piece are read."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise HTTPException(415, f"content-type must be application/json, got {media_type[:80]!r}")
    pieces, size = [], 0
    try:
        async for piece in request.stream():
            pieces.append(piece)
            size += len(piece)
            if size > MAX_BODY_BYTES:
                text = f"a body must have at most {MAX_BODY_BYTES:,} bytes, this one has more"
                raise HTTPException(413, text, {"connection": "close"})  # the rest is not read
    except ClientDisconnect:
        raise HTTPException(400, "the body must be sent whole, the client went away") from None
    return b"".join(pieces)


def _checked(body: bytes, kind: type[BaseModel]) -> bytes:
    """Return a body that is of a kind.

    Raises
    ------
    RequestValidationError
        If it is none; what it holds is not repeated.
    """
    try:
        kind.model_validate_json(body)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError([{**fault, "loc": ("body", *fault["loc"])} for fault in faults]) from None
    return body


def _with_body(request: Request, body: bytes) -> Request:
    """Return the request with another body."""
    headers = [(name, value) for name, value in request.scope["headers"] if name not in _BODY_HEADERS]
    request.scope["headers"] = [*headers, (b"content-type", b"application/json")] if body else headers
    rest = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        return next(rest, None) or await request.receive()

    return Request(request.scope, receive)
