"""Models that are wrapped by bind, with_config, with_retry or with_fallbacks before they join the pool."""

from typing import Any

import httpx
import openai
import pytest
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableLambda

from support.chat_calls import DOORS, City, Tree, weather
from support.chat_stub import PRICES, StubChat, core, cost_usd, routed
from wiserouter import Budget, Price
from wiserouter.errors import InvalidInput, UnknownPrice
from wiserouter_langchain import RunnableWiseRouter

SEEN = {"stop": ["."], "temperature": 0.5}


class Heard(StubChat):
    """Answers with the arguments of its call."""

    def _generate(self, messages, stop=None, run_manager=None, **kw):
        answer = self._answer(messages, **kw)
        text = str({"stop": stop, "temperature": kw["temperature"]})
        return ChatResult(generations=[ChatGeneration(message=answer.model_copy(update={"content": text}))])


class Flaky(StubChat):
    """Fails at its first two calls, with an answer that bills nothing."""

    attempts: Any = None

    def _answer(self, messages, **kw):
        self.attempts.append(1)
        if len(self.attempts) <= 2:
            request = httpx.Request("POST", "http://provider.test")
            raise openai.RateLimitError("slow down", response=httpx.Response(429, request=request), body=None)
        return super()._answer(messages, **kw)


def one(model, budget=None, **fields):
    budget = budget or Budget(10.0, 1_000)
    return RunnableWiseRouter(models={"small": model}, prices={"small": PRICES["small"]}, budget=budget, **fields)


def quickly(model):
    return model.with_retry(wait_exponential_jitter=False, stop_after_attempt=3)


WRAPPERS = {
    "bind": lambda model: model.bind(stop=["."]),
    "with_config": lambda model: model.with_config(tags=["mine"], metadata={"team": "a"}),
    "with_retry": quickly,
    "with_fallbacks": lambda model: model.with_fallbacks([StubChat(model="other")]),
    "all": lambda model: quickly(model.bind(stop=["."]).with_config(tags=["mine"])).with_fallbacks([StubChat()]),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("door", DOORS)
def test_wrapped_models_answer_and_are_billed(door, wrapper):
    llm = routed("small", models={"small": WRAPPERS[wrapper](StubChat()), "large": StubChat()})
    assert DOORS[door](llm, "hello")
    status = llm.core.status()
    assert (status.charged, status.in_flight) == (1, 0)
    assert status.spent_usd == pytest.approx(cost_usd("small", 4, 11))


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_tools_and_schemas_work_on_wrapped_models(wrapper):
    llm = routed("small", models={"small": WRAPPERS[wrapper](StubChat()), "large": StubChat()})
    assert llm.bind_tools([weather]).invoke("weather in 'Rome'?").tool_calls[0]["args"] == {"location": "Rome"}
    assert llm.with_structured_output(City).invoke("a city like 'Rome'") == City(city="Rome")


def test_bound_arguments_reach_the_model_unless_the_call_has_its_own():
    llm = one(Heard().bind(stop=["."]).bind(temperature=0.5))
    assert llm.invoke("hello").text == str(SEEN)
    assert llm.invoke("hello", stop=["!"]).text == str({"stop": ["!"], "temperature": 0.5})


def test_tools_that_were_bound_give_way_to_those_of_the_call():
    llm = one(StubChat().bind_tools([City]))
    assert llm.invoke("a city like 'Rome'").tool_calls[0]["name"] == "City"
    assert llm.bind_tools([weather]).invoke("weather in 'Rome'?").tool_calls[0]["name"] == "weather"


def test_the_configuration_reaches_the_run_of_the_model():
    tree = Tree()
    one(WRAPPERS["with_config"](StubChat())).invoke("hello", {"callbacks": [tree], "tags": ["call"]})
    (run,) = tree.roots[-1].child_runs
    assert {"mine", "call"} <= set(run.tags)
    assert (run.metadata["team"], run.metadata["wise_router"]["model"]) == ("a", "small")


@pytest.mark.parametrize("door", ["invoke", "ainvoke"])
def test_a_retry_repeats_the_call_under_an_expected_limit(door):
    llm = one(quickly(Flaky(attempts=[])))
    assert isinstance(DOORS[door](llm, "hello"), AIMessage)
    assert llm.core.status().charged == 1


def test_under_a_hard_limit_the_router_tries_the_next_model_in_place_of_retries():
    flaky = Flaky(attempts=[], max_tokens=20)
    models = {"small": quickly(flaky), "large": StubChat(max_tokens=20)}
    hard, router = Budget(10.0, 1_000, limit="hard"), core("small", starts=False)
    llm = RunnableWiseRouter(models=models, router=router, prices=PRICES, budget=hard)
    assert llm.invoke("hello").response_metadata["wise_router"]["model"] == "large"
    assert len(flaky.attempts) == 1


def test_the_fallbacks_of_a_model_are_not_called_and_the_log_says_so(caplog):
    other = StubChat(model="other")
    llm = routed("small", models={"small": StubChat(fail=True).with_fallbacks([other]), "large": StubChat(text="ours")})
    assert llm.invoke("hello").text == "ours"
    assert "the fallbacks of small are not called: add them to the models of the router" in caplog.text


def test_a_bound_limit_is_a_limit_of_the_model():
    hard = Budget(1.0, 100, limit="hard")
    llm = one(StubChat(profile={"max_input_tokens": 1_000}).bind(max_tokens=20), hard)
    assert llm._environment.members["small"].limits.output_tokens == 20
    with pytest.raises(UnknownPrice, match="the bound argument max_completion_tokens may change the cost"):
        one(StubChat(max_tokens=20).bind(max_completion_tokens=9_999), hard)
    with pytest.raises(UnknownPrice, match="the bound argument service_tier may change the cost"):
        one(StubChat(max_tokens=20).bind(service_tier="priority"), hard)
    plain, tooled = (
        one(model, hard)._environment.members["small"].own_tokens
        for model in (StubChat(max_tokens=20), StubChat(max_tokens=20).bind_tools([weather]))
    )
    assert tooled >= plain + 1_000


@pytest.mark.parametrize("model", ["gpt", RunnableLambda(str), StubChat() | RunnableLambda(str), None])
def test_what_is_no_chat_model_is_refused(model):
    with pytest.raises(InvalidInput, match="models must be chat models, with nothing but bind"):
        one(model)
    llm = one(StubChat())
    with pytest.raises(InvalidInput, match="models must be chat models"):
        llm.add_model("other", model, price=Price(1e-6, 1e-6))
    llm.add_model("other", StubChat().bind(stop=["."]), price=Price(1e-6, 1e-6))
    assert llm.invoke("hello", {"configurable": {"wise_model": "other"}})


def test_models_are_given_by_name():
    with pytest.raises(InvalidInput, match="models must be a dictionary of chat models by name, got list"):
        RunnableWiseRouter(models=[StubChat()], budget=Budget(1.0, 1))


@pytest.mark.parametrize("door", DOORS)
def test_failover_can_be_turned_off(door):
    llm = routed(models={"small": StubChat(), "large": StubChat(model="large", fail=True)}, failover=False)
    with pytest.raises(RuntimeError, match="large is down"):
        DOORS[door](llm, "hello")
    assert llm.core.status().decided == 1
