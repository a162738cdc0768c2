"""The value of a call, by its configuration or by the router that it is sent through."""

import json

import pytest

from support.chat_stub import routed
from wiserouter.errors import InvalidInput


def test_a_configuration_or_the_router_states_the_value_of_a_call(tmp_path):
    llm = routed()
    journal = llm.core.journal_to(tmp_path / "journal.jsonl")
    llm.invoke("hello", {"configurable": {"wiserouter_value": 3.0}})
    llm.invoke("hello", {"metadata": {"wiserouter_value": 2}})
    llm.invoke("hello")
    llm.worth(0.5).invoke("hello", {"configurable": {"wiserouter_value": 3.0}})
    llm.with_config({"configurable": {"wiserouter_value": 4.0}}).invoke("hello")
    journal.close()
    events = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert [event["value"] for event in events if event["event"] == "decision"] == [3.0, 2.0, 1.0, 0.5, 4.0]


def test_a_value_that_is_none_is_refused():
    llm = routed()
    with pytest.raises(InvalidInput, match="value must be a number"):
        llm.invoke("hello", {"configurable": {"wiserouter_value": -1.0}})
    with pytest.raises(InvalidInput, match="value must be a number"):
        llm.worth(0.0)
    assert llm.core.status().decided == 0
