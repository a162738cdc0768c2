"""LiteLLM without its network: the bundled price map, httpx under respx, callbacks reset after each test."""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # before litellm is imported: it would fetch the map

import asyncio
import time

import litellm
import pytest
import respx
from litellm.litellm_core_utils.logging_worker import GLOBAL_LOGGING_WORKER

from support.providers import URL, answer


@pytest.fixture(autouse=True)
def clean_litellm(monkeypatch):
    """Let respx see the calls, and leave no callback, client or price behind."""
    monkeypatch.setattr(litellm, "disable_aiohttp_transport", True)
    prices = {name: dict(row) for name, row in litellm.model_cost.items()}  # whose rows a deployment changes
    monkeypatch.setattr(litellm, "model_cost", prices)
    litellm.in_memory_llm_clients_cache.flush_cache()
    yield
    litellm.logging_callback_manager._reset_all_callbacks()
    litellm.cache = None


@pytest.fixture
def provider():
    with respx.mock(assert_all_called=False) as mock:
        mock.route(url__startswith=URL).mock(side_effect=answer)
        yield mock


@pytest.fixture
def settled():
    """Return a coroutine function that waits until a condition holds: LiteLLM logs in the background."""

    async def wait(condition, timeout_s: float = 30.0):
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "the condition never held"
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.02)  # a second event would come right after

    return wait


@pytest.fixture
async def flushed():
    """Return a coroutine function that waits for LiteLLM's background logging."""

    async def flush():
        await asyncio.sleep(0)
        await GLOBAL_LOGGING_WORKER.flush()
        await asyncio.sleep(0.05)

    return flush


def pytest_collection_modifyitems(items):
    """LiteLLM and what it loads warn a lot; what our own modules raise stays an error."""
    for item in items:
        if "tests/litellm" in item.path.as_posix():
            for rule in ("ignore", "error:::wiserouter", "error:Router\\.:DeprecationWarning"):
                item.add_marker(pytest.mark.filterwarnings(rule), append=False)
