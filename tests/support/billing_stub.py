"""A provider on a socket of 127.0.0.1 that obeys the body it receives, bills it in full, and keeps its own ledger.

Every answer is as long as its limit allows; `support.billing_rules` says what a body costs. It speaks OpenAI's chat,
text completions, responses and embeddings and Anthropic's messages, with and without streams; any other route answers
a line of JSON and has a flat price. Faults are switched on in `behaviour`, for all models or for one of them::

    with billing_stub() as stub:
        stub.behaviours["large"] = Behaviour(status=500)
        call_the_proxy_in_front_of(stub.url)
        assert stub.ledger_usd <= budget_usd
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from support.billing_answers import WORD, Reply, body_of, events_of
from support.billing_rules import MAX_INPUT_TOKENS, OTHER_CALL_USD, PRICES, Tokens, encoding, read

FREE_PATHS = ("/input_tokens", "/count_tokens")
"""Routes that only count tokens."""

SURFACES = {
    "/chat/completions": "chat",
    "/completions": "completions",
    "/responses": "responses",
    "/messages": "messages",
    "/embeddings": "embeddings",
}


@dataclass(frozen=True)
class Behaviour:
    """What the provider does with a call.

    Attributes
    ----------
    delay_s : float
        How long it thinks; it bills the call after that, whether or not the client still waits.
    status : int or None
        It fails with this status, and bills nothing unless `bills_failures`.
    drops : bool
        It bills the call, and closes the connection without an answer.
    pieces, piece_delay_s : int, float
        The pieces of a stream, and the time before each.
    finishes_abandoned : bool
        Whether it bills all of a stream that the client leaves, instead of what was delivered.
    output_tokens : int or None
        The length of each answer, where that is less than its limit.
    usage : str
        The usage block: "true", "none", "nan", "negative", "infinite", "text", "null" or "zero".
    error_in_200 : bool
        It bills the call, and answers 200 with an error in place of an answer.
    empty : bool
        It bills the call, and answers without a choice.
    calls_tool : str or None
        It calls a tool of this name, where it is offered one and has no result of any yet.
    """

    delay_s: float = 0.0
    status: int | None = None
    bills_failures: bool = False
    drops: bool = False
    pieces: int = 4
    piece_delay_s: float = 0.0
    finishes_abandoned: bool = False
    output_tokens: int | None = None
    usage: str = "true"
    error_in_200: bool = False
    empty: bool = False
    calls_tool: str | None = None


@dataclass(frozen=True)
class Call:
    """One call that the provider received, what it cost, and whether it was answered in full."""

    path: str
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    tokens: Tokens | None
    cost_usd: float
    complete: bool

    @property
    def model(self) -> str:
        return str(self.body.get("model"))

    def plain_usd(self, prices: tuple[float, float]) -> float:
        """Return its cost without the fees and factors that no usage block reports."""
        return 0.0 if self.tokens is None else self.tokens._replace(factor=1.0, fees_usd=0.0).cost_usd(prices)


@dataclass
class BillingStub:
    """The provider's state: its ledger, its calls and its switches.

    Attributes
    ----------
    prices : mapping of str to (float, float)
        USD per token of input and of output, by model.
    calls : list of Call
        All calls, in the order of their ends; failures cost 0.
    received : int
        The number of calls that have come.
    behaviour : Behaviour
        What it does with the calls of all models that are not in `behaviours`.
    url : str
        The base URL for OpenAI clients; `root` is the one for Anthropic's.
    """

    prices: Mapping[str, tuple[float, float]] = field(default_factory=lambda: dict(PRICES))
    max_input_tokens: int = MAX_INPUT_TOKENS
    calls: list[Call] = field(default_factory=list)
    behaviour: Behaviour = Behaviour()
    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    root: str = ""
    received: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    @property
    def ledger_usd(self) -> float:
        """The total of its bills."""
        with self._lock:
            return sum(call.cost_usd for call in self.calls)

    @property
    def billed(self) -> int:
        """The number of calls that cost something."""
        with self._lock:
            return sum(call.cost_usd > 0 for call in self.calls)

    def behaviour_for(self, model: object) -> Behaviour:
        return self.behaviours.get(str(model), self.behaviour)

    def prices_of(self, model: object) -> tuple[float, float]:
        """Return the prices of a model; with or without the name of its provider."""
        return self.prices[str(model).rpartition("/")[2]]

    @property
    def plain_usd(self) -> float:
        """The total of what its usage blocks report."""
        with self._lock:
            return sum(call.plain_usd(self.prices_of(call.model)) for call in self.calls if call.cost_usd > 0)

    def receive(self) -> None:
        with self._lock:
            self.received += 1

    def bill(self, call: Call) -> None:
        with self._lock:
            self.calls.append(call)

    def finish(self, most_s: float = 30.0) -> None:
        """Wait until every call that it has received is billed, also those that their clients have left."""
        ends_s = time.monotonic() + most_s
        while len(self.calls) < self.received:
            if time.monotonic() > ends_s:
                raise TimeoutError(f"{self.received} calls were received, {len(self.calls)} are billed")
            time.sleep(0.01)

    def reset(self) -> None:
        """Forget all calls and switches."""
        with self._lock:
            self.received -= len(self.calls)
            self.calls.clear()
        self.behaviour, self.behaviours = Behaviour(), {}


@contextmanager
def billing_stub(**fields: Any) -> Iterator[BillingStub]:
    """Serve a provider from threads of this process until the block ends."""
    stub = BillingStub(**fields)
    encoding()  # reads a file: not inside the first call
    server = _Server(("127.0.0.1", 0), _Handler)
    server.stub = stub
    stub.root = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join(10)
        server.close_connections()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256
    stub: BillingStub

    def __init__(self, *args: Any) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # clients that leave are part of the tests
            super().handle_error(request, client_address)

    def close_connections(self) -> None:
        for request in list(self._open):
            try:
                request.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *args: Any) -> None:
        """Keep the output of the tests clean."""

    def do_GET(self) -> None:
        self._send(404, {"error": {"message": self.path}})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        stub = self.server.stub
        stub.receive()
        path = self.path.partition("?")[0]
        surface = next((name for end, name in SURFACES.items() if path.endswith(end)), None)
        body = _json(raw)
        switches = stub.behaviour_for(body.get("model"))
        time.sleep(switches.delay_s)
        if surface is None or not body:
            self._other(path, body, switches)
        else:
            self._answer(path, surface, body, switches)

    def _other(self, path: str, body: Mapping[str, Any], switches: Behaviour) -> None:
        free = path.endswith(FREE_PATHS) or (switches.status is not None and not switches.bills_failures)
        self._bill(path, body, None, 0.0 if free else OTHER_CALL_USD)
        answer = {"id": "other-1", "object": "list", "created": 1, "data": [], "results": [], "text": "text"}
        answer |= {"input_tokens": 7} if path.endswith(FREE_PATHS) else {}
        self._send(switches.status or 200, answer)

    def _answer(self, path: str, surface: str, body: Mapping[str, Any], switches: Behaviour) -> None:
        tokens = read(body, 0 if surface == "embeddings" else switches.output_tokens)
        if surface == "embeddings":
            tokens = tokens._replace(answers=_n_inputs(body.get("input")))
        usd = tokens.cost_usd(self.server.stub.prices_of(body.get("model")))
        if switches.status is not None:
            self._bill(path, body, tokens, usd if switches.bills_failures else 0.0, complete=False)
            self._send(switches.status, {"error": {"message": "out of order", "type": "server_error"}})
        elif tokens.input > self.server.stub.max_input_tokens:
            self._bill(path, body, tokens, 0.0, complete=False)
            self._send(400, {"error": {"message": "too long", "code": "context_length_exceeded"}})
        elif switches.drops:
            self._bill(path, body, tokens, usd, complete=False)
            self.close_connection = True
        elif switches.error_in_200:
            self._bill(path, body, tokens, usd, complete=False)
            self._send(200, {"error": {"message": "overloaded", "type": "overloaded_error", "code": 529}})
        else:
            self._deliver(path, surface, body, tokens, switches)

    def _deliver(self, path: str, surface: str, body: Mapping[str, Any], tokens: Tokens, switches: Behaviour) -> None:
        usd = tokens.cost_usd(self.server.stub.prices_of(body.get("model")))
        with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        reply = Reply(
            f"{surface}-{uuid.uuid4().hex}",
            str(body.get("model")),
            tokens,
            switches.usage,
            switches.pieces,
            switches.empty,
            with_usage,
            switches.calls_tool if body.get("tools") and not has_results(body) else None,
        )
        if not body.get("stream"):
            self._bill(path, body, tokens, usd)
            self._send(200, body_of(surface, reply))
            return
        self._stream(path, body, reply, usd, switches, list(events_of(surface, reply)))

    def _stream(
        self, path: str, body: Mapping[str, Any], reply: Reply, usd: float, switches: Behaviour, events: list[str]
    ) -> None:
        """Send the events of a stream; the call is billed before its last event, or when the client leaves."""
        delivered = 0
        try:
            self._head("200 OK", "text/event-stream", "transfer-encoding: chunked")
            for event in events[:-1]:
                time.sleep(switches.piece_delay_s)
                self._chunk(event)
                delivered += 1
        except ConnectionError:
            words = sum(part.count(WORD) for part in reply.parts[:delivered]) * reply.tokens.answers
            part = reply.tokens._replace(output=min(words, reply.tokens.output))
            if not switches.finishes_abandoned:
                usd = part.cost_usd(self.server.stub.prices_of(body.get("model")))
            self._bill(path, body, part, usd, complete=False)
            self.close_connection = True
            return
        self._bill(path, body, reply.tokens, usd)
        self._chunk(events[-1])
        self.wfile.write(b"0\r\n\r\n")

    def _bill(
        self, path: str, body: Mapping[str, Any], tokens: Tokens | None, usd: float, *, complete: bool = True
    ) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.stub.bill(Call(path, body, headers, tokens, usd, complete))

    def _send(self, status: int, answer: Mapping[str, Any]) -> None:
        content = json.dumps(answer).encode()
        self._head(f"{status} Answer", "application/json", f"content-length: {len(content)}", content)

    def _head(self, status: str, kind: str, length: str, content: bytes = b"") -> None:
        head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{length}\r\n\r\n"
        self.wfile.write(head.encode() + content)

    def _chunk(self, event: str) -> None:
        content = event.encode()
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")


def _json(raw: bytes) -> dict[str, Any]:
    """Return a body of JSON; an empty one for a form."""
    try:
        body = json.loads(raw)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _n_inputs(value: object) -> int:
    is_list = isinstance(value, list) and not all(isinstance(one, int) for one in value)
    return len(value) if is_list else 1  # type: ignore[arg-type]


def has_results(body: Mapping[str, Any]) -> bool:
    """Return True if a body has the result of a tool."""
    return any(f'"{kind}"' in json.dumps(body) for kind in ("tool", "tool_result", "function_call_output"))
