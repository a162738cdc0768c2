"""Which call an id stands for, and for whom."""

import pytest

from wiserouter.testing import FakeClock
from wiserouter_litellm.calls import Calls
from wiserouter_litellm.errors import UnknownCall


@pytest.fixture
def clock():
    return FakeClock(0.0)


@pytest.fixture
def calls(clock):
    return Calls(ttl_s=60, max_calls=3, clock=clock)


def test_a_call_is_found_by_its_id_and_its_caller(calls):
    calls.note("c", "d1", "wise", "key-a")
    assert calls.find("c", "key-a").decision_id == "d1"
    for caller in ("key-b", None):
        with pytest.raises(UnknownCall, match="'c' is unknown or has expired"):
            calls.find("c", caller)


def test_a_retry_replaces_the_decision(calls):
    calls.note("c", "d1", "wise", None)
    calls.note("c", "d2", "wise", None)
    assert calls.find("c", None).decision_id == "d2"


def test_a_chosen_id_cannot_take_over_another_keys_call(calls):
    calls.note("c", "d1", "wise", "key-a")
    calls.note("c", "d2", "wise", "key-b")
    assert calls.find("c", "key-a").decision_id == "d1"
    assert calls.find("c", "key-b").decision_id == "d2"
    with pytest.raises(UnknownCall):
        calls.find("c", "admin", any_caller=True)  # whose one is meant?


def test_an_administrator_may_rate_everybodys_calls(calls):
    calls.note("c", "d1", "wise", "key-a")
    calls.note_response("r", "c", "key-a")
    assert calls.find("c", "admin", any_caller=True).decision_id == "d1"
    assert calls.find("r", "admin", any_caller=True).decision_id == "d1"


def test_a_response_id_that_two_calls_share_stands_for_none(calls):
    calls.note("c1", "d1", "wise", None)
    calls.note("c2", "d2", "wise", None)
    calls.note_response("r", "c1", None)
    assert calls.find("r", None).decision_id == "d1"
    calls.note_response("r", "c2", None)
    with pytest.raises(UnknownCall):
        calls.find("r", None)


def test_a_forgotten_call_cannot_be_rated(calls):
    calls.note("c", "d1", "wise", None)
    calls.forget("c", None)
    calls.forget("never", None)
    with pytest.raises(UnknownCall):
        calls.find("c", None)


def test_calls_expire_and_are_bounded(calls, clock):
    calls.note("old", "d0", "wise", None)
    clock.advance(61)
    with pytest.raises(UnknownCall):
        calls.find("old", None)
    for i in range(10):
        calls.note(f"c{i}", f"d{i}", "wise", None)
        calls.note_response(f"r{i}", f"c{i}", None)
    assert len(calls) == 3
    assert calls.find("r9", None).decision_id == "d9"
    with pytest.raises(UnknownCall):
        calls.find("c6", None)
