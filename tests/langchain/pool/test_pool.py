"""The pool as others see it: what middleware reads from the router, models added later, and files on the event loop."""

import asyncio
import threading
from collections import UserDict
from pathlib import Path

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser

from support.chat_calls import City
from support.chat_stub import PRICES, OtherStub, StubChat, core, cost_usd, routed
from wiserouter import Budget, Model, Price
from wiserouter.errors import BudgetExhausted, InvalidInput, UnknownPrice
from wiserouter.integration import count_tokens
from wiserouter_langchain import RunnableWiseRouter
from wiserouter_langchain.decisions.candidates import at_present_prices
from wiserouter_langchain.pool.pool_member import pool_member


def pool(small=None, large=None):
    return routed(models={"small": StubChat(profile=small), "large": StubChat(profile=large)})


def test_the_profile_is_the_narrowest_of_the_pool():
    small = {"max_input_tokens": 8_000, "tool_calling": True, "image_inputs": True, "name": "s"}
    large = {"max_input_tokens": 200_000, "max_output_tokens": 500, "tool_calling": True, "image_inputs": False}
    assert pool(small, large).profile == {
        "max_input_tokens": 8_000,
        "max_output_tokens": 500,
        "tool_calling": True,
        "image_inputs": False,
    }


def test_a_limit_that_only_some_models_know_bounds_the_pool_and_a_flag_does_not():
    assert pool({"max_input_tokens": 8_000, "tool_calling": True}).profile == {"max_input_tokens": 8_000}
    assert pool().profile is None


class Named(StubChat):
    provider: str = "stub"

    def _get_ls_params(self, stop=None, **kwargs):
        return {**super()._get_ls_params(stop, **kwargs), "ls_provider": self.provider}


def test_tracing_parameters_are_those_that_all_models_share():
    llm = routed(
        models={"small": Named(max_tokens=50, temperature=0.5), "large": Named(max_tokens=20, temperature=0.5)}
    )
    params = llm._get_ls_params()
    assert (params["ls_provider"], params["ls_max_tokens"], params["ls_temperature"]) == ("stub", 20, 0.5)
    assert (params["ls_model_name"], params["ls_model_type"]) == ("wiserouter", "chat")
    assert llm._llm_type == "stub-chat"
    mixed = routed(models={"small": Named(temperature=0.5), "large": Named(provider="other")})._get_ls_params()
    assert mixed["ls_provider"] == "wiserouter"
    assert "ls_temperature" not in mixed


def test_models_of_several_kinds_have_the_routers_own_type():
    fake = FakeListChatModel(responses=["hi"])
    assert routed(models={"small": StubChat(), "large": fake})._llm_type == "wise-router"


def test_summarization_counts_against_the_narrowest_window():
    from langchain.agents.middleware import SummarizationMiddleware

    llm = pool({"max_input_tokens": 100}, {"max_input_tokens": 1_000})
    middleware = SummarizationMiddleware(llm, trigger=("fraction", 0.5), keep=("messages", 1))
    assert middleware._get_profile_limits() == 100


def test_structured_output_passes_on_only_what_the_caller_gave():
    class Own(StubChat):
        def with_structured_output(self, schema, *, strict=None):
            assert strict is None
            return self.bind_tools([schema]) | (lambda message: schema(**message.tool_calls[0]["args"]))

    llm = routed(models={"small": Own(), "large": Own()})
    assert llm.with_structured_output(City).invoke("a city like 'Rome'") == City(city="Rome")


def test_a_model_is_added_with_the_chat_model_behind_it():
    llm = routed("large")
    llm.add_model("best", OtherStub(model="stub-best"), price=Price(1e-6, 1e-6), reward=1.0, cost_usd=1e-5)
    answers = [llm.invoke("hello").response_metadata["wise_router"]["model"] for _ in range(20)]
    assert "best" in answers
    assert llm.preferring("best").invoke("hello").response_metadata["wise_router"]["model"] == "best"
    assert llm.invoke("hello", {"configurable": {"wise_model": "best"}})


def test_calls_that_come_while_a_model_is_added_are_answered_by_the_others():
    llm = routed("large")
    learn, answers = llm.core._learner.add_model, []

    def slowly(*args):
        answers.append(llm.invoke("hello", {"configurable": {"wise_model": "large"}}))
        answers.append(llm.invoke("hello"))
        learn(*args)
        answers.append(llm.invoke("hello"))

    llm.core._learner.add_model = slowly
    llm.add_model("best", OtherStub(model="stub-best"), price=Price(1e-6, 1e-6), reward=1.0, cost_usd=1e-5)
    assert {answer.response_metadata["wise_router"]["model"] for answer in answers} <= {"small", "large"}
    assert set(llm.models) == set(llm._environment.members) == set(llm.core.pool.names)


@pytest.mark.parametrize("name", ["small", "large"])
def test_a_name_that_is_taken_is_refused(name):
    with pytest.raises(InvalidInput, match=f"must be new, got {name!r}"):
        routed().add_model(name, StubChat(), price=Price(1e-6, 1e-6))


def test_a_model_behind_which_no_chat_model_stands_is_refused():
    llm = routed()
    with pytest.raises(InvalidInput, match=r"no chat model stands behind 'huge'.*RunnableWiseRouter\.add_model"):
        llm.core.add_model(Model("huge", Price(1e-6, 1e-6)))
    assert llm.core.pool.names == ("small", "large")


def test_what_cannot_be_added_changes_nothing():
    llm = RunnableWiseRouter(
        models={"small": StubChat(max_tokens=5, profile={"max_input_tokens": 100})},
        prices=PRICES,
        budget=Budget(1.0, 10, limit="hard"),
    )
    with pytest.raises(UnknownPrice, match="bound on the cost"):
        llm.add_model("large", StubChat(), price=Price(1e-6, 1e-6))
    with pytest.raises(InvalidInput, match="chat models"):
        llm.add_model("large", StubChat() | StrOutputParser(), price=Price(1e-6, 1e-6))
    with pytest.raises(InvalidInput, match="reward"):
        llm.add_model("large", StubChat(max_tokens=5), price=Price(1e-6, 1e-6), reward=2.0)
    assert set(llm.models) == set(llm._environment.members) == set(llm.core.pool.names) == {"small"}


def test_a_router_in_a_pool_is_refused_under_a_hard_budget_since_it_may_call_several_models():
    bounded = {"max_tokens": 5, "profile": {"max_input_tokens": 1_000, "max_output_tokens": 5}}
    inner = routed(models={"small": StubChat(fail=True, **bounded), "large": StubChat(**bounded)})
    kept = {"models": {"pool": inner}, "prices": {"pool": PRICES["large"]}}
    with pytest.raises(UnknownPrice, match="put its models into this pool"):
        RunnableWiseRouter(**kept, budget=Budget(1.0, 10, limit="hard"))
    outer = RunnableWiseRouter(**kept, budget=Budget(1.0, 10))
    assert outer.invoke("hello").text
    assert (outer.core.status().charged, outer.core.status().in_flight) == (1, 0)


@pytest.fixture
def no_files_on_the_loop(monkeypatch):
    """Looking at a file from a running event loop is an error."""
    for name in ("stat", "read_bytes"):
        plain = getattr(Path, name)

        def guarded(path, *args, plain=plain, **kwargs):
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                return plain(path, *args, **kwargs)
            raise AssertionError(f"{path} was looked at on the event loop")

        monkeypatch.setattr(Path, name, guarded)


async def asked(llm):
    answers = [await llm.ainvoke("hello"), await llm.ainvoke("hello " * 3_000)]
    return [*answers, *[chunk async for chunk in llm.astream("hello")]]


@pytest.mark.parametrize("usage", [True, False])
def test_no_file_is_looked_at_on_the_event_loop(no_files_on_the_loop, usage):
    models = {name: StubChat(model="gpt-4o", max_tokens=20, stream_usage=usage) for name in ("small", "large")}
    llm = RunnableWiseRouter(models=models, router=core(), prices=PRICES)
    assert asyncio.run(asked(llm))


def test_a_router_made_on_the_event_loop_reads_the_file_in_a_thread(monkeypatch):
    started = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: started.append(thread.name))

    async def made():
        return routed()

    asyncio.run(made())
    assert started == ["wiserouter-tokenizer"]
    assert count_tokens("hello").tokens > 0


@pytest.mark.parametrize("limit", ["expected", "hard"])
def test_a_price_that_an_operator_changes_bounds_and_charges_the_calls_that_follow(limit):
    model, own = StubChat(max_tokens=20), PRICES["small"]
    budget = Budget(0.02, 4, limit=limit)
    llm = RunnableWiseRouter(models={"small": model}, prices={"small": own}, budget=budget, max_wait_s=0.0)
    llm.invoke("hello")
    before_usd = llm.core.status().spent_usd
    llm.core.change_model("small", price=Price(100 * own.input, 100 * own.output))
    answer = llm.invoke("hello")
    assert llm.core.status().spent_usd == pytest.approx(101 * before_usd)
    if limit == "hard":
        record = llm.core.decision(answer.response_metadata["wise_router"]["decision_id"])
        assert record.reserved_usd >= 100 * before_usd
        llm.core.change_model("small", price=Price(1e-3, 1e-3))
        with pytest.raises(BudgetExhausted):
            llm.invoke("hello")
    llm.core.change_model("small", price=None)
    llm.invoke("hello")
    assert llm.core.status().spent_usd == pytest.approx(102 * before_usd)


def test_a_model_that_joins_while_prices_are_looked_up_has_one():
    llm = routed()

    class Joining(UserDict):
        def keys(self):
            llm.core.add_model(Model("new", PRICES["small"]))
            return self.data.keys()

    llm.core.check_new_model = None
    member = pool_member("new", StubChat(), PRICES["small"], None)
    assert list(at_present_prices(llm.core, Joining(new=member))) == ["new"]


def test_a_changed_price_charges_the_incumbent_of_shadow_mode():
    models, own = {"small": StubChat()}, PRICES["small"]
    llm = RunnableWiseRouter(models=models, prices=PRICES, budget=Budget(1.0, 100), mode="shadow")
    llm.core.change_model("small", price=Price(100 * own.input, 100 * own.output))
    llm.invoke("hello")
    assert llm.core.estimates.cost[0, 0] == pytest.approx(100 * cost_usd("small", 4, 11))
