"""A group of a real `litellm.Router` under a budget, over mocked providers: every surface, failure and fallback."""

import asyncio
import json

import litellm
import pytest
import respx
from litellm.exceptions import ContextWindowExceededError, RateLimitError

from support.groups import HI, RICH, add, asked, fitted, llms, remove, sent
from support.providers import URL, answer, chat, cost_usd, deployment, failing
from wiserouter import Budget
from wiserouter_litellm import BudgetRefused, UnknownCall, attach, detach


@pytest.mark.parametrize("prefer", ["small", "large"])
async def test_each_request_goes_to_the_model_that_the_budget_is_best_spent_on(provider, settled, prefer):
    router = fitted(prefer)
    callback = attach(llms(), "wise", router=router, budget=RICH)
    response = await callback._router.acompletion(model="wise", messages=HI)
    assert asked(provider) == [prefer]
    assert response._hidden_params["model_id"] == prefer
    await settled(lambda: router.status().charged == 1)
    assert router.status().spent_usd == pytest.approx(cost_usd(prefer))
    assert router.status().in_flight == 0


async def test_a_tight_budget_mixes_models_and_is_spent(provider, settled):
    router = fitted()
    rate = (cost_usd("small") + cost_usd("large")) / 2
    callback = attach(llms(), "wise", router=router, budget=Budget(40 * rate, 40, limit="hard", on_exhausted="reject"))
    for i in range(40):
        await callback._router.acompletion(model="wise", messages=HI, max_tokens=60)
        await settled(lambda i=i: router.status().charged == i + 1)
    assert 8 < asked(provider).count("large") < 32
    assert router.status().spent_usd <= 40 * rate


SURFACES = {
    "chat": lambda r: r.acompletion(model="wise", messages=HI),
    "tools": lambda r: r.acompletion(
        model="wise",
        messages=HI,
        tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
    ),
    "text": lambda r: r.atext_completion(model="wise", prompt="hello there"),
    "responses": lambda r: r.aresponses(model="wise", input="hello there"),
    "messages": lambda r: r.aanthropic_messages(model="wise", messages=HI, max_tokens=40),
}


@pytest.mark.parametrize("surface", SURFACES)
async def test_every_text_surface_is_routed_settled_and_rated(provider, settled, surface):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=RICH)
    response = await SURFACES[surface](callback._router)
    assert asked(provider) == ["large"]
    await settled(lambda: router.status().charged == 1)
    assert router.status().spent_usd == pytest.approx(cost_usd("large"))
    call = response if hasattr(response, "_hidden_params") else response["id"]
    assert callback.feedback(call, 0.5) is False
    assert router.estimates.labels[0, 1] == 51


async def test_a_stream_is_settled_at_its_end(provider, settled):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=RICH)
    stream = await callback._router.acompletion(
        model="wise", messages=HI, stream=True, stream_options={"include_usage": True}
    )
    assert router.status().in_flight == 1
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
    assert text.strip() == "word word word word word"
    await settled(lambda: router.status().charged == 1)
    assert router.status().spent_usd == pytest.approx(cost_usd("large"))


async def test_a_stream_without_usage_is_priced_from_counted_tokens_and_said(provider, settled, caplog):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=RICH)
    for _ in range(2):
        stream = await callback._router.acompletion(model="wise", messages=HI, stream=True)
        assert [chunk async for chunk in stream]
    await settled(lambda: router.status().charged == 2)
    assert 0 < router.status().spent_usd < 2 * cost_usd("large")
    assert sum("include_usage" in record.message for record in caplog.records if record.levelname == "ERROR") <= 1


async def test_an_abandoned_stream_is_presumed_when_its_time_is_up(provider):
    from wiserouter.stores import MemoryStore
    from wiserouter.testing import FakeClock

    clock = FakeClock(1_000.0)
    router = fitted(store=MemoryStore(clock, reservation_ttl_s=60))
    callback = attach(llms(), "wise", router=router, budget=RICH)
    stream = await callback._router.acompletion(model="wise", messages=HI, stream=True)
    await anext(aiter(stream))
    assert router.status().reserved_usd > 0
    clock.advance(61)
    assert (router.status().reserved_usd, router.status().presumed) == (0.0, 1)


async def test_a_retry_goes_to_another_model_and_only_the_answer_is_charged(settled):
    router = fitted()
    with respx.mock() as mock:
        mock.route(url__startswith=URL).mock(side_effect=failing("large", status=429))
        callback = attach(llms(num_retries=2, allowed_fails=100), "wise", router=router, budget=RICH)
        await callback._router.acompletion(model="wise", messages=HI)
        assert asked(mock)[0] == "large"
        assert asked(mock)[-1] == "small"
    await settled(lambda: router.status().charged == 1)
    status = router.status()
    assert (status.spent_usd, status.reserved_usd, status.in_flight) == (pytest.approx(cost_usd("small")), 0.0, 0)
    assert status.decided == 1


async def test_a_retry_after_a_refusal_fits_a_hard_budget_for_one_call(settled):
    router = fitted()
    worst = 60 * cost_usd("large", (1, 0)) + 60 * cost_usd("large", (0, 1))
    with respx.mock() as mock:
        mock.route(url__startswith=URL).mock(side_effect=failing("large", status=429))
        callback = attach(
            llms(num_retries=1, allowed_fails=100), "wise", router=router, budget=Budget(worst, 1, limit="hard")
        )
        await callback._router.acompletion(model="wise", messages=HI, max_tokens=60)
        assert asked(mock)[-1] == "small"
    await settled(lambda: router.status().charged == 1)


async def test_a_call_that_every_model_refuses_gives_everything_back(settled):
    router = fitted()
    with respx.mock() as mock:
        mock.route(url__startswith=URL).mock(side_effect=failing("small", "large", status=429))
        callback = attach(llms(), "wise", router=router, budget=RICH)
        with pytest.raises(litellm.RateLimitError):
            await callback._router.acompletion(model="wise", messages=HI)
    await settled(lambda: router.status().released == 1)
    status = router.status()
    assert (status.spent_usd, status.reserved_usd, status.decided) == (0.0, 0.0, 0)


async def test_a_cooled_down_model_is_not_asked(settled):
    router = fitted()
    with respx.mock() as mock:
        mock.route(url__startswith=URL).mock(side_effect=failing("large"))
        callback = attach(llms(allowed_fails=0), "wise", router=router, budget=RICH)
        with pytest.raises(litellm.InternalServerError):
            await callback._router.acompletion(model="wise", messages=HI)
        await settled(lambda: router.status().presumed == 1)
        for _ in range(3):
            await callback._router.acompletion(model="wise", messages=HI)
        assert asked(mock) == ["large", "small", "small", "small"]


async def test_a_long_prompt_goes_to_the_model_with_the_window(provider, settled):
    router = fitted("small")
    wide = deployment("large", info={"max_input_tokens": 200_000})
    callback = attach(llms(deployment("small"), wide), "wise", router=router, budget=RICH)
    await callback._router.acompletion(model="wise", messages=HI)
    await callback._router.acompletion(model="wise", messages=[{"role": "user", "content": "many words " * 20_000}])
    assert asked(provider) == ["small", "large"]


async def test_a_prompt_that_no_model_takes_falls_back_by_context_window(provider):
    router_ = llms(
        deployment("small"),
        deployment("large"),
        deployment("huge", "huge", info={"max_input_tokens": 1_000_000}),
        context_window_fallbacks=[{"wise": ["huge"]}],
    )
    attach(router_, "wise", router=fitted(), budget=RICH)
    long = [{"role": "user", "content": "many words " * 20_000}]
    await router_.acompletion(model="wise", messages=long)
    assert asked(provider) == ["huge"]


async def test_a_prompt_that_no_model_takes_is_refused_with_the_windows(provider):
    callback = attach(llms(), "wise", router=fitted(), budget=RICH)
    with pytest.raises(ContextWindowExceededError, match=r"small: 8000, large: 8000"):
        await callback._router.acompletion(model="wise", messages=[{"role": "user", "content": "many words " * 20_000}])
    assert callback.groups["wise"].router.status().decided == 0


async def test_what_a_later_filter_drops_is_replaced_by_the_second_choice(provider, settled):
    """`enable_pre_call_checks` runs after the hook: a single deployment would leave nothing."""
    router = fitted()
    tagged = deployment("large", tags=["vip"])
    router_ = llms(deployment("small", tags=["all"]), tagged, enable_tag_filtering=True)
    attach(router_, "wise", router=router, budget=RICH)
    await router_.acompletion(model="wise", messages=HI, metadata={"tags": ["all"]})
    assert asked(provider) == ["small"]
    await settled(lambda: router.status().charged == 1)
    assert router.status().spent_usd == pytest.approx(cost_usd("small"))
    assert (router.estimates.calls[0] - 50).tolist() == [1.0, 0.0]


async def test_a_cached_answer_costs_nothing_teaches_nothing_and_cannot_be_rated(provider, settled):
    router = fitted()
    litellm.cache = litellm.Cache(type="local")
    router_ = llms(cache_responses=True)
    callback = attach(router_, "wise", router=router, budget=RICH)
    first = await router_.acompletion(model="wise", messages=HI)
    await settled(lambda: router.status().charged == 1)
    second = await router_.acompletion(model="wise", messages=HI)
    await settled(lambda: router.status().charged == 2)
    assert asked(provider) == ["large"]
    assert router.status().spent_usd == pytest.approx(cost_usd("large"))
    assert router.estimates.calls.sum() == 101
    assert callback.feedback(first, 1.0) is False
    with pytest.raises(UnknownCall, match="unknown or has expired"):
        callback.feedback(second._hidden_params["litellm_call_id"], 1.0)


async def test_an_exhausted_budget_is_a_rate_limit_error_without_retries(provider):
    callback = attach(llms(num_retries=3), "wise", router=fitted(), budget=Budget(0.0, 10, limit="hard"))
    with pytest.raises(BudgetRefused, match=r"group 'wise': the budget of 0 USD is used up") as refused:
        await callback._router.acompletion(model="wise", messages=HI)
    assert isinstance(refused.value, RateLimitError)
    assert refused.value.status_code == 429
    assert asked(provider) == []


async def test_an_exhausted_window_says_when_it_renews(provider):
    callback = attach(llms(), "wise", router=fitted(), budget=Budget(0.0, every="1d", limit="hard"))
    with pytest.raises(BudgetRefused, match="renews at") as refused:
        await callback._router.acompletion(model="wise", messages=HI)
    assert 0 < float(refused.value.headers["retry-after"]) <= 86_400


async def test_an_exhausted_budget_can_go_on_with_the_cheapest(provider, settled):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=Budget(0.0, 10, on_exhausted="cheapest"))
    await callback._router.acompletion(model="wise", messages=HI)
    assert asked(provider) == ["small"]


async def test_an_exhausted_budget_falls_back_on_a_group_outside_it(provider):
    router_ = llms(deployment("small"), deployment("large"), deployment("free", "free"), fallbacks=[{"wise": ["free"]}])
    attach(router_, "wise", router=fitted(), budget=Budget(0.0, 10, limit="hard"), fallback_policy="outside")
    await router_.acompletion(model="wise", messages=HI)
    assert asked(provider) == ["free"]


async def test_concurrent_calls_never_exceed_a_hard_budget(settled):
    router = fitted()

    async def slow(request):
        await asyncio.sleep(0.02)
        return answer(request)

    worst = cost_usd("small", (30, 60))
    with respx.mock() as mock:
        mock.route(url__startswith=URL).mock(side_effect=slow)
        callback = attach(llms(), "wise", router=router, budget=Budget(5 * worst, 100, limit="hard"))
        calls = [callback._router.acompletion(model="wise", messages=HI, max_tokens=60) for _ in range(60)]
        done = await asyncio.gather(*calls, return_exceptions=True)
        answered = sum(not isinstance(each, Exception) for each in done)
        spent = sum(cost_usd(name) for name in asked(mock))
    await settled(lambda: router.status().charged == answered)
    assert 0 < answered < 60
    assert spent == pytest.approx(router.status().spent_usd)
    assert spent <= 5 * worst
    assert all(isinstance(each, BudgetRefused) for each in done if isinstance(each, Exception))


@pytest.mark.parametrize(
    ("call", "key"),
    [
        (lambda r: r.acompletion(model="wise", messages=HI), "max_tokens"),
        (lambda r: r.aresponses(model="wise", input="hello"), "max_output_tokens"),
        (lambda r: r.atext_completion(model="wise", prompt="hello"), "max_tokens"),
    ],
    ids=["chat", "responses", "text"],
)
async def test_the_cap_is_sent_where_a_request_names_no_limit(provider, call, key):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=Budget(10.0, 100, limit="hard"), cap_output_tokens=77)
    await call(callback._router)
    assert sent(provider)[key] == 77
    assert router.status().reserved_usd < 100 * 1e-5 * 20 + 77 * 3e-5


async def test_a_limit_that_the_request_names_is_kept(provider):
    callback = attach(llms(), "wise", router=fitted(), budget=RICH, cap_output_tokens=77)
    await callback._router.acompletion(model="wise", messages=HI, max_tokens=500)
    assert sent(provider)["max_tokens"] == 500


async def test_without_a_cap_the_models_own_limit_is_held_back_and_nothing_is_sent(provider):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=Budget(10.0, 100, limit="hard"))
    task = asyncio.create_task(callback._router.acompletion(model="wise", messages=HI))
    while router.status().in_flight == 0 and not task.done():
        await asyncio.sleep(0)
    assert router.status().reserved_usd >= 1_000 * 3e-5
    await task
    assert "max_tokens" not in sent(provider)


async def test_several_answers_are_held_back_for(provider):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=Budget(10.0, 100, limit="hard"))
    task = asyncio.create_task(callback._router.acompletion(model="wise", messages=HI, max_tokens=100, n=3))
    while router.status().in_flight == 0 and not task.done():
        await asyncio.sleep(0)
    assert router.status().reserved_usd >= 300 * 3e-5
    await task


async def test_foreign_groups_and_calls_without_text_are_left_alone(provider):
    router = fitted()
    router_ = llms(deployment("small"), deployment("large"), deployment("x", "other"))
    callback = attach(router_, "wise", router=router, budget=RICH)
    await router_.acompletion(model="other", messages=HI)
    healthy = router_.get_model_list(model_name="wise") if not hasattr(router_, "registry") else []
    for content in ("prompt", "files-api-fake-text", "batch-api-fake-text"):
        kept = await callback.async_filter_deployments("wise", healthy, [{"role": "user", "content": content}], {})
        assert kept is healthy
    assert await callback.async_filter_deployments("wise", [], HI, {}) == []
    assert router.status().decided == 0


async def test_new_deployments_join_and_removed_ones_leave(provider, settled):
    router = fitted("small")
    router_ = llms()
    attach(router_, "wise", router=router, budget=RICH)
    add(router_, deployment("better", info={"max_output_tokens": 10}))
    await router_.acompletion(model="wise", messages=HI)
    assert router.pool.names == ("small", "large", "openai/better")
    remove(router_, "small")
    await router_.acompletion(model="wise", messages=HI)
    assert "small" not in asked(provider)[1:]


async def test_a_deployment_without_a_price_that_appears_later_gets_no_traffic(provider, caplog):
    router_ = llms()
    attach(router_, "wise", router=fitted(), budget=RICH)
    free = {"model_name": "wise", "litellm_params": {"model": "openai/unheard-of", "api_base": URL, "api_key": "x"}}
    add(router_, free)
    for _ in range(5):
        await router_.acompletion(model="wise", messages=HI)
    assert set(asked(provider)) == {"large"}
    assert sum("openai/unheard-of" in record.message for record in caplog.records) == 1


async def test_routing_groups_keep_their_members_names(provider, settled):
    router = fitted()
    members = [deployment("small", "small"), deployment("large", "large")]
    groups = [{"group_name": "wise", "models": ["small", "large"], "routing_strategy": "simple-shuffle"}]
    router_ = llms(*members, routing_groups=groups)
    attach(router_, "wise", router=router, budget=RICH)
    await router_.acompletion(model="wise", messages=HI)
    await router_.acompletion(model="small", messages=HI)
    assert asked(provider) == ["large", "small"]
    await settled(lambda: router.status().charged == 1)


async def test_deployments_of_one_model_are_balanced_by_litellm(provider, settled):
    router = fitted()
    regions = [deployment("large", info={"id": f"large-{i}", "wiserouter_model": "large"}) for i in range(3)]
    router_ = llms(deployment("small"), *regions)
    attach(router_, "wise", router=router, budget=RICH)
    served = {(await router_.acompletion(model="wise", messages=HI))._hidden_params["model_id"] for _ in range(40)}
    assert served == {"large-0", "large-1", "large-2"}
    assert router.pool.names == ("small", "large")


async def test_two_routers_of_one_process_do_not_hear_each_other(provider, settled):
    ours, theirs = fitted(), fitted("small")
    one = llms()
    another = llms(
        *[
            {
                **d,
                "model_info": {
                    **d["model_info"],
                    "id": d["model_info"]["id"] + "-b",
                    "wiserouter_model": d["model_info"]["id"],
                },
            }
            for d in (deployment("small"), deployment("large"))
        ]
    )
    attach(one, "wise", router=ours, budget=RICH)
    attach(another, "wise", router=theirs, budget=RICH)
    await one.acompletion(model="wise", messages=HI)
    await another.acompletion(model="wise", messages=HI)
    await settled(lambda: ours.status().charged == theirs.status().charged == 1)
    assert asked(provider) == ["large", "small"]


async def test_after_detach_the_router_is_its_own_again(provider):
    router, router_ = fitted(), llms()
    attach(router_, "wise", router=router, budget=RICH)
    detach(router_)
    detach(router_)
    await router_.acompletion(model="wise", messages=HI)
    router_.completion(model="wise", messages=HI)
    assert router.status().decided == 0


async def test_events_that_come_twice_charge_once(provider, settled):
    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=RICH)
    events = []
    original = callback._charge
    callback._charge = lambda *event: (events.append(event), original(*event))
    await callback._router.acompletion(model="wise", messages=HI)
    await settled(lambda: router.status().charged == 1)
    for *call, kwargs, response in events:
        original(*call, kwargs, response)
        await callback.async_log_failure_event(kwargs, None, None, None)
    assert router.status().charged == 1
    assert router.status().spent_usd == pytest.approx(cost_usd("large"))
    assert callback.groups["wise"].faults["duplicate_events"] == 1


async def test_the_mocks_see_the_calls_of_litellm(provider):
    """LiteLLM's own transport passes respx by: without the fixture of this folder the tests would need a network."""
    assert litellm.disable_aiohttp_transport is True
    response = await llms().acompletion(model="wise", messages=HI)
    assert len(asked(provider)) == 1
    assert response.choices[0].message.content == chat("x")["choices"][0]["message"]["content"]


async def test_a_program_states_the_value_of_a_call(provider, settled, tmp_path):
    router = fitted()
    journal = router.journal_to(tmp_path / "journal.jsonl")
    callback = attach(llms(), "wise", router=router, budget=RICH)
    await callback._router.acompletion(model="wise", messages=HI, metadata={"wiserouter_value": 2.5})
    await callback._router.acompletion(model="wise", messages=HI)
    with pytest.raises(litellm.BadRequestError, match=r"value must be a number from 0.001 to 1000, got 0"):
        await callback._router.acompletion(model="wise", messages=HI, metadata={"wiserouter_value": 0}, num_retries=0)
    await settled(lambda: router.status().charged == 2)
    journal.close()
    events = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert [event["value"] for event in events if event["event"] == "decision"] == [2.5, 1.0]
