"""Arms: one deployment called with several efforts is several models, and what a request says stays as it is."""

import json
import logging
import time

import httpx
import pytest

from support.groups import HI, RICH, llms, sent
from support.providers import INPUT_USD, OUTPUT_USD, TOKENS, URL, chat, deployment, responses_body
from wiserouter import Budget, Contexts, Estimates, Model, Offline, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter_litellm import BudgetRefused, WiseRoutingStrategy, attach
from wiserouter_litellm.deployments.arms import agrees, arms_of_settings, is_said, with_arm
from wiserouter_litellm.errors import SettingsError
from wiserouter_litellm.settings.proxy_settings import settings_of

LOW, HIGH = {"reasoning_effort": "low"}, {"reasoning_effort": "high"}
ARMS = {"large": [LOW, HIGH]}
THINKING = {"low": 40, "high": 400, None: 100}
"""Completion tokens that the provider bills, by the effort that it was asked for."""


def billed(model, effort):
    return TOKENS[0] * INPUT_USD[model] + THINKING[effort] * OUTPUT_USD[model]


def effort_of(body):
    return body.get("reasoning_effort") or (body.get("reasoning") or {}).get("effort")


def by_effort(request):
    """Answer with as many tokens as the effort costs, but no more than the limit of the request."""
    body = json.loads(request.content)
    limit = body.get("max_tokens") or body.get("max_completion_tokens") or body.get("max_output_tokens") or 10**9
    tokens = (TOKENS[0], min(THINKING[effort_of(body)], limit))
    if request.url.path.endswith("/responses"):
        used = {"input_tokens": tokens[0], "output_tokens": tokens[1], "total_tokens": sum(tokens)}
        return httpx.Response(200, json={**responses_body(body["model"]), "usage": used})
    return httpx.Response(200, json=chat(body["model"], tokens=tokens))


@pytest.fixture
def thinking(provider):
    provider.routes.clear()
    provider.route(url__startswith=URL).mock(side_effect=by_effort)
    return provider


def large(**params):
    info = {"supports_reasoning": True}
    row = deployment("large", allowed_openai_params=["reasoning_effort"], info=info, **params)
    return {**row, "model_name": "wise"}


def fitted(prefer, **more):
    """Return a router that knows the two arms of the large model, and prefers one at a rich budget."""
    estimates = Estimates(1, 2)
    for k, params in enumerate((LOW, HIGH)):
        for _ in range(50):
            estimates.add_cost(0, k, billed("large", params["reasoning_effort"]))
            estimates.add_reward(0, k, 0.9 if params == prefer else 0.1)
    models = [Model("large", params=params) for params in (LOW, HIGH)]
    return WiseRouter(models, Contexts.single(), estimates=estimates, policy=Offline(), seed=0, **more)


def by_name(row):
    return {**row, "model_info": {**row["model_info"], "wiserouter_model": "large"}}


def calls_of(router):
    return dict(zip(router.pool.names, router.estimates.calls[0].tolist(), strict=True))


def wait(condition, timeout_s=30.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.01)


@pytest.mark.parametrize("prefer", [LOW, HIGH])
async def test_the_chosen_arm_is_sent_and_its_cost_learned(thinking, settled, prefer):
    router, effort = fitted(prefer), prefer["reasoning_effort"]
    callback = attach(llms(by_name(large())), "wise", router=router, budget=RICH)  # the artifact's own arms
    response = await callback._router.acompletion(model="wise", messages=HI)
    assert sent(thinking)["reasoning_effort"] == effort
    await settled(lambda: router.status().charged == 1)
    assert router.status().spent_usd == pytest.approx(billed("large", effort))
    assert calls_of(router) == {"large@low": 50 + (effort == "low"), "large@high": 50 + (effort == "high")}
    assert callback.feedback(response, 1.0) is False
    assert router.estimates.labels[0].sum() == 101


async def test_headers_name_the_arm(thinking):
    callback = attach(llms(by_name(large())), "wise", router=fitted(HIGH), budget=RICH)
    data = {"metadata": {}}
    rows = await callback.async_filter_deployments("wise", [by_name(large())], HI, data)
    assert [row["litellm_params"]["reasoning_effort"] for row in rows] == ["high"]
    headers = await callback.async_post_call_response_headers_hook(
        data, None, None, litellm_call_info={"model_id": "large"}
    )
    assert headers["x-wiserouter-model"] == "large@high"


def sync(router_):
    return router_.completion(model="wise", messages=HI)


def with_attach(router_, router):
    return attach(router_, "wise", router=router, budget=RICH)


def with_strategy(router_, router):
    strategy = WiseRoutingStrategy(router_, "wise", router=router, budget=RICH)
    strategy.install()
    return strategy.callback


@pytest.mark.parametrize("door", [with_attach, with_strategy])
def test_a_sync_call_sends_the_arm_too(thinking, door):
    router, router_ = fitted(LOW), llms(by_name(large()))
    door(router_, router)
    assert sync(router_)
    assert sent(thinking)["reasoning_effort"] == "low"
    wait(lambda: router.status().charged == 1)
    assert router.status().spent_usd == pytest.approx(billed("large", "low"))


async def test_a_response_gets_the_effort_in_its_own_words(thinking, settled):
    router = fitted(HIGH)
    callback = attach(llms(by_name(large())), "wise", router=router, budget=RICH)
    await callback._router.aresponses(model="wise", input="hello there")
    assert effort_of(sent(thinking)) == "high"
    await settled(lambda: router.status().charged == 1)
    assert router.status().spent_usd == pytest.approx(billed("large", "high"))


async def test_a_message_of_anthropic_gets_the_effort_too(thinking, settled):
    router = fitted(HIGH)
    callback = attach(llms(by_name(large())), "wise", router=router, budget=RICH)
    await callback._router.aanthropic_messages(model="wise", messages=HI, max_tokens=600)
    assert effort_of(sent(thinking)) == "high"
    await settled(lambda: router.status().charged == 1)
    assert router.status().spent_usd == pytest.approx(billed("large", "high"))


@pytest.mark.parametrize(
    ("said", "model"), [(LOW, "large@low"), (HIGH, "large@high"), ({"reasoning_effort": "medium"}, "large")]
)
async def test_what_a_client_says_is_sent_and_learned_as_said(thinking, settled, said, model):
    THINKING["medium"] = 150
    router = fitted(LOW)
    callback = attach(llms(by_name(large())), "wise", router=router, budget=RICH)
    await callback._router.acompletion(model="wise", messages=HI, **said)
    assert sent(thinking)["reasoning_effort"] == said["reasoning_effort"]
    await settled(lambda: router.status().charged == 1)
    assert calls_of(router)[model] == (2 if model == "large" else 51)  # a new model has a prior of one call
    assert router.status().spent_usd == pytest.approx(billed("large", said["reasoning_effort"]))
    assert router.pool.families == [0] * len(router.pool)


async def test_null_says_nothing(thinking):
    callback = attach(llms(by_name(large())), "wise", router=fitted(HIGH), budget=RICH)
    await callback._router.acompletion(model="wise", messages=HI, reasoning_effort=None)
    assert sent(thinking)["reasoning_effort"] == "high"


async def test_arms_of_the_settings_are_learned_from_nothing(thinking, settled):
    callback = attach(
        llms(large(), deployment("small")), "wise", budget=Budget(1.0, 100), arms={"large": [LOW, HIGH, {}]}
    )
    router = callback.groups["wise"].router
    names = ["openai/large@low", "openai/large@high", "openai/large", "openai/small"]
    assert list(router.pool.names) == names
    assert [model.family for model in router.pool.models] == ["openai/large"] * 3 + ["openai/small"]
    spent = 0.0
    for i in range(12):
        await callback._router.acompletion(model="wise", messages=HI)
        body = sent(thinking)
        spent += billed(body["model"], body.get("reasoning_effort"))
        await settled(lambda i=i: router.status().charged == i + 1)
    assert router.status().spent_usd == pytest.approx(spent)
    assert {effort_of(json.loads(call.request.content)) for call in thinking.calls} == {"low", "high", None}
    costs = router.estimates.cost[0] / router.estimates.calls[0]
    tried = router.estimates.calls[0] > 0
    expected = [billed("large", "low"), billed("large", "high"), billed("large", None), billed("small", None)]
    assert costs[tried] == pytest.approx([usd for usd, is_tried in zip(expected, tried, strict=True) if is_tried])


async def test_a_hard_limit_reserves_and_sends_the_limit_of_the_arm(thinking, settled):
    arms = {"large": [{**LOW, "max_tokens": 30}, {**HIGH, "max_tokens": 300}]}
    budget = Budget(0.05, 20, limit="hard")
    callback = attach(llms(large()), "wise", budget=budget, arms=arms, cap_output_tokens=500)
    router = callback.groups["wise"].router
    spent, refused = 0.0, 0
    for _ in range(20):
        try:
            await callback._router.acompletion(model="wise", messages=HI)
        except BudgetRefused:
            refused += 1
            continue
        body = sent(thinking)
        assert (body["reasoning_effort"], body["max_tokens"]) in {("low", 30), ("high", 300)}
        spent += TOKENS[0] * INPUT_USD["large"] + body["max_tokens"] * OUTPUT_USD["large"]
        await settled(lambda: router.status().in_flight == 0)
        assert router.status().spent_usd == pytest.approx(spent)
        assert spent <= 0.05
    assert refused < 20


async def test_the_limit_of_a_client_replaces_that_of_the_arm(thinking):
    arms = {"large": [{**HIGH, "max_tokens": 30}]}
    callback = attach(llms(large()), "wise", budget=Budget(1.0, 100, limit="hard"), arms=arms)
    await callback._router.acompletion(model="wise", messages=HI, max_completion_tokens=70)
    body = sent(thinking)
    assert (body["reasoning_effort"], body.get("max_tokens"), body["max_completion_tokens"]) == ("high", None, 70)


async def test_an_expected_limit_sends_the_limit_of_the_arm_as_well(thinking):
    arms = {"large": [{**HIGH, "max_completion_tokens": 30}]}
    callback = attach(llms(large(max_tokens=90)), "wise", budget=RICH, arms=arms)
    await callback._router.acompletion(model="wise", messages=HI)
    body = sent(thinking)
    assert (body["max_tokens"], "max_completion_tokens" in body) == (30, False)


async def test_arms_retire_and_have_prices_of_their_own(thinking):
    router = fitted(HIGH)
    callback = attach(llms(by_name(large())), "wise", router=router, budget=RICH)
    router.change_model("large@high", retired=True)
    await callback._router.acompletion(model="wise", messages=HI)
    assert sent(thinking)["reasoning_effort"] == "low"
    status = {info.model: info.rate_card.params for info in callback.groups["wise"].registry.infos}
    assert status == {"large@low": LOW, "large@high": HIGH}


async def test_shadow_mode_learns_the_plain_model_or_the_arm_that_was_asked_for(thinking, settled):
    router = fitted(HIGH)
    callback = attach(llms(by_name(large())), "wise", router=router, budget=RICH, mode="shadow")
    await callback._router.acompletion(model="wise", messages=HI)
    await settled(lambda: calls_of(router).get("large") == 2)  # one of them is its prior
    await callback._router.acompletion(model="wise", messages=HI, **LOW)
    await settled(lambda: calls_of(router)["large@low"] == 51)
    assert [effort_of(json.loads(call.request.content)) for call in thinking.calls] == [None, "low"]


async def test_a_call_to_the_id_of_a_deployment_is_the_plain_model(thinking, settled):
    router = fitted(HIGH)
    callback = attach(llms(by_name(large())), "wise", router=router, budget=RICH)
    await callback._router.acompletion(model="large", messages=HI)
    assert "reasoning_effort" not in sent(thinking)
    await settled(lambda: router.status().charged == 1)
    assert calls_of(router)["large"] == 2  # one of them is its prior


def test_an_effort_that_litellm_would_not_send_is_said_at_once(caplog):
    with caplog.at_level(logging.WARNING, "wiserouter.litellm"):
        attach(llms(deployment("large", model="replicate/some/model")), "wise", budget=RICH, arms=ARMS)
    assert "allowed_openai_params" in caplog.text


@pytest.mark.parametrize(
    ("arms", "says"),
    [
        ({"large": []}, "several"),
        ({"large": [LOW, LOW]}, "large@low"),
        ({"large": [{"api_base": "http://x"}]}, "api_base"),
        ({"large": [{"n": 3}]}, "'n'"),
        ({"large": [{"name": 3}]}, "name"),
        ({"large": [{"extra_body": {"a": [1, 2]}}]}, "name the arm"),
        ({"other": [LOW]}, "'other'"),
        ({"large": [{"extra_body": {"n": 4}}, LOW]}, "nothing bounds extra_body.n"),
    ],
)
def test_arms_that_break_a_rule_are_refused(arms, says):
    with pytest.raises(InvalidInput, match=says):
        attach(llms(large()), "wise", budget=Budget(1.0, 10, limit="hard"), arms=arms)


def test_arms_of_an_unknown_model_are_refused_with_the_known_ones():
    with pytest.raises(InvalidInput, match=r"model \(openai/large\), a deployment id .* group 'wise', got 'large-2'$"):
        attach(llms(large()), "wise", budget=RICH, arms={"large-2": [LOW]})


def test_arms_may_replace_what_nothing_bounds_in_their_deployment():
    arms = {"large": [{"extra_body": {"top_k": 3}}, {"extra_body": {"top_k": 4}}]}
    rows = llms(large(extra_body={"max_tokens": 3}))
    assert len(attach(rows, "wise", budget=Budget(1.0, 10, limit="hard"), arms=arms).groups["wise"].router.pool) == 2


def test_the_settings_of_the_proxy_name_the_arms():
    group = {"budget_usd": 5, "requests": 10, "arms": {"gpt-5": [LOW, {**HIGH, "name": "thorough"}]}}
    arms = arms_of_settings(settings_of({"groups": {"wise": group}}).groups["wise"].arms)
    assert [arm.named("gpt-5") for arm in arms["gpt-5"]] == ["gpt-5@low", "thorough"]
    with pytest.raises(SettingsError, match="arms"):
        settings_of({"groups": {"wise": {**group, "arms": {"gpt-5": LOW}}}})


async def test_a_run_keeps_its_arm(thinking, settled):
    arms = {"large": [LOW, HIGH]}
    callback = attach(llms(large()), "wise", budget=Budget(1.0, 100), arms=arms, unit="run")
    router = callback.groups["wise"].router
    for i in range(6):
        metadata = {"session_id": f"run {i // 3}"}
        await callback._router.acompletion(model="wise", messages=HI, metadata=metadata)
        await settled(lambda: router.status().in_flight == 0)
    efforts = [effort_of(json.loads(call.request.content)) for call in thinking.calls]
    assert len(set(efforts[:3])) == len(set(efforts[3:])) == 1


async def test_a_failed_deployment_fails_with_all_its_arms(provider, settled):
    def respond(request):
        if json.loads(request.content)["model"] == "large":
            return httpx.Response(429, json={"error": {"message": "slow down"}})
        return by_effort(request)

    provider.routes.clear()
    provider.route(url__startswith=URL).mock(side_effect=respond)
    rows = llms(large(), deployment("small"), num_retries=1, allowed_fails=1_000)
    callback = attach(rows, "wise", budget=RICH, arms={"large": [LOW, HIGH]})
    router = callback.groups["wise"].router
    for _ in range(8):
        response = await callback._router.acompletion(model="wise", messages=HI)
        assert response._hidden_params["model_id"] == "small"
    await settled(lambda: router.status().in_flight == 0)
    assert router.status().spent_usd == pytest.approx(8 * billed("small", None))


@pytest.mark.parametrize(
    ("arm", "said", "agree"),
    [
        (LOW, {}, True),
        (LOW, {"reasoning": {"effort": "low", "summary": "auto"}}, True),
        (LOW, {"thinking": {"type": "enabled", "budget_tokens": 99}}, False),
        ({"temperature": 0}, {"temperature": 1}, False),
        ({}, HIGH, False),
        ({"max_tokens": 5}, {"max_tokens": 6}, True),
        (LOW, {"output_config": {"format": {"type": "json_schema"}}}, True),
    ],
)
def test_an_arm_agrees_with_a_request_that_says_nothing_else(arm, said, agree):
    assert agrees(arm, said) is agree


def test_parameters_of_an_arm_replace_others_of_their_kind():
    own = {"model": "m", "max_tokens": 5, "thinking": {"type": "enabled"}, "temperature": 1}
    assert with_arm(own, {**LOW, "max_completion_tokens": 7}) == {
        "model": "m",
        "temperature": 1,
        **LOW,
        "max_completion_tokens": 7,
    }
    assert is_said({**LOW, "seed": 1}, {"seed": 1, "reasoning": {"effort": "low"}})
