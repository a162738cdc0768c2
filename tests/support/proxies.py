"""Configurations of test proxies, and a real proxy process on 127.0.0.1."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from support.ports import free_port
from support.providers import URL, deployment

TESTS = Path(__file__).parents[1]
BOOT_S = 300.0  # of a loaded machine; one that ends is noticed at once


def config_of(groups: dict[str, Any], *, url: str = URL, custom_auth: bool = True, **router: Any) -> dict[str, Any]:
    """Return a proxy configuration: the first group as a routing group, the others by the name of their deployments.

    LiteLLM lets a model belong to one routing group only.
    """
    first, *others = groups
    members = [deployment(name, name, url=url) for name in ("small", "large", "rescue")]
    members += [
        deployment(name, group, url=url, info={"id": f"{group}-{name}"})
        for group in others
        for name in ("small", "large")
    ]
    routing = [{"group_name": first, "models": ["small", "large"], "routing_strategy": "simple-shuffle"}]
    general = {"master_key": "os.environ/LITELLM_MASTER_KEY"}
    return {
        "model_list": members,
        "router_settings": {"routing_groups": routing, "num_retries": 1, "allowed_fails": 1_000, **router},
        "litellm_settings": {"callbacks": ["wiserouter_litellm.callback"]},
        "callback_settings": {"wiserouter": {"groups": groups}},
        "general_settings": {**general, **({"custom_auth": "support.proxy_auth.auth"} if custom_auth else {})},
    }


def write(config: dict[str, Any], folder: Path) -> Path:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def environment(master_key: str) -> dict[str, str]:
    """Return the environment of a proxy that reaches only this machine."""
    return {
        **os.environ,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MASTER_KEY": master_key,
        "LITELLM_TELEMETRY": "False",
        "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
    }


@contextmanager
def in_process(config: Path, master_key: str) -> Iterator[Any]:
    """Yield a client of a proxy in this process, with its callback as the attribute `callback`."""
    import litellm
    import pytest
    from fastapi.testclient import TestClient

    import wiserouter_litellm

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(litellm, "disable_aiohttp_transport", True)
        patch.setenv("CONFIG_FILE_PATH", str(config))
        patch.setenv("LITELLM_MASTER_KEY", master_key)
        from litellm.litellm_core_utils.logging_worker import GLOBAL_LOGGING_WORKER
        from litellm.proxy.proxy_server import app

        GLOBAL_LOGGING_WORKER._running_tasks.clear()  # of earlier tests' loops: a proxy that ends waits for all
        with TestClient(app, raise_server_exceptions=False) as running:
            running.callback = next(c for c in litellm.callbacks if type(c).__name__ == "ProxyCallback")
            yield running
            running.portal.call(GLOBAL_LOGGING_WORKER.start)  # it may be in the closed loop of another test
    vars(wiserouter_litellm).pop("callback", None)
    litellm.logging_callback_manager._reset_all_callbacks()
    litellm.cache = None


@contextmanager
def running_proxy(
    config: Path, log: Path, *options: str, boot_s: float = BOOT_S, **env: str
) -> Iterator[tuple[str, str, int]]:
    """Yield URL, master key and process id of a proxy, and stop it and its workers at the end."""
    port, master_key = free_port(), f"sk-{secrets.token_hex(16)}"
    with log.open("wb") as out:
        process = start(config, port, {**environment(master_key), **env}, out, *options)
        try:
            wait_for(f"http://127.0.0.1:{port}/health/liveliness", process, log, boot_s)
            yield f"http://127.0.0.1:{port}", master_key, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # its workers as well
                process.wait(5)


def start(config: Path, port: int, env: dict[str, str], out: Any, *options: str) -> subprocess.Popen[bytes]:
    litellm = Path(sys.executable).with_name("litellm")
    command = [litellm, "--config", config, "--host", "127.0.0.1", "--port", str(port), *options]
    return subprocess.Popen(
        command, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=config.parent, start_new_session=True
    )


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path, boot_s: float) -> None:
    deadline = time.monotonic() + boot_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the proxy ended with {process.returncode}:\n{log.read_text()[-4_000:]}")
        try:
            if httpx.get(url, timeout=2).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    raise TimeoutError(f"no answer within {boot_s} s:\n{log.read_text()[-4_000:]}")
