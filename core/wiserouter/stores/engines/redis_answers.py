"""Answers of a Redis server that refuse an exchange: what they say, and what to do."""

from __future__ import annotations

import re

OF_SCRIPT = re.compile(r"^Error running script \(call to \w+\): (@user_script: ?\d+: )*-?")

_PERMIT = "permit its user the commands of scripts, on all keys of the prefix, and in a cluster CLUSTER SLOTS"

REMEDIES = {
    "maxmemory": "its memory is full: raise maxmemory, or shorten decision_ttl_s",
    "READONLY": "it is a replica: name the server that takes writes",
    "ReadOnlyError": "it is a replica: name the server that takes writes",
    "MovedError": "it is a node of a cluster: begin the URL with redis+cluster:// or rediss+cluster://",
    "cluster support disabled": "it is a single server: begin the URL with redis:// or rediss://",
    "TTL exhausted": "the cluster is moving its keys to another node: wait",
    "LoadingError": "it has just started, and reads its data: wait",
    "permission": _PERMIT,
    "user executing the script": _PERMIT,
    "MISCONF": "it cannot write to its disk: make room there, and see its log",
    "unknown command": "it runs no scripts, as a Sentinel does not: name the server of the data",
    "Connection closed by server": "it closes connections: see its log, and its protected-mode",
    "Too many connections": "raise max_connections in the URL, or leave it out",
    "max number of clients": "it has no connection left: raise its maxclients",
    "NOREPLICAS": "fewer replicas are connected than min-replicas-to-write asks for",
}
"""What to do, by a word of the server's answer or of its class in redis-py."""

LASTING = {"MovedError", "cluster support disabled", "permission", "user executing the script", "unknown command"}
"""Those of these words after which waiting cannot help."""


def first_failure(error: Exception) -> Exception:
    """Return the failure of a node where redis-py says of a cluster only that it cannot be connected."""
    from redis.exceptions import RedisClusterException

    while isinstance(error, RedisClusterException):
        before = error.__cause__ or error.__context__
        if not isinstance(before, Exception):
            break
        error = before
    return error
