"""Ports of 127.0.0.1 for servers that start some time later."""

from __future__ import annotations

import socket
import sys
from collections import deque

_MOST_HELD = 64
_held: deque[socket.socket] = deque()


def free_port() -> int:
    """Return a port for a server; no other process and no connection is given it meanwhile.

    Linux gives a port that a socket is bound to, and does not listen on, only to a server that names it. Elsewhere the
    port is merely free at present.
    """
    port = hold(0)
    if port is None:
        raise OSError("there is no free port")
    return port


def hold(port: int) -> int | None:
    """Hold a port, any free one if 0; return it, or None if it is taken."""
    found = socket.socket()
    try:
        found.bind(("127.0.0.1", port))
    except OSError:
        found.close()
        return None
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # now, so that a port that is held is not held twice
    number = int(found.getsockname()[1])
    _held.append(found)
    while len(_held) > (_MOST_HELD if sys.platform == "linux" else 0):
        _held.popleft().close()
    return number
