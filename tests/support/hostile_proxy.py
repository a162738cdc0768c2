"""A real proxy in front of the billing stub: one group for each kind of provider, all under one kind of limit."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai

from support.billing_rules import MAX_OUTPUT_TOKENS
from support.billing_stub import BillingStub, billing_stub
from support.groups import fitted
from support.providers import deployment
from support.proxies import running_proxy, write

GROUPS = {"chat": "wise", "streams": "wise", "completions": "text", "responses": "wise", "messages": "claude"}
PROVIDERS = {"wise": "openai", "text": "text-completion-openai", "claude": "anthropic"}
PATHS = {
    "chat": "/v1/chat/completions",
    "streams": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
USER = "sk-user-a"


@dataclass
class HostileProxy:
    """A running proxy, the provider behind it, and their figures."""

    url: str
    master_key: str
    log: Path
    stub: BillingStub
    openai: openai.OpenAI
    anthropic: anthropic.Anthropic
    http: httpx.Client

    def status(self, group: str) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.master_key}"}
        return self.http.get(f"{self.url}/wiserouter/status", headers=headers).json()["groups"][group]

    def settled(self, group: str, charged_usd: float, timeout_s: float = 30.0) -> dict[str, Any]:
        """Return the status once nothing is in flight and the amount is charged; else the status after the time."""
        deadline = time.monotonic() + timeout_s
        while True:
            status = self.status(group)
            done = status["in_flight"] == 0 and math.isclose(charged(status), charged_usd, abs_tol=1e-9)
            if done or time.monotonic() > deadline:
                return status
            time.sleep(0.02)

    def idle(self, group: str, timeout_s: float = 30.0) -> dict[str, Any]:
        """Return the status once nothing is in flight at the group and the provider has answered all calls."""
        deadline = time.monotonic() + timeout_s
        while True:
            status, answered = self.status(group), self.stub.received == len(self.stub.calls)
            if (status["in_flight"] == 0 and answered) or time.monotonic() > deadline:
                return status
            time.sleep(0.05)

    def send(self, surface: str, body: Mapping[str, Any]) -> int:
        """Send a body by the client of its surface, or as it is where the client refuses; return the HTTP status."""
        try:
            json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
        except ValueError:  # no client sends NaN or half of a character
            return self.post(PATHS[surface], json.dumps(body, ensure_ascii=True))
        try:
            self._call(surface, dict(body))
        except (openai.APIStatusError, anthropic.APIStatusError) as error:
            return error.status_code
        return 200

    def post(self, path: str, content: str, **headers: str) -> int:
        headers = {"Authorization": f"Bearer {USER}", "content-type": "application/json", **headers}
        return self.http.post(f"{self.url}{path}", content=content, headers=headers).status_code

    def _call(self, surface: str, body: dict[str, Any]) -> None:
        model = body.pop("model")
        if surface == "messages":
            self.anthropic.messages.create(
                model=model, messages=[], max_tokens=1, extra_body=self._over(body, "messages", "max_tokens")
            )
        elif surface == "completions":
            self.openai.completions.create(model=model, prompt="", extra_body=self._over(body, "prompt"))
        elif surface == "responses":
            self.openai.responses.create(model=model, extra_body=body)
        elif body.pop("stream", False):
            for _ in self.openai.chat.completions.create(
                model=model, messages=[], stream=True, extra_body=self._over(body, "messages")
            ):
                pass
        else:
            self.openai.chat.completions.create(model=model, messages=[], extra_body=self._over(body, "messages"))

    @staticmethod
    def _over(body: dict[str, Any], *required: str) -> dict[str, Any]:
        """Return a body that replaces what the client's signature asks for; a part that is absent becomes null."""
        return {**dict.fromkeys(required), **body}


TIGHT_USD = 0.006
"""The budget of a tight group: fewer than two answers of full length."""


def charged(status: Mapping[str, Any]) -> float:
    """Return what a group has spent on calls whose outcome is known."""
    return float(status["spent_usd"] - status["presumed_usd"])


@contextmanager
def hostile_proxy(
    folder: Path, limit: str, tight: Mapping[str, str] | None = None, **settings: Any
) -> Iterator[HostileProxy]:
    """Serve a proxy whose groups have budgets of one kind, for each of `PROVIDERS`.

    Parameters
    ----------
    folder : Path
        For its configuration and its log.
    limit : str
        "hard" or "expected".
    tight : mapping of str to str, optional
        More groups, of `TIGHT_USD` each, with LiteLLM's name of their provider.
    **settings
        Of all groups.
    """
    fitted().save(folder / "pair.wise")
    terms = {"requests": 100_000, "limit": limit, "artifact": "./pair.wise", "seed": 0, **settings}
    amounts_usd = dict.fromkeys(PROVIDERS, 1_000.0) | dict.fromkeys(tight or (), TIGHT_USD)
    providers = {**PROVIDERS, **(tight or {})}
    with billing_stub() as stub:
        config = {
            "model_list": [row for name, provider in providers.items() for row in _deployments(name, provider, stub)],
            "router_settings": {"num_retries": 0, "allowed_fails": 10_000},
            "litellm_settings": {"callbacks": ["wiserouter_litellm.callback"]},
            "callback_settings": {
                "wiserouter": {
                    "groups": {name: {**terms, "budget_usd": amount} for name, amount in amounts_usd.items()}
                }
            },
            "general_settings": {
                "master_key": "os.environ/LITELLM_MASTER_KEY",
                "custom_auth": "support.proxy_auth.auth",
            },
        }
        log = folder / "proxy.log"
        never = {"PYTHON_GC_THRESHOLD": "0,0,0"}  # Python 3.11 may crash as it collects garbage: docs/litellm.md
        with running_proxy(write(config, folder), log, **never) as (url, key, _), httpx.Client(timeout=30) as http:
            clients = (
                openai.OpenAI(base_url=f"{url}/v1", api_key=USER, max_retries=0, timeout=120),
                anthropic.Anthropic(base_url=url, api_key=USER, max_retries=0, timeout=120),
            )
            with clients[0], clients[1]:
                yield HostileProxy(url, key, log, stub, *clients, http)


def _deployments(group: str, provider: str, stub: BillingStub) -> list[dict[str, Any]]:
    url = stub.root if provider == "anthropic" else stub.url
    rows = []
    for name in ("small", "large"):
        info = {"id": f"{group}-{name}", "wiserouter_model": name, "max_output_tokens": MAX_OUTPUT_TOKENS}
        row = deployment(name, group, url=url, info=info)
        row["litellm_params"]["model"] = f"{provider}/{name}"
        rows.append(row)
    return rows
