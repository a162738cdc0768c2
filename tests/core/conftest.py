"""Redis for the tests of one process: one server and one cluster, empty at the start of each module.

A test that kills, pauses or configures a server starts its own.
"""

import pytest

from support.redis_servers import MISSING, cluster, redis_server, serving


def _skip_without_redis():
    pytest.importorskip("redis")
    if redis_server() is None:
        pytest.skip(MISSING)


@pytest.fixture(scope="session")
def session_server():
    _skip_without_redis()
    with serving() as server:
        yield server


@pytest.fixture(scope="session")
def session_nodes():
    _skip_without_redis()
    with cluster() as nodes:
        yield nodes


@pytest.fixture(scope="module")
def server(session_server):
    session_server.empty()
    return session_server


@pytest.fixture(scope="module")
def nodes(session_nodes):
    for node in session_nodes:
        node.empty()
    return session_nodes
