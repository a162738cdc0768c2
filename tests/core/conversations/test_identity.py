import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiserouter.conversations.identity import (
    MOST_HASHED_CHARS,
    ConversationKey,
    answered,
    conversation_key,
    earlier_turns,
    last_request,
    prefix_chain,
)
from wiserouter.errors import InvalidInput

TEXTS = st.text(max_size=12)
ROLES = st.sampled_from(["user", "assistant", "tool"])
CHATS = st.lists(st.builds(lambda role, content: {"role": role, "content": content}, ROLES, TEXTS), max_size=8)
TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


@given(st.tuples(TEXTS, TEXTS), st.tuples(TEXTS, TEXTS))
def test_keys_are_equal_only_for_equal_callers_and_ids(first, second):
    if all((first[0], second[0])):
        assert (conversation_key(*first) == conversation_key(*second)) == (first == second)


def test_a_key_reveals_neither_id_nor_caller_and_depends_on_the_salt():
    key = conversation_key("thread-1", "team-a")
    assert len(key) == 32
    assert "thread" not in key
    assert key != conversation_key("thread-1", "team-a", b"salt")


@pytest.mark.parametrize("id_", ["", None, 7])
def test_what_is_no_id_is_refused(id_):
    with pytest.raises(InvalidInput, match="conversation must be a text of at least 1 character"):
        conversation_key(id_)


def test_a_salt_that_is_too_long_is_refused():
    with pytest.raises(InvalidInput, match="at most 64 bytes, got 65"):
        conversation_key("a", salt=b"x" * 65)


def test_a_key_of_the_router_stays_as_it_is_and_a_text_like_it_does_not():
    key = conversation_key("thread-1", "team-a")
    assert conversation_key(ConversationKey(key), "team-b") == key
    assert conversation_key(key, "team-b") != key


@given(CHATS, CHATS)
def test_a_chain_begins_with_that_of_every_request_before(earlier, later):
    chain, whole = prefix_chain(earlier, "a"), prefix_chain([*earlier, *later], "a")
    ended = chain if later and whole[: len(chain)] == chain else chain[:-1]  # the last turn may go on
    assert whole[: len(ended)] == ended


@given(CHATS, TEXTS.filter(bool), st.lists(TEXTS, min_size=1, max_size=3))
def test_a_request_that_repeats_an_answer_finds_it(chat, asked, answers):
    request = [*chat, user(asked)]
    answer = [assistant(text) for text in answers]
    turn = last_request(prefix_chain(request, "a"))
    later = earlier_turns(prefix_chain([*request, *answer, user("go on")], "a"), 2)
    assert later == [answered(turn, answer), turn]


@given(CHATS.filter(bool))
def test_callers_have_no_hash_in_common(chat):
    assert not set(prefix_chain(chat, "a")) & set(prefix_chain(chat, "b"))
    assert not set(prefix_chain(chat, "a")) & set(prefix_chain(chat, "a", b"salt"))


@given(CHATS, CHATS)
def test_other_texts_have_other_hashes(first, second):
    """Turns are compared as a chain reads them: stripped texts, neighbours of one side joined."""
    if turns(first) != turns(second) and prefix_chain(first) and prefix_chain(second):
        assert prefix_chain(first)[-1] != prefix_chain(second)[-1]


def turns(chat):
    sides = [("user", [])]
    for message in chat:
        side = "assistant" if message["role"] == "assistant" else "user"
        if side != sides[-1][0]:
            sides.append((side, []))
        sides[-1][1].extend(filter(None, [message["content"].strip()]))
    return sides


@pytest.mark.parametrize(
    ("sent", "repeated"),
    [
        (user("hi "), user([{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}])),
        (user("hi"), user([{"text": "<system-reminder>\nno todos\n</system-reminder>"}, {"text": "hi"}])),
        (user([image := {"type": "image", "source": {"data": "A" * 9}}]), user([{**image, "cache_control": {}}])),
        (assistant("hi"), assistant([{"type": "thinking", "thinking": "?", "signature": "s"}, {"text": "hi"}])),
        (assistant("hi"), assistant("hi", reasoning_content="?", thinking_blocks=[{"signature": "s"}])),
        (assistant(None, tool_calls=[TOOL_CALL]), assistant("", tool_calls=[{"id": "call_1__thought__xyz"}])),
        (assistant([{"type": "tool_use", "id": "t1", "input": {}}]), assistant([{"type": "tool_use", "id": "t1"}])),
        (assistant("hi"), {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}),
    ],
)
def test_what_clients_change_from_request_to_request_does_not_count(sent, repeated):
    assert prefix_chain([sent]) == prefix_chain([repeated])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (user("hi"), user("ho")),
        (user([image]), user([{"type": "image", "source": {"data": "B" * 9}}])),
        (assistant(None, tool_calls=[TOOL_CALL]), assistant(None, tool_calls=[{"id": "call_2"}])),
        ({"role": "tool", "tool_call_id": "a", "content": "x"}, {"role": "tool", "tool_call_id": "b", "content": "x"}),
        (
            user([{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]),
            user([{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "y"}]}]),
        ),
        ({"type": "function_call_output", "call_id": "a", "output": "x"}, user("x")),
    ],
)
def test_what_tells_conversations_apart_counts(one, other):
    assert prefix_chain([one]) != prefix_chain([other])


def test_items_of_a_response_are_turns():
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "encrypted_content": "x"},
        {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
    ]
    assert len(prefix_chain(items)) == 3
    without = [item for item in items if item["type"] != "reasoning"]
    assert prefix_chain(without) == prefix_chain(items)


def test_instructions_are_no_turn():
    monday, tuesday = ({"role": "system", "content": f"today is {day}"} for day in ("Monday", "Tuesday"))
    assert prefix_chain([monday]) == prefix_chain([tuesday])
    assert prefix_chain([monday, user("hi")]) == prefix_chain([tuesday, user("hi")]) == prefix_chain([user("hi")])


def test_no_messages_have_no_turns():
    assert prefix_chain([]) == []
    assert earlier_turns([], 5) == []


def test_the_start_of_an_answer_is_not_the_last_request():
    chain = prefix_chain([user("hi"), assistant("Sure, ")])
    assert last_request(chain) == chain[0]


def test_of_a_long_part_the_start_the_end_and_the_length_count():
    long = "a" * MOST_HASHED_CHARS
    chains = [prefix_chain([user(text)]) for text in (long, f"{long}a", f"b{long}", f"{long}b")]
    assert len({chain[0] for chain in chains}) == 4
    middle = f"{long}c{long}"
    assert prefix_chain([user(middle)]) == prefix_chain([user(middle.replace("c", "d"))])


def test_surrogates_are_hashed():
    assert prefix_chain([user("\ud800")]) != prefix_chain([user("\ud801")])


def test_keys_stay_the_same_from_version_to_version():
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello!"}]
    assert conversation_key("thread-1", "a", b"salt") == "47de8bef95c636f5d18396d99fc74bf8"
    assert prefix_chain(chat, "a", b"s") == ["ec65b6aee5a012444a0a3d543ee37869", "f3e6d9d6ea293aaecd40202e8db6e361"]
    assert answered("00", [{"role": "assistant", "content": "é"}]) == "2f2d1a682dec1c76ed66a3bf55e0920c"
