"""A span of each decision: its attributes, its parent, its time; nothing of a prompt, and no code where it is off."""

import asyncio
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.spans import exporting
from wiserouter import Budget, Conversations, Model, Price, WiseRouter
from wiserouter.errors import BudgetExhausted, HorizonExhausted, MissingExtra
from wiserouter.operating.tracing import SPAN, below, trace_decisions

MODELS = [Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))]
SECRET = "the patient's name is Miriam"


@pytest.fixture
def exported():
    with exporting() as found:
        yield found


def routed(budget=None, **terms) -> WiseRouter:
    router = WiseRouter(MODELS, seed=0, **terms)
    router.start(budget or Budget(1.0, 1_000))
    return router


def test_a_decision_is_one_span(exported):
    tracer, spans = exported
    router = routed()
    trace_decisions(router, "support", tracer=tracer)
    trace_decisions(router, "support", tracer=tracer)
    before_ns = time.time_ns()
    decision = router.decide(SECRET)
    (span,) = spans()
    assert (span.name, span.parent) == (SPAN, None)
    assert before_ns <= span.start_time <= span.end_time <= time.time_ns()
    assert dict(span.attributes) == {
        "gen_ai.request.model": decision.model,
        "wiserouter.group": "support",
        "wiserouter.decision.id": decision.id,
        "wiserouter.context": decision.context,
        "wiserouter.scope": "default",
        "wiserouter.probability": decision.probability,
        "wiserouter.expected_cost_usd": decision.expected_cost_usd,
        "wiserouter.expected_reward": decision.expected_reward,
        "wiserouter.reserved_usd": decision.reserved_usd,
        "wiserouter.rate_usd": decision.rate_usd,
        "wiserouter.shadow_price": decision.shadow_price,
    }
    assert SECRET not in span.to_json()


def test_the_parent_is_the_current_span_also_on_an_event_loop(exported):
    tracer, spans = exported
    router = routed()
    trace_decisions(router, tracer=tracer)

    async def decide():
        with tracer.start_as_current_span("request"):
            return await router.adecide("q"), await asyncio.to_thread(router.decide, "q")

    decided = asyncio.run(decide())
    *children, parent = spans()
    assert [one.attributes["wiserouter.decision.id"] for one in children] == [one.id for one in decided]
    assert {one.parent.span_id for one in children} == {parent.context.span_id}


@pytest.mark.parametrize("store", ["memory://", "sqlite"])
def test_adecide_makes_one_span_on_every_way(exported, store, tmp_path):
    tracer, spans = exported
    store = f"sqlite:///{tmp_path}/budget.db" if store == "sqlite" else store
    router = routed(store=store, encoder=lambda texts: [[1.0, 0.0] for _ in texts])
    trace_decisions(router, tracer=tracer)
    decision = asyncio.run(router.adecide("q"))
    (span,) = spans()
    assert span.attributes["wiserouter.decision.id"] == decision.id
    router._store.close()


def test_a_conversation_is_named_by_its_hash(exported):
    tracer, spans = exported
    router = routed(conversations=Conversations())
    trace_decisions(router, tracer=tracer)
    decision = router.decide("q", conversation="Miriam's chat", caller="miriam@example.org")
    (span,) = spans()
    assert span.attributes["wiserouter.conversation"] == decision.conversation
    assert span.attributes["wiserouter.visit"] == "first"
    assert "iriam" not in span.to_json()


@pytest.mark.parametrize(
    ("budget", "error", "reason"),
    [(Budget(1.0, 1), HorizonExhausted, "horizon"), (Budget(1e-9, 9, limit="hard"), BudgetExhausted, "budget")],
)
def test_a_refusal_is_a_span_with_its_reason(exported, budget, error, reason):
    tracer, spans = exported
    router = WiseRouter([Model("small", Price(1e-7, 4e-7), max_output_tokens=1_000)], seed=0)
    router.start(budget)
    trace_decisions(router, tracer=tracer)
    with pytest.raises(error):
        for _ in range(2):
            router.decide(SECRET)
    *_, span = spans()
    assert not span.status.is_ok
    assert span.attributes["error.type"] == error.__name__
    assert span.attributes["wiserouter.refusal"] == reason
    assert not span.events
    assert SECRET not in span.to_json()


@pytest.mark.parametrize("encoder", [None, lambda texts: [[1.0, 0.0] for _ in texts]])
def test_a_refusal_on_an_event_loop_is_one_span(exported, encoder):
    tracer, spans = exported
    router = routed(Budget(1.0, 1), encoder=encoder)
    trace_decisions(router, tracer=tracer)
    for _ in range(2):
        try:
            asyncio.run(router.adecide("q"))
        except HorizonExhausted:
            continue
    assert [span.status.is_ok for span in spans()][1:] == [False]
    assert len(spans()) == 2


@given(scope=st.text(max_size=300))
def test_a_scope_is_bounded(scope):
    from wiserouter.operating.tracing import MOST_CHARS, DecisionSpans

    decision = routed().decide("q")._replace(scope=scope)
    shown = DecisionSpans(None, "default")._attributes(decision)["wiserouter.scope"]
    assert len(shown) <= MOST_CHARS
    assert scope.startswith(shown)


def test_a_router_that_is_not_traced_has_no_code_for_it():
    router = routed()
    assert not {"decide", "adecide"} & vars(router).keys()
    assert router.decide.__func__ is WiseRouter.decide


def test_a_span_that_a_framework_hands_on_is_the_parent(exported):
    tracer, spans = exported
    router = routed()
    trace_decisions(router, tracer=tracer)
    parent = tracer.start_span("proxy")
    below(parent, router.decide)("q")
    below("no span", router.decide)("q")
    first, second = spans()
    assert first.parent.span_id == parent.get_span_context().span_id
    assert second.parent is None
    assert parent.is_recording()
    parent.end()


def test_without_opentelemetry_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(MissingExtra, match=r"pip install 'wiserouter\[otel\]'"):
        trace_decisions(routed())
