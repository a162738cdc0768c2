"""A call of the chat model has one span of its decision, below the current span; off unless asked for."""

import pytest

from support.chat_stub import PRICES, StubChat, core
from support.spans import exporting
from wiserouter_langchain import RunnableWiseRouter

trace = pytest.importorskip("opentelemetry.trace")

PROMPT = "a prompt that no span may hold"


@pytest.fixture
def exported(monkeypatch):
    with exporting() as (tracer, spans):
        monkeypatch.setattr(trace, "get_tracer", lambda name: tracer)
        yield tracer, spans


def chat(**fields):
    models = {name: StubChat(model=f"stub-{name}") for name in ("small", "large")}
    return RunnableWiseRouter(models=models, router=core(), prices=PRICES, **fields)


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"])
async def test_each_way_of_calling_is_one_span_below_the_current_one(exported, way):
    tracer, spans = exported
    llm = chat(otel_decisions=True)
    with tracer.start_as_current_span("chain") as parent:
        if way == "ainvoke":
            await llm.ainvoke(PROMPT)
        elif way == "astream":
            _ = [chunk async for chunk in llm.astream(PROMPT)]
        else:
            _ = list(llm.stream(PROMPT)) if way == "stream" else llm.invoke(PROMPT)
    (span,) = [one for one in spans() if one.name == "wiserouter.decide"]
    assert span.parent.span_id == parent.get_span_context().span_id
    assert span.attributes["gen_ai.request.model"] in {"small", "large"}
    assert PROMPT not in span.to_json()


def test_it_is_off_by_default(exported):
    _, spans = exported
    llm = chat()
    llm.invoke(PROMPT)
    assert not spans()
    assert "decide" not in vars(llm.core)
