"""A worker of the proxy that starts waits for a store that is away, and only for one that may come back."""

import os
import signal
import sys
import time
from functools import partial
from types import SimpleNamespace

import litellm
import pytest

from support.providers import deployment
from support.redis_servers import MISSING, RedisServer, redis_server, serving
from wiserouter_litellm import SettingsError
from wiserouter_litellm.proxy import build_callback

pytestmark = pytest.mark.skipif(redis_server() is None, reason=MISSING)


@pytest.fixture
def boot(monkeypatch):
    monkeypatch.setattr("wiserouter_litellm.proxy._config", lambda: {"model_list": [deployment("small")]})
    monkeypatch.setattr("atexit.register", lambda *_: None)  # a refusal would be repeated when the tests end

    def start(store, pauses):
        wise = {"budget_usd": 5.0, "requests": 100, "limit": "hard", "store": store}
        monkeypatch.setattr(litellm, "callback_settings", {"wiserouter": {"groups": {"wise": wise}}})
        clock = SimpleNamespace(monotonic=time.monotonic, sleep=pauses)
        monkeypatch.setattr("wiserouter_litellm.settings.store_wait.time", clock)
        return build_callback()

    return start


def fails(_seconds):
    pytest.fail("it waits")


def test_a_worker_that_starts_waits_for_its_store(boot, monkeypatch, caplog, tmp_path):
    redis, left_s = RedisServer(tmp_path), []

    def comes_up(seconds):
        left_s.append(seconds)
        if len(left_s) == 1:
            redis.start()

    try:
        assert boot(redis.url, comes_up).groups["wise"].router.status().left_usd == 5.0
    finally:
        redis.kill()
    assert "check that a server answers there; trying again in 1 s" in caplog.text
    monkeypatch.setattr("wiserouter_litellm.settings.store_wait.STORE_WAIT_S", 0.0)
    with pytest.raises(SettingsError, match=r"groups.wise: redis://.* cannot be used"):
        boot(redis.url, fails)


@pytest.mark.parametrize("store", ["sqlite:////nowhere/budget.db", "sqlite:////dev/null/budget.db"])
def test_a_worker_does_not_wait_for_a_folder_that_is_missing(boot, store):
    with pytest.raises(SettingsError, match="check that its folder exists"):
        boot(store, fails)


@pytest.mark.parametrize(
    ("scheme", "why"),
    [
        ("redis://me:wrong@", "does not accept the user or password"),
        ("redis://other:right@", "permit its user the commands of scripts"),
        ("redis+cluster://", "begin the URL with redis:// or rediss://"),
    ],
)
def test_a_worker_does_not_wait_for_a_server_that_refuses_it(boot, scheme, why):
    with serving() as server:
        server.ask("ACL", "SETUSER", "other", "on", ">right", "~*", "+get")
        with pytest.raises(SettingsError, match=why):
            boot(server.url.replace("redis://", scheme), fails)


@pytest.mark.skipif(sys.platform == "win32", reason="has no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_asks_the_server_to_end_ends_the_wait(boot, number, tmp_path):
    noted, pauses = [], []
    server_handles = signal.signal(number, lambda *got: noted.append(got[0]))
    end = partial(os.kill, os.getpid(), number)

    def asked_to_end(seconds):
        pauses.append(seconds)
        end()

    try:
        with pytest.raises(SettingsError, match="check that a server answers there"):
            boot(RedisServer(tmp_path).url, asked_to_end)
        assert (noted, len(pauses)) == ([number], 1)
        end()
        assert noted == [number, number]  # the server has its handler back
    finally:
        signal.signal(number, server_handles)
