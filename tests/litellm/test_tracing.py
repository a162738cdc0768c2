"""A call of a LiteLLM router has one span of its decision, below the span that LiteLLM hands on."""

import opentelemetry.trace
import pytest

from support.groups import HI, RICH, fitted, llms
from support.providers import deployment
from support.spans import exporting
from wiserouter.integration import trace_decisions
from wiserouter_litellm import attach
from wiserouter_litellm.proxy import build_callback
from wiserouter_litellm.settings.proxy_settings import settings_of

WISE = {"budget_usd": 5.0, "requests": 100}


@pytest.fixture
def exported():
    with exporting() as found:
        yield found


async def test_the_span_of_a_request_is_the_parent(provider, settled, exported):
    tracer, spans = exported
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=RICH)
    trace_decisions(router, "wise", tracer=tracer)
    callback.groups["wise"].traces = True
    request = tracer.start_span("Received Proxy Server Request")
    metadata = {"litellm_parent_otel_span": request}
    response = await callback._router.acompletion(model="wise", messages=HI, metadata=metadata)
    await settled(lambda: router.status().charged == 1)
    (span,) = [one for one in spans() if one.name == "wiserouter.decide"]
    assert span.parent.span_id == request.get_span_context().span_id
    assert span.attributes["gen_ai.request.model"] == response._hidden_params["model_id"]
    assert span.attributes["wiserouter.group"] == "wise"
    assert HI[0]["content"] not in span.to_json()


async def test_without_a_span_of_the_request_it_is_the_current_one(provider, settled, exported):
    tracer, spans = exported
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=RICH)
    trace_decisions(router, tracer=tracer)
    with tracer.start_as_current_span("task") as task:
        await callback._router.acompletion(model="wise", messages=HI)
    await settled(lambda: router.status().charged == 1)
    (span,) = [one for one in spans() if one.name == "wiserouter.decide"]
    assert span.parent.span_id == task.get_span_context().span_id


@pytest.mark.parametrize("on", [True, False])
def test_the_proxy_traces_where_it_is_asked_to(monkeypatch, exported, on):
    tracer, spans = exported
    monkeypatch.setattr(opentelemetry.trace, "get_tracer", lambda name: tracer)
    config = {"model_list": [deployment("small"), deployment("large")]}
    monkeypatch.setattr("wiserouter_litellm.proxy._config", lambda: config)
    block = {"groups": {"wise": {**WISE, "otel_decisions": on, "contexts": 1}}, "metrics": False}
    monkeypatch.setattr("litellm.callback_settings", {"wiserouter": block}, raising=False)
    group = build_callback().groups["wise"]
    group.router.decide("q")
    assert (len(spans()), group.traces) == (int(on), on)


def test_tracing_is_off_by_default():
    assert not settings_of({"groups": {"wise": WISE}}).groups["wise"].otel_decisions
