"""The text of a decision in a shared store."""

import json

from hypothesis import given
from hypothesis import strategies as st

from wiserouter import Decision
from wiserouter.stores.base import Record
from wiserouter.stores.shared.codec import record_of_text, text_of_record

REQUIRED = ("d", "m", 0, 1.0, 0.1, 0.2, 0.1, 0.5, 0.1, "default", 12.5)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "ask_feedback": st.booleans(),
            "conversation": st.text(max_size=3),
            "visit": st.sampled_from(["", "first", "stay"]),
            "run_id": st.text(max_size=3),
            "would_be": st.text(max_size=3),
            "value": st.floats(0.001, 1_000.0),
        },
    )
)
def test_a_decision_is_read_as_it_was_written_and_defaults_at_its_end_are_left_out(given_fields):
    decision = Decision(*REQUIRED, **given_fields)
    text = text_of_record(Record(decision, 3, "actual"))
    assert record_of_text(text, "store").decision == decision
    written = json.loads(text)[0]
    assert len(written) == len(REQUIRED) or written[-1] != Decision._field_defaults[Decision._fields[len(written) - 1]]


def test_a_decision_with_all_its_fields_written_out_is_read():
    text = json.dumps([[*REQUIRED, False, "", "", "", "", 1.0], 3, "actual", None])
    assert record_of_text(text, "store").decision == Decision(*REQUIRED)
