"""What a router must be for what is around it: one run per call, tokens counted once, the chosen model's own ways."""

import asyncio
import json
from uuid import uuid4

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler, get_usage_metadata_callback
from langchain_core.messages import AIMessage, HumanMessage, trim_messages
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langchain_core.tracers import BaseTracer
from pydantic import BaseModel

from support.chat_stub import PRICES, OtherStub, StubChat, core, cost_usd, routed
from wiserouter import Budget, LabelBudget, Price, WiseRouter
from wiserouter.errors import (
    BudgetExhausted,
    InvalidInput,
    NoEligibleModel,
    UnknownDecision,
    UnknownModel,
    UnknownPrice,
)
from wiserouter_langchain import RunnableWiseRouter

PROMPT = ChatPromptTemplate.from_messages([("human", "{q}")])


class Tree(BaseTracer):
    """Draws finished root runs."""

    def __init__(self):
        super().__init__(_schema_format="original+chat")
        self.roots = []

    def _persist_run(self, run):
        self.roots.append(run)

    def shape(self, run=None):
        run = run or self.roots[-1]
        return (run.run_type, run.name, [self.shape(child) for child in run.child_runs])


class City(BaseModel):
    """A city."""

    city: str


@tool
def weather(location: str) -> str:
    """Tell the weather."""
    return "sunny"


DOORS = {
    "invoke": lambda r, q, config=None: r.invoke(q, config),
    "ainvoke": lambda r, q, config=None: asyncio.run(r.ainvoke(q, config)),
    "stream": lambda r, q, config=None: list(r.stream(q, config)),
    "astream": lambda r, q, config=None: asyncio.run(_collect(r.astream(q, config))),
    "batch": lambda r, q, config=None: r.batch([q], config),
    "abatch": lambda r, q, config=None: asyncio.run(r.abatch([q], config)),
}


async def _collect(stream):
    return [chunk async for chunk in stream]


async def settled(llm, timeout_s=2.0):
    """Wait until nothing is in flight: some streams end in a task of their own."""
    async with asyncio.timeout(timeout_s):
        while llm.core.status().in_flight:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("prefer", ["small", "large"])
def test_every_door_goes_to_the_chosen_model_and_is_charged_once(door, prefer):
    llm = routed(prefer)
    DOORS[door](llm, "two words")
    status = llm.core.status()
    assert (status.charged, status.in_flight) == (1, 0)
    assert status.spent_usd == pytest.approx(cost_usd(prefer, 2 + 3, 11))


@pytest.mark.parametrize("door", DOORS)
def test_one_chain_run_with_the_models_run_below_it(door):
    tree, llm = Tree(), routed()
    DOORS[door](PROMPT | llm | StrOutputParser(), {"q": "hello"}, {"callbacks": [tree]})
    _, _, steps = tree.shape()
    (router,) = [step for step in steps if step[0] == "chain"]
    assert router[1] == "RunnableWiseRouter"
    assert [child[:2] for child in router[2]] == [("chat_model", "StubChat")]
    assert [step[0] for step in steps].count("chat_model") == 0


@pytest.mark.parametrize("door", DOORS)
def test_tokens_are_counted_once(door):
    llm = routed()
    with get_usage_metadata_callback() as counted:
        DOORS[door](llm, "two words")
    assert counted.usage_metadata["stub-large"]["total_tokens"] == 5 + 11


async def test_stream_events_come_once():
    llm = routed()
    for version in ("v1", "v2"):
        events = [event async for event in llm.astream_events("hello", version=version)]
        chunks = [event for event in events if event["event"] == "on_chat_model_stream"]
        assert len(chunks) == len(list(StubChat().stream("hello")))
    assert llm.core.status().in_flight == 0


def test_event_streams_of_version_3_sync():
    llm = routed()
    stream = llm.stream_events("hello", version="v3")
    assert "".join(stream.text) == StubChat().text
    assert llm.core.status().charged == 1
    assert llm.core.status().spent_usd == pytest.approx(cost_usd("large", 4, 11))


async def test_event_streams_of_version_3_async():
    llm, tree = routed(), Tree()
    stream = await llm.astream_events("hello", {"callbacks": [tree]}, version="v3")
    assert "".join([piece async for piece in stream.text]) == StubChat().text
    await settled(llm)
    assert llm.core.status().charged == 1
    assert tree.shape()[0] == "chain"


def test_the_record_is_on_the_answer_and_on_exactly_one_chunk():
    llm = routed()
    record = llm.invoke("hello").response_metadata["wise_router"]
    assert record["model"] == "large"
    assert set(record) == {"decision_id", "model", "context"}
    chunks = list(llm.stream("hello"))
    assert sum("wise_router" in chunk.response_metadata for chunk in chunks) == 1
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.response_metadata["wise_router"]["model"] == "large"


def test_an_answer_is_explained_by_message_decision_or_run():
    llm = routed()
    run = uuid4()
    answer = llm.invoke("hello", {"run_id": run})
    decision = answer.response_metadata["wise_router"]["decision_id"]
    for target in (answer, decision, run):
        why = llm.explain(target)
        assert (why.id, why.model, why.state) == (decision, "large", "charged")
    assert why == llm.core.explain(decision)
    for nobody in ("nobody", AIMessage("hi")):
        with pytest.raises(UnknownDecision):
            llm.explain(nobody)


def test_feedback_is_asked_for_where_it_is_worth_it():
    llm = routed()
    assert "ask_feedback" not in llm.invoke("hello").response_metadata["wise_router"]
    llm.core.labels = LabelBudget(share=1.0)
    assert llm.invoke("hello").response_metadata["wise_router"]["ask_feedback"] is True
    chunks = list(llm.stream("hello"))
    assert chunks[0].response_metadata["wise_router"]["ask_feedback"] is True
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.response_metadata["wise_router"]["ask_feedback"] is True


def test_the_models_run_names_itself_for_tracers():
    tree = Tree()
    routed().invoke("hello", {"callbacks": [tree]})
    (llm_run,) = tree.roots[-1].child_runs
    assert llm_run.extra["metadata"]["ls_model_type"] == "chat"
    assert llm_run.extra["metadata"]["wise_router"]["model"] == "large"


def test_the_models_own_cache_is_honoured_costs_nothing_and_teaches_nothing():
    models = {name: StubChat(model=f"stub-{name}", cache=InMemoryCache()) for name in ("small", "large")}
    llm = routed(models=models)
    llm.invoke("hello")
    before = llm.core.estimates.calls.sum()
    spent = llm.core.status().spent_usd
    answer = llm.invoke("hello")
    assert answer.response_metadata["wise_router"]["model"] == "large"
    assert llm.core.status().spent_usd == spent
    assert llm.core.status().charged == 2
    assert llm.core.estimates.calls.sum() == before


def test_the_models_own_callbacks_and_disable_streaming_are_honoured():
    seen = []

    class Watch(BaseCallbackHandler):
        def on_llm_end(self, response, **kwargs):
            seen.append(1)

    large = StubChat(model="stub-large", callbacks=[Watch()], disable_streaming=True)
    llm = routed(models={"small": StubChat(), "large": large})
    assert len(list(llm.stream("hello"))) == 1
    assert seen == [1]


@pytest.mark.parametrize("prefer", ["small", "large"])
@pytest.mark.parametrize("door", ["invoke", "stream"])
def test_models_with_different_tool_formats(prefer, door):
    llm = routed(prefer, models={"small": StubChat(model="stub-small"), "large": OtherStub(model="stub-large")})
    bound = llm.bind_tools([weather])
    out = bound.invoke("weather in 'Rome'?") if door == "invoke" else None
    if door == "stream":
        for chunk in bound.stream("weather in 'Rome'?"):
            out = chunk if out is None else out + chunk
    assert out.tool_calls[0]["args"] == {"location": "Rome"}


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"])
def test_structured_output_is_the_models_own_and_is_charged(raw, way):
    class Native(StubChat):
        def with_structured_output(self, schema, *, include_raw=False, method="native", **kwargs):
            assert method == "native"
            return super().with_structured_output(schema, include_raw=include_raw, **kwargs)

    llm = routed(models={"small": Native(model="stub-small"), "large": Native(model="stub-large")})
    structured = llm.with_structured_output(City, include_raw=raw, method="native")
    out = DOORS[way](structured, "a city like 'Rome'")
    pieces = out if isinstance(out, list) else [out]
    parsed = [piece["parsed"] for piece in pieces if "parsed" in piece] if raw else pieces
    assert parsed[-1] == City(city="Rome")
    assert llm.core.status().charged == 1
    assert llm.core.status().spent_usd > 0


def test_bind_tools_through_fallbacks_binds_every_model():
    broken = routed(models={"small": StubChat(fail=True), "large": StubChat(fail=True)})
    bound = broken.with_fallbacks([routed("small")]).bind_tools([weather])
    assert bound.invoke("weather in 'Rome'?").tool_calls[0]["args"] == {"location": "Rome"}
    structured = broken.with_fallbacks([routed("small")]).with_structured_output(City)
    assert structured.invoke("a city like 'Rome'") == City(city="Rome")
    assert (broken.core.status().spent_usd, broken.core.status().in_flight) == (0.0, 0)


@pytest.mark.parametrize("door", DOORS)
def test_a_failing_model_raises_and_owes_nothing(door):
    tree = Tree()
    llm = routed(models={"small": StubChat(fail=True), "large": StubChat(fail=True)})
    with pytest.raises(RuntimeError, match="is down"):
        DOORS[door](llm, "hello", {"callbacks": [tree]})
    status = llm.core.status()
    assert (status.spent_usd, status.reserved_usd, status.released, status.decided) == (0.0, 0.0, 1, 0)
    assert tree.roots[-1].error


def test_a_parser_that_fails_has_still_been_paid_for():
    class Broken(StubChat):
        def with_structured_output(self, schema, **kwargs):
            return self | (lambda message: 1 / 0)

    llm = routed(models={"small": Broken(), "large": Broken()})
    with pytest.raises(ZeroDivisionError):
        llm.with_structured_output(City).invoke("x")
    assert llm.core.status().charged == 1
    assert llm.core.status().spent_usd > 0


def test_an_abandoned_stream_is_settled_once_for_what_was_said():
    llm = routed()
    stream = llm.stream("two words")
    next(stream)
    next(stream)
    assert llm.core.status().in_flight == 1
    stream.close()
    status = llm.core.status()
    assert (status.charged, status.in_flight) == (1, 0)
    assert 0 < status.spent_usd < cost_usd("large", 40, 11)
    assert llm.core.estimates.calls.sum() == 100  # an answer that broke off tells nothing of the usual cost


@pytest.mark.parametrize("way", ["break", "aclose", "cancel"])
async def test_an_abandoned_async_stream_is_settled_once(way):
    llm = routed(models={name: StubChat(model=f"stub-{name}", token_delay=0.01) for name in ("small", "large")})

    async def consume():
        stream = llm.astream("two words")
        async for _ in stream:
            if way != "cancel":
                break
        if way == "aclose":
            await stream.aclose()

    task = asyncio.create_task(consume())
    if way == "cancel":
        await asyncio.sleep(0.05)
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await settled(llm)
    status = llm.core.status()
    assert (status.charged + status.released, status.in_flight) == (1, 0)


async def test_a_cancelled_call_settles_once():
    class Slow(StubChat):
        async def _agenerate(self, messages, stop=None, run_manager=None, **kw):
            await asyncio.sleep(5)
            return self._generate(messages)

    llm = routed(models={"small": Slow(), "large": Slow()})
    task = asyncio.create_task(llm.ainvoke("hello"))
    await asyncio.sleep(0.05)
    assert llm.core.status().in_flight == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (llm.core.status().in_flight, llm.core.status().released) == (0, 1)


def test_a_model_can_be_forced_everywhere():
    llm = routed("large")
    forced = {"configurable": {"wise_model": "small"}}
    llm.invoke("hello", forced)
    (PROMPT | llm).invoke({"q": "hello"}, forced)
    llm.bind_tools([weather]).invoke("hello", forced)
    llm.with_structured_output(City).invoke("hello", forced)
    llm.with_config(forced).invoke("hello")
    assert (llm.core.estimates.calls[0] - 50).tolist() == [5.0, 0.0]
    with pytest.raises(UnknownModel, match="small, large; got 'huge'"):
        llm.invoke("hello", {"configurable": {"wise_model": "huge"}})
    assert [spec.id for spec in llm.config_specs] == ["wise_model", "wiserouter_scope"]


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


def test_where_no_model_can_the_reasons_are_told():
    llm = routed(models={name: profiled(tool_calling=False) for name in ("small", "large")})
    with pytest.raises(NoEligibleModel, match="small: calls no tools; large: calls no tools"):
        llm.bind_tools([weather]).invoke("x")
    assert llm.core.status().decided == 0


def test_the_profile_is_what_all_models_can():
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
        RunnableWiseRouter(**{"router": core(), "prices": {**PRICES, "huge": Price(1, 1)}, **fields})


def test_a_wrapped_model_a_missing_budget_and_a_missing_price_are_refused():
    with pytest.raises(InvalidInput, match="needs a budget"):
        RunnableWiseRouter(models={"small": StubChat()}, prices=PRICES)
    with pytest.raises(UnknownPrice, match=r"model 'small' has no price .*prices=\{'small': Price"):
        RunnableWiseRouter(models={"small": StubChat()}, budget=Budget(1.0, 10))
    with pytest.raises(Exception, match=r"BaseChatModel|chat model"):
        RunnableWiseRouter(models={"small": StubChat().with_retry()}, prices=PRICES, budget=Budget(1.0, 10))
    with pytest.raises(UnknownPrice, match="bound on the cost of a call"):
        RunnableWiseRouter(models={"small": StubChat()}, prices=PRICES, budget=Budget(1.0, 10, limit="hard"))


def test_generate_routes_and_never_bills_twice():
    llm = routed()
    result = llm.generate([[HumanMessage("a")], [HumanMessage("b")]])
    assert [row[0].message.text for row in result.generations] == [StubChat().text] * 2
    assert len({run.run_id for run in result.run}) == 2
    asyncio.run(llm.agenerate([[HumanMessage("c")]]))
    assert llm.core.status().charged == 3
    with pytest.raises(NotImplementedError, match="never generates itself"):
        llm._generate([])


def test_a_day_within_a_month():
    budget = Budget(1e-9, every="day", within=Budget(1.0, every="month", limit="hard"))
    models = {"small": StubChat(max_tokens=5), "large": StubChat(max_tokens=5)}
    llm = RunnableWiseRouter(models=models, prices=PRICES, budget=budget)
    with pytest.raises(BudgetExhausted, match="1e-09 USD every day"):
        llm.invoke("hello")
    assert [one.every for one in llm.core.status().windows] == ["day", "month"]


def test_from_prices_alone_a_router_learns():
    llm = RunnableWiseRouter(
        models={"small": StubChat(), "large": StubChat()}, prices=PRICES, budget=Budget(1.0, 100), history_size=5
    )
    for _ in range(10):
        llm.feedback(llm.invoke("hello"), 0.5)
    assert (llm.core.estimates.calls > 0).all()
    assert len(llm._environment.index) == 5


def test_cached_and_reasoning_tokens_are_priced():
    llm = routed(models={"small": StubChat(), "large": StubChat(cached_tokens=2)})
    llm.invoke("two words")
    assert llm.core.status().spent_usd == pytest.approx(3 * 1e-5 + 2 * 1e-6 + 11 * 3e-5)


def test_a_stream_without_usage_is_estimated_and_said_once(caplog):
    models = {"small": StubChat(stream_usage=False), "large": StubChat(stream_usage=False)}
    llm = routed(models=models)
    for _ in range(3):
        list(llm.stream("two words"))
    assert 0 < llm.core.status().spent_usd < 3 * cost_usd("large", 60, 20)
    assert sum("stream_usage" in record.message for record in caplog.records) == 1


def test_the_cap_reaches_the_model_where_nothing_else_limits_it():
    limits = []

    class Watch(StubChat):
        def _generate(self, messages, stop=None, run_manager=None, **kw):
            limits.append((self.max_tokens, kw.get("max_tokens")))
            return super()._generate(messages, **kw)

    models = {name: Watch(profile={"max_input_tokens": 1_000}) for name in ("small", "large")}
    llm = RunnableWiseRouter(models=models, router=_hard(), prices=PRICES, cap_output_tokens=64)
    llm.invoke("hello")
    llm.invoke("hello", max_tokens=7)
    assert limits == [(64, None), (None, 7)]


def _hard(amount=10.0) -> WiseRouter:
    router = core()
    for name in ("small", "large"):
        from wiserouter import Model

        router.update_model(Model(name, max_cost_usd=1.0))
    router.start(Budget(amount, 1_000, limit="hard"))
    return router


def limited(amount, **stub):
    models = {name: StubChat(model=f"stub-{name}", max_tokens=20, **stub) for name in ("small", "large")}
    return RunnableWiseRouter(models=models, router=_hard(amount), prices=PRICES)


def test_concurrent_batches_never_exceed_a_hard_budget():
    llm = limited(0.02, token_delay=0.005)
    out = asyncio.run(llm.abatch(["two words"] * 200, return_exceptions=True))
    refused = [each for each in out if isinstance(each, Exception)]
    assert 0 < len(refused) < 200
    assert all(isinstance(each, BudgetExhausted) for each in refused)
    status = llm.core.status()
    assert status.spent_usd <= 0.02
    assert (status.in_flight, status.charged) == (0, 200 - len(refused))


def test_a_batch_of_threads_settles_every_call():
    llm = routed()
    llm.batch(["x"] * 200, {"max_concurrency": 16})
    assert (llm.core.status().charged, llm.core.status().in_flight) == (200, 0)


def test_nothing_of_prompts_or_models_is_logged(caplog):
    caplog.set_level("DEBUG", logger="wiserouter")
    secret = f"secret {uuid4()}"
    llm = routed(models={"small": StubChat(stream_usage=False), "large": StubChat(stream_usage=False)})
    list(llm.stream(secret))
    assert not [r for r in caplog.records if r.name.startswith("wiserouter") and secret in r.getMessage()]
    assert secret not in json.dumps(llm.core.status().as_dict())
