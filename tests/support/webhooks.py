"""A receiver of webhooks on 127.0.0.1, which answers as it is told and keeps what it got."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any


class Receiver:
    """What was received: each message as its headers and its body.

    Attributes
    ----------
    answers : list of int
        The statuses of the next answers; 200 when there are no more.
    hold : Event
        Answers wait for it.
    """

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        self.hold = Event()
        self.hold.set()
        self.url = ""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The bodies."""
        return [json.loads(body) for _, body in self.got]

    def wait_for(self, number: int, most_s: float = 10.0) -> None:
        """Wait until as many messages have come."""
        deadline = time.monotonic() + most_s
        while len(self.got) < number:
            assert time.monotonic() < deadline, self.got
            time.sleep(0.01)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a receiver, and stop it at the end."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.hold.wait(20)
            receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(receiver.answers.pop(0) if receiver.answers else 200)
            self.send_header("location", receiver.url)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook/T0P53CR3T"
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.hold.set()
        server.shutdown()
        thread.join(5)
        server.server_close()
