import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter import Answer, Budget, Conversations, Model, Price, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.routing.signals import MOST_ANSWERS, REGENERATED_S, RULES, Signals

SCHEMA = {"type": "json_schema", "json_schema": {"schema": {"type": "object", "required": ["city"]}}}
CASES = {
    "invalid_tool_call": Answer("", "tool_calls", ['{"a": 1', "{}"]),
    "schema_error": Answer('{"town": "Rome"}', "stop", response_format=SCHEMA),
    "content_filter": Answer("I", "content_filter"),
    "truncated": Answer("The capital of", "length"),
    "empty_answer": Answer(" \n", "stop"),
    "tool_error": Answer("x", failed=["tool_error"]),
}
GOOD = {
    "text": Answer("Rome.", "stop"),
    "tool call": Answer("", "tool_calls", ['{"city": "Rome"}']),
    "tool call without arguments": Answer("", "tool_calls", [""]),
    "parsed tool call": Answer("", "tool_use", [{"city": "Rome"}]),
    "refusal": Answer("", "stop", refusal=True),
    "another part": Answer("", "stop", other=True),
    "text beside a tool call": Answer("Let me look.", "tool_calls", ["{}"], response_format=SCHEMA),
    "object": Answer('{"city": "Rome"}', "stop", response_format=SCHEMA),
    "a schema that is none": Answer(
        "{}", "stop", response_format={"type": "json_schema", "json_schema": {"schema": {"type": 7}}}
    ),
}


def make(rules, **options):
    router = WiseRouter([Model("small", Price(1e-6, 1e-6)), Model("large", Price(3e-6, 3e-6))], seed=0, **options)
    router.signals = rules
    router.start(Budget(100.0, 1_000))
    return router


def charged(router, **terms):
    decision = router.decide("a", **terms)
    router.charge(decision, cost_usd=0.01)
    return decision


@pytest.mark.parametrize("rule", CASES)
def test_a_certain_failure_scores_0(rule):
    router = make([rule])
    decision = charged(router)
    assert router.check_answer(decision, CASES[rule]) == (rule,)
    record = router._store.find(decision.id)
    assert (record.reward, list(record.scores)) == (0.0, [f"rule:{rule}"])


@pytest.mark.parametrize("case", GOOD)
def test_silence_is_no_score(case):
    router = make("all")
    decision = charged(router)
    assert router.check_answer(decision, GOOD[case]) == ()
    assert router._store.find(decision.id).reward is None


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_that_is_off_does_nothing(rule):
    others = [name for name in RULES if name not in CASES[rule].failures()]
    for rules in (others, None):
        router = make(rules)
        assert router.check_answer(charged(router), CASES[rule]) == ()


def test_a_person_is_believed_before_a_rule():
    router = make(["truncated"])
    decision = charged(router)
    router.reward(decision, 1.0)
    assert router.check_answer(decision, CASES["truncated"]) == ("truncated",)
    assert router._store.find(decision.id).reward == 1.0


def test_one_failed_call_is_not_the_failure_of_its_run():
    router = make(["truncated", "loop_exhausted"], conversations=Conversations("run"))
    decision = charged(router, conversation="run-1")
    assert router.check_answer(decision, CASES["truncated"]) == ()
    assert router.fail(decision, "loop_exhausted") is True


def test_a_call_that_is_unknown_or_failed_has_no_score():
    router = make("all")
    decision = router.decide("a")
    router.release(decision)
    assert router.check_answer(decision, CASES["truncated"]) == ()
    assert router.fail("unknown", "tool_error") is False


def test_an_unknown_rule_is_named():
    with pytest.raises(InvalidInput, match="did you mean 'truncated'"):
        make(["truncate"])


def test_the_same_prompt_fails_its_answer_once_and_for_a_short_time():
    now = [0.0]
    signals = Signals("all", lambda: now[0])
    signals.answered("d1", "prompt")
    assert (signals.regenerated("other"), signals.regenerated("prompt"), signals.regenerated("prompt")) == (
        None,
        "d1",
        None,
    )
    signals.answered("d2", "prompt")
    now[0] += REGENERATED_S + 1.0
    assert signals.regenerated("prompt") is None


def test_what_is_remembered_is_bounded():
    signals = Signals("all", lambda: 0.0)
    for i in range(MOST_ANSWERS + 5):
        signals.answered(f"d{i}", f"p{i}", [f"t{i}"])
    assert (signals.regenerated("p0"), signals.caller_of_tool("t0")) == (None, None)
    assert (signals.regenerated("p9999"), signals.caller_of_tool("t9999")) == ("d9999", "d9999")


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_any_object_is_a_valid_call_and_nothing_else(value):
    rules = Answer("x", tool_arguments=[json.dumps(value)]).failures()
    assert (rules == ()) is isinstance(value, dict)


def test_failures_alone_are_warned_of():
    router = make(["truncated"])
    for _ in range(20):
        assert router.status().warnings == ()
        decision = charged(router)
        router.check_answer(decision, CASES["truncated"])
    (line,) = router.status().warnings
    assert line.startswith("all 20 scores are 0")
    assert router.explain(decision).warnings == (line,)
    router.reward(charged(router), 1.0)
    assert router.status().warnings == ()
