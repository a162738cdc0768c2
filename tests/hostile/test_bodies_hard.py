"""Bodies that try to pass a hard budget, through a real proxy, against a provider that bills whatever it receives."""

import base64
import json
from collections import Counter
from contextlib import suppress

import pytest
import websockets.exceptions
import websockets.sync.client

from support.billing_stub import Behaviour
from support.hostile_bodies import BODIES, HI, body_for, marked_cases
from support.hostile_proxy import GROUPS, PROVIDERS, TIGHT_USD, charged, hostile_proxy
from support.hostile_table import ATTACKS, attack

TIGHT = {f"tight-{name}": one.provider for name, one in ATTACKS.items()}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    with hostile_proxy(tmp_path_factory.mktemp("hard"), "hard", TIGHT, cap_output_tokens=256) as running:
        yield running


@pytest.fixture(scope="module")
def billed_usd():
    """Return the provider's bills so far, by group."""
    return Counter()


@pytest.mark.parametrize(("surface", "name"), marked_cases())
def test_what_a_body_costs_is_what_the_budget_pays(proxy, billed_usd, surface, name):
    group, before_usd = GROUPS[surface], proxy.stub.ledger_usd
    code = proxy.send(surface, body_for(surface, group, BODIES[name]))
    cost_usd = proxy.stub.ledger_usd - before_usd
    billed_usd[group] += cost_usd
    assert (code == 200) == (cost_usd > 0)
    assert BODIES[name].hard in {"either", "served" if code == 200 else "refused"}, code
    if code == 200:
        assert charged(proxy.settled(group, billed_usd[group])) == pytest.approx(billed_usd[group], abs=1e-9)


MIXED = [
    ("responses", "wise", {"input": "hello", "stream": True, "max_output_tokens": 5}),
    ("messages", "claude", {"messages": HI, "stream": True, "max_tokens": 5}),
    ("messages", "wise", {"messages": HI, "max_tokens": 5}),
    ("messages", "wise", {"messages": HI, "stream": True, "max_tokens": 40}),
    ("messages", "wise", {"messages": HI, "max_tokens": 40, "thinking": {"type": "enabled", "budget_tokens": 2_000}}),
    ("chat", "claude", {"messages": HI, "max_tokens": 40, "reasoning_effort": "low"}),
    ("chat", "claude", {"messages": HI, "n": 3, "max_tokens": "40"}),
    ("chat", "claude", {"messages": HI, "stream": True}),
    ("chat", "text", {"messages": HI, "max_tokens": 40}),
    ("completions", "wise", {"prompt": ["one", "two", "three"], "max_tokens": 40}),
    ("completions", "wise", {"prompt": "one", "stream": True, "max_tokens": 40}),
    ("completions", "text", {"prompt": ["one", "two"], "stream": True, "max_tokens": 40}),
    ("completions", "claude", {"prompt": "one", "max_tokens": 40}),
    ("responses", "claude", {"input": "hello", "max_output_tokens": 40}),
    ("chat", "wise-small", {"messages": HI, "max_tokens": 40}),
]
"""Calls that LiteLLM translates from one surface to another, streams of each, and one to the id of a deployment."""


@pytest.mark.parametrize(("surface", "model", "body"), MIXED, ids=lambda part: part if isinstance(part, str) else "")
def test_translated_calls_and_streams_are_paid_as_well(proxy, billed_usd, surface, model, body):
    group, before_usd = model.partition("-")[0], proxy.stub.ledger_usd
    proxy.post(f"/v1/{'chat/completions' if surface == 'chat' else surface}", json.dumps({"model": model, **body}))
    billed_usd[group] += proxy.stub.ledger_usd - before_usd
    assert charged(proxy.settled(group, billed_usd[group])) == pytest.approx(billed_usd[group], abs=1e-9)


OTHER = {
    "/v1/embeddings": {"input": ["a"]},
    "/v1/moderations": {"input": "a"},
    "/v1/rerank": {"query": "a", "documents": ["a"]},
    "/v1/images/generations": {"prompt": "a"},
    "/v1/audio/speech": {"input": "a", "voice": "alloy"},
    "/v1/responses/compact": {"input": "a"},
    "/v1/batches": {"input_file_id": "file-1", "endpoint": "/v1/chat/completions", "completion_window": "24h"},
    "/v1beta/models/wise:generateContent": {"contents": [{"parts": [{"text": "hi"}]}]},
    "/v1beta/models/wise:streamGenerateContent": {"contents": [{"parts": [{"text": "hi"}]}]},
    "/v1/realtime/client_secrets": {"session": {"type": "realtime", "model": "wise"}},
    "/v1/ocr": {"document": {"type": "document_url", "document_url": "http://127.0.0.1/a"}},
    "/v1/videos": {"prompt": "a"},
}


def test_a_batch_is_refused_whichever_way_it_names_the_group(proxy):
    before_usd, batch = proxy.stub.ledger_usd, OTHER["/v1/batches"]
    file_id = "file-" + base64.urlsafe_b64encode(b"litellm:file-1;model,wise").decode().rstrip("=")
    assert proxy.post("/v1/batches", json.dumps({**batch, "model": "wise"})) >= 400
    assert proxy.post("/v1/batches", json.dumps({**batch, "model": "wise-small"})) >= 400
    assert proxy.post("/v1/batches?model=wise", json.dumps(batch)) >= 400
    assert proxy.post("/v1/batches", json.dumps(batch), **{"x-litellm-model": "wise"}) >= 400
    assert proxy.post("/v1/batches", json.dumps({**batch, "input_file_id": file_id})) >= 400
    assert proxy.stub.ledger_usd == before_usd


@pytest.mark.parametrize("path", OTHER)
def test_a_surface_that_cannot_be_bounded_is_refused(proxy, path):
    before_usd = proxy.stub.ledger_usd
    assert proxy.post(path, json.dumps({"model": "wise", **OTHER[path]})) >= 400
    assert proxy.stub.ledger_usd == before_usd


def test_files_for_a_group_are_refused(proxy):
    before_usd = proxy.stub.ledger_usd
    for path, data in (
        ("/v1/audio/transcriptions", {"model": "wise"}),
        ("/v1/files", {"purpose": "assistants", "target_model_names": "wise"}),
        ("/v1/images/edits", {"model": "wise", "prompt": "a"}),
    ):
        name = "image" if "images" in path else "file"
        files = {name: ("a.bin", b"RIFF0000WAVE")}
        headers = {"Authorization": "Bearer sk-user-a"}
        assert proxy.http.post(f"{proxy.url}{path}", data=data, files=files, headers=headers).status_code >= 400
    assert proxy.stub.ledger_usd == before_usd


@pytest.mark.parametrize("path", ["realtime", "responses"])
def test_sessions_over_a_socket_are_refused(proxy, path):
    before_usd, headers = proxy.stub.ledger_usd, {"Authorization": "Bearer sk-user-a"}
    url = f"{proxy.url.replace('http', 'ws')}/v1/{path}?model=wise"
    with websockets.sync.client.connect(url, additional_headers=headers, open_timeout=20) as session:
        with suppress(websockets.exceptions.ConnectionClosed):  # it may be refused already
            session.send(json.dumps({"type": "response.create", "model": "wise", "input": "hi"}))
        assert "only calls with text can be bounded" in session.recv(timeout=20)
    assert proxy.stub.ledger_usd == before_usd


def test_tokens_are_counted_for_nothing(proxy):
    before_usd = proxy.stub.ledger_usd
    assert proxy.post("/v1/messages/count_tokens", json.dumps({"model": "claude", "messages": HI})) == 200
    assert proxy.stub.ledger_usd == before_usd


@pytest.mark.parametrize("name", ATTACKS)
def test_a_tight_budget_is_never_passed(proxy, name):
    before_usd, group = proxy.stub.ledger_usd, f"tight-{name}"
    slow = Behaviour(delay_s=0.8) if "timeout" in json.dumps(ATTACKS[name].bodies) else Behaviour(piece_delay_s=0.02)
    proxy.stub.behaviour = slow
    codes = attack(proxy, name)
    proxy.stub.behaviour = Behaviour()
    status = proxy.idle(group)
    cost_usd = proxy.stub.ledger_usd - before_usd
    assert cost_usd <= TIGHT_USD + 1e-12, codes
    assert status["spent_usd"] <= TIGHT_USD + 1e-12
    assert charged(status) <= cost_usd + 1e-9
    assert cost_usd <= status["spent_usd"] + 1e-9
    assert (cost_usd > 0) == (name != "embeddings")


def test_no_call_was_left_out_and_none_cost_more_than_was_reserved(proxy, billed_usd):
    for group in PROVIDERS:
        status = proxy.settled(group, billed_usd[group])
        assert charged(status) == pytest.approx(billed_usd[group], abs=1e-9)
        assert (status["in_flight"], status["reserved_usd"]) == (0, 0.0)
        assert status["faults"].get("uncounted_calls", 0) == 0
    assert "more than its worst case" not in proxy.log.read_text(errors="replace")
