"""A provider on a real socket of 127.0.0.1, which bills every answer that it delivers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import litellm
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from support.ports import free_port
from support.providers import TOKENS, chat, chunks, cost_usd


class Stub:
    """A provider of chat answers that its prompts control.

    A prompt with "hang" streams one word and then nothing until the client disconnects; one with "fail" gets a 500.

    Attributes
    ----------
    billed_usd : float
        The total of its bills: the usage reported with answers and finished streams; for a stream that the client
        abandoned its question and the words delivered, by LiteLLM's tokenizer.
    asked, billed : Counter of str
        Calls by model: begun, and billed.
    bodies : list of dict
        The last bodies received.
    """

    def __init__(self) -> None:
        self.billed_usd = 0.0
        self.asked: Counter[str] = Counter()
        self.billed: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.app = Starlette(routes=[Route("/v1/chat/completions", self._answer, methods=["POST"])])

    async def _answer(self, request: Request) -> Response:
        body = await request.json()
        model, prompt = body["model"], json.dumps(body["messages"])
        self.bodies = [*self.bodies[-20:], body]
        self.asked[model] += 1
        if "fail" in prompt:
            return JSONResponse({"error": {"message": "out of order"}}, 500)
        if body.get("stream"):
            return StreamingResponse(self._stream(model, body, hang="hang" in prompt), media_type="text/event-stream")
        self._bill(model, TOKENS)
        return JSONResponse(chat(model))

    async def _stream(self, model: str, body: dict[str, Any], *, hang: bool) -> Any:
        for chunk in chunks(model, 5):
            if '"usage"' in chunk:
                self._bill(model, TOKENS)
            yield chunk
            if hang:
                await self._abandoned(model, body)
                return

    async def _abandoned(self, model: str, body: dict[str, Any]) -> None:
        """Wait until the client disconnects, and bill its question and one word."""
        try:
            await asyncio.sleep(20)
        finally:
            asked = litellm.token_counter(model="gpt-4o", messages=body["messages"])
            self._bill(model, (asked, litellm.token_counter(model="gpt-4o", text="word ", count_response_tokens=True)))

    def _bill(self, model: str, tokens: tuple[int, int]) -> None:
        self.billed[model] += 1
        self.billed_usd += cost_usd(model, tokens)


@contextmanager
def serving(stub: Stub) -> Iterator[str]:
    """Serve a stub from a thread, and yield its base URL."""
    port = free_port()
    # a connection that is closed as the next call comes in would be a call of unknown outcome, which is presumed
    terms = {"host": "127.0.0.1", "port": port, "log_level": "error", "lifespan": "off", "timeout_keep_alive": 600}
    server = uvicorn.Server(uvicorn.Config(stub.app, **terms))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        threading.Event().wait(0.01)
    yield f"http://127.0.0.1:{port}/v1"
    server.should_exit = True
    thread.join(10)
