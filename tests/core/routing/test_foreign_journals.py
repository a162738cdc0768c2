"""Journals from elsewhere: a damaged line is skipped and counted, and never ends in a traceback."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter import Budget, Contexts, Estimates, Model, WiseRouter
from wiserouter.cli.explain import _show
from wiserouter.cli.output import print_json
from wiserouter.errors import InvalidInput, UnknownDecision
from wiserouter.routing import journal_lines
from wiserouter.routing.journal_reader import JournalReader, find_explanation


@pytest.fixture
def journal(tmp_path):
    """Return a journal of one decision, which was charged and scored."""
    estimates = Estimates(1, 2)
    estimates.add_table(np.zeros(1, dtype=np.int64), [[0.2, 0.9]], [[1.0, 3.0]])
    models = [Model("small", max_cost_usd=2.0), Model("large", max_cost_usd=4.0)]
    router = WiseRouter(models, Contexts.single(), estimates=estimates, seed=0)
    router.start(Budget(2_000.0, 1_000))
    kept = router.journal_to(tmp_path / "d.jsonl")
    decision = router.decide("a")
    router.charge(decision, 1.0)
    router.reward(decision, 1.0)
    kept.close()
    return tmp_path / "d.jsonl"


def events_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def rewrite(path, events):
    path.write_text("".join(json.dumps(event) + "\n" for event in events))


def test_what_the_router_writes_is_complete(journal):
    reader = JournalReader(journal)
    assert [event["event"] for event in reader] == ["decision", "charge", "reward"]
    assert reader.skipped == 0


@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_line_that_lacks_a_field_is_skipped_and_counted(journal, row):
    events = events_of(journal)
    unused = {"event", "at", "decided_at", "probability", "input_tokens", "learn", "comment", "replaced", "usage"}
    unused |= {"conversation", "visit", "run_id", "unspent", "warnings", "value"}  # former journals lack them
    for name in set(events[row]) - unused:
        less = {key: value for key, value in events[row].items() if key != name}
        rewrite(journal, [*events[:row], less, *events[row + 1 :]])
        reader = JournalReader(journal)
        if name == "model" and row == 2:
            continue
        assert len(list(reader)) == 2, name
        assert reader.skipped == 1


@pytest.mark.parametrize("time", [1e20, -1.0, "today"])
def test_a_decision_of_a_time_that_no_calendar_has_is_skipped(journal, time):
    events = events_of(journal)
    rewrite(journal, [{**events[0], "decided_at": time}, *events[1:]])
    reader = JournalReader(journal)
    assert len(list(reader)) == 2
    assert reader.skipped == 1


@pytest.mark.parametrize(("row", "name", "value"), [(1, "cost_usd", -1.0), (1, "cost_usd", True), (2, "reward", 55)])
def test_a_cost_below_0_and_a_reward_above_1_are_skipped(journal, row, name, value):
    events = events_of(journal)
    rewrite(journal, [*events[:row], {**events[row], name: value}, *events[row + 1 :]])
    reader = JournalReader(journal)
    assert len(list(reader)) == 2
    assert reader.skipped == 1


def test_the_decision_asked_for_may_be_damaged(journal):
    events = events_of(journal)
    del events[0]["models"][0]["name"]
    rewrite(journal, events)
    with pytest.raises(InvalidInput, match="is unknown, and 1 lines are damaged or cut"):
        find_explanation(JournalReader(journal), "last")
    rewrite(journal, events[1:])
    with pytest.raises(InvalidInput, match="must hold decisions, got none"):
        find_explanation(JournalReader(journal), "last")


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"event": ["decision"]}',
        '{"event": "reward", "id": "x", "reward": 1e999}',
        "1",
    ],
)
def test_a_line_of_another_kind_of_damage_is_skipped(journal, line):
    journal.write_text(line + "\n" + journal.read_text())
    reader = JournalReader(journal)
    assert find_explanation(reader, "last")["reward"] == 1.0
    assert reader.skipped == 1


def test_a_line_that_is_too_long_is_skipped_as_one(journal, monkeypatch):
    monkeypatch.setattr(journal_lines, "MAX_LINE_CHARS", 10_000)
    journal.write_text('{"a": "' + "x" * 25_000 + '"}\n' + journal.read_text())
    reader = JournalReader(journal)
    assert len(list(reader)) == 3
    assert reader.skipped == 1


def test_the_commands_print_one_line_and_exit_with_2(journal):
    journal.write_text('{"event": "decision", "id": "x"}\n')
    for command in (["explain", "last", "--journal", journal], ["evaluate", journal, "--only", "a"]):
        asked = [sys.executable, "-m", "wiserouter.cli", *map(str, command)]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(st.characters(), max_size=3),
    st.just([]),
    st.just({}),
    st.sampled_from(["explore", "decision", "charge", "\ud800"]),
)


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def test_any_change_is_skipped_or_shown(journal, capsys):
    whole = events_of(journal)

    @settings(max_examples=400, deadline=None)
    @given(st.data())
    def check(data):
        events = json.loads(json.dumps(whole))
        *above, last = data.draw(st.sampled_from([path for path in places(events) if path]))
        inner = events
        for key in above:
            inner = inner[key]
        inner[last] = data.draw(VALUES)
        rewrite(journal, events)
        try:
            found = find_explanation(JournalReader(journal), "last")
        except (InvalidInput, UnknownDecision):
            return
        _show(found)
        print_json(found)

    check()
    capsys.readouterr()
