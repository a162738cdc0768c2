"""The scope of a call: its chain run ends once, however the call ends, and its model sees the caller's context."""

import asyncio
import gc
import threading
import time
from contextvars import ContextVar
from functools import partial

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessageChunk
from langchain_core.runnables.config import var_child_runnable_config

from support.chat_calls import collect
from support.chat_stub import PRICES, StubChat, routed
from wiserouter import Budget, Model, WiseRouter
from wiserouter.errors import UnknownModel
from wiserouter_langchain import RunnableWiseRouter
from wiserouter_langchain.calls.dropped_streams import when_dropped

SECRET: ContextVar[str] = ContextVar("secret", default="unset")


class Ends(BaseCallbackHandler):
    """Records the ends of chain runs."""

    run_inline = True

    def __init__(self):
        self.ends = []

    def on_chain_end(self, outputs, **kwargs):
        self.ends.append(outputs)

    def on_chain_error(self, error, **kwargs):
        self.ends.append(type(error).__name__)


def eventually(is_true):
    for _ in range(1_000):
        if is_true():
            return True
        time.sleep(0.002)
    return False


async def read_v3(llm, config):
    pieces = [piece async for piece in (await llm.astream_events("hello", config, version="v3")).text]
    async with asyncio.timeout(2):
        while not config["callbacks"][0].ends:  # the model's run ends in a task of its own
            await asyncio.sleep(0.001)
    return pieces


DOORS = {
    "invoke": lambda llm, config: llm.invoke("hello", config),
    "ainvoke": lambda llm, config: asyncio.run(llm.ainvoke("hello", config)),
    "stream": lambda llm, config: list(llm.stream("hello", config)),
    "astream": lambda llm, config: asyncio.run(collect(llm.astream("hello", config))),
    "v3": lambda llm, config: list(llm.stream_events("hello", config, version="v3").text),
    "async v3": lambda llm, config: asyncio.run(read_v3(llm, config)),
}


@pytest.mark.parametrize("door", DOORS)
def test_the_run_of_an_answered_call_ends_once_with_the_record(door):
    handler = Ends()
    DOORS[door](routed(), {"callbacks": [handler]})
    (outputs,) = handler.ends
    assert outputs["wise_router"]["model"] == "large"
    assert ("output" in outputs) == ("v3" not in door)
    if "output" in outputs:
        assert outputs["output"].text == StubChat().text


@pytest.mark.parametrize("door", DOORS)
def test_the_run_of_a_call_that_cannot_be_decided_ends_once_with_the_error(door):
    handler, llm = Ends(), routed()
    with pytest.raises(UnknownModel):
        DOORS[door](llm, {"callbacks": [handler], "configurable": {"wise_model": "huge"}})
    assert handler.ends == ["UnknownModel"]
    assert llm.core.status().decided == 0


@pytest.mark.parametrize("door", DOORS)
def test_a_call_whose_tools_cannot_be_bound_is_released(door):
    class NoTools(StubChat):
        def bind_tools(self, tools, **kwargs):
            raise TypeError("no such tool")

    handler, llm = Ends(), routed(models={"small": NoTools(), "large": NoTools()})
    bound = llm.bind_tools([{"type": "function", "function": {"name": "weather"}}])
    with pytest.raises(TypeError):
        DOORS[door](bound, {"callbacks": [handler]})
    assert handler.ends == ["TypeError"]
    assert (llm.core.status().released, llm.core.status().in_flight) == (1, 0)


def test_the_run_of_a_stream_that_is_closed_early_ends_once():
    handler, llm = Ends(), routed()
    stream = llm.stream("hello", {"callbacks": [handler]})
    next(stream)
    assert handler.ends == []
    stream.close()
    assert handler.ends == ["GeneratorExit"]


DROPS = {
    "unread": (0, lambda llm, config: llm.stream_events("hello", config, version="v3")),
    "begun": (1, lambda llm, config: next(iter(llm.stream_events("hello", config, version="v3")))),
    "async, unread": (0, lambda llm, config: asyncio.run(llm.astream_events("hello", config, version="v3"))),
}


@pytest.mark.parametrize("drop", DROPS)
def test_the_call_of_an_event_stream_that_is_dropped_ends_once_it_is_collected(drop):
    handler, llm = Ends(), routed()
    n_read, left = DROPS[drop]
    left(llm, {"callbacks": [handler]})
    gc.collect()
    assert eventually(lambda: handler.ends == ["GeneratorExit"])
    status = llm.core.status()
    assert (status.released, status.presumed, status.in_flight) == (1 - n_read, n_read, 0)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_a_stream_that_is_collected_in_a_thread_that_holds_locks_blocks_nothing(store, tmp_path):
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path / 'budget.db'}"
    handler, core = Ends(), WiseRouter([Model(*item) for item in PRICES.items()], store=url)
    llm = RunnableWiseRouter(
        models={name: StubChat() for name in PRICES}, router=core, prices=PRICES, budget=Budget(1.0, horizon=100)
    )

    def leave_in_a_cycle():
        stream = llm.stream("hello", {"callbacks": [handler]})
        next(stream)
        cycle = [stream]
        cycle.append(cycle)

    def collect_with_locks():
        environment = llm._environment
        with environment.index._lock, environment.queue._queue._lock:
            gc.collect()

    leave_in_a_cycle()
    thread = threading.Thread(target=collect_with_locks, daemon=True)
    thread.start()
    thread.join(10.0)
    assert not thread.is_alive()
    assert eventually(lambda: handler.ends == ["GeneratorExit"])
    assert (llm.core.status().presumed, llm.core.status().in_flight) == (1, 0)


def test_a_stream_without_a_method_to_close_it_is_read_to_its_end():
    class Chunks:
        """An asynchronous iterator that is no generator."""

        def __init__(self):
            self._texts = iter("ab")

        def __aiter__(self):
            return self

        async def __anext__(self):
            for text in self._texts:
                return AIMessageChunk(text)
            raise StopAsyncIteration

    class Own(StubChat):
        def stream(self, *args, **kwargs):
            return map(AIMessageChunk, "ab")

        def astream(self, *args, **kwargs):
            return Chunks()

    llm = routed(models={"small": Own(), "large": Own()})
    assert "".join(chunk.text for chunk in llm.stream("hello")) == "ab"
    assert "".join(chunk.text for chunk in asyncio.run(collect(llm.astream("hello")))) == "ab"
    assert (llm.core.status().presumed, llm.core.status().in_flight) == (2, 0)


def test_a_dropped_event_stream_whose_call_cannot_be_settled_holds_up_no_other(caplog):
    def fail():
        raise ValueError("no")

    class Stream:
        pass

    done = []
    for end in (fail, lambda: done.append(True)):
        when_dropped(Stream(), end)
    assert eventually(lambda: done == [True])
    assert "could not be settled" in caplog.text


@pytest.mark.parametrize("way", ["aclose", "cancel", "loop"])
def test_the_run_of_an_async_stream_that_is_left_ends_once(way):
    handler = Ends()
    llm = routed(models={name: StubChat(token_delay=0.001) for name in ("small", "large")})
    open_streams = []

    async def leave():
        stream = llm.astream("hello", {"callbacks": [handler]})
        open_streams.append(stream)
        await anext(stream)
        if way == "aclose":
            await stream.aclose()
        if way == "cancel":
            task = asyncio.create_task(collect(stream))
            await asyncio.sleep(0.005)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(leave())  # the loop closes the streams that are left open
    assert len(handler.ends) == 1
    status = llm.core.status()
    assert (status.charged + status.presumed, status.in_flight) == (1, 0)


@pytest.mark.parametrize("door", ["invoke", "ainvoke", "stream", "astream"])
def test_the_chosen_model_sees_the_callers_context(door):
    seen = []

    class Reader(StubChat):
        def _answer(self, messages, **kw):
            config = var_child_runnable_config.get() or {}
            seen.append((SECRET.get(), config.get("metadata", {}).get("user")))
            return super()._answer(messages, **kw)

    llm = routed(models={"small": Reader(), "large": Reader()})
    token = SECRET.set("set")
    try:
        DOORS[door](llm, {"metadata": {"user": "ann"}, "callbacks": [Ends()]})
    finally:
        SECRET.reset(token)
    assert seen[0][0] == "set"
    assert (seen[0][1] == "ann") == (door in {"invoke", "ainvoke"})


def test_a_scope_leaves_no_configuration_behind():
    before = var_child_runnable_config.get()
    llm = routed()
    for call in (partial(llm.invoke, "hello"), lambda: list(llm.stream("hello"))):
        call()
        assert var_child_runnable_config.get() is before
