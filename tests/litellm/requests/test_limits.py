"""Limits under a hard budget: the provider receives what was bounded, or the request is refused before it is sent."""

import asyncio
import json
import math

import httpx
import litellm
import pytest
import respx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.billing_stub import Behaviour, billing_stub
from support.groups import HI, fitted, llms
from support.providers import INPUT_USD, OUTPUT_USD, URL, chat, deployment
from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter_litellm import attach
from wiserouter_litellm.requests.limits import ALL_ANSWERS as ANSWERS
from wiserouter_litellm.requests.limits import ALL_LIMITS as OUTPUT_LIMITS
from wiserouter_litellm.requests.limits import write_limits
from wiserouter_litellm.requests.parameter_checks import EXTRA_BODY
from wiserouter_litellm.requests.request import n_prompts

CAP, UNLIMITED = 40, 4_000
"""The group's own limit, and the length of an answer that nothing limits."""


class Ledger:
    """A provider that obeys the body that it receives, bills it, and keeps its own ledger."""

    def __init__(self):
        self.spent_usd = 0.0
        self.bodies = []

    def answer(self, request):
        body = json.loads(request.content)
        self.bodies.append(body)
        limits = [body[name] for name in OUTPUT_LIMITS if body.get(name) is not None]
        answers = max(int(body.get(name) or 1) for name in ANSWERS)
        prompts = body["prompt"] if isinstance(body.get("prompt"), list) else [body.get("prompt")]
        answers *= len(prompts) if not all(isinstance(one, int) for one in prompts) else 1
        output = answers * int(max(limits, default=UNLIMITED))
        text = json.dumps(body.get("messages") or body.get("prompt") or "")
        tokens = (max(1, len(text.encode()) // 4), output)
        self.spent_usd += tokens[0] * INPUT_USD[body["model"]] + tokens[1] * OUTPUT_USD[body["model"]]
        if "messages" in body:
            return httpx.Response(200, json=chat(body["model"], tokens=tokens))
        choices = [{"index": i, "text": "answer", "finish_reason": "stop"} for i in range(answers)]
        usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
        head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": body["model"]}
        return httpx.Response(200, json={**head, "choices": choices, "usage": usage})


@pytest.fixture
def ledger():
    one = Ledger()
    with respx.mock(assert_all_called=False) as mock:
        mock.route(url__startswith=URL).mock(side_effect=one.answer)
        yield one


def hard_group(amount_usd=0.02):
    router = fitted()
    budget = Budget(amount_usd, 100, limit="hard")
    return attach(llms(), "wise", router=router, budget=budget, cap_output_tokens=CAP), router


BODIES = {
    "null": {"max_tokens": None},
    "all null": dict.fromkeys((*OUTPUT_LIMITS[:2], *ANSWERS)),
    "a deployment's own": {"max_tokens": 20, "num_retries": 0},
    "text": {"max_tokens": "30"},
    "whole float": {"max_tokens": 30.0},
    "answers as text": {"max_tokens": 10, "n": "5"},
    "two limits": {"max_tokens": 10, "max_completion_tokens": "20"},
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_the_limits_that_are_bounded_are_the_limits_that_are_sent(ledger, settled, body):
    callback, router = hard_group()
    await callback._router.acompletion(model="wise", messages=HI, **body)
    await settled(lambda: router.status().charged == 1)
    sent = ledger.bodies[0]
    assert all(type(sent[name]) is int for name in (*OUTPUT_LIMITS, *ANSWERS) if name in sent)
    assert any(name in sent for name in OUTPUT_LIMITS)
    assert ledger.spent_usd == pytest.approx(router.status().spent_usd)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        *(
            ({"max_tokens": value}, "max_tokens")
            for value in (-1, 0, "many", True, 2.5, math.nan, math.inf, 10**12, [5])
        ),
        *(({"n": value}, "n") for value in (0, -3, "x", False, 5_000)),
        ({"best_of": "x"}, "best_of"),
        ({"extra_body": {"n": 20}}, "extra_body.n"),
        ({"extra_body": {"max_tokens": 4_000}}, "extra_body.max_tokens"),
        ({"extra_body": "text"}, "extra_body"),
        ({"drop_params": True}, "drop_params"),
        ({"additional_drop_params": ["max_tokens"]}, "additional_drop_params"),
        ({"text_completion": True}, "text_completion"),
        (
            {"provider_specific_header": {"custom_llm_provider": "openai", "extra_headers": {"X-Tier": "priority"}}},
            "provider_specific_header.x-tier",
        ),
        ({"num_return_sequences": 9}, "num_return_sequences"),
        ({"max_new_tokens": 4_000}, "max_new_tokens"),
    ],
)
async def test_what_cannot_be_bounded_is_refused_and_named(ledger, body, names):
    callback, router = hard_group()
    with pytest.raises(litellm.BadRequestError, match=names) as refused:
        await callback._router.acompletion(model="wise", messages=HI, **body)
    assert refused.value.status_code == 400
    assert ledger.bodies == []
    assert router.status().decided == 0


@pytest.mark.parametrize("body", [{"best_of": 20, "n": 1}, {"best_of": "20"}, {}], ids=str)
@pytest.mark.parametrize("prompt", ["one prompt", [f"prompt {i}" for i in range(40)]], ids=["one", "forty"])
async def test_text_completions_never_pass_the_budget(ledger, settled, body, prompt):
    callback, router = hard_group(0.05)
    for calls in range(1, 61):
        try:
            await callback._router.atext_completion(model="wise", prompt=prompt, max_tokens=CAP, **body)
        except litellm.RateLimitError:
            break
        await settled(lambda n=calls: router.status().charged == n)
    assert ledger.spent_usd <= 0.05
    assert ledger.spent_usd == pytest.approx(router.status().spent_usd)


async def test_a_limit_that_litellm_may_drop_is_sent_under_the_name_that_the_provider_knows(ledger):
    rows = [{**deployment(name), "model_name": "wise"} for name in ("small", "large")]
    for row in rows:
        row["litellm_params"] |= {"model": f"replicate/{row['model_info']['id']}", "drop_params": True}
    router = fitted()
    callback = attach(llms(*rows), "wise", router=router, budget=Budget(1.0, 100, limit="hard"))
    kwargs = {"max_completion_tokens": 30, "metadata": {}}
    ranked = await callback.async_filter_deployments("wise", callback._router.model_list, HI, kwargs)
    assert {one["litellm_params"]["max_tokens"] for one in ranked} == {30}


async def test_a_tier_with_a_price_of_its_own_is_bounded_by_it(ledger):
    plain, _ = hard_group()
    with pytest.raises(litellm.BadRequestError, match="a service tier needs its price"):
        await plain._router.acompletion(model="wise", messages=HI, max_tokens=20, service_tier="priority")
    litellm.logging_callback_manager._reset_all_callbacks()
    prices = {"input_cost_per_token_priority": 1e-4, "output_cost_per_token_priority": 1e-4}
    router = fitted()
    rows = [deployment(name, **prices) for name in ("small", "large")]
    priced = attach(llms(*rows), "wise", router=router, budget=Budget(1.0, 100, limit="hard"))
    await priced._router.acompletion(model="wise", messages=HI, max_tokens=20, service_tier="priority")
    assert ledger.bodies[0]["service_tier"] == "priority"
    assert router.status().reserved_usd + router.status().spent_usd > 0


async def test_an_empty_chat_is_counted(ledger, settled):
    callback, router = hard_group()
    await callback._router.acompletion(model="wise", messages=[])
    await settled(lambda: router.status().charged == 1)
    assert ledger.spent_usd == pytest.approx(router.status().spent_usd)


async def test_calls_without_text_are_refused_under_a_hard_limit(ledger):
    callback, _ = hard_group()
    with pytest.raises(litellm.BadRequestError, match="only calls with text"):
        await callback._router.aembedding(model="wise", input=["a"] * 100)
    assert ledger.bodies == []


async def test_a_null_limit_leaves_the_cap_in_force_under_an_expected_limit(ledger, settled):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=Budget(1.0, 100), cap_output_tokens=CAP)
    await callback._router.acompletion(model="wise", messages=HI, max_tokens=None)
    await settled(lambda: router.status().charged == 1)
    assert ledger.bodies[0]["max_tokens"] == CAP


@pytest.mark.parametrize(
    ("messages", "n"),
    [
        (HI, 1),
        ([{"role": "user", "content": ["a", "b", "c"]}], 3),
        ([{"role": "user", "content": [1, 2, 3]}], 1),
        ([{"role": "user", "content": [[1, 2], [3]]}], 2),
        ([{"role": "user", "content": []}], 1),
        (None, 1),
    ],
)
def test_prompts_are_counted(messages, n):
    assert n_prompts(messages) == n


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10**13),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(["7", " 7", "\N{FULLWIDTH DIGIT SEVEN}"]),
)
bodies = st.dictionaries(
    st.sampled_from([*OUTPUT_LIMITS, *ANSWERS, "candidateCount", "temperature", "drop_params"]), values, max_size=5
)


def whatever_passes_is_a_whole_number_and_whatever_is_refused_is_unchanged(body, extra):
    given_body = {**body, **({} if extra is None else {"extra_body": extra})}
    sent = dict(given_body)
    try:
        write_limits("wise", sent)
    except litellm.BadRequestError:
        assert repr(sent) == repr(given_body)  # NaN is not equal to itself
        return
    assert "max_output_tokens" not in sent or sent["max_output_tokens"] is None  # a limit of another surface
    for name in (*OUTPUT_LIMITS[:2], *ANSWERS):
        assert name not in sent or (type(sent[name]) is int and sent[name] >= 1)
        assert (name in sent) == (given_body.get(name) is not None)
    assert not sent.get("drop_params")
    assert set(sent.get("extra_body") or ()) <= EXTRA_BODY


extras = st.one_of(st.none(), st.dictionaries(st.sampled_from(["n", "max_tokens", *EXTRA_BODY]), values))
few, many = (
    settings(max_examples=n, deadline=None, suppress_health_check=[HealthCheck.too_slow]) for n in (250, 2_000)
)
test_some_bodies = few(given(bodies, extras)(whatever_passes_is_a_whole_number_and_whatever_is_refused_is_unchanged))
test_many_bodies = pytest.mark.slow(
    many(given(bodies, extras)(whatever_passes_is_a_whole_number_and_whatever_is_refused_is_unchanged))
)


LONG = "word " * 400
SCHEMA = {"type": "object", "description": LONG}
ADDED = {
    "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
    "functions": [{"name": "f", "parameters": SCHEMA}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}},
    "litellm_system_prompt": LONG,
}


@pytest.mark.parametrize("name", ADDED)
@pytest.mark.parametrize("model", ["small", "gpt-5"])
async def test_a_hard_budget_bears_the_texts_of_the_parameters_of_a_deployment(settled, name, model):
    with billing_stub(prices={model: (1e-5, 3e-5)}) as stub:
        prices = {"input_cost_per_token": 1e-5, "output_cost_per_token": 3e-5}
        row = deployment(model, url=stub.url, **prices, **{name: ADDED[name]})
        llms_, router = llms(row), WiseRouter([Model(model, Price(1e-5, 3e-5))], seed=0)
        attach(llms_, "wise", router=router, budget=Budget(0.05, 100, limit="hard"))
        reserved_usd = []
        stub.behaviour = Behaviour(delay_s=0.1)
        call = asyncio.ensure_future(llms_.acompletion(model="wise", messages=HI, max_tokens=20))
        while not call.done():
            await asyncio.sleep(0.01)
            reserved_usd.append(router.status().reserved_usd)
        await call
        assert 0.004 < stub.ledger_usd <= max(reserved_usd)
        await settled(lambda: router.status().in_flight == 0)


async def test_tools_of_the_deployments_that_do_not_fit_leave_the_cheaper_model(settled):
    with billing_stub() as stub:
        rows = [deployment(name, url=stub.url, tools=ADDED["tools"]) for name in ("small", "large")]
        litellm_router, router = llms(*rows), fitted("large")
        attach(litellm_router, "wise", router=router, budget=Budget(0.004, 1, limit="hard"))
        await litellm_router.acompletion(model="wise", messages=HI, max_tokens=20)
        assert ([call.model for call in stub.calls], stub.ledger_usd < 0.004) == (["small"], True)
        await settled(lambda: router.status().in_flight == 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("max_tokens", 900), ("n", 2), ("service_tier", "priority"), ("extra_body", {"max_tokens": 900})),
        *(("tools", [{"type": "function", "function": {"name": "look"}}]), ("litellm_system_prompt", "Be brief.")),
    ],
)
def test_what_the_router_adds_to_each_call_must_not_change_its_cost(name, value):
    llm, router = llms(deployment("small"), deployment("large"), default_litellm_params={name: value}), fitted()
    with pytest.raises(InvalidInput, match=f"default_litellm_params sets {name}") as error:
        attach(llm, "wise", router=router, budget=Budget(1.0, 10, limit="hard"))
    assert error.value.value == name
    attach(llm, "wise", router=fitted(), budget=Budget(1.0, 10))


def test_what_the_router_adds_free_of_charge_passes():
    llm = llms(deployment("small"), deployment("large"), default_litellm_params={"temperature": 0.1, "timeout": 5})
    attach(llm, "wise", router=fitted(), budget=Budget(1.0, 10, limit="hard"))
