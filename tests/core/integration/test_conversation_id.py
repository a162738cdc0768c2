import pytest

from support.harness_shapes import SHAPES, assistant, result, text, user
from wiserouter.integration import StatedIds, conversation_of, name_of_answer


class Store:
    """Names of decisions and the conversations that these belong to."""

    def __init__(self):
        self.keys = {}
        self.looks = 0

    def find(self, *names):
        self.looks += 1
        return next((self.keys[name] for name in names if name in self.keys), None)

    def request(self, messages, caller="a", **stated):
        found = conversation_of(StatedIds(**stated), messages, caller, self.find)
        self.keys |= dict.fromkeys(found.names, found.id)
        return found

    def answer(self, found, answer):
        self.keys[name_of_answer(found.request, answer)] = found.id


def test_an_id_comes_before_all_else_and_nothing_is_looked_up():
    store = Store()
    found = store.request([user("hi")], conversation="thread-1", cache_key="k", answers=["x"])
    assert found == ("thread-1", "")
    assert found.names == []
    assert store.looks == 0


def test_a_key_of_a_cache_counts_with_the_first_turn():
    store = Store()
    chat = [user("hi")]
    first = store.request(chat, cache_key="my-app")
    assert first == store.request([*chat, assistant("Hello!"), user("go on")], cache_key="my-app")
    assert first != store.request([user("another")], cache_key="my-app")
    assert first != store.request(chat, caller="b", cache_key="my-app")


def test_an_answer_that_is_continued_names_the_conversation():
    store = Store()
    store.keys["resp_1"] = "conversation-1"
    assert store.request([user("and then?")], answers=["resp_1"], cache_key="k").id == "conversation-1"


def test_a_request_continues_the_one_before_it():
    store = Store()
    chat = [user("hi")]
    first = store.request(chat)
    chat += [assistant("Hello!"), user("go on")]
    second = store.request(chat)
    chat += [assistant(None, tool_calls=[{"id": "c1"}]), {"role": "tool", "tool_call_id": "c1", "content": "x"}]
    assert first.id == second.id == store.request(chat).id
    assert len({first.request, second.request}) == 2


def test_equal_beginnings_are_told_apart_by_their_answers():
    store = Store()
    chat = [user("hi")]
    answers = [[assistant("Hello!")], [assistant("Hi there")], [assistant(None, tool_calls=[{"id": "c1"}])]]
    begun = [store.request(chat) for _ in answers]
    for found, answer in zip(begun, answers, strict=True):
        store.answer(found, answer)
    continued = [store.request([*chat, *answer, user("go on")]) for answer in answers]
    assert [one.id for one in continued] == [one.id for one in begun]
    assert len({one.id for one in begun}) == 3


def test_a_repeated_request_within_a_conversation_stays_in_it():
    store = Store()
    first = store.request([user("hi")])
    later = [user("hi"), assistant("Hello!"), user("go on")]
    assert store.request(later).id == store.request(later).id == first.id


def test_no_caller_joins_the_conversation_of_another():
    store = Store()
    chat = [user("hi"), assistant("Hello!"), user("go on")]
    first = store.request(chat[:1])
    store.answer(first, chat[1:2])
    assert store.request(chat, caller="b").id != first.id
    assert store.request(chat).id == first.id


def test_a_request_without_messages_begins_a_conversation():
    store = Store()
    first, second = store.request([]), store.request([])
    assert first.id != second.id
    assert first.names == []


def test_an_answer_without_content_has_no_name():
    assert name_of_answer("turn", []) is None


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_agents_and_editors_continue_their_conversations(shape):
    """The history grows by calls of tools and their results; marks for caches move, and thoughts are dropped."""
    store, history = Store(), list(shape.messages)
    first = store.request(history)
    for n in range(6):
        call = {"type": "tool_use", "id": f"toolu_{n}", "name": "Read", "input": {}}
        thought = {"type": "thinking", "thinking": "?", "signature": f"s{n}"}
        history += [assistant([call] if n < 5 else [thought, call]), user([result("ok", f"toolu_{n}"), text(f"{n}")])]
        assert store.request([*history[:-1], marked(history[-1])]).id == first.id


def marked(message):
    return {**message, "content": [{**part, "cache_control": {"type": "ephemeral"}} for part in message["content"]]}
