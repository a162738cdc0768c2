"""The same bodies under an expected limit, which refuses none of them: every call that a provider bills is counted."""

import json
from collections import Counter

import pytest

from support.hostile_bodies import BODIES, body_for, marked_cases
from support.hostile_proxy import GROUPS, PROVIDERS, charged, hostile_proxy

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    with hostile_proxy(tmp_path_factory.mktemp("expected"), "expected", cap_output_tokens=256) as running:
        yield running


@pytest.fixture(scope="module")
def spent_usd():
    """Return what has been charged to each group so far, by its status."""
    return Counter()


def check_counted(proxy, spent_usd, group, reported_usd, tolerance=0.0):
    """Check that a group's status rises by what the provider's usage blocks have reported since `reported_usd`."""
    cost_usd, before_usd = proxy.stub.plain_usd - reported_usd, spent_usd[group]
    status = proxy.settled(group, before_usd + cost_usd)
    spent_usd[group] = charged(status)
    assert charged(status) - before_usd == pytest.approx(cost_usd, rel=tolerance, abs=1e-9)
    assert status["in_flight"] == 0


@pytest.mark.parametrize(("surface", "name"), marked_cases())
def test_every_call_is_counted(proxy, spent_usd, surface, name):
    group, reported_usd = GROUPS[surface], proxy.stub.plain_usd
    code = proxy.send(surface, body_for(surface, group, BODIES[name]))
    assert (code == 200) <= (proxy.stub.plain_usd > reported_usd)
    if proxy.stub.plain_usd > reported_usd:
        check_counted(proxy, spent_usd, group, reported_usd, 0.2 if name == "drop-usage" else 0.0)


def test_embeddings_and_gemini_calls_are_charged_after_their_answers(proxy, spent_usd):
    for path, body in (
        ("/v1/embeddings", {"input": ["one", "two"]}),
        ("/v1beta/models/wise:generateContent", {"contents": [{"parts": [{"text": "hi"}]}]}),
    ):
        reported_usd = proxy.stub.plain_usd
        assert proxy.post(path, json.dumps({"model": "wise", **body})) == 200
        assert proxy.stub.plain_usd > reported_usd
        check_counted(proxy, spent_usd, "wise", reported_usd)


def test_no_call_was_left_out(proxy):
    for group in PROVIDERS:
        status = proxy.status(group)
        assert status["in_flight"] == 0
        assert status["faults"].get("uncounted_calls", 0) == 0
