"""Calls that end badly, through a real proxy: the provider's ledger never exceeds what the account holds as spent."""

import concurrent.futures
import json
import socket
import time
from urllib.parse import urlsplit

import httpx
import pytest

from support.billing_stub import Behaviour, billing_stub
from support.groups import fitted
from support.proxies import config_of, running_proxy, write
from support.redis_servers import wait_until

pytestmark = pytest.mark.slow

HI = [{"role": "user", "content": "hello there"}]
SURFACES = {
    "chat": ("/v1/chat/completions", {"messages": HI, "max_tokens": 60}),
    "completions": ("/v1/completions", {"prompt": "hello there", "max_tokens": 60}),
    "responses": ("/v1/responses", {"input": "hello there", "max_output_tokens": 60}),
    "messages": ("/v1/messages", {"messages": HI, "max_tokens": 60}),
}
TIGHT_USD = 0.02


class Proxy:
    """A running proxy, and the provider behind it."""

    def __init__(self, url, master_key, stub):
        self.url, self.stub = url, stub
        self.headers = {"Authorization": f"Bearer {master_key}"}

    def status(self, group):
        return httpx.get(f"{self.url}/wiserouter/status", headers=self.headers, timeout=20).json()["groups"][group]

    def post(self, surface="chat", group="wise", timeout_s=30.0, **extra):
        path, body = SURFACES[surface]
        body = {"model": group, **body, **extra}
        return httpx.post(f"{self.url}{path}", json=body, headers=self.headers, timeout=timeout_s)

    def leave_after_one_piece(self, surface, group):
        path, body = SURFACES[surface]
        body = {"model": group, **body, "stream": True}
        with httpx.stream("POST", f"{self.url}{path}", json=body, headers=self.headers, timeout=30) as response:
            assert response.status_code == 200, response.read()
            for line in response.iter_lines():
                if line.startswith("data:"):
                    return

    def leave_once_asked(self, surface):
        """Send a call, and leave once the provider has it."""
        path, body = SURFACES[surface]
        content = json.dumps({"model": "wise", **body}).encode()
        head = {**self.headers, "host": "proxy", "content-type": "application/json", "content-length": len(content)}
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
        received, url = self.stub.received, urlsplit(self.url)
        with socket.create_connection((url.hostname, url.port), timeout=30) as line:
            line.sendall("\r\n".join(lines).encode() + content)
            wait_until(lambda: self.stub.received > received, "the provider is not asked", 30.0)

    def settled(self, group, n, before, timeout_s=30.0):
        """Return the status once `n` more calls are charged or presumed, and none is in flight."""
        deadline = time.monotonic() + timeout_s
        while True:
            status = self.status(group)
            ended = sum(status[name] - before[name] for name in ("charged", "presumed", "released"))
            if ended >= n and status["in_flight"] == 0:
                return status
            assert time.monotonic() < deadline, f"{ended} of {n} calls ended: {status}"
            time.sleep(0.1)


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outcomes")
    fitted().save(folder / "pair.wise")
    wise = {"budget_usd": 10.0, "requests": 1_000, "artifact": "./pair.wise", "seed": 0, "limit": "hard"}
    groups = {
        "wise": wise,
        "soft": {**wise, "limit": "expected"},
        "tight": {**wise, "budget_usd": TIGHT_USD, "requests": 200, "on_held": "refuse"},
    }
    with billing_stub() as stub:
        config = config_of(groups, url=stub.url, num_retries=0)
        config["general_settings"]["cancel_on_disconnect"] = True
        with running_proxy(write(config, folder), folder / "proxy.log") as (url, key, _):
            yield Proxy(url, key, stub)


@pytest.fixture(autouse=True)
def well_behaved(proxy):
    proxy.stub.finish()  # calls of the test before that the provider still bills
    proxy.stub.reset()
    yield
    proxy.stub.behaviour = Behaviour()


@pytest.mark.parametrize("group", ["wise", "soft"])
@pytest.mark.parametrize("surface", SURFACES)
def test_a_timeout_of_the_request_is_presumed(proxy, surface, group):
    before = proxy.status(group)
    proxy.stub.behaviour = Behaviour(delay_s=0.8)
    assert proxy.post(surface, group, timeout=0.3).status_code in {408, 504}
    after = proxy.settled(group, 1, before)
    proxy.stub.finish()
    assert (after["presumed"] - before["presumed"], after["released"] - before["released"]) == (1, 0)
    if group == "wise":
        assert after["spent_usd"] - before["spent_usd"] >= proxy.stub.ledger_usd > 0


def test_each_retry_after_a_timeout_is_presumed(proxy):
    before = proxy.status("wise")
    proxy.stub.behaviour = Behaviour(delay_s=0.8)
    proxy.post("chat", timeout=0.3, num_retries=3)
    after = proxy.settled("wise", 4, before)
    proxy.stub.finish()
    assert proxy.stub.billed == after["presumed"] - before["presumed"] == 4
    assert after["spent_usd"] - before["spent_usd"] >= proxy.stub.ledger_usd


@pytest.mark.parametrize("group", ["wise", "soft"])
@pytest.mark.parametrize("surface", SURFACES)
def test_a_stream_whose_client_leaves_is_presumed_or_charged_for_what_was_delivered(proxy, surface, group):
    before = proxy.status(group)
    proxy.stub.behaviour = Behaviour(pieces=20, piece_delay_s=0.1, finishes_abandoned=True)
    proxy.leave_after_one_piece(surface, group)
    after = proxy.settled(group, 1, before)
    spent_usd = after["spent_usd"] - before["spent_usd"]
    assert spent_usd > 0
    if group == "wise":
        assert after["presumed"] - before["presumed"] == 1
        proxy.stub.finish()
        assert spent_usd >= proxy.stub.ledger_usd


def test_a_client_that_leaves_while_it_waits_is_presumed(proxy):
    before = proxy.status("wise")
    proxy.stub.behaviour = Behaviour(delay_s=1.0)
    proxy.leave_once_asked("chat")
    after = proxy.settled("wise", 1, before)
    proxy.stub.finish()
    assert after["spent_usd"] - before["spent_usd"] >= proxy.stub.ledger_usd > 0


@pytest.mark.parametrize(
    "extra", [{}, {"fastest_response": True}, {"stream": True}, {"fastest_response": True, "stream": True}]
)
@pytest.mark.parametrize("group", ["wise", "soft"])
def test_several_models_at_once_are_refused(proxy, group, extra):
    before, received = proxy.status(group), proxy.stub.received
    response = proxy.post("chat", f"{group},small", **extra)
    assert (response.status_code, "model must name one model" in response.text) == (400, True), response.text
    assert proxy.stub.received == received
    assert proxy.status(group)["decided"] == before["decided"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "behaviour",
    [Behaviour(usage="nan"), Behaviour(usage="negative"), Behaviour(error_in_200=True), Behaviour(drops=True)],
    ids=["nan", "negative", "error in 200", "dropped"],
)
def test_an_odd_answer_is_presumed(proxy, behaviour, stream):
    before = proxy.status("wise")
    proxy.stub.behaviour = behaviour
    proxy.post("chat", stream=stream)
    after = proxy.settled("wise", 1, before)
    assert after["spent_usd"] - before["spent_usd"] >= proxy.stub.ledger_usd > 0


def test_a_client_with_its_own_key_is_settled(proxy):
    before = proxy.status("wise")
    for _ in range(3):
        assert proxy.post("chat", api_key="sk-of-the-client").status_code == 200
    after = proxy.settled("wise", 3, before)
    assert after["charged"] - before["charged"] == 3
    assert after["spent_usd"] - before["spent_usd"] == pytest.approx(proxy.stub.ledger_usd)


def test_no_mixture_of_bad_ends_breaks_a_hard_budget(proxy):
    """Sixty calls, ten at a time: timeouts, server errors that are billed, dropped connections, clients that leave."""
    ends = [
        Behaviour(delay_s=0.6),
        Behaviour(status=500, bills_failures=True),
        Behaviour(drops=True),
        Behaviour(pieces=10, piece_delay_s=0.05, finishes_abandoned=True),
        Behaviour(),
        Behaviour(usage="nan"),
    ]

    def call(i):
        if i % 6 == 3:
            try:
                proxy.leave_after_one_piece("chat", "tight")
            except (httpx.HTTPError, AssertionError):
                return
        else:
            proxy.post("chat", "tight", timeout=0.3, num_retries=i % 3)

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        for round_ in range(6):
            proxy.stub.behaviour = ends[round_]
            list(pool.map(call, range(10)))
    proxy.stub.finish()
    status = proxy.settled("tight", 1, dict.fromkeys(("charged", "presumed", "released"), 0))
    assert 0 < proxy.stub.ledger_usd <= status["spent_usd"] <= TIGHT_USD
