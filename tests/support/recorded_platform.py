"""A local HTTP server that stands in for a platform: it answers as a function says, and keeps what it was asked."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

KEYS = {
    "LANGFUSE_PUBLIC_KEY": "pk",
    "LANGFUSE_SECRET_KEY": "sk",
    "LANGSMITH_API_KEY": "ls",
    "MLFLOW_TRACKING_TOKEN": "ml",
}


class Recorded(BaseHTTPRequestHandler):
    """Answers as the server's `reply` says, and keeps what it was asked."""

    def do_GET(self):
        address = urlsplit(self.path)
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        query = {name: value[0] for name, value in parse_qs(address.query).items()}
        self.server.asked.append((address.path, query, body, dict(self.headers)))
        status, answer, *headers = self.server.reply(address.path, query, body)
        data = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET  # noqa: N815 - named by the base class

    def log_message(self, *args):
        """Say nothing."""


@contextmanager
def serving(reply):
    server = HTTPServer(("127.0.0.1", 0), Recorded)
    server.reply, server.asked = reply, []
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
