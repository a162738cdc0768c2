"""`Router.completion`, which has no selection hook: the same budget, by a wrapper around the router's own selection."""

import json
import time

import litellm
import pytest
import respx

from support.groups import HI, RICH, asked, fitted, llms
from support.providers import URL, cost_usd, deployment, failing
from wiserouter import Budget
from wiserouter_litellm import BudgetRefused, WiseRoutingStrategy, attach

STRATEGIES = ["simple-shuffle", "least-busy", "latency-based-routing", "usage-based-routing-v2"]


def wait(condition, timeout_s=30.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.01)


def attached(router_, router, budget):
    return attach(router_, "wise", router=router, budget=budget)


def with_strategy(router_, router, budget):
    strategy = WiseRoutingStrategy(router_, "wise", router=router, budget=budget)
    strategy.install()
    return strategy.callback


DOORS = {"attach": attached, "strategy": with_strategy}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("prefer", ["small", "large"])
def test_a_sync_call_is_routed_settled_and_rated(provider, door, prefer):
    router, router_ = fitted(prefer), llms()
    callback = DOORS[door](router_, router, RICH)
    response = router_.completion(model="wise", messages=HI)
    assert asked(provider) == [prefer]
    wait(lambda: router.status().charged == 1)
    assert router.status().spent_usd == pytest.approx(cost_usd(prefer))
    assert callback.feedback(response, 0.3) is False


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_whatever_the_routers_own_strategy(provider, strategy):
    router, router_ = fitted(), llms(routing_strategy=strategy)
    attach(router_, "wise", router=router, budget=RICH)
    router_.completion(model="wise", messages=HI)
    assert asked(provider) == ["large"]


@pytest.mark.parametrize("door", DOORS)
def test_a_cooled_down_model_is_passed_over(door):
    router, router_ = fitted(), llms(allowed_fails=0)
    with respx.mock() as mock:
        mock.route(url__startswith=URL).mock(side_effect=failing("large"))
        DOORS[door](router_, router, RICH)
        with pytest.raises(litellm.InternalServerError):
            router_.completion(model="wise", messages=HI)
        wait(lambda: router.status().in_flight == 0)
        router_.completion(model="wise", messages=HI)
        assert asked(mock) == ["large", "small"]
    wait(lambda: router.status().charged == 1)
    status = router.status()
    assert status.spent_usd - status.presumed_usd == pytest.approx(cost_usd("small"))
    wait(lambda: (router.estimates.calls[0] - 50).tolist() == [1.0, 0.0])  # learned after it is charged


def test_a_sync_call_that_every_model_refuses_gives_everything_back():
    router, router_ = fitted(), llms(num_retries=1, allowed_fails=100)
    with respx.mock() as mock:
        mock.route(url__startswith=URL).mock(side_effect=failing("small", "large", status=429))
        attach(router_, "wise", router=router, budget=RICH)
        with pytest.raises(litellm.RateLimitError):
            router_.completion(model="wise", messages=HI)
        assert set(asked(mock)) == {"small", "large"}
    wait(lambda: router.status().in_flight == 0)
    assert (router.status().spent_usd, router.status().reserved_usd) == (0.0, 0.0)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("limit", ["hard", "expected"])
def test_a_sync_call_that_the_limits_of_its_deployment_refuse_gives_everything_back(provider, door, limit):
    rows = [deployment(name, rpm=1) for name in ("small", "large")]
    router, router_ = fitted(), llms(*rows, optional_pre_call_checks=["enforce_model_rate_limits"], num_retries=1)
    DOORS[door](router_, router, Budget(10.0, 100, limit=limit))
    refused = 0
    for _ in range(6):
        try:
            router_.completion(model="wise", messages=HI)
        except litellm.RateLimitError:
            refused += 1
    assert refused
    wait(lambda: router.status().charged == 6 - refused)
    assert (router.status().in_flight, router.status().reserved_usd) == (0, 0.0)


@pytest.mark.parametrize("door", DOORS)
def test_an_exhausted_budget_is_refused(provider, door):
    router, router_ = fitted(), llms()
    DOORS[door](router_, router, Budget(0.0, 10, limit="hard"))
    with pytest.raises(BudgetRefused):
        router_.completion(model="wise", messages=HI)
    assert asked(provider) == []


@pytest.mark.parametrize("door", DOORS)
def test_other_groups_go_their_own_way(provider, door):
    router, router_ = fitted(), llms(deployment("small"), deployment("large"), deployment("x", "other"))
    DOORS[door](router_, router, RICH)
    router_.completion(model="other", messages=HI)
    assert (asked(provider), router.status().decided) == (["x"], 0)


def test_the_cap_is_sent_on_the_sync_path_too(provider):
    router, router_ = fitted(), llms()
    attach(router_, "wise", router=router, budget=RICH, cap_output_tokens=33)
    router_.completion(model="wise", messages=HI)
    body = json.loads(provider.calls[0].request.content)
    assert body["max_tokens"] == 33
    assert not [key for key in body if key.startswith("_")]


def test_a_sync_stream_is_settled(provider):
    router, router_ = fitted(), llms()
    attach(router_, "wise", router=router, budget=RICH)
    stream = router_.completion(model="wise", messages=HI, stream=True, stream_options={"include_usage": True})
    assert len(list(stream)) > 3
    wait(lambda: router.status().charged == 1)
    assert router.status().spent_usd == pytest.approx(cost_usd("large"))


async def test_the_strategy_routes_async_calls_with_health_and_retries(settled):
    router, router_ = fitted(), llms(num_retries=2, allowed_fails=100)
    with respx.mock() as mock:
        mock.route(url__startswith=URL).mock(side_effect=failing("large"))
        with_strategy(router_, router, RICH)
        await router_.acompletion(model="wise", messages=HI)
        assert (asked(mock)[0], asked(mock)[-1]) == ("large", "small")
    await settled(lambda: router.status().charged == 1)
    assert router.status().in_flight == 0


async def test_the_strategy_leaves_async_calls_of_other_groups_alone(provider):
    router, router_ = fitted(), llms(deployment("small"), deployment("large"), deployment("x", "other"))
    with_strategy(router_, router, RICH)
    await router_.acompletion(model="other", messages=HI)
    await router_.aembedding(model="other", input="x", mock_response=[0.1])
    assert router.status().decided == 0


async def test_the_strategy_and_the_hook_refuse_alike(provider):
    router_ = llms()
    with_strategy(router_, fitted(), Budget(0.0, 10, limit="hard"))
    with pytest.raises(BudgetRefused):
        await router_.acompletion(model="wise", messages=HI)


def test_a_name_of_a_pattern_is_sent_under_its_own_name(provider):
    router_ = llms(deployment("*", "any/*", info={"id": "any"}))
    attach(router_, "any/*", budget=RICH, cap_output_tokens=50)
    router_.completion(model="any/small", messages=HI)
    assert asked(provider) == ["small"]
