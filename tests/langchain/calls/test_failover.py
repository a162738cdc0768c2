"""Failover: where a model fails before its answer begins, the next best one is tried, each with its own reservation."""

from uuid import uuid4

import httpx
import openai
import pytest

from support.chat_calls import DOORS, City, Tree, weather
from support.chat_stub import PRICES, StubChat, core, hard_core, routed
from wiserouter import Budget, Contexts, Estimates, Model, Offline, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter_langchain import RunnableWiseRouter
from wiserouter_langchain.calls.rests import Rests

TEXT = StubChat().text


def down(name="large", **fields):
    """Return a router that prefers the model that is down."""
    models = {each: StubChat(model=f"stub-{each}", fail=each == name) for each in ("small", "large")}
    return routed(name, models=models, **fields)


def text_of(out):
    return "".join(piece.text for piece in out) if isinstance(out, list) else out.text


@pytest.mark.parametrize("door", DOORS)
def test_the_next_best_model_answers(door):
    tree, llm = Tree(), down()
    out = DOORS[door](llm, "hello", {"callbacks": [tree]})
    assert text_of(out) == TEXT
    status = llm.core.status()
    assert (status.presumed, status.charged, status.in_flight) == (1, 1, 0)
    kind, _, below = tree.shape()
    assert (kind, [step[0] for step in below]) == ("chain", ["chat_model", "chat_model"])


@pytest.mark.parametrize("door", ["invoke", "ainvoke"])
def test_the_next_best_model_answers_where_one_breaks_that_streams_by_itself(door):
    class Breaking(StubChat):
        streaming: bool = False

        def _stream(self, messages, stop=None, run_manager=None, **kw):
            yield next(super()._stream(messages, stop, run_manager, **kw))
            raise ConnectionError("the connection broke")

    llm = routed(models={"small": StubChat(), "large": Breaking(streaming=True)})
    assert DOORS[door](llm, "hello").text == TEXT
    status = llm.core.status()
    assert (status.presumed, status.charged, status.in_flight) == (1, 1, 0)


def test_a_score_counts_for_the_model_that_answered():
    llm, run = down(), uuid4()
    llm.invoke("hello", {"run_id": run})
    assert llm.feedback(run, 1.0) == 1
    assert llm.explain(run).model == "small"


def test_the_record_names_the_models_that_failed():
    record = down().invoke("hello").response_metadata["wise_router"]
    assert (record["model"], record["failed_models"]) == ("small", "large")
    chunks = list(down().stream("hello"))
    assert [chunk.response_metadata["wise_router"]["failed_models"] for chunk in chunks[:1]] == ["large"]
    assert sum("wise_router" in chunk.response_metadata for chunk in chunks) == 1


def test_an_attempt_that_billed_nothing_is_released():
    class Limited(StubChat):
        def _answer(self, messages, **kw):
            request = httpx.Request("POST", "http://provider.test")
            raise openai.RateLimitError("slow down", response=httpx.Response(429, request=request), body=None)

    llm = routed(models={"small": StubChat(), "large": Limited()})
    assert llm.invoke("hello").text == TEXT
    status = llm.core.status()
    assert (status.released, status.presumed, status.charged) == (1, 0, 1)


def test_each_attempt_has_a_reservation_of_its_own_under_a_hard_budget():
    held = []

    class Watching(StubChat):
        def _answer(self, messages, **kw):
            held.append((llm.core.status().reserved_usd > 0, llm.core.status().presumed))
            return super()._answer(messages, **kw)

    models = {"small": Watching(max_tokens=20), "large": Watching(max_tokens=20, fail=True)}
    llm = RunnableWiseRouter(models=models, router=hard_core(), prices=PRICES)
    llm.invoke("hello")
    assert held == [(True, 0), (True, 1)]


def test_where_all_fail_the_first_error_is_raised_with_a_note():
    models = {name: StubChat(model=f"stub-{name}", fail=True) for name in ("small", "large")}
    with pytest.raises(RuntimeError, match="stub-large is down") as caught:
        routed(models=models).invoke("hello")
    assert caught.value.__notes__ == ["then failed as well: small"]


def test_where_no_budget_pays_for_another_attempt_the_first_error_is_raised():
    models = {"small": StubChat(max_tokens=20), "large": StubChat(max_tokens=20, fail=True)}
    llm = RunnableWiseRouter(models=models, router=core(), prices=PRICES)
    llm.core.start(Budget(1.3e-3, 2, limit="hard"))
    with pytest.raises(RuntimeError, match="is down") as caught:
        llm.invoke("hello")
    assert "no other model may try: the budget" in caught.value.__notes__[0]
    assert llm.core.status().spent_usd <= 1.3e-3


def many(n, n_down):
    names = [f"m{k}" for k in range(n)]
    estimates = Estimates(1, n)
    for k in range(n):
        for _ in range(20):
            estimates.add_cost(0, k, 1e-4)
            estimates.add_reward(0, k, 1 - k / n)
    router = WiseRouter(
        [Model(name) for name in names], Contexts.single(), estimates=estimates, policy=Offline(), seed=0
    )
    router.start(Budget(10.0, 1_000))
    models = {name: StubChat(model=name, fail=k < n_down) for k, name in enumerate(names)}
    return models, router, dict.fromkeys(names, PRICES["small"])


def test_the_order_is_that_of_the_router_and_attempts_are_bounded():
    models, router, prices = many(5, n_down=2)
    llm = RunnableWiseRouter(models=models, router=router, prices=prices)
    assert llm.invoke("hello").response_metadata["wise_router"]["model"] == "m2"
    models, router, prices = many(5, n_down=3)
    llm = RunnableWiseRouter(models=models, router=router, prices=prices)
    with pytest.raises(RuntimeError, match="m0 is down"):
        llm.invoke("hello")
    assert llm.core.status().presumed == 3
    models, router, prices = many(5, n_down=4)
    llm = RunnableWiseRouter(models=models, router=router, prices=prices, max_attempts=5)
    assert llm.invoke("hello").response_metadata["wise_router"]["model"] == "m4"


@pytest.mark.parametrize("door", DOORS)
def test_one_attempt_is_no_failover(door):
    llm = down(max_attempts=1)
    with pytest.raises(RuntimeError, match="stub-large is down"):
        DOORS[door](llm, "hello")
    assert llm.core.status().decided == 1


def test_attempts_are_at_least_one():
    with pytest.raises(InvalidInput, match="max_attempts must be at least 1, got 0"):
        down(max_attempts=0)


@pytest.mark.parametrize("name", ["rest_s", "encoder_timeout_s", "max_wait_s"])
def test_no_time_is_negative(name):
    with pytest.raises(ValueError, match=rf"(?s){name}.*greater than or equal to 0"):
        down(**{name: -1.0})


def test_a_forced_model_is_not_replaced():
    with pytest.raises(RuntimeError, match="stub-large is down"):
        down().invoke("hello", {"configurable": {"wise_model": "large"}})


def test_a_preferred_model_is_replaced():
    assert down("small").preferring("small").invoke("hello").response_metadata["wise_router"]["model"] == "large"


@pytest.mark.parametrize("door", ["stream", "astream"])
def test_a_stream_that_broke_off_is_not_begun_again(door):
    class Breaking(StubChat):
        def _stream(self, messages, stop=None, run_manager=None, **kw):
            yield from list(super()._stream(messages, stop, run_manager, **kw))[:2]
            raise RuntimeError("broken off")

    llm = routed(models={"small": StubChat(), "large": Breaking(streaming=True)})
    with pytest.raises(RuntimeError, match="broken off"):
        DOORS[door](llm, "hello")
    assert (llm.core.status().presumed, llm.core.status().charged) == (1, 0)


def test_an_error_after_the_answer_is_not_repaired_by_another_model():
    class Broken(StubChat):
        def with_structured_output(self, schema, **kwargs):
            return self | (lambda message: 1 / 0)

    llm = routed(models={"small": Broken(), "large": Broken()})
    with pytest.raises(ZeroDivisionError):
        llm.with_structured_output(City).invoke("x")
    assert (llm.core.status().charged, llm.core.status().presumed) == (1, 0)


def test_tools_and_schemas_survive_a_failover():
    assert down().bind_tools([weather]).invoke("weather in 'Rome'?").tool_calls[0]["args"] == {"location": "Rome"}
    assert down().with_structured_output(City).invoke("a city like 'Rome'") == City(city="Rome")


def test_a_model_that_failed_rests_where_another_can_answer():
    llm = down()
    for _ in range(5):
        llm.invoke("hello")
    assert (llm.core.status().presumed, llm.core.status().charged) == (1, 5)
    llm = down(rest_s=0.0)
    for _ in range(5):
        llm.invoke("hello")
    assert llm.core.status().presumed == 5


def test_a_model_that_refuses_a_request_does_not_rest():
    class Refusing(StubChat):
        def _answer(self, messages, **kw):
            request = httpx.Request("POST", "http://provider.test")
            raise openai.BadRequestError("too long", response=httpx.Response(400, request=request), body=None)

    llm = routed(models={"small": StubChat(), "large": Refusing()})
    assert llm.invoke("hello").text == TEXT
    assert llm._environment.rests.resting() == set()


def test_a_model_that_alone_can_answer_does_not_rest():
    llm = down()
    llm.invoke("hello")
    with pytest.raises(RuntimeError):
        llm.invoke("hello", {"configurable": {"wise_model": "large"}})


def test_a_model_does_not_rest_where_no_budget_pays_for_another():
    class Once(StubChat):
        def _answer(self, messages, **kw):
            if not failed:
                failed.append(1)
                raise RuntimeError("for a moment")
            return super()._answer(messages, **kw)

    failed = []
    models = {"small": Once(max_tokens=20), "large": StubChat(max_tokens=20)}
    llm = RunnableWiseRouter(models=models, router=core("small"), prices=PRICES)
    llm.core.start(Budget(3e-4, 1, limit="hard", on_exhausted="cheapest"))  # pays for the small one only
    with pytest.raises(RuntimeError, match="for a moment"):
        llm.invoke("hello")
    assert llm._environment.rests.resting() == {"small"}
    assert llm.invoke("hello").text == TEXT


def test_a_rest_ends():
    now = [0.0]
    rests = Rests(5.0, now_s=lambda: now[0])
    rests.begin("small")
    assert rests.resting() == {"small"}
    now[0] = 5.0
    assert rests.resting() == set()
    rests = Rests(0.0)
    rests.begin("small")
    assert rests.resting() == set()
