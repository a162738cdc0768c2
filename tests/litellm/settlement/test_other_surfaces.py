"""Calls that are not routed by text: charged after the answer under an expected limit, refused under a hard one."""

import asyncio
import json

import httpx
import litellm
import pytest
import respx

from support.groups import HI, fitted, llms
from support.providers import INPUT_USD, URL, deployment, responses_body
from wiserouter import Budget
from wiserouter.integration import BudgetChange
from wiserouter_litellm import BudgetRefused, WiseRoutingStrategy, attach
from wiserouter_litellm.settlement.other_surfaces import RecentIds

TOKENS = 40


def embedding(request):
    model = json.loads(request.content)["model"]
    data = [{"object": "embedding", "index": 0, "embedding": [0.5, 0.5]}]
    usage = {"prompt_tokens": TOKENS, "total_tokens": TOKENS}
    return httpx.Response(200, json={"object": "list", "model": model, "data": data, "usage": usage})


def images(request):
    return [{"url": "http://127.0.0.1/a.png"}] * json.loads(request.content).get("n", 1)


@pytest.fixture
def provider():
    with respx.mock(assert_all_called=False) as mock:
        mock.route(url=f"{URL}/embeddings").mock(side_effect=embedding)
        mock.route(url=f"{URL}/moderations").mock(
            return_value=httpx.Response(200, json={"id": "m", "model": "m", "results": []})
        )
        mock.route(url=f"{URL}/images/generations").mock(
            side_effect=lambda request: httpx.Response(200, json={"created": 1, "data": images(request)})
        )
        mock.route(url=f"{URL}/audio/transcriptions").mock(
            return_value=httpx.Response(200, json={"text": "a", "duration": 3.0})
        )
        mock.route(url=f"{URL}/audio/speech").mock(return_value=httpx.Response(200, content=b"RIFF"))
        yield mock


def billed_usd(mock):
    return sum(TOKENS * INPUT_USD[json.loads(call.request.content)["model"]] for call in mock.calls)


async def test_an_embedding_is_charged_after_its_answer_under_an_expected_limit(provider, settled):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=Budget(1.0, 100))
    for calls in (1, 2, 3):
        await callback._router.aembedding(model="wise", input=["a"])
        await settled(lambda: router.status().spent_usd == pytest.approx(billed_usd(provider)))
        assert len(provider.calls) == calls
    status = router.status()
    assert (status.decided, status.in_flight) == (0, 0)
    assert callback.groups["wise"].faults["uncounted_calls"] == 0


def test_a_synchronous_embedding_is_charged_as_well(provider):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=Budget(1.0, 100))
    callback._router.embedding(model="wise", input=["a"])
    assert_soon(lambda: router.status().spent_usd == pytest.approx(billed_usd(provider)))


async def test_the_strategy_charges_an_embedding_as_well(provider, settled):
    router, router_ = fitted(), llms()
    WiseRoutingStrategy(router_, "wise", router=router, budget=Budget(1.0, 100)).install()
    await router_.aembedding(model="wise", input=["a"])
    await settled(lambda: router.status().spent_usd == pytest.approx(billed_usd(provider)))


async def test_the_scope_that_the_program_names_pays_for_an_embedding(provider, settled):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=Budget(1.0, 100))
    router.start(Budget(1.0, 100), scope="team-a", parent="default")
    await callback._router.aembedding(model="wise", input=["a"], metadata={"wiserouter_scope": "team-a"})
    await settled(lambda: router.status("team-a").spent_usd == pytest.approx(billed_usd(provider)))
    assert router.status().spent_usd == pytest.approx(billed_usd(provider))


SURFACES = {
    "embedding": lambda r: r.aembedding(model="wise", input=["a"]),
    "image": lambda r: r.aimage_generation(model="wise", prompt="a cat"),
    "one deployment": lambda r: r.aembedding(model="large", input=["a"]),
    "scope": lambda r: r.aembedding(model="wise", input=["a"], metadata={"wiserouter_scope": "team-a"}),
}


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("stop", [{"paused": True, "reason": "incident 12"}, None], ids=["paused", "used up"])
async def test_a_budget_that_is_paused_or_used_up_refuses_calls_that_nothing_bounds(provider, surface, stop):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=Budget(1.0, 100))
    router.start(Budget(1.0, 100), scope="team-a", parent="default")
    if stop is None:
        router.spend(1.0)
    else:
        router.change_budget(BudgetChange(**stop))
    with pytest.raises(BudgetRefused, match="is used up" if stop is None else "is paused .*incident 12"):
        await SURFACES[surface](callback._router)
    assert not provider.calls
    assert callback.groups["wise"].faults == {}


MADE = {
    "get": lambda r, id_: r.aget_responses(response_id=id_),
    "cancel": lambda r, id_: r.acancel_responses(response_id=id_),
    "batch": lambda r, _: r.acancel_batch(model="wise", batch_id="batch_1"),
    "results": lambda r, _: r.afile_content(model="wise", file_id="file-1"),
}


def answer_made(provider):
    """Answer calls that make a response, and calls for what was made."""
    answer = httpx.Response(200, json=responses_body("small"))
    provider.route(url__startswith=f"{URL}/responses").mock(return_value=answer)
    batch = {"id": "batch_1", "object": "batch", "status": "cancelling", "endpoint": "/v1/chat/completions"}
    batch |= {"completion_window": "24h", "created_at": 1, "input_file_id": "file-1"}
    provider.post(f"{URL}/batches/batch_1/cancel").mock(return_value=httpx.Response(200, json=batch))
    provider.get(f"{URL}/files/file-1/content").mock(return_value=httpx.Response(200, content=b"{}"))


@pytest.mark.parametrize("limit", ["hard", "expected"])
@pytest.mark.parametrize("call", MADE)
async def test_what_was_paid_for_is_read_and_cancelled_at_no_further_cost(provider, call, limit, settled):
    answer_made(provider)
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=Budget(1.0, 100, limit=limit))
    made = await callback._router.aresponses(model="wise", input="hello")
    await settled(lambda: router.status().charged == 1)
    spent_usd = router.status().spent_usd
    for _ in range(2):
        await MADE[call](callback._router, made.id)
    await asyncio.sleep(0.1)
    assert len(provider.calls) == 3
    assert router.status().spent_usd == spent_usd


async def test_a_hard_budget_lets_no_call_pass_that_names_a_response_beside_other_arguments(provider):
    callback = attach(llms(), "wise", router=fitted(), budget=Budget(1.0, 100, limit="hard"))
    for arguments in ({"input": ["a"]}, {"input": None, "dimensions": 3}, {"input": None, "previous_response_id": "r"}):
        with pytest.raises(litellm.BadRequestError, match="only calls with text"):
            await callback._router.aembedding(model="wise", response_id="resp_1", **arguments)
    assert not provider.calls


@pytest.mark.parametrize("call", MADE)
async def test_what_was_paid_for_is_read_and_cancelled_where_the_budget_is_paused(provider, call):
    answer_made(provider)
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=Budget(1.0, 100))
    made = await callback._router.aresponses(model="wise", input="hello")
    router.change_budget(BudgetChange(paused=True))
    await MADE[call](callback._router, made.id)
    assert len(provider.calls) >= 2
    with pytest.raises(BudgetRefused, match="is paused"):
        await callback._router.aembedding(model="wise", input=["a"], response_id="resp_1")


def test_a_paused_budget_refuses_synchronous_calls_that_nothing_bounds(provider):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=Budget(1.0, 100))
    router.change_budget(BudgetChange(paused=True))
    with pytest.raises(BudgetRefused, match="is paused"):
        callback._router.embedding(model="wise", input=["a"])
    assert not provider.calls


async def test_the_strategy_refuses_calls_that_nothing_bounds_where_nothing_is_left(provider):
    router, router_ = fitted(), llms()
    WiseRoutingStrategy(router_, "wise", router=router, budget=Budget(1.0, 100)).install()
    router.spend(1.0)
    with pytest.raises(BudgetRefused, match="is used up"):
        await router_.aembedding(model="wise", input=["a"])


async def test_calls_that_nothing_bounds_go_on_where_a_used_up_budget_does(provider, settled):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=Budget(1.0, 100, on_exhausted="cheapest"))
    router.spend(1.0)
    await callback._router.aembedding(model="wise", input=["a"])
    await settled(lambda: router.status().spent_usd == pytest.approx(1.0 + billed_usd(provider)))


async def test_a_call_without_a_price_is_reported(provider, settled):
    callback = attach(llms(), "wise", router=fitted(), budget=Budget(1.0, 100))
    await callback._router.aimage_generation(model="wise", prompt="a cat")
    await settled(lambda: callback.groups["wise"].faults["unpriced_calls"] == 1)


@pytest.mark.parametrize(
    ("price", "call", "cost_usd"),
    [
        ("output_cost_per_image", lambda r: r.aimage_generation(model="wise", prompt="a cat", n=2), 2 * 0.02),
        ("input_cost_per_second", lambda r: r.atranscription(model="wise", file=("a.wav", b"RIFF")), 3 * 0.02),
        ("input_cost_per_character", lambda r: r.aspeech(model="wise", input="four", voice="alloy"), 4 * 0.02),
    ],
    ids=["image", "transcription", "speech"],
)
async def test_an_answer_without_tokens_is_charged_at_the_cost_that_litellm_reports(
    provider, settled, price, call, cost_usd
):
    rows = [deployment(name, info={"id": f"{name}-{price}"}, **{price: 0.02}) for name in ("small", "large")]
    callback = attach(litellm.Router(rows), "wise", router=fitted(), budget=Budget(1.0, 100))
    group = callback.groups["wise"]
    await call(callback._router)
    await settled(lambda: group.router.status().spent_usd == pytest.approx(cost_usd))
    assert group.faults["unpriced_calls"] == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda r: r.aembedding(model="wise", input=["a"] * 100),
        lambda r: r.aembedding(model="wise", input="a", encoding_format="float"),
        lambda r: r.aimage_generation(model="wise", prompt="a cat"),
        lambda r: r.amoderation(model="wise", input="a"),
        lambda r: r.aspeech(model="wise", input="a", voice="alloy"),
        lambda r: r.atranscription(model="wise", file=("a.wav", b"RIFF")),
        lambda r: r.arerank(model="wise", query="a", documents=["a"]),
        lambda r: r.acreate_batch(model="wise", input_file_id="f", endpoint="/v1/embeddings", completion_window="24h"),
        lambda r: r.acreate_file(model="wise", file=("a.jsonl", b"{}"), purpose="batch"),
        lambda r: r.agenerate_content(model="wise", contents=[{"parts": [{"text": "hi"}]}]),
        lambda r: r.acompletion(model="wise", messages="hello"),
        lambda r: r.acompletion(model="wise", messages={"role": "user"}),
    ],
    ids=[
        *("embedding", "embedding-format", "image", "moderation", "speech", "transcription", "rerank", "batch", "file"),
        *("gemini", "text", "object"),
    ],
)
async def test_a_hard_limit_refuses_what_it_cannot_bound(provider, call):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=Budget(1.0, 100, limit="hard"))
    with pytest.raises(litellm.BadRequestError, match="only calls with text") as refused:
        await call(callback._router)
    assert refused.value.status_code == 400
    assert not provider.calls
    assert (router.status().decided, router.status().spent_usd) == (0, 0.0)


@pytest.mark.parametrize("limit", ["expected", "hard"])
async def test_the_choice_of_a_deployment_to_count_tokens_is_left_alone(limit):
    callback = attach(llms(), "wise", router=fitted(), budget=Budget(1.0, 100, limit=limit))
    chosen = await callback._router.async_get_available_deployment(model="wise", request_kwargs={})
    assert "wiserouter_unrouted" not in chosen["model_info"]
    assert callback.groups["wise"].faults.total() == 0


async def test_a_call_that_passes_after_a_fault_is_charged_after_its_answer(provider, settled, monkeypatch):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=Budget(1.0, 100))
    provider.route(url=f"{URL}/chat/completions").mock(side_effect=chat_answer)
    monkeypatch.setattr(type(callback.groups["wise"]), "aselect", broken)
    await callback._router.acompletion(model="wise", messages=HI)
    await settled(lambda: router.status().spent_usd == pytest.approx(billed_usd(provider)))
    assert callback.groups["wise"].faults == {"selection": 1}


def chat_answer(request):
    model = json.loads(request.content)["model"]
    message = {"role": "assistant", "content": "hi"}
    usage = {"prompt_tokens": TOKENS, "completion_tokens": 0, "total_tokens": TOKENS}
    choices = [{"index": 0, "finish_reason": "stop", "message": message}]
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": model}
    return httpx.Response(200, json={**head, "choices": choices, "usage": usage})


async def broken(*_):
    raise RuntimeError("out of order")


def assert_soon(condition, timeout_s=30.0):
    import time

    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_recent_ids_are_new_once_and_the_oldest_are_forgotten():
    ids = RecentIds(most=2)
    assert [ids.is_new(id_) for id_ in "aabca"] == [True, False, True, True, True]


async def test_batches_are_refused_under_a_hard_limit_and_reported_under_an_expected_one(provider):
    from wiserouter_litellm.proxy import ProxyCallback

    batch = {"model": "wise", "input_file_id": "file-1", "endpoint": "/v1/chat/completions"}
    for limit in ("expected", "hard"):
        attached = attach(llms(), "wise", router=fitted(), budget=Budget(1.0, 100, limit=limit))
        callback, group = ProxyCallback(attached.groups), attached.groups["wise"]
        if limit == "hard":
            with pytest.raises(litellm.BadRequestError):
                await callback.async_pre_call_hook(None, None, dict(batch), "acreate_batch")
        else:
            await callback.async_pre_call_hook(None, None, dict(batch), "acreate_batch")
            await callback.async_pre_call_hook(None, None, {"batch_id": "batch_1", **batch}, "aretrieve_batch")
        assert group.faults["uncounted_calls"] == (limit == "expected")


async def test_a_batch_is_refused_where_the_budget_is_paused():
    from wiserouter_litellm.proxy import ProxyCallback

    attached = attach(llms(), "wise", router=fitted(), budget=Budget(1.0, 100))
    callback, group = ProxyCallback(attached.groups), attached.groups["wise"]
    group.router.change_budget(BudgetChange(paused=True, reason="an audit"))
    with pytest.raises(BudgetRefused, match="an audit"):
        await callback.async_pre_call_hook(None, None, {"model": "wise", "input_file_id": "f"}, "acreate_batch")
    assert group.faults["uncounted_calls"] == 0


async def test_a_batch_of_a_group_that_is_only_observed_is_never_refused():
    from wiserouter_litellm.proxy import ProxyCallback

    attached = attach(llms(), "wise", router=fitted(), budget=Budget(1.0, 100), mode="shadow")
    callback, group = ProxyCallback(attached.groups), attached.groups["wise"]
    group.router.spend(1.0)
    await callback.async_pre_call_hook(None, None, {"model": "wise", "input_file_id": "f"}, "acreate_batch")
    assert group.faults["uncounted_calls"] == 1
