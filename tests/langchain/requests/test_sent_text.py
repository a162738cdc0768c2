"""The text that settings bring into a call: it counts wherever it is, since the provider bills it."""

from types import MappingProxyType

import numpy as np
import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from pydantic import Field, create_model

from support.chat_calls import City
from support.chat_stub import PRICES, StubChat
from wiserouter import Budget
from wiserouter_langchain import RunnableWiseRouter
from wiserouter_langchain.requests.limits import HARMLESS, UNREAD
from wiserouter_langchain.requests.operations import OPERATIONS
from wiserouter_langchain.requests.request import request_of

LONG = "a text of the caller's own " * 200
Described = create_model("Described", city=(str, Field(description=LONG)))
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "description": LONG}}}
EXAMPLES = [{"location": LONG}]


@tool(extras={"input_examples": EXAMPLES})
def look(location: str) -> str:
    """Look at a place."""
    return location


def typed(method, *args, **keywords):
    return {OPERATIONS: ((method, args, keywords),)}


CALLS = {
    "tools": {"tools": [{"name": "look", "input_schema": SCHEMA}]},
    "functions": {"functions": [{"name": "look", "parameters": SCHEMA}]},
    "a schema": typed("with_structured_output", Described),
    "tools beside a schema": typed("with_structured_output", City, tools=[Described]),
    "a class as a format": {"response_format": Described},
    "a class in a body": {"extra_body": {"response_format": Described}},
    "a format beside tools": typed("bind_tools", [City], response_format=Described),
    "another name of a format": {"output_format": {"type": "json_schema", "schema": SCHEMA}},
    "examples of a tool": typed("bind_tools", [look]),
    "examples of a described tool": typed(
        "bind_tools", [{"name": "look", "description": "", "input_schema": {}, "input_examples": EXAMPLES}]
    ),
    "a grammar": {"guided_regex": LONG},
    "a setting that nobody knows": {"system_prompt": LONG},
    "a mapping that is no dict": {"setting": MappingProxyType({"within": MappingProxyType({"text": LONG})})},
}


@pytest.mark.parametrize("kwargs", CALLS.values(), ids=list(CALLS))
def test_a_text_counts_wherever_a_call_brings_it(kwargs):
    assert LONG.strip() in request_of([HumanMessage("hi")], kwargs).counted


def test_what_no_model_reads_is_not_counted():
    settings = {"stop": ["."], "metadata": {"a": LONG}, "logit_bias": {"1": 5}, "max_tokens": "60", "temperature": 0.5}
    settings["embeddings"] = np.ones(3)
    assert request_of([HumanMessage("hi")], settings).counted == "hi"
    assert {"tools", "functions", "response_format", "output_format", "guided_regex"} <= HARMLESS - UNREAD


def test_titles_that_a_class_sends_with_its_schema_are_counted():
    kwargs = {"response_format": create_model("Titled", city=(str, Field(title=LONG)))}
    assert LONG.strip() in request_of([HumanMessage("hi")], kwargs).counted


class Formatted(StubChat):
    output_config: dict | None = None
    preamble: str = ""
    betas: list[str] = []  # noqa: RUF012
    anthropic_api_url: str = ""
    inner: StubChat | None = None
    model_kwargs: dict = {}  # noqa: RUF012


MODELS = {
    "a format": Formatted(max_tokens=20, output_config={"format": {"type": "json_schema", "schema": SCHEMA}}),
    "a preamble": Formatted(max_tokens=20, preamble=LONG),
    "a body": Formatted(max_tokens=20, model_kwargs={"tools": [{"name": "look", "input_schema": SCHEMA}]}),
    "a bound class": Formatted(max_tokens=20).bind(response_format=Described),
    "a bound tool": Formatted(max_tokens=20).bind(tools=[look]),
}


def bound_tokens(model):
    prices = {"small": PRICES["small"]}
    llm = RunnableWiseRouter(models={"small": model}, prices=prices, budget=Budget(1.0, 100, limit="hard"))
    return llm._environment.members["small"].own_tokens


@pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))
def test_a_text_counts_wherever_the_model_holds_it(model):
    assert bound_tokens(model) >= bound_tokens(Formatted(max_tokens=20)) + len(LONG)


def test_the_text_that_a_model_has_in_every_prompt_counts():
    assert bound_tokens(Formatted(max_tokens=20, model="grok-4.3")) == bound_tokens(Formatted(max_tokens=20)) + 1_000


def test_what_a_model_is_set_to_and_no_model_reads_is_not_counted():
    plain = bound_tokens(Formatted(max_tokens=20))
    settings = {"stop": ["."], "metadata": {"team": LONG}, "tags": [LONG], "betas": [LONG], "anthropic_api_url": LONG}
    settings["inner"] = Formatted(stop=[LONG])
    assert bound_tokens(Formatted(max_tokens=20, **settings)) == plain
