"""A hard budget against every keyword argument: what the provider bills never exceeds it.

The chat model here obeys what it receives, at the most expensive reading, and keeps a ledger of its own.
"""

from contextlib import suppress
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from pydantic import BaseModel

from support.chat_calls import City, weather
from support.chat_stub import PRICES, StubChat
from wiserouter import Budget
from wiserouter.errors import InvalidInput, UnknownPrice, WiseRouterError
from wiserouter_langchain import RunnableWiseRouter
from wiserouter_langchain.requests.limits import (
    ANSWERS,
    HARMLESS,
    OUTPUT_LIMITS,
    bounded_limits,
    costly_field,
    provider_tools,
)
from wiserouter_langchain.requests.operations import OPERATIONS

MOST = 8_192
WINDOW = 16_384
BUDGET_USD = 0.05
PROFILE = {"max_output_tokens": MOST, "max_input_tokens": WINDOW, "tool_calling": True, "image_inputs": True}


def number(value):
    """Return a limit as a lenient provider reads it; None where it ignores it."""
    try:
        return int(float(value)) if float(value) >= 1 and not isinstance(value, bool) else None
    except (TypeError, ValueError, OverflowError):
        return None


class Billed(StubChat):
    """Bills what it receives: the longest answer, as many answers, and the price of what it is asked for."""

    n: int | None = None
    model_kwargs: dict = {}  # noqa: RUF012
    extra_body: dict = {}  # noqa: RUF012
    service_tier: str | None = None
    context_management: dict | list | None = None
    reasoning: dict | None = None
    prompt_cache_options: dict | None = None
    bills: list = []  # noqa: RUF012

    def _answer(self, messages, **kw):
        fields = {"max_tokens": self.max_tokens, "n": self.n, "service_tier": self.service_tier}
        body = {**fields, **self.model_kwargs, **kw}
        body |= {**self.extra_body, **(kw.get("extra_body") or {}), **(kw.get("model_kwargs") or {})}
        limits = [limit for name in OUTPUT_LIMITS if (limit := number(body.get(name)))]
        answers = max([count for name in ANSWERS if (count := number(body.get(name)))], default=1)
        tokens = min(max(limits, default=MOST), MOST) * answers
        price = PRICES["large" if body.get("model") == "large" else self.model]
        extra = 5.0 * (body.get("service_tier") == "priority") + 2.0 * bool(body.get("previous_response_id"))
        extra += sum(tool.get("type") == "web_search" for tool in body.get("tools") or () if isinstance(tool, dict))
        read = sum(len(str(message.content)) for message in messages) // 4 + 10
        cost = (read * price.input + tokens * price.output) * (1 + extra)
        self.bills.append(cost)
        usage = {"input_tokens": read, "output_tokens": tokens, "total_tokens": read + tokens}
        return AIMessage("an answer", usage_metadata=usage, response_metadata={"response_cost": cost})


def routed(bills, limit="hard", cap=256, **fields):
    models = {
        name: Billed(model=name, profile=PROFILE, bills=bills, **fields)  # copies share the ledger
        for name in ("small", "large")
    }
    for model in models.values():
        model.bills = bills
    budget = Budget(BUDGET_USD, 1_000, limit=limit)
    return RunnableWiseRouter(models=models, prices=PRICES, budget=budget, cap_output_tokens=cap)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 20_000),
    st.floats(allow_nan=True),
    st.sampled_from(["", "4096", "-1", "1e9", "many", "٣", 10**30, "9" * 40, [], {}, [4096], {"max_tokens": 9_000}]),
)
NAMES = st.sampled_from([*OUTPUT_LIMITS, *ANSWERS, "temperature", "top_k"])
COSTLY = st.dictionaries(
    st.sampled_from(["model", "service_tier", "previous_response_id", "web_search_options", "speed"]),
    st.sampled_from(["large", "priority", "resp_1", None]),
    max_size=1,
)
BODIES = st.dictionaries(
    st.sampled_from(["extra_body", "model_kwargs"]), st.dictionaries(NAMES, VALUES, max_size=2) | COSTLY, max_size=1
)
PLAIN = st.dictionaries(NAMES, VALUES, max_size=3)
KWARGS = st.tuples(PLAIN, COSTLY, BODIES).map(lambda parts: {**parts[0], **parts[1], **parts[2]})
SEARCH = {"type": "web_search"}
WAYS = {
    "invoke": lambda llm, kwargs: llm.invoke("hello", **kwargs),
    "stream": lambda llm, kwargs: list(llm.stream("hello", **kwargs)),
    "bind": lambda llm, kwargs: llm.bind(**kwargs).invoke("hello"),
    "bind twice": lambda llm, kwargs: llm.bind(max_tokens=20).bind(**kwargs).invoke("hello", max_tokens=30),
    "tools": lambda llm, kwargs: llm.bind_tools([weather], **kwargs).invoke("hello"),
    "search": lambda llm, kwargs: llm.bind_tools([SEARCH]).invoke("hello", **kwargs),
    "bound search": lambda llm, kwargs: llm.bind(tools=[SEARCH]).invoke("hello"),
    "structured": lambda llm, kwargs: llm.with_structured_output(City, **kwargs).invoke("hello"),
    "batch": lambda llm, kwargs: llm.batch(["hello", "bye"], return_exceptions=True, **kwargs),
    "generate": lambda llm, kwargs: llm.generate([[HumanMessage("hello")]], **kwargs),
}


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(way=st.sampled_from(sorted(WAYS)), kwargs=KWARGS, cap=st.sampled_from([None, 256]))
def test_no_arguments_of_a_call_break_a_hard_budget(way, kwargs, cap):
    bills = []
    llm = routed(bills, cap=cap)
    for _ in range(4):
        try:
            WAYS[way](llm, kwargs)
        except Exception as error:  # refused, or not what the stub can answer: the ledger counts
            assert isinstance(error, WiseRouterError | TypeError | AttributeError | ValueError), error  # noqa: PT017
    assert sum(bills) <= BUDGET_USD * (1 + 1e-9)
    assert llm.core.status().spent_usd >= sum(bills) - 1e-12


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "max_tokens": st.sampled_from([None, 20, 4_096, -1]),
        "n": st.sampled_from([None, 1, 7]),
        "model_kwargs": st.dictionaries(NAMES, VALUES, max_size=2) | COSTLY,
        "extra_body": st.dictionaries(NAMES, VALUES, max_size=2) | COSTLY,
        "service_tier": st.sampled_from([None, "default", "priority"]),
    },
)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(fields=FIELDS, kwargs=PLAIN, cap=st.sampled_from([None, 10, 256]))
def test_no_settings_of_a_model_break_a_hard_budget(fields, kwargs, cap):
    bills = []
    try:
        llm = routed(bills, cap=cap, **fields)
    except (UnknownPrice, InvalidInput):
        return
    for _ in range(4):
        with suppress(WiseRouterError):
            llm.invoke("hello", **kwargs)
    assert sum(bills) <= BUDGET_USD * (1 + 1e-9)


@pytest.mark.parametrize(
    ("kwargs", "named"),
    [
        ({"model": "large"}, "model"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"n": 0.5}, "n "),
        ({"n": True}, "n "),
        ({"extra_body": {"n": 20, "provider": {}}}, "provider"),
        ({"extra_body": "n=20"}, "extra_body"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"tools": [{"type": "web_search"}]}, "web_search"),
        ({"tools": [{"google_search": {}}]}, "google_search"),
        ({"cache_control": {"type": "ephemeral", "ttl": "1h"}}, "cache_control"),
        ({"prompt_cache_options": {"mode": "explicit", "ttl": "12h"}}, "prompt_cache_options"),
        ({"reasoning": {"effort": "low", "mode": "pro"}}, "reasoning"),
        ({"extra_body": {"reasoning": {"mode": "pro"}}}, "reasoning"),
    ],
)
def test_what_cannot_be_bounded_is_refused_by_name_before_anything_is_reserved(kwargs, named):
    llm = routed([])
    with pytest.raises(InvalidInput, match=named):
        llm.invoke("hello", **kwargs)
    assert llm.core.status().decided == 0


HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
HALF_DAY = {"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}


@pytest.mark.parametrize(
    ("content", "tools"),
    [
        ([{"type": "text", "text": "hello", **HOUR}], []),
        ([{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "hello", **HOUR}]}], []),
        ([{"type": "text", "text": "hello"}, {"cachePoint": {"type": "default", "ttl": "1h"}}], []),
        ("hello", [{"name": "look", "input_schema": {"type": "object", "properties": {}}, **HOUR}]),
        ("hello", [weather.model_copy(update={"extras": HOUR})]),
        ([{"type": "text", "text": "hello", **HALF_DAY}], []),
        ([{"type": "text", "text": "hello", "extras": HALF_DAY}], []),
    ],
)
def test_a_cache_of_an_hour_or_more_is_refused_wherever_it_is_asked_for(content, tools):
    llm = routed([])
    with pytest.raises(InvalidInput, match="a longer time has a price of its own"):
        llm.invoke([HumanMessage(content)], **({"tools": tools} if tools else {}))
    assert llm.core.status().decided == 0


def test_a_tool_that_stands_for_one_of_the_provider_is_refused():
    stands = weather.model_copy(update={"extras": {"provider_tool_definition": {"type": "web_search_20250305"}}})
    with pytest.raises(InvalidInput, match="tools of type 'web_search_20250305' are run and billed by the provider"):
        routed([]).bind_tools([stands]).invoke("hello")
    known = weather.model_copy(update={"extras": {"defer_loading": True}})
    assert bounded_limits({"tools": [weather, known, City]}) == (None, None)


class GoogleTool(BaseModel):
    """As `google.genai.types.Tool` is: an object, with functions of the caller and tools of Google side by side."""

    function_declarations: list[dict] | None = None
    google_search: dict | None = None


FUNCTIONS = [{"name": "look", "parameters": {"type": "object", "properties": {}}}]


@pytest.mark.parametrize(
    "tool",
    [
        GoogleTool(google_search={}),
        GoogleTool(google_search={}, function_declarations=FUNCTIONS),
        {"google_search": {}, "function_declarations": FUNCTIONS},
        {"googleSearch": {}, "functionDeclarations": FUNCTIONS},
        {"type": "function", "function": FUNCTIONS[0], "google_search": {}},
    ],
    ids=repr,
)
def test_a_tool_of_google_is_refused_as_an_object_and_beside_functions(tool):
    llm = routed([])
    for asked in (llm.bind_tools([tool]), llm.bind(tools=[tool])):
        with pytest.raises(InvalidInput, match="are run and billed by the provider"):
            asked.invoke("hello")
    assert llm.core.status().decided == 0


def test_an_object_that_declares_functions_passes_and_an_unknown_one_does_not():
    assert bounded_limits({"tools": [GoogleTool(function_declarations=FUNCTIONS)]}) == (None, None)
    with pytest.raises(InvalidInput, match="object"):
        bounded_limits({"tools": [object()]})


def test_a_cache_point_among_the_tools_is_no_tool_of_the_provider():
    """As Bedrock has it: what stands before it is cached."""
    tools = [{"toolSpec": {"name": "look", "inputSchema": {"json": {}}}}, {"cachePoint": {"type": "default"}}]
    assert bounded_limits({"tools": tools}) == (None, None)
    assert provider_tools({"tools": tools}) == []
    with pytest.raises(InvalidInput, match="cachePoint that must be kept for 5 minutes"):
        bounded_limits({"tools": [{"cachePoint": {"type": "default", "ttl": "1h"}}]})
    with pytest.raises(InvalidInput, match="run and billed by the provider"):
        bounded_limits({"tools": [{}]})


def test_a_cached_prompt_and_answers_beside_text_are_not_bounded():
    assert costly_field({"cached_content": "cachedContents/1"}) == "cached_content may change the cost"
    assert costly_field({"response_modalities": ["TEXT", "IMAGE"]}) == "response_modalities may change the cost"
    assert costly_field({"response_modalities": ["TEXT"], "cached_content": None}) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"plugins": [{"id": "web"}]},  # of OpenRouter
        {"search_parameters": {"mode": "on"}},  # of Grok
        {"web_search_options": {"user_location": None}},
        {"performance_config": {"latency": "optimized"}},  # of Bedrock, as those below
        {"guardrail_config": {"guardrailIdentifier": "g"}},
        {"guardrails": {"guardrailIdentifier": "g", "trace": None}},
    ],
)
def test_searches_guardrails_and_faster_answers_are_not_bounded(fields):
    (name,) = fields
    assert costly_field(fields) == f"{name} may change the cost"
    assert costly_field({name: None}) is None


@pytest.mark.parametrize("name", ["web_search_options", "search_parameters", "container"])
@pytest.mark.parametrize("body", ["extra_body", "model_kwargs"])
def test_searches_that_are_asked_for_without_settings_are_not_bounded(body, name):
    assert costly_field({body: {name: {}}}) == f"{body}.{name} may change the cost"


def test_guardrails_that_are_not_set_are_none():
    assert costly_field({"guardrails": {"guardrailIdentifier": None, "trace": None}}) is None  # as ChatBedrock has them


@pytest.mark.parametrize(
    "kept",
    [
        {"cache_control": {"type": "ephemeral", "ttl": "5m"}},
        {"prompt_cache_breakpoint": {"mode": "explicit"}},
        {"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"}},
    ],
)
def test_a_cache_of_the_shortest_time_passes(kept):
    bills = []
    message = HumanMessage([{"type": "text", "text": 'a "ttl": "1h" in a text', **kept}])
    options = {"mode": "explicit", "ttl": "30m"}
    routed(bills).invoke([message], prompt_cache_options=options, reasoning={"effort": "low"})
    assert len(bills) == 1


@pytest.mark.parametrize("limit", ["4096", 4096.0, 4096])
def test_a_limit_reaches_the_model_as_the_number_that_was_bounded(limit):
    bills = []
    llm = routed(bills)
    llm.invoke("hello", {"configurable": {"wise_model": "small"}}, max_completion_tokens=limit, n="2", top_k=3)
    assert bills == [pytest.approx(2 * 4_096 * 2e-6, rel=1e-2)]


@pytest.mark.parametrize("raw", [False, True])
def test_a_limit_reaches_a_model_without_a_field_for_it(raw):
    heard = []

    class Bare(StubChat):
        max_tokens: ClassVar[None] = None

        def _answer(self, messages, **kw):
            heard.append(kw.get("max_tokens"))
            return super()._answer(messages, **kw)

    budget = Budget(1.0, 100, limit="hard")
    llm = RunnableWiseRouter(models={"small": Bare(profile=PROFILE)}, prices={"small": PRICES["small"]}, budget=budget)
    assert llm.with_structured_output(City, include_raw=raw).invoke("a city like 'Rome'", max_tokens="50")
    assert heard == [50]


def test_a_limit_that_is_changed_later_is_sent_as_it_was_bounded():
    bills = []
    llm = routed(bills, max_tokens=10)
    for model in llm.models.values():
        model.max_tokens = 8_000
    llm.invoke("hello", {"configurable": {"wise_model": "small"}})
    assert bills == [pytest.approx(10 * 2e-6, rel=0.6)]


def test_null_limits_leave_the_cap_in_force():
    bills = []
    routed(bills).invoke("hello", {"configurable": {"wise_model": "small"}}, max_tokens=None, n=None)
    assert bills == [pytest.approx(256 * 2e-6, rel=0.1)]


def test_a_call_may_ask_for_more_than_the_model_is_set_to_and_is_bounded_by_that():
    bills = []
    llm = routed(bills, max_tokens=10)
    llm.invoke("hello", {"configurable": {"wise_model": "small"}}, max_tokens=4_000)
    assert bills[0] <= llm.core.status().spent_usd + 1e-12


def test_under_an_expected_limit_arguments_pass_as_they_are():
    bills = []
    llm = routed(bills, limit="expected", cap=None)
    llm.invoke("hello", max_tokens="20", n=2, model="large", extra_body={"provider": {}})
    assert llm.core.status().charged == 1


def bound_search(llm):
    return llm.bind_tools([weather, SEARCH])


@pytest.mark.parametrize("way", [bound_search, lambda llm: llm.bind(tools=[SEARCH])])
def test_under_an_expected_limit_the_log_says_once_that_fees_of_tools_are_not_counted(way, caplog):
    llm = routed([], limit="expected")
    llm.bind_tools([weather]).invoke("hello")
    assert "fee" not in caplog.text
    for _ in range(12):
        way(llm).invoke("hello")
    told = [record.message for record in caplog.records if "the fee is beside the tokens" in record.message]
    assert 1 <= len(told) == len(set(told)) <= 2  # once for each model


@pytest.mark.parametrize(
    "fields",
    [
        {"service_tier": "priority"},
        {"extra_body": {"provider": {}}},
        {"extra_body": {"max_tokens": None}},  # takes back the limit that is set on the model
        {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}, {"type": "compact_20260112"}]}},
        {"context_management": [{"type": "compaction", "compact_threshold": 100_000}]},  # as OpenAI has it
        {"reasoning": {"mode": "pro"}},
        {"prompt_cache_options": {"ttl": "12h"}},
        {"model_kwargs": {"prompt_cache_options": {"ttl": "12h"}}},
    ],
)
def test_a_model_whose_settings_cannot_be_bounded_is_refused_at_construction(fields):
    with pytest.raises(UnknownPrice, match=next(iter(fields))):
        routed([], **fields)
    assert routed([], limit="expected", **fields).core.status().decided == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
        {"service_tier": "on_demand"},  # the default of ChatGroq
        {"reasoning": {"effort": "low", "mode": "standard"}, "prompt_cache_options": {"mode": "explicit"}},
        {"model_kwargs": {"prompt_cache_options": {"mode": "implicit", "ttl": "30m"}}},
    ],
)
def test_a_model_whose_settings_cost_nothing_more_is_bounded(fields):
    assert routed([], **fields).invoke("hello").text == "an answer"


@pytest.mark.parametrize("schema", [City, {"title": "City", "anyOf": []}, {"type": "json_schema", "json_schema": {}}])
def test_the_schema_of_an_answer_is_no_tool(schema):
    (operation,) = routed([]).with_structured_output(schema)._operations
    assert bounded_limits({OPERATIONS: (operation,)}) == (None, None)


def test_harmless_settings_pass():
    assert bounded_limits(dict.fromkeys(HARMLESS - {"tools", "functions"}, "any")) == (None, None)
    assert bounded_limits({"tools": [{"name": "f", "input_schema": {}}, {"type": "function", "function": {}}]})


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "input_image", "image_url": "http://x.test/y.png"}],
        [{"type": "document", "source": {"type": "url", "url": "http://x.test/y.pdf"}}],
        [{"type": "tool_result", "content": [{"type": "image", "source": {}}]}],
        [{"fileData": {"fileUri": "gs://x"}, "type": "media"}],
    ],
)
def test_content_whose_length_is_unknown_holds_the_whole_window(content):
    llm = routed([])
    answer = llm.invoke([HumanMessage(content)], {"configurable": {"wise_model": "small"}})
    decision = llm.core.decision(answer.response_metadata["wise_router"]["decision_id"])
    assert decision.reserved_usd >= WINDOW * PRICES["small"].input


def test_audio_has_no_price_here_and_is_refused():
    with pytest.raises(UnknownPrice, match="media"):
        routed([]).invoke([HumanMessage([{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}])])


def test_hidden_parts_of_messages_are_counted():
    llm = routed([])
    forced = {"configurable": {"wise_model": "small"}}
    hidden = AIMessage("", additional_kwargs={"reasoning_content": "x" * 5_000}, name="n" * 1_000)
    answer = llm.invoke([HumanMessage("hi"), hidden, HumanMessage("hi")], forced)
    decision = llm.core.decision(answer.response_metadata["wise_router"]["decision_id"])
    assert decision.reserved_usd >= 6_000 * PRICES["small"].input
