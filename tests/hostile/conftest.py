"""A provider's ledger and the traffic that it bills. Proxies run offline, with the prices that LiteLLM brings."""

import os

import pytest

from support.redis_servers import serving
from support.traffic import ProviderLedger, Traffic, router_on

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # before litellm is imported: it would fetch the map


@pytest.fixture
def ledger(tmp_path):
    return ProviderLedger(tmp_path / "provider")


@pytest.fixture
def send(ledger):
    """Send calls through routers until the end of the test."""
    started = []

    def sender(*routers, call_s=0.2):
        started.append(Traffic(ledger, call_s).through(*routers))
        return started[-1]

    yield sender
    for traffic in started:
        traffic.abandon()


@pytest.fixture(scope="module")
def server():
    """A server whose content survives a restart."""
    with serving("--appendonly", "yes", "--appendfsync", "always") as one:
        yield one


@pytest.fixture
def routers(server):
    """Open routers on the server, which are closed at the end."""
    server.empty()
    opened = []

    def opener(budget, n=2, settings="timeout_s=0.5"):
        opened.extend(router_on(f"{server.url}?{settings}", budget, seed=seed) for seed in range(n))
        return opened[-n:]

    yield opener
    for router in opened:
        router.close()
