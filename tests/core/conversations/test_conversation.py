"""The kept state of a conversation as text, and its warm prefixes."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiserouter.conversations.conversation import MAX_WARM, Conversation, Warm
from wiserouter.errors import InvalidInput

AMOUNTS = st.floats(allow_nan=False, allow_infinity=False)
COUNTS = st.integers(-1, 2**53)
WARM = st.dictionaries(st.text(max_size=20), st.builds(Warm, COUNTS, AMOUNTS), max_size=MAX_WARM)
CONVERSATIONS = st.builds(
    Conversation,
    key=st.text(),
    scope=st.text(),
    unit=st.sampled_from(["call", "conversation", "run"]),
    model=st.text(),
    first_model=st.text(),
    failed_model=st.text(),
    context=COUNTS,
    decision_id=st.text(),
    shadow_price=AMOUNTS,
    expected_reward=AMOUNTS,
    calls=COUNTS,
    spent_usd=AMOUNTS,
    estimate_usd=AMOUNTS,
    rest_usd=AMOUNTS,
    prompt_tokens=COUNTS,
    warm=WARM,
    missed_usd=AMOUNTS,
    sent_tokens=COUNTS,
    read_tokens=COUNTS,
    parent=st.text(),
    started_s=AMOUNTS,
    used_s=AMOUNTS,
    version=COUNTS,
)
RUN = Conversation("key", "team", "run", model="small", warm={"small": Warm(10, 2.0)})


@given(CONVERSATIONS)
def test_text_and_back_is_the_same(conversation):
    assert Conversation.from_text(conversation.to_text()) == conversation


def test_a_new_conversation_keeps_only_what_it_needs():
    assert json.loads(Conversation("key", "team", "run").to_text()).keys() == {"format", "key", "scope", "unit"}


def test_fields_of_later_versions_are_ignored():
    stored = json.loads(RUN.to_text()) | {"format": 2, "mood": "fine"}
    assert Conversation.from_text(json.dumps(stored)) == RUN


@pytest.mark.parametrize(
    "change",
    [
        {"format": 0},
        {"format": "one"},
        {"unit": "word"},
        {"key": 3},
        {"calls": 1.5},
        {"calls": True},
        {"spent_usd": "much"},
        {"spent_usd": float("nan")},
        {"rest_usd": float("inf")},
        {"warm": [1]},
        {"warm": {"small": [1]}},
        {"warm": {"small": [1.5, 2.0]}},
    ],
    ids=str,
)
def test_a_field_of_another_type_is_damage(change):
    with pytest.raises(InvalidInput, match="cannot be read"):
        Conversation.from_text(json.dumps(json.loads(RUN.to_text()) | change))


@pytest.mark.parametrize("name", ["format", "key", "scope", "unit"])
def test_a_missing_field_is_damage(name):
    stored = json.loads(RUN.to_text())
    del stored[name]
    with pytest.raises(InvalidInput, match="cannot be read"):
        Conversation.from_text(json.dumps(stored))


@pytest.mark.parametrize("length", range(len(RUN.to_text())))
def test_truncated_text_is_refused(length):
    with pytest.raises(InvalidInput):
        Conversation.from_text(RUN.to_text()[:length])


@given(st.text())
def test_text_is_refused_or_read(text):
    with suppress(InvalidInput):
        assert isinstance(Conversation.from_text(text), Conversation)


def test_deep_text_is_refused():
    with pytest.raises(InvalidInput):
        Conversation.from_text("[" * 100_000)


def test_the_latest_prefixes_are_kept():
    run = RUN
    for i in range(MAX_WARM + 2):
        run = run.warmed(f"model {i}", i, at_s=10.0 + i)
    assert run.warm == {f"model {i}": Warm(i, 10.0 + i) for i in range(2, MAX_WARM + 2)}
    stored = json.loads(run.to_text())
    stored["warm"] |= {"late": [1, 99.0], "early": [1, 0.0]}
    read = Conversation.from_text(json.dumps(stored))
    assert len(read.warm) == MAX_WARM
    assert "late" in read.warm
    assert "early" not in read.warm


def test_reading_a_prefix_again_replaces_it():
    again = RUN.warmed("small", 30, at_s=4.0)
    assert again.warm == {"small": Warm(30, 4.0)}
    assert RUN.warm == {"small": Warm(10, 2.0)}
    same = set(Conversation._fields) - {"warm"}
    assert all(getattr(again, name) == getattr(RUN, name) for name in same)
