"""The fields of objects as LiteLLM passes them: the same by `field_of` as by the way of each kind of object."""

from collections import UserDict
from types import SimpleNamespace

import pytest
from litellm.types.utils import Message, Usage

from wiserouter_litellm.requests.json_objects import field_of

FIELDS = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8, "cache_read_input_tokens": 2}


@pytest.mark.parametrize("kind", [dict, UserDict, lambda all_: SimpleNamespace(**all_), lambda all_: Usage(**all_)])
@pytest.mark.parametrize("name", [*FIELDS, "data", "absent"])
def test_a_field_is_the_same_of_every_kind_of_object(kind, name):
    assert field_of(kind(FIELDS), name) == FIELDS.get(name)


def test_a_pydantic_object_without_further_fields_lacks_them():
    assert field_of(Message(content="hi"), "signature") is None
    assert field_of(Message(content="hi"), "content") == "hi"


@pytest.mark.parametrize("value", [None, "text", 3, ["a"]])
def test_what_is_no_object_has_no_field(value):
    assert field_of(value, "absent") is None
