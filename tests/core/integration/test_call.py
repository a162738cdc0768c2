"""A call as adapters describe it, and the constants that they share."""

from wiserouter.integration import FRAME_TOKENS, SHORT_TEXT_CHARS, TOOLS_TOKENS, CallRequest
from wiserouter.pricing import tokens


def test_the_bound_is_the_bytes_and_the_overhead():
    assert CallRequest("naïve", counted="naïve", overhead_tokens=16).input_bound_tokens == 6 + 16


def test_a_lone_surrogate_has_three_bytes():
    assert CallRequest("", counted="\ud800", overhead_tokens=0).input_bound_tokens == 3


def test_a_plain_call_is_countable_text_for_one_answer():
    request = CallRequest("q", counted="q", overhead_tokens=0)
    assert (request.countable, request.media, request.tools, request.structured) == (True, frozenset(), False, False)
    assert (request.output_tokens, request.choices, request.tier) == (None, 1, "")


def test_each_number_is_defined_once():
    assert (FRAME_TOKENS, TOOLS_TOKENS, SHORT_TEXT_CHARS) == (8, 1_000, 4_000)
    assert tokens.SHORT_TEXT_CHARS is SHORT_TEXT_CHARS
