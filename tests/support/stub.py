"""A provider on a real socket of 127.0.0.1, that keeps its own ledger of what it delivered to the end."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from providers import TOKENS, chat, chunks, cost_usd
from proxies import free_port
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


class Stub:
    """Answers chat calls; what the prompt says decides how.

    "slow" streams a word every 50 ms, "break" ends a stream in the middle, "fail" is a 500, "limit" a 429.

    Attributes
    ----------
    billed_usd : float
        What the provider's customers owe: full answers and streams delivered to their end.
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
        if "limit" in prompt:
            return JSONResponse({"error": {"message": "too many"}}, 429)
        if body.get("stream"):
            return StreamingResponse(self._stream(model, prompt), media_type="text/event-stream")
        if "wait" in prompt:
            await asyncio.sleep(0.05)
        self._bill(model)
        return JSONResponse(chat(model))

    async def _stream(self, model: str, prompt: str) -> Any:
        for i, chunk in enumerate(chunks(model, 5)):
            if "slow" in prompt:
                await asyncio.sleep(0.05)
            if "break" in prompt and i == 2:
                return
            if '"usage"' in chunk:
                self._bill(model)
            yield chunk

    def _bill(self, model: str) -> None:
        self.billed[model] += 1
        self.billed_usd += cost_usd(model, TOKENS)


@contextmanager
def serving(stub: Stub) -> Iterator[str]:
    """Serve a stub from a thread, and yield its base URL."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(stub.app, host="127.0.0.1", port=port, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        threading.Event().wait(0.01)
    yield f"http://127.0.0.1:{port}/v1"
    server.should_exit = True
    thread.join(10)
