"""Metrics watch the router of a chat model by one call: its decisions, their times, and its refusals are counted."""

import pytest

from support.chat_stub import PRICES, StubChat
from wiserouter import Budget
from wiserouter.errors import HorizonExhausted
from wiserouter.operating.metrics import Metrics
from wiserouter_langchain import RunnableWiseRouter

prometheus_client = pytest.importorskip("prometheus_client")


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"])
async def test_refusals_and_times_are_counted(way):
    models = {name: StubChat(model=f"stub-{name}") for name in ("small", "large")}
    llm = RunnableWiseRouter(models=models, prices=PRICES, budget=Budget(1.0, 2))
    registry = prometheus_client.CollectorRegistry()
    Metrics(registry).watch(llm.core, "chat")

    async def call():
        if way == "ainvoke":
            await llm.ainvoke("hi")
        elif way == "astream":
            _ = [chunk async for chunk in llm.astream("hi")]
        else:
            _ = list(llm.stream("hi")) if way == "stream" else llm.invoke("hi")

    for _ in range(2):
        await call()
    for _ in range(3):
        with pytest.raises(HorizonExhausted):
            await call()
    assert registry.get_sample_value("wiserouter_refusals_total", {"group": "chat", "reason": "horizon"}) == 3.0
    assert registry.get_sample_value("wiserouter_decide_seconds_count", {"group": "chat"}) == 5.0
    assert registry.get_sample_value("wiserouter_calls_total", {"group": "chat", "outcome": "charged"}) == 2.0
