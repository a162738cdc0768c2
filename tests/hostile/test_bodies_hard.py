"""Bodies that try to pass a hard budget, through a real proxy, against a provider that bills whatever it receives."""

from collections import Counter

import pytest

from support.hostile_bodies import BODIES, body_for, cases
from support.hostile_proxy import GROUPS, PROVIDERS, hostile_proxy


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    with hostile_proxy(tmp_path_factory.mktemp("hard"), "hard") as running:
        yield running


@pytest.fixture(scope="module")
def billed_usd():
    """Return the provider's bills so far, by group."""
    return Counter()


@pytest.mark.parametrize(("surface", "name"), list(cases()))
def test_what_a_body_costs_is_what_the_budget_pays(proxy, billed_usd, surface, name):
    group, before_usd = GROUPS[surface], proxy.stub.ledger_usd
    code = proxy.send(surface, body_for(surface, group, BODIES[name]))
    cost_usd = proxy.stub.ledger_usd - before_usd
    billed_usd[group] += cost_usd
    assert (code == 200) == (cost_usd > 0)
    assert BODIES[name].hard in {"either", "served" if code == 200 else "refused"}, code
    if code == 200:
        assert proxy.settled(group, billed_usd[group])["spent_usd"] == pytest.approx(billed_usd[group], abs=1e-9)


def test_no_call_was_left_out_and_none_cost_more_than_was_reserved(proxy, billed_usd):
    for group in PROVIDERS:
        status = proxy.settled(group, billed_usd[group])
        assert status["spent_usd"] == pytest.approx(billed_usd[group], abs=1e-9)
        assert (status["in_flight"], status["reserved_usd"]) == (0, 0.0)
        assert status["faults"].get("uncounted_calls", 0) == 0
    assert "more than its worst case" not in proxy.log.read_text(errors="replace")
