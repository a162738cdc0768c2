"""Streams through the proxy to a group of several providers, by clients that do not ask for usage."""

import json
import secrets
import time

import pytest

from support.billing_stub import billing_stub
from support.groups import fitted
from support.providers import deployment
from support.proxies import config_of, in_process, write

MASTER = f"sk-{secrets.token_hex(16)}"
HI = [{"role": "user", "content": "hello there, tell me a long story"}]


@pytest.fixture(scope="module")
def stub():
    with billing_stub() as stub:
        yield stub


@pytest.fixture(scope="module")
def client(stub, tmp_path_factory):
    folder = tmp_path_factory.mktemp("proxy")
    fitted().save(folder / "pair.wise")
    wise = {"budget_usd": 10.0, "requests": 100, "artifact": str(folder / "pair.wise")}
    config = config_of({"wise": wise, "hard": {**wise, "limit": "hard"}})
    config["model_list"] = [
        deployment(name, group, url=url, model=f"{provider}/{name}", info={"id": f"{group}-{name}"})
        for group in ("wise", "hard")
        for name, provider, url in (("small", "anthropic", stub.root), ("large", "openai", stub.url))
    ]
    del config["router_settings"]["routing_groups"]
    with in_process(write(config, folder), MASTER) as running:
        yield running


@pytest.fixture(autouse=True)
def clean_litellm():
    """Keep the callbacks: the proxy of this module needs them."""


@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": True}}], ids=["unasked", "asked"])
@pytest.mark.parametrize("group", ["wise", "hard"])
def test_a_stream_is_charged_by_the_usage_of_its_provider(client, stub, group, options):
    status, before_usd = client.callback.groups[group].router.status, stub.ledger_usd
    settled, spent_usd = status().charged, status().spent_usd
    body = {"model": group, "messages": HI, "max_tokens": 60, "stream": True, **options}
    answer = client.post("/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {MASTER}"})
    assert answer.headers["x-wiserouter-model"].endswith("large")
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    assert any(json.loads(line).get("usage") for line in lines) == bool(options)
    deadline = time.monotonic() + 20.0
    while status().charged == settled:
        assert time.monotonic() < deadline, "the stream was never charged"
        time.sleep(0.01)
    assert status().spent_usd - spent_usd == pytest.approx(stub.ledger_usd - before_usd)
