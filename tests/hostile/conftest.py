"""A provider's ledger and the traffic that it bills. Proxies run offline, with the prices that LiteLLM brings."""

import os

import pytest

from support.traffic import ProviderLedger, Traffic

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
