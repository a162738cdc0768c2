"""A batch service with OpenAI's routes on a socket of 127.0.0.1, which bills what it answers in a ledger of its own.

The lines of Anthropic's and Gemini's files are answered by the same rules, without a service, by `answered_file`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from support.providers import INPUT_USD, OUTPUT_USD

PRICES = {"gpt-4o-mini": (7.5e-8, 3e-7), "claude-haiku-4-5": (5e-7, 2.5e-6), "gemini-2.5-flash": (1.5e-7, 1.25e-6)}
"""Batch prices of an input and an output token."""

GROUP_PRICES = {name: (INPUT_USD[name] / 2, OUTPUT_USD[name] / 2) for name in ("small", "large")}
"""Those of the models of the groups that tests of LiteLLM have."""

Fault = Callable[[int, str], str]
"""From the place of a line and its custom id: "" for an answer, else "errored", "expired" or "canceled"."""


def tokens_of(custom_id: str) -> tuple[int, int]:
    """Return input and output tokens of an answer."""
    return 50 + int(custom_id[:2], 16), 20 + int(custom_id[2:4], 16)


def openai_line(custom_id: str, model: str, fault: str) -> dict:
    """Return the result of a request as OpenAI's files have it."""
    response, error = None, None
    if fault == "":
        given, returned = tokens_of(custom_id)
        usage = {"prompt_tokens": given, "completion_tokens": returned, "total_tokens": given + returned}
        message = {"role": "assistant", "content": "answer", "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        body = {"id": "c", "object": "chat.completion", "created": 1, "model": f"{model}-2026", "choices": [choice]}
        response = {"status_code": 200, "request_id": "r", "body": {**body, "usage": usage}}
    elif fault == "errored":
        body = {"error": {"message": "content refused", "type": "invalid_request_error"}}
        response = {"status_code": 400, "request_id": "r", "body": body}
    else:
        error = {"code": {"expired": "batch_expired", "canceled": "batch_cancelled"}[fault], "message": fault}
    return {"id": f"batch_req_{custom_id}", "custom_id": custom_id, "response": response, "error": error}


def anthropic_line(custom_id: str, model: str, fault: str) -> dict:
    """Return the result of a request as Anthropic's files have it."""
    if fault:
        error = {"type": "error", "error": {"type": "api_error", "message": "overloaded"}, "request_id": None}
        return {"custom_id": custom_id, "result": {"type": fault, **({"error": error} if fault == "errored" else {})}}
    given, returned = tokens_of(custom_id)
    message = {"id": "msg", "type": "message", "role": "assistant", "model": model, "stop_reason": "end_turn"}
    content = [{"type": "text", "text": "answer"}]
    usage = {"input_tokens": given, "output_tokens": returned}
    message |= {"content": content, "stop_sequence": None, "usage": usage}
    return {"custom_id": custom_id, "result": {"type": "succeeded", "message": message}}


def gemini_line(custom_id: str, model: str, fault: str) -> dict:
    """Return the result of a request as Gemini's files have it; a fifth of the output is thought."""
    if fault:
        return {"key": custom_id, "error": {"code": 13, "message": fault}}
    given, returned = tokens_of(custom_id)
    thoughts = returned // 5
    usage = {"promptTokenCount": given, "candidatesTokenCount": returned - thoughts, "thoughtsTokenCount": thoughts}
    part = {"content": {"role": "model", "parts": [{"text": "answer"}]}, "finishReason": "STOP"}
    return {"key": custom_id, "response": {"candidates": [part], "usageMetadata": usage, "modelVersion": model}}


LINES = {"openai": openai_line, "anthropic": anthropic_line, "gemini": gemini_line}


def requests_of(path, provider: str) -> list[str]:
    """Return the custom ids of a batch file."""
    if provider == "anthropic":
        return [one["custom_id"] for one in json.loads(path.read_text())["requests"]]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line["key" if provider == "gemini" else "custom_id"] for line in lines]


def answered_file(path, provider: str, model: str, results, fault: Fault = lambda at, name: "") -> float:
    """Write the results of a batch file, in another order, and return what they cost."""
    lines, cost_usd = [], 0.0
    for at, name in reversed(list(enumerate(requests_of(path, provider)))):
        failed = fault(at, name)
        cost_usd += 0.0 if failed else price_of(model, name)
        lines.append(json.dumps(LINES[provider](name, model, failed)))
    results.write_text("\n".join(lines) + "\n")
    return cost_usd


def price_of(model: str, custom_id: str) -> float:
    """Return the cost of an answer."""
    return sum(price * n for price, n in zip({**PRICES, **GROUP_PRICES}[model], tokens_of(custom_id), strict=True))


@dataclass
class BatchStub:
    """The state of the service: files, batches in the order of their creation, and the ledger.

    While `held`, batches run on, however often they are polled. A batch that is cancelled has answered its first half.
    """

    fault: Fault = lambda at, name: ""
    polls: int = 1
    drops_created: bool = False
    refuses: bool = False
    held: bool = False
    url: str = ""
    ledger_usd: float = 0.0
    files: dict[str, bytes] = field(default_factory=dict)
    batches: dict[str, dict] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def create(self, body: dict) -> dict:
        """Accept a batch."""
        name = f"batch_{len(self.batches)}"
        self.batches[name] = {**body, "id": name, "object": "batch", "status": "in_progress", "created_at": 1}
        return self.batches[name]

    def poll(self, name: str) -> dict:
        """Return a batch, which ends at the given number of polls."""
        self.asked[name] = self.asked.get(name, 0) + 1
        batch = self.batches[name]
        if batch["status"] == "cancelling":
            n_lines = self.files[batch["input_file_id"]].decode().count("\n")
            self.finish(batch, lambda at, _: "canceled" if 2 * at >= n_lines else "")
            batch["status"] = "cancelled"
        elif batch["status"] == "in_progress" and self.asked[name] >= self.polls and not self.held:
            self.finish(batch, self.fault)
        return batch

    def finish(self, batch: dict, fault: Fault) -> None:
        """Answer the requests of a batch and bill them; or refuse its file."""
        if self.refuses:
            batch |= {"status": "failed", "errors": {"object": "list", "data": [{"message": "bad file"}]}}
            return
        good, bad = [], []
        for at, text in enumerate(self.files[batch["input_file_id"]].decode().splitlines()):
            line = json.loads(text)
            name, model = line["custom_id"], line["body"]["model"]
            failed = fault(at, name)
            self.ledger_usd += 0.0 if failed else price_of(model, name)
            (bad if failed else good).append(json.dumps(openai_line(name, model, failed)))
        batch |= {"status": "completed"}
        for kind, lines in (("output", good), ("error", bad)):
            if lines:
                batch[f"{kind}_file_id"] = self.keep("\n".join(lines).encode())

    def keep(self, content: bytes) -> str:
        """Keep a file, and return its id."""
        name = f"file-{len(self.files)}"
        self.files[name] = content
        return name


class Service(BaseHTTPRequestHandler):
    """What the services have in common: the answers, and an answer that is lost."""

    protocol_version = "HTTP/1.1"
    stub: BatchStub

    def log_message(self, *args) -> None:
        """Say nothing."""

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def answer(self, content, status: int = 200, **headers) -> None:
        """Send bytes, or an object as JSON."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"content-length": len(data), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(data)

    def made(self, batch) -> None:
        """Answer with a batch that was made, unless that answer is to be lost."""
        if not self.stub.drops_created:
            self.answer(batch)
        self.close_connection, self.stub.drops_created = self.stub.drops_created, False


class BatchHandler(Service):
    """The routes of OpenAI."""

    def do_POST(self) -> None:
        """Take a file, or make a batch, whose answer may be lost."""
        data, stub = self.body(), self.stub
        assert self.headers["authorization"] == "Bearer secret"
        with stub.lock:
            if self.path == "/v1/files":
                file = {"id": stub.keep(uploaded(self.headers["content-type"], data)), "object": "file", "bytes": 1}
                self.answer({**file, "created_at": 1, "filename": "a", "purpose": "batch", "status": "processed"})
                return
            if self.path.endswith("/cancel"):
                batch = stub.batches[self.path.split("/")[3]]
                batch |= {"status": "cancelling"} if batch["status"] == "in_progress" else {}
                self.answer(batch)
                return
            self.made(stub.create(json.loads(data)))

    def do_GET(self) -> None:
        """Send a file, a batch, or the list of batches."""
        with self.stub.lock:
            parts = self.path.partition("?")[0].split("/")
            if parts[2] == "files":
                self.answer(self.stub.files[parts[3]])
            elif len(parts) > 3:
                self.answer(self.stub.poll(parts[3]))
            else:
                self.answer({"object": "list", "data": list(self.stub.batches.values()), "has_more": False})


class AzureHandler(BatchHandler):
    """The same routes as Azure has them: below /openai, with a version, a key of its own, and other lines."""

    def parse_request(self) -> bool:
        """Read a request of Azure as one of OpenAI."""
        parsed = super().parse_request()
        route, _, query = self.path.partition("?")
        assert route.startswith("/openai/"), route
        assert "api-version=2024-10-21" in query, query
        assert self.headers["api-key"] == "secret"
        self.path = f"/v1/{route.removeprefix('/openai/')}"
        del self.headers["authorization"]
        self.headers["authorization"] = "Bearer secret"
        return parsed


@contextmanager
def batch_stub(handler: type[Service] = BatchHandler, **behaviour) -> Iterator[BatchStub]:
    """Run the service while the block runs."""
    stub = BatchStub(**behaviour)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), {"stub": stub}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5.0)


def uploaded(content_type: str, data: bytes) -> bytes:
    """Return the file of a form, whose purpose must be a batch."""
    form = message_from_bytes(f"content-type: {content_type}\r\n\r\n".encode() + data)
    parts = {part.get_param("name", header="content-disposition"): part for part in form.get_payload()}
    assert parts["purpose"].get_payload() == "batch"
    return parts["file"].get_payload(decode=True)
