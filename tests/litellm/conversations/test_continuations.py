"""Requests that continue what a provider made stay with the deployment that made it, within its budget."""

import asyncio
import base64
import importlib
import json
import sys

import httpx
import litellm
import pytest
import respx

from support.groups import HI, asked, fitted, llms
from support.providers import URL, chat, cost_usd, deployment, failing, responses_body
from wiserouter import Budget
from wiserouter_litellm import BudgetRefused, attach
from wiserouter_litellm.deployments.litellm_compat import issued_id


def mixing(limit="hard", *deployments, store="memory://", **settings):
    """Return a LiteLLM router whose group `wise` goes to the large model as long as its budget is rich."""
    router = fitted(store=store)
    llm = llms(*deployments, **settings)
    return llm, router, attach(llm, "wise", router=router, budget=Budget(1.0, 100, limit=limit))


def turned(router, prefer):
    """Let the budget suffice for one of the models from now on."""
    status = router.status()
    rate = {"small": 1.01 * cost_usd("small"), "large": 1.0}[prefer]
    router.set_budget(amount_usd=status.spent_usd + status.reserved_usd + rate * status.horizon_left)


async def test_a_stored_response_is_continued_where_it_was_made(provider, settled):
    llm, router, callback = mixing("expected")
    first = await llm.aresponses(model="wise", input="hello", max_output_tokens=60)
    await settled(lambda: router.status().charged == 1)
    made_by = asked(provider)[0]
    turned(router, "small")
    await llm.aresponses(model="wise", input="another question", max_output_tokens=60)
    assert asked(provider)[1] != made_by
    for _ in range(6):
        await llm.aresponses(model="wise", input="and then?", previous_response_id=first.id, max_output_tokens=60)
    assert asked(provider)[2:] == [made_by] * 6
    sent = json.loads(provider.calls[-1].request.content)
    assert sent["previous_response_id"] == "resp_1"
    await settled(lambda: router.status().in_flight == 0)
    assert router.status().spent_usd == pytest.approx(sum(cost_usd(name) for name in asked(provider)))
    assert callback.groups["wise"].faults == {}


async def test_under_a_hard_limit_only_its_deployment_is_reserved(provider):
    llm, router, _ = mixing("hard")
    id_ = encoded("large")
    selected = await _selected(llm, {"input": "and then?", "previous_response_id": id_, "max_output_tokens": 60})
    assert [copy["model_info"]["id"] for copy in selected] == ["large"]
    assert router.status().reserved_usd >= 60 * 3e-5


async def test_a_continuation_that_does_not_fit_is_refused_and_not_moved(provider):
    router = fitted()
    llm = llms()
    attach(llm, "wise", router=router, budget=Budget(0.001, 100, limit="hard"))
    await llm.aresponses(model="wise", input="hello", max_output_tokens=60)
    assert asked(provider) == ["small"]
    with pytest.raises(BudgetRefused):
        await llm.aresponses(
            model="wise", input="and then?", previous_response_id=encoded("large"), max_output_tokens=60
        )
    assert asked(provider) == ["small"]


@pytest.mark.parametrize(
    "id_",
    [
        "resp_1",
        "resp_unknown",
        "",
        "x" * 5_000,
        "resp_" + base64.b64encode(b"litellm:custom_llm_provider:openai;model_id:None;response_id:r").decode(),
        "resp_" + base64.b64encode(b"litellm:custom_llm_provider:openai;model_id:nobody;response_id:r").decode(),
        "resp_" + base64.b64encode(b";;;;").decode(),
        "resp_\u2603",
    ],
)
async def test_an_unknown_id_is_routed_as_any_request(provider, id_):
    llm, _, callback = mixing("hard")
    selected = await _selected(llm, {"input": "and then?", "previous_response_id": id_, "max_output_tokens": 60})
    assert {copy["model_info"]["id"] for copy in selected} == {"small", "large"}
    assert callback.groups["wise"].faults == {}


@pytest.mark.parametrize("id_", [5, ["resp_1"], {"id": "resp_1"}, None, True])
async def test_an_id_of_another_type_is_routed_as_any_request(id_):
    llm, _, _ = mixing("hard")
    selected = await _selected(llm, {"input": "and then?", "previous_response_id": id_, "max_output_tokens": 60})
    assert len(selected) == 2


async def test_where_its_deployment_is_away_others_are_asked_and_that_is_counted(settled):
    llm, router, callback = mixing("hard", allowed_fails=0)
    with respx.mock() as mock:
        mock.route(url__startswith=URL).mock(side_effect=failing("large"))
        with pytest.raises(litellm.InternalServerError):
            await llm.aresponses(model="wise", input="x", previous_response_id=encoded("large"), max_output_tokens=60)
        await settled(lambda: router.status().in_flight == 0)
        await llm.aresponses(model="wise", input="x", previous_response_id=encoded("large"), max_output_tokens=60)
        assert asked(mock) == ["large", "small"]
    assert callback.groups["wise"].faults == {"moved_continuations": 1}


async def test_a_retry_asks_its_deployment_again(settled):
    llm, _, _ = mixing("hard", num_retries=2, allowed_fails=100)
    with respx.mock() as mock:
        mock.route(url__startswith=URL).mock(side_effect=failing("large"))
        with pytest.raises(litellm.InternalServerError):
            await llm.aresponses(model="wise", input="x", previous_response_id=encoded("large"), max_output_tokens=60)
        assert set(asked(mock)) == {"large"}


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA-secret"}


async def test_encrypted_reasoning_goes_back_to_its_maker(provider, settled):
    llm, router, _ = mixing("expected")
    provider.routes.clear()
    provider.route(url__startswith=URL).mock(side_effect=reasoning)
    first = await llm.aresponses(model="wise", input="hello", max_output_tokens=60)
    await settled(lambda: router.status().charged == 1)
    made_by = asked(provider)[0]
    turned(router, "small")
    history = [{"role": "user", "content": "hello"}, *[item.model_dump() for item in first.output]]
    for _ in range(4):
        await llm.aresponses(model="wise", input=[*history, {"role": "user", "content": "and then?"}])
    assert asked(provider)[1:] == [made_by] * 4


def reasoning(request):
    model = json.loads(request.content)["model"]
    body = responses_body(model)
    return httpx.Response(
        200, json={**body, "output": [{**REASONING, "encrypted_content": model * 9}, *body["output"]]}
    )


async def test_a_conversation_stays_with_the_deployment_that_answered_first(provider, settled):
    llm, router, _ = mixing("expected")
    talk = {"model": "wise", "max_output_tokens": 60, "conversation": "conv_7"}
    await llm.aresponses(input="hello", **talk)
    await settled(lambda: router.status().charged == 1)
    made_by = asked(provider)[0]
    turned(router, "small")
    for _ in range(3):
        await llm.aresponses(input="and then?", **talk)
    await llm.aresponses(input="something else", **talk | {"conversation": "conv_8"})
    assert asked(provider)[1:4] == [made_by] * 3
    assert asked(provider)[4] != made_by


def thinking(request):
    model = json.loads(request.content)["model"]
    blocks = [{"type": "thinking", "thinking": "hm", "signature": f"signed by {model}"}]
    return httpx.Response(200, json=chat(model, thinking_blocks=blocks))


@pytest.mark.parametrize("redacts", [False, True])
async def test_a_signed_thought_goes_back_to_its_maker(provider, settled, monkeypatch, redacts):
    monkeypatch.setattr(litellm, "turn_off_message_logging", redacts)
    llm, router, _ = mixing("expected")
    provider.routes.clear()
    provider.route(url__startswith=URL).mock(side_effect=thinking)
    first = await llm.acompletion(model="wise", messages=HI)
    await settled(lambda: router.status().charged == 1)
    made_by = asked(provider)[0]
    message = first.choices[0].message.model_dump()
    turned(router, "small" if made_by == "large" else "large")
    history = [*HI, {**message, "thinking_blocks": signed(made_by)}, {"role": "user", "content": "and then?"}]
    for _ in range(3):
        await llm.acompletion(model="wise", messages=history)
    in_content = [*HI, {"role": "assistant", "content": signed(made_by)}, {"role": "user", "content": "and then?"}]
    await llm.acompletion(model="wise", messages=in_content)
    assert asked(provider)[1:] == [made_by] * 4


async def test_encrypted_reasoning_in_anthropics_format_goes_back_to_its_maker(provider, settled):
    llm, router, _ = mixing("expected")
    provider.routes.clear()
    provider.route(url__startswith=URL).mock(side_effect=reasoning)
    terms = {"model": "wise", "max_tokens": 60}
    first = await llm.aanthropic_messages(messages=HI, **terms)
    await settled(lambda: router.status().charged == 1)
    made_by = asked(provider)[0]
    turned(router, "small")
    thought = next(block for block in first["content"] if block["type"] == "redacted_thinking")
    history = [*HI, {"role": "assistant", "content": [thought]}, {"role": "user", "content": "and then?"}]
    for _ in range(3):
        await llm.aanthropic_messages(messages=history, **terms)
    assert asked(provider)[1:] == [made_by] * 3
    await llm.aanthropic_messages(messages=HI, **terms)
    assert asked(provider)[4] != made_by


def messages_of_claude(request):
    model = json.loads(request.content)["model"]
    content = [*signed(model), {"type": "text", "text": "an answer"}]
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "stop_reason": "end_turn"}
    return httpx.Response(200, json={**head, "content": content, "usage": {"input_tokens": 20, "output_tokens": 50}})


async def test_a_signed_thought_in_the_format_of_responses_goes_back_to_its_maker(provider, settled):
    rows = [
        deployment(name, url=URL.removesuffix("/v1"), model=f"anthropic/claude-{name}") for name in ("small", "large")
    ]
    llm, router, _ = mixing("expected", *rows)
    provider.routes.clear()
    provider.route(url__startswith=URL).mock(side_effect=messages_of_claude)
    first = await llm.aresponses(model="wise", input="hello", max_output_tokens=60)
    await settled(lambda: router.status().charged == 1)
    made_by = asked(provider)[0]
    turned(router, "small")
    repeated = [item.model_dump() for item in first.output]
    assert repeated[0]["type"] == "reasoning"
    history = [{"role": "user", "content": "hello"}, *repeated, {"role": "user", "content": "and then?"}]
    for _ in range(3):
        await llm.aresponses(model="wise", input=history)
    assert asked(provider)[1:] == [made_by] * 3
    await llm.aresponses(model="wise", input="hello")
    assert asked(provider)[4] != made_by


def signed(model):
    return [{"type": "thinking", "thinking": "hm", "signature": f"signed by {model}"}]


async def test_another_key_learns_nothing_of_a_thought(provider, settled):
    llm, router, _ = mixing("expected")
    provider.routes.clear()
    provider.route(url__startswith=URL).mock(side_effect=thinking)
    await llm.acompletion(model="wise", messages=HI, metadata={"user_api_key_hash": "a"})
    await settled(lambda: router.status().charged == 1)
    made_by = asked(provider)[0]
    turned(router, "small")
    history = [*HI, {"role": "assistant", "content": signed(made_by)}, {"role": "user", "content": "and then?"}]
    for key in "ba":
        await llm.acompletion(model="wise", messages=history, metadata={"user_api_key_hash": key})
    assert asked(provider)[1:] == ["small", "large"]


async def test_other_deployments_of_the_model_may_continue_a_thought(provider, settled):
    regions = [deployment("large", info={"id": f"large-{i}", "wiserouter_model": "large"}) for i in range(2)]
    llm, router, _ = mixing("expected", deployment("small"), *regions)
    provider.routes.clear()
    provider.route(url__startswith=URL).mock(side_effect=thinking)
    first = await llm.acompletion(model="wise", messages=HI)
    await settled(lambda: router.status().charged == 1)
    made_by = first._hidden_params["model_id"]
    turned(router, "small")
    history = [*HI, {"role": "assistant", "content": signed("large")}, {"role": "user", "content": "and then?"}]
    again = await llm.acompletion(model="wise", messages=history)
    assert again._hidden_params["model_id"] == made_by
    healthy = [one for one in llm.model_list if one["model_info"]["id"] != made_by]
    kept = await _selected(llm, {"max_tokens": 5}, history, healthy)
    assert [copy["model_info"]["wiserouter_model"] for copy in kept] == ["large"]


TOOLS = [{"role": "user", "content": "weather?"}, {"role": "tool", "tool_call_id": "call_123", "content": "rain"}]
CALL = {"id": "call_123", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("id_", "params", "kept"),
    [
        ("call_123", {}, {"openai", "claude"}),
        ("abcdefghi", {}, {"openai", "claude", "mistral"}),
        ("call_123", {"thinking": {"type": "enabled", "budget_tokens": 10}}, {"openai"}),
        ("call_123", {"reasoning_effort": "low"}, {"openai"}),
    ],
)
async def test_tool_calls_go_where_they_can_be_taken(id_, params, kept):
    models = {"openai": "openai/gpt-4o", "claude": "anthropic/claude-sonnet-4-5", "mistral": "mistral/mistral-large"}
    rows = [deployment(name, model=model) for name, model in models.items()]
    llm = llms(*rows)
    attach(llm, "wise", budget=Budget(10.0, 100))
    call = {"role": "assistant", "content": None, "tool_calls": [{**CALL, "id": id_}]}
    history = [TOOLS[0], call, {**TOOLS[1], "tool_call_id": id_}]
    selected = await _selected(llm, params, history)
    assert {copy["model_info"]["id"] for copy in selected} == kept
    assert len(await _selected(llm, params, [*history, {"role": "user", "content": "and tomorrow?"}])) == 3


async def test_tool_calls_that_none_can_take_are_sent_as_any_request():
    llm = llms(deployment("mistral", model="mistral/mistral-large"))
    attach(llm, "wise", budget=Budget(10.0, 100))
    history = [TOOLS[0], {"role": "assistant", "content": None, "tool_calls": [CALL]}, TOOLS[1]]
    assert len(await _selected(llm, {}, history)) == 1


async def test_a_container_goes_back_to_its_maker():
    from litellm.responses.utils import ResponsesAPIRequestUtils

    llm, _, _ = mixing("expected")
    id_ = ResponsesAPIRequestUtils.build_container_id("openai", "small", "cntr_9")
    tools = [{"type": "code_interpreter", "container": id_}]
    for given in ({"container": id_}, {"container": {"id": id_}}, {"tools": tools}):
        selected = await _selected(llm, {"input": "go on", "max_output_tokens": 60, **given})
        assert [copy["model_info"]["id"] for copy in selected] == ["small"]


async def test_a_synchronous_call_stays_too(provider):
    llm, _, _ = mixing("hard")
    await asyncio.to_thread(
        llm.responses, model="wise", input="x", previous_response_id=encoded("small"), max_output_tokens=60
    )
    assert asked(provider) == ["small"]


async def test_any_worker_continues_what_another_began(provider, settled, tmp_path):
    store = f"sqlite:///{tmp_path}/budget.db"
    workers = [mixing("expected", store=store)[:2] for _ in range(2)]
    provider.routes.clear()
    provider.route(url__startswith=URL).mock(side_effect=thinking)
    (one, first), (another, second) = workers
    await one.acompletion(model="wise", messages=HI)
    await settled(lambda: first.status().charged == 1)
    made_by = asked(provider)[0]
    turned(second, "small")
    history = [*HI, {"role": "assistant", "content": signed(made_by)}, {"role": "user", "content": "and then?"}]
    await another.acompletion(model="wise", messages=history)
    assert asked(provider)[1] == made_by
    for _, router in workers:
        router.close()


def encoded(model_id):
    raw = f"litellm:custom_llm_provider:openai;model_id:{model_id};response_id:resp_1"
    return "resp_" + base64.b64encode(raw.encode()).decode()


async def _selected(llm, kwargs, messages=None, healthy=None):
    """Return what the callback leaves of the group's deployments."""
    callback = llm._wiserouter_callback
    kwargs = {"litellm_trace_id": "t", "litellm_metadata" if messages is None else "metadata": {}, **kwargs}
    return await callback.async_filter_deployments("wise", healthy or llm.model_list, messages, kwargs)


def test_the_id_of_a_response_does_not_load_the_proxy_into_a_program(monkeypatch):
    importlib.import_module("litellm.proxy.hooks.responses_id_security")  # as LiteLLM does after an answer
    monkeypatch.delitem(sys.modules, "litellm.proxy.proxy_server", raising=False)
    assert issued_id("resp_1") == "resp_1"
    assert "litellm.proxy.proxy_server" not in sys.modules
