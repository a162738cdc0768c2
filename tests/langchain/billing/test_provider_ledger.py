"""A hard budget through the chat models of OpenAI and Anthropic, against a provider that bills each body in full."""

import asyncio
import time
from contextlib import suppress
from uuid import uuid4

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI

from support.billing_rules import PRICES as RATES
from support.billing_stub import Behaviour, billing_stub
from support.chat_calls import City, collect, weather
from wiserouter import Budget, Price
from wiserouter_langchain import RunnableWiseRouter

BUDGET_USD = 0.02
PRICES = {name: Price(*RATES[name]) for name in ("small", "large")}
PROFILE = {"max_input_tokens": 20_000, "max_output_tokens": 4_096, "tool_calling": True, "structured_output": True}


@pytest.fixture
def stub():
    """A provider of this test only: what an earlier client left may be billed later."""
    with billing_stub() as provider:
        yield provider


def openai(stub, name, **fields):
    return ChatOpenAI(model=name, base_url=stub.url, api_key="sk-x", profile=PROFILE, stream_usage=True, **fields)


def responses(stub, name, **fields):
    return openai(stub, name, use_responses_api=True, **fields)


def anthropic(stub, name, **fields):
    fields = {"max_tokens": 64, **fields, "timeout": fields.get("timeout", 60 + uuid4().int % 10**6 / 1e6)}
    return ChatAnthropic(model=name, base_url=stub.root, api_key="sk-y", profile=PROFILE, **fields)


KINDS = {"openai": openai, "responses": responses, "anthropic": anthropic}


def routed(stub, kind, amount=BUDGET_USD, **fields):
    models = {name: KINDS[kind](stub, name, **fields) for name in ("small", "large")}
    budget = Budget(amount, 1_000, limit="hard")
    return RunnableWiseRouter(models=models, prices=PRICES, budget=budget, cap_output_tokens=64, max_wait_s=0.0)


ARGUMENTS = [
    {},
    {"max_tokens": None},
    {"max_tokens": 200},
    {"max_tokens": "200"},
    {"max_tokens": -1},
    {"max_completion_tokens": 200},
    {"max_output_tokens": 200},
    {"max_tokens": 5, "max_completion_tokens": 4_096},
    {"n": 3},
    {"n": "20"},
    {"extra_body": {"n": 20}},
    {"extra_body": {"max_tokens": 4_096, "max_completion_tokens": 4_096}},
    {"model_kwargs": {"n": 20}},
    {"model": "large"},
    {"service_tier": "priority"},
    {"stop": ["."]},
    {"tools": [{"type": "web_search"}]},
    {"temperature": 0.5, "seed": 3},
]
WAYS = {
    "invoke": lambda llm, kwargs: llm.invoke("hello", **kwargs),
    "ainvoke": lambda llm, kwargs: asyncio.run(llm.ainvoke("hello", **kwargs)),
    "stream": lambda llm, kwargs: list(llm.stream("hello", **kwargs)),
    "astream": lambda llm, kwargs: asyncio.run(collect(llm.astream("hello", **kwargs))),
    "bound": lambda llm, kwargs: llm.bind(**kwargs).bind_tools([weather]).invoke("hello"),
    "structured": lambda llm, kwargs: llm.with_structured_output(City, **kwargs).invoke("hello"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kwargs", ARGUMENTS, ids=str)
def test_no_arguments_make_the_provider_bill_more_than_the_budget(stub, kind, kwargs):
    llm = routed(stub, kind)
    for way in WAYS.values():
        with suppress(Exception):
            way(llm, kwargs)
    spent = llm.core.status().spent_usd
    assert stub.ledger_usd <= BUDGET_USD
    assert spent >= stub.ledger_usd - 1e-12
    if not kwargs:
        assert stub.billed >= 4


SETTINGS = [
    {"max_tokens": 4_096},
    {"max_tokens": 10},
    {"model_kwargs": {"max_completion_tokens": 3_000}},
    {"n": 7},
    {"extra_body": {"n": 7}},
]


@pytest.mark.parametrize("fields", SETTINGS, ids=str)
@pytest.mark.parametrize("kwargs", [{}, {"max_tokens": 500}, {"n": 2}], ids=str)
def test_no_settings_of_the_models_do(stub, fields, kwargs):
    llm = routed(stub, "openai", **fields)
    for _ in range(5):
        with suppress(Exception):
            llm.invoke("hello", **kwargs)
    assert stub.ledger_usd <= BUDGET_USD
    assert llm.core.status().spent_usd >= stub.ledger_usd - 1e-12


FAULTS = {
    "late": Behaviour(delay_s=0.4),
    "drops": Behaviour(drops=True),
    "error in a 200": Behaviour(error_in_200=True),
    "empty": Behaviour(empty=True),
    "bills failures": Behaviour(status=500, bills_failures=True),
    **{f"usage {usage}": Behaviour(usage=usage) for usage in ("none", "nan", "negative", "infinite", "text", "null")},
    "slow stream": Behaviour(piece_delay_s=0.05, finishes_abandoned=True),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_of_the_provider_does(stub, kind, fault):
    stub.behaviour = FAULTS[fault]
    llm = routed(stub, kind, amount=2e-3, **({"timeout": 0.2} if fault == "late" else {}))
    for way in ("invoke", "ainvoke", "stream", "astream"):
        for _ in range(2):
            with suppress(Exception):
                WAYS[way](llm, {})
    with suppress(Exception):
        stream = llm.stream("hello")
        next(stream)
        stream.close()
    time.sleep(0.5 if fault in {"late", "slow stream"} else 0.0)  # what the client left is still billed
    status = llm.core.status()
    assert status.in_flight == 0
    assert 0 < stub.ledger_usd <= 2e-3
    assert status.spent_usd >= stub.ledger_usd - 1e-12


def test_a_full_batch_spends_no_more(stub):
    llm = routed(stub, "openai", amount=5e-3)
    answers = asyncio.run(llm.abatch([[HumanMessage("hello")]] * 60, return_exceptions=True))
    assert any(isinstance(answer, Exception) for answer in answers)
    assert 0 < stub.ledger_usd <= 5e-3
    assert llm.core.status().spent_usd == pytest.approx(stub.ledger_usd)


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({"max_tokens": None}, 77),  # langchain-anthropic sets it to the longest answer of the model
        ({"max_tokens": 300}, 300),
        ({"max_tokens": None, "thinking": {"type": "enabled", "budget_tokens": 2_000}}, 4_096),
    ],
)
@pytest.mark.parametrize("limit", ["hard", "expected"])
def test_a_cap_holds_for_a_model_that_is_set_to_its_longest_answer(stub, limit, fields, sent):
    budget = Budget(10.0, 100, limit=limit)
    llm = RunnableWiseRouter(
        models={"large": anthropic(stub, "large", **fields)}, prices=PRICES, budget=budget, cap_output_tokens=77
    )
    answer = llm.invoke("hello")
    assert stub.calls[-1].body["max_tokens"] == sent
    if limit == "hard":
        reserved_usd = llm.core.decision(answer.response_metadata["wise_router"]["decision_id"]).reserved_usd
        assert sent * RATES["large"][1] < reserved_usd < (sent + 400) * RATES["large"][1]
