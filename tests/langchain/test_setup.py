"""The pool: models that it refuses, models that cannot take a call, and the limits that they share."""

import pytest
from langchain_core.messages import HumanMessage, trim_messages

from support.chat_calls import weather
from support.chat_stub import PRICES, StubChat, core, hard_core, routed
from wiserouter import Budget, Price
from wiserouter.errors import (
    InvalidInput,
    NoEligibleModel,
    UnknownModel,
    UnknownPrice,
)
from wiserouter_langchain import RunnableWiseRouter


def profiled(cls=StubChat, **profile):
    return cls(profile=profile)


def test_models_that_cannot_do_what_a_call_needs_are_not_eligible():
    able = {"tool_calling": True, "image_inputs": True, "max_input_tokens": 10_000}
    unable = {"tool_calling": False, "image_inputs": False, "max_input_tokens": 100}
    llm = routed("large", models={"small": profiled(**able), "large": profiled(**unable)})
    image = {"type": "image", "url": "http://x/y.png"}
    served = [
        llm.invoke("hello"),
        llm.bind_tools([weather]).invoke("weather in 'Rome'?"),
        llm.invoke("word " * 500),
        llm.invoke([HumanMessage(content=[{"type": "text", "text": "look"}, image])]),
    ]
    assert [each.response_metadata["wise_router"]["model"] for each in served] == ["large", "small", "small", "small"]


def test_where_no_model_can_take_a_call_the_error_gives_the_reason_of_each():
    llm = routed(models={name: profiled(tool_calling=False) for name in ("small", "large")})
    with pytest.raises(NoEligibleModel, match="small: calls no tools; large: calls no tools"):
        llm.bind_tools([weather]).invoke("x")
    assert llm.core.status().decided == 0


def test_the_profile_is_the_one_that_all_models_meet():
    small = profiled(tool_calling=True, max_input_tokens=100, image_inputs=True, x="a")
    large = profiled(tool_calling=True, max_input_tokens=200, image_inputs=False, y="b")
    assert routed(models={"small": small, "large": large}).profile == {
        "tool_calling": True,
        "max_input_tokens": 100,
        "image_inputs": False,
    }
    assert routed().profile is None


def test_token_counters_are_the_first_models():
    class Counting(StubChat):
        def get_num_tokens(self, text):
            return len(text)

        def get_num_tokens_from_messages(self, messages, tools=None):
            return sum(len(message.text) for message in messages)

        def get_token_ids(self, text):
            return list(range(len(text)))

    llm = routed(models={"small": Counting(), "large": Counting()})
    assert (llm.get_num_tokens("four"), llm.get_token_ids("ab")) == (4, [0, 1])
    kept = trim_messages([HumanMessage("a" * 50), HumanMessage("b" * 5)], max_tokens=10, token_counter=llm)
    assert [message.text for message in kept] == ["b" * 5]


@pytest.mark.parametrize("field", ["cache", "disable_streaming"])
def test_fields_that_would_do_nothing_are_refused(field):
    with pytest.raises(InvalidInput, match=f"{field} must be set on the models"):
        routed(**{field: True})


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"models": {}}, InvalidInput, "at least one chat model"),
        ({"models": {"small": StubChat(), "huge": StubChat()}}, UnknownModel, "small, large; got 'huge'"),
    ],
)
def test_a_pool_that_cannot_work_is_refused(fields, error, message):
    with pytest.raises(error, match=message):
        RunnableWiseRouter(**{"router": core(), "prices": {**PRICES, "huge": Price(1e-6, 1e-6)}, **fields})


def test_a_missing_budget_and_a_missing_price_are_refused():
    with pytest.raises(InvalidInput, match="needs a budget"):
        RunnableWiseRouter(models={"small": StubChat()}, prices=PRICES)
    with pytest.raises(UnknownPrice, match=r"model 'small' has no price .*prices=\{'small': Price"):
        RunnableWiseRouter(models={"small": StubChat()}, budget=Budget(1.0, 10))
    with pytest.raises(UnknownPrice, match=r"bound on the cost of a call.* or give cap_output_tokens"):
        RunnableWiseRouter(models={"small": StubChat()}, prices=PRICES, budget=Budget(1.0, 10, limit="hard"))


def test_the_cap_reaches_the_model_where_nothing_else_limits_it():
    limits = []

    class Watch(StubChat):
        def _generate(self, messages, stop=None, run_manager=None, **kw):
            limits.append((self.max_tokens, kw.get("max_tokens")))
            return super()._generate(messages, **kw)

    models = {name: Watch(profile={"max_input_tokens": 1_000}) for name in ("small", "large")}
    llm = RunnableWiseRouter(models=models, router=hard_core(), prices=PRICES, cap_output_tokens=64)
    llm.invoke("hello")
    llm.invoke("hello", max_tokens=7)
    assert limits == [(64, None), (7, None)]
