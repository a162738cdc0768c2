"""A real Prometheus on 127.0.0.1 that scrapes one target, and the expressions of the board."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from support.ports import free_port

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yaml"
BOARD = DEPLOY / "grafana" / "wiserouter.json"
VARIABLES = {"$__rate_interval": "1m", "$group": ".*", "$scope": ".*"}

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed")


class Prometheus:
    """A client of a Prometheus.

    Parameters
    ----------
    url : str
        Its address.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an expression now; raises where Prometheus refuses it."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}, timeout=20).json()
        assert answer["status"] == "success", f"{expression}: {answer.get('error')}"
        return list(answer["data"]["result"])

    def rules(self) -> list[dict[str, Any]]:
        """Return the rules with their state."""
        groups = httpx.get(f"{self.url}/api/v1/rules", timeout=20).json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]


@contextmanager
def scraping(url: str, key: str, folder: Path) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes `/wiserouter/metrics` of a proxy every 2 s, with our rules, and stop it."""
    port, key_file = free_port(), folder / "key"
    key_file.write_text(key)
    settings = {
        "global": {"scrape_interval": "2s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": "wiserouter",
                "metrics_path": "/wiserouter/metrics",
                "authorization": {"credentials_file": str(key_file)},
                "static_configs": [{"targets": [urlsplit(url).netloc]}],
            }
        ],
    }
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump(settings))
    options = (f"--config.file={config}", f"--storage.tsdb.path={folder}", f"--web.listen-address=127.0.0.1:{port}")
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(["prometheus", *options], stdout=log, stderr=subprocess.STDOUT, cwd=folder)
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_until_ready(address, process, folder / "prometheus.log")
            yield Prometheus(address)
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)


def panels() -> list[dict[str, Any]]:
    """Return the panels of the board."""
    return list(json.loads(BOARD.read_text())["panels"])


def board_expressions() -> list[tuple[str, str]]:
    """Return the title of the panel and the expression of each query of the board, its variables filled in."""
    return [(one["title"], filled_in(query["expr"])) for one in panels() for query in one.get("targets", ())]


def filled_in(expression: str) -> str:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def _wait_until_ready(address: str, process: subprocess.Popen[bytes], log: Path, most_s: float = 60.0) -> None:
    deadline = time.monotonic() + most_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            if httpx.get(f"{address}/-/ready", timeout=2).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise TimeoutError(f"Prometheus is not ready:\n{log.read_text()[-4_000:]}")
