"""The question of a call: short answers, text that programs add, and any text at all in bounded time."""

from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.tables import ROUTERBENCH, SWEBENCH, needs_tables, read
from wiserouter.integration import Message, Question, question_of
from wiserouter.prompts.harness_text import (
    ASK_TAGS,
    NOISE_TAGS,
    OPENING_ASK_TAGS,
    OPENINGS,
    person_text,
    person_texts,
)
from wiserouter.prompts.short_answers import is_informative

TASK = "Translate this contract"


def asked(*texts):
    """Return the question of a conversation in which the user says this, and an assistant answers."""
    turns = [message for text in texts for message in (Message("user", [text]), Message("assistant", ["Done. More?"]))]
    return question_of(turns)


SHORT_ANSWERS = """
yes|Yes, go on|ok|OK!|okay, please continue|continue|go ahead|do it|sure, thanks|y|1|option 2|👍|...|?|why?|lgtm
try again|weiter|ja, bitte mach weiter|Passt so, danke!|genau|oui, vas-y|continuez s'il vous plaît|d\u2019accord
sí, continúa por favor|de acuerdo|sim, pode continuar|va bene, continua|ja, ga door|tak, kontynuuj|evet, devam et
да, продолжай|继续|好的\uff0c请继续|はい、続けてください|네, 계속해주세요|हाँ, जारी रखें|نعم، استمر|כן, המשך
có, tiếp tục|ya, lanjutkan
"""
SHORT_ASKS = """
Write a poem|2 + 2|yes, but in French|continue the story about the fox|use option B and add tests|weiter im Text
no, use Rust instead|fix it with pandas|什么是熵\uff1f|なぜ空は青いの|продолжай рассказ про лису|x^2 = 9|README.md
explain entropy
"""


def listed(table):
    return table.strip().replace("\n", "|").split("|")


@pytest.mark.parametrize("answer", listed(SHORT_ANSWERS))
def test_a_short_answer_leaves_the_question_as_it_is(answer):
    assert asked(TASK, answer) == Question(TASK, informative=True)
    assert asked(answer) == Question(answer, informative=False)


@pytest.mark.parametrize("ask", listed(SHORT_ASKS))
def test_a_short_ask_is_the_question(ask):
    assert asked(TASK, ask) == Question(ask, informative=True)


@pytest.mark.parametrize("tag", sorted(NOISE_TAGS))
def test_blocks_that_programs_add_are_left_out(tag):
    assert person_text(f"{TASK} <{tag}>\nsome text\n</{tag}>\n") == TASK
    assert person_text(f'<{tag.upper()} path="a">some <b>text</b></{tag.upper()}>') == ""
    assert person_text(f"what is <{tag}>?") == f"what is <{tag}>?"


@pytest.mark.parametrize("tag", sorted(ASK_TAGS | OPENING_ASK_TAGS))
def test_of_a_tagged_ask_only_that_is_read(tag):
    assert person_text(f"<{tag}>{TASK}<git_status>clean</git_status></{tag}>\nUse the tools.") == TASK


@pytest.mark.parametrize("tag", sorted(OPENING_ASK_TAGS))
def test_tags_that_people_write_too_are_text_within_a_text(tag):
    text = f"Grade this: <{tag}>42</{tag}>, with reasons"
    assert person_text(text) == text


def test_prompts_with_tags_of_their_own_stay_whole():
    prompt = "<instructions>Summarise</instructions><document>A fox.</document><output>one line</output>"
    assert person_text(prompt) == prompt


@pytest.mark.parametrize("opening", OPENINGS)
def test_texts_of_programs_are_no_question(opening):
    assert asked(TASK, f"{opening.title()} 3 files") == Question(TASK, informative=True)


def test_the_text_of_a_program_is_the_question_where_there_is_no_other():
    assert asked("Observation: the sky is blue") == Question("Observation: the sky is blue", informative=False)
    assert question_of([Message("system", ["Be brief."]), Message("user", [])]) == Question(
        "Be brief.", informative=True
    )
    assert question_of([]) == Question("", informative=False)


def test_the_last_short_answer_stands_where_nothing_else_was_said():
    assert asked("hi", "yes") == Question("yes", informative=False)


texts = st.lists(
    st.one_of(
        st.text(max_size=20),
        st.sampled_from(
            [f"<{slash}{tag}>" for tag in sorted(NOISE_TAGS | ASK_TAGS | OPENING_ASK_TAGS) for slash in ("", "/")]
        ),
        st.sampled_from(
            ["\n", "Observation:", "\nThought:", "\nQuestion:", "ISSUE:", "\nINSTRUCTIONS:", "[x] Result:"]
        ),
    ),
    max_size=12,
).map("".join)
messages = st.lists(
    st.builds(Message, st.sampled_from(["user", "assistant", "tool"]), st.lists(texts, max_size=3)), max_size=5
)


@settings(max_examples=300, deadline=None)
@given(messages)
def test_the_question_is_made_of_what_was_written(conversation):
    question = question_of(conversation)
    spoken = [text for message in conversation if message.role == "user" for text in message.texts]
    written = [text for message in conversation for text in message.texts]
    sources = spoken if any(spoken) else written
    for line in question.text.split("\n"):
        assert any(line in text for text in sources) or not line
    assert bool(question.text) == any(written) or not any(text.strip() for text in written)
    assert not (question.informative and not is_informative(question.text))


LENGTH = 300_000
HARD_TEXTS = {
    "plain": "word " * (LENGTH // 5),
    "opened": "<system-reminder>" * (LENGTH // 17),
    "closed": "</system-reminder>" * (LENGTH // 18),
    "opened, then closed": "<system-reminder>" * (LENGTH // 35) + "</system-reminder>" * (LENGTH // 35),
    "two tags in turn": "<task><user_query></task>" * (LENGTH // 25),
    "tag without end": "<task " * (LENGTH // 6),
    "tag with a long attribute": "<task " + "a" * LENGTH,
    "angle brackets": "<" * LENGTH,
    "lines": "\nObservation:" * (LENGTH // 13),
    "questions": "\nQuestion:" * (LENGTH // 10),
    "spaces": " " * LENGTH,
    "result": "[" + "x" * LENGTH,
    "blocks": "<git_status>x</git_status> " * (LENGTH // 27),
}


@pytest.mark.parametrize("text", HARD_TEXTS.values(), ids=HARD_TEXTS)
def test_the_time_grows_with_the_length_only(text):
    def seconds(part):
        times = []
        for _ in range(3):
            start = process_time()
            question_of([Message("user", [part]), Message("user", ["ok"])])
            times.append(process_time() - start)
        return min(times)

    assert seconds(text) < max(0.2, 40 * seconds(text[: LENGTH // 10]))


def test_many_messages_are_read_once():
    conversation = [Message("user", [TASK])] + [Message("user", ["Observation: " + "x" * 1_000])] * 3_000
    start = process_time()
    assert question_of(conversation) == Question(TASK, informative=True)
    assert process_time() - start < 1.0


def test_a_result_follows_its_heading():
    assert person_texts(["[ls] Result:", "a.py", TASK]) == [TASK]
    assert person_texts(["[ls] Result: see below", "a.py"]) == []
    assert person_texts(["[ls] Result:\na.py", TASK]) == [TASK]


@needs_tables
@pytest.mark.parametrize("table", [ROUTERBENCH, SWEBENCH], ids=["routerbench", "swe-bench"])
def test_prompts_of_public_tables_are_their_own_question(table):
    for prompt in read(table).prompts:
        question = question_of([Message("user", [prompt])])
        assert (question.text.split(), question.informative) == (prompt.split(), True)
