import json
import time
import urllib.request

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiserouter import Answer
from wiserouter.routing.schema_fit import fits

MISSED = {
    "type": ({"n": "one"}, {"properties": {"n": {"type": "integer"}}}),
    "a boolean is no number": (True, {"type": "number"}),
    "required": ({"town": "Rome"}, {"type": "object", "required": ["city"]}),
    "additional": ({"a": 1}, {"additionalProperties": False}),
    "enum": ({"a": "red"}, {"properties": {"a": {"enum": ["blue", "green"]}}}),
    "items": ([1, "two"], {"items": {"type": "integer"}}),
    "anyOf": (1.5, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    "$ref": ({"a": 1}, {"properties": {"a": {"$ref": "#/$defs/text"}}, "$defs": {"text": {"type": "string"}}}),
}
FIT = {
    "whole number": (1.0, {"type": "integer"}),
    "unknown type": ("x", {"type": "STRING"}),
    "nullable": (None, {"type": "string", "nullable": True}),
    "pattern properties": ({"x-a": 1}, {"additionalProperties": False, "patternProperties": {"^x-": True}}),
    "anchor": ({"a": 1}, {"type": "object", "properties": {"a": {"$ref": "#text"}}}),
    "no such part": (1, {"$ref": "#/$defs/none"}),
}
DEEP = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(60)} | {"d60": {"type": "string"}}
SLOW = {
    "alternatives without end": ("1", {"$defs": DEEP, "$ref": "#/$defs/d0"}),
    "a reference to itself": ("1", {"$ref": "#"}),
    "an expression without end": (json.dumps("a" * 40 + "!"), {"pattern": "^(a+)+$"}),
    "many values, many names": (json.dumps([""] * 20_000), {"items": {"enum": list(map(str, range(20_000)))}}),
    "a reference of many names": (json.dumps([0] * 1_000), {"items": {"$ref": "#/" + "a/" * 100_000}}),
    "unlike elements": (json.dumps([[{"a": i}] for i in range(3_000)]), {"uniqueItems": True}),
}

NAMES = st.sampled_from("abc")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.5, 1.0]) | NAMES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["object", "array", "string", "number", "integer", "boolean", "null"])


def schemas_of(inner):
    some = st.lists(inner, min_size=1, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
            "properties": st.dictionaries(NAMES, inner, max_size=2),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": st.booleans(),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$"]), inner, max_size=1),
            "prefixItems": some,
            "items": inner,
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "const": VALUES,
            "anyOf": some,
            "allOf": some,
            "not": inner,
        },
    )


SCHEMAS = st.recursive(st.booleans(), schemas_of, max_leaves=8)


@pytest.mark.parametrize("case", MISSED)
def test_a_value_that_misses_a_schema_is_told(case):
    assert not fits(*MISSED[case])


@pytest.mark.parametrize("case", FIT)
def test_what_is_not_read_says_nothing_against_an_answer(case):
    assert fits(*FIT[case])


@given(VALUES, SCHEMAS)
def test_no_value_that_fits_is_refused(value, schema):
    if not fits(value, schema):
        assert not jsonschema.Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize("case", SLOW)
def test_no_schema_of_a_client_takes_long(case):
    text, schema = SLOW[case]
    began_s = time.process_time()
    Answer(text, response_format={"type": "json_schema", "json_schema": {"schema": schema}}).failures()
    assert time.process_time() - began_s < 2.0


def test_no_reference_of_a_client_is_fetched(monkeypatch, tmp_path):
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_: pytest.fail("a reference was fetched"))
    (kept := tmp_path / "secret.json").write_text('{"type": "string"}')
    for place in ("http://169.254.169.254/latest", kept.as_uri()):
        asked = {"type": "json_schema", "json_schema": {"schema": {"$ref": place}}}
        assert Answer("{}", response_format=asked).failures() == ()
