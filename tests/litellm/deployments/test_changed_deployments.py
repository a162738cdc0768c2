"""Deployments that LiteLLM changes under their ids: the next call is bounded and charged by what they are now."""

import asyncio

import litellm
import pytest
from litellm.litellm_core_utils.get_model_cost_map import adopt_model_cost_map
from litellm.types.router import Deployment, LiteLLM_Params

from support.groups import HI, RICH, add, asked, fitted, llms, remove
from support.providers import URL, cost_usd, deployment
from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter_litellm import WiseRoutingStrategy, attach
from wiserouter_litellm.deployments.registry import DeploymentRegistry

SIDES = ("input_cost_per_token", "output_cost_per_token")


def upsert(router, name, factor, **params):
    """Change the prices of a deployment by a factor."""
    row = deployment(name, **params)
    prices = {side: factor * row["litellm_params"][side] for side in SIDES}
    params = LiteLLM_Params(**{**row["litellm_params"], **prices})
    router.upsert_deployment(Deployment(**{**row, "litellm_params": params}))


def dearer(name, **params):
    """Return a deployment at ten times its price."""
    row = deployment(name, **params)
    for side in SIDES:
        row["litellm_params"][side] *= 10
    return row


async def test_a_new_price_bounds_and_charges_the_next_call(provider, settled):
    router, router_ = WiseRouter([Model("small", Price(1e-6, 2e-6))], seed=0), llms(deployment("small"))
    budget = Budget(1.5 * 100 * 2e-5, 100, limit="hard")  # one and a half outputs at the new price
    attach(router_, "wise", router=router, budget=budget, cap_output_tokens=100)
    await router_.acompletion(model="wise", messages=HI)
    await settled(lambda: router.status().charged == 1)
    upsert(router_, "small", 10)
    calls = (router_.acompletion(model="wise", messages=HI) for _ in range(5))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(not isinstance(one, Exception) for one in answers) == 1
    await settled(lambda: router.status().charged == 2)
    assert router.status().spent_usd == pytest.approx(cost_usd("small") * 11)
    assert router.pool.by_name["small"].price.output == pytest.approx(2e-5)
    router_.set_model_list([deployment("small")])
    await router_.acompletion(model="wise", messages=HI)
    assert router.pool.by_name["small"].price == Price(1e-6, 2e-6)


@pytest.fixture
def mapped():
    """Return a deployment at the price of LiteLLM's map, which is put back."""
    before = litellm.model_cost
    yield lambda id_="a": {
        **deployment("gpt-4o-mini", info={"id": id_}),
        "litellm_params": {"model": "openai/gpt-4o-mini", "api_base": URL, "api_key": "sk-provider"},
    }
    adopt_model_cost_map(before)


def adopt_dearer_map(factor):
    """Let LiteLLM take another price map, as it does in the background and where an administrator reloads it."""
    prices = litellm.model_cost["gpt-4o-mini"]
    changed = {**prices, **{side: factor * prices[side] for side in SIDES}}
    adopt_model_cost_map({**litellm.model_cost, "gpt-4o-mini": changed})


async def test_another_price_map_of_litellm_bounds_the_next_call(provider, settled, mapped):
    router_ = llms(mapped("a"), mapped("b"))
    budget = Budget(1.5 * 100 * 20 * 6e-7, 100, limit="hard")  # one and a half outputs at the new price
    group = attach(router_, "wise", budget=budget, cap_output_tokens=100).groups["wise"]
    await router_.acompletion(model="wise", messages=HI)
    await settled(lambda: group.router.status().charged == 1)
    adopt_dearer_map(20)
    calls = (router_.acompletion(model="wise", messages=HI) for _ in range(5))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(not isinstance(one, Exception) for one in answers) == 1
    await settled(lambda: group.router.status().charged == 2)
    assert group.router.pool.by_name["openai/gpt-4o-mini"].price.output == pytest.approx(20 * 6e-7)


def test_a_deployment_that_was_away_is_at_odds_with_none_that_has_the_price_of_another_map(mapped):
    rows, registry = [mapped("a"), mapped("b")], DeploymentRegistry("wise")
    registry.resolve(rows, ())
    adopt_dearer_map(20)
    for present in (rows[:1], rows):
        candidates, _ = registry.resolve(present, ())
        assert [one.info.rate_card.price.output for one in candidates] == [pytest.approx(20 * 6e-7)] * len(present)


async def test_a_refused_deployment_gets_traffic_once_it_has_a_price(provider):
    router_, unpriced = llms(deployment("small")), deployment("later")
    pool = attach(router_, "wise", budget=RICH).groups["wise"].router
    for side in SIDES:
        del unpriced["litellm_params"][side]
    add(router_, unpriced)
    await router_.acompletion(model="wise", messages=HI)
    assert pool.pool.names == ("openai/small",)
    upsert(router_, "later", 1)
    await router_.acompletion(model="wise", messages=HI)
    assert pool.pool.names == ("openai/small", "openai/later")


async def test_deployments_of_one_model_are_at_odds_until_all_have_the_new_price(provider, caplog):
    router_ = llms(*(deployment("small", info={"id": id_}) for id_ in ("a", "b")))
    group = attach(router_, "wise", budget=RICH).groups["wise"]
    upsert(router_, "small", 10, info={"id": "a"})
    for _ in range(5):
        await router_.acompletion(model="wise", messages=HI)
    assert group.registry.n_deployments("openai/small") == 1
    assert sum("gets no traffic" in record.message for record in caplog.records) == 1
    upsert(router_, "small", 10, info={"id": "b"})
    for _ in range(2):
        await router_.acompletion(model="wise", messages=HI)
    assert group.registry.n_deployments("openai/small") == 2
    assert group.router.pool.by_name["openai/small"].price.output == pytest.approx(2e-5)


@pytest.mark.parametrize("order", ["remove, add", "add, remove"])
async def test_a_removed_deployment_is_at_odds_with_none_that_replaces_it(provider, settled, order):
    router_ = llms(deployment("small", info={"id": "a"}))
    group = attach(router_, "wise", budget=RICH).groups["wise"]
    await router_.acompletion(model="wise", messages=HI)
    for step in order.split(", "):
        if step == "remove":
            remove(router_, "a")
        else:
            add(router_, dearer("small", info={"id": "b"}))
            if order != "remove, add":
                await router_.acompletion(model="wise", messages=HI)  # still by the one that is there
    await settled(lambda: group.router.status().in_flight == 0)
    before_usd = group.router.status().spent_usd
    await router_.acompletion(model="wise", messages=HI)
    await settled(lambda: group.router.status().spent_usd > before_usd)
    assert group.router.status().spent_usd == pytest.approx(before_usd + 10 * cost_usd("small"))
    assert group.registry.n_deployments("openai/small") == 1
    assert group.router.pool.by_name["openai/small"].price.output == pytest.approx(2e-5)
    remove(router_, "b")
    add(router_, deployment("small", info={"id": "a"}))  # the first again
    await router_.acompletion(model="wise", messages=HI)
    assert group.router.pool.by_name["openai/small"].price == Price(1e-6, 2e-6)


def test_a_list_without_ids_replaces_prices(provider):
    """LiteLLM makes the ids of the parameters, so that another price is another deployment."""
    rows = [deployment("small"), dearer("small")]
    for row in rows:
        del row["model_info"]["id"]
    router_ = llms(rows[0])
    strategy = WiseRoutingStrategy(router_, "wise", budget=RICH)
    strategy.install()
    router_.completion(model="wise", messages=HI)
    router_.set_model_list([rows[1]])
    router_.completion(model="wise", messages=HI)
    assert strategy.callback.groups["wise"].router.pool.by_name["openai/small"].price.output == pytest.approx(2e-5)


async def test_a_call_in_flight_is_charged_at_the_price_of_its_removed_deployment(provider, settled):
    router_ = llms(deployment("small", info={"id": "a"}))
    group = attach(router_, "wise", budget=RICH).groups["wise"]
    options = {"stream": True, "stream_options": {"include_usage": True}}
    stream = await router_.acompletion(model="wise", messages=HI, **options)
    remove(router_, "a")
    add(router_, dearer("small", info={"id": "b"}))
    await router_.acompletion(model="wise", messages=HI)
    assert [piece async for piece in stream]
    await settled(lambda: group.router.status().in_flight == 0)
    assert group.router.status().spent_usd == pytest.approx(11 * cost_usd("small"))


async def test_the_price_of_an_administrator_outlasts_a_change_of_the_deployment(provider):
    router, router_ = fitted(), llms(deployment("small"))
    registry = attach(router_, "wise", router=router, budget=RICH).groups["wise"].registry
    router.change_model("small", price=Price(3e-6, 4e-6), by="ann")
    upsert(router_, "small", 10)
    await router_.acompletion(model="wise", messages=HI)
    card = registry.find("small").rate_card
    assert router.pool.by_name["small"].price == card.price == Price(3e-6, 4e-6)
    assert max(rate.usd for rate in card.rates) == pytest.approx(2e-5)


def test_a_new_price_of_a_pattern_is_that_of_all_its_names(provider):
    router_ = llms(deployment("*", "any/*", info={"id": "any"}))
    group = attach(router_, "any/*", budget=RICH).groups["any/*"]
    for name in ("small", "large"):
        router_.completion(model=f"any/{name}", messages=HI)
    upsert(router_, "*", 10, group="any/*", info={"id": "any"})
    asyncio.run(router_.acompletion(model="any/small", messages=HI))
    assert asked(provider) == ["small", "large", "small"]
    assert group.router.pool.names == ("openai/*",)
    assert group.router.pool.by_name["openai/*"].price.output == pytest.approx(2e-5)


async def test_a_pattern_that_comes_later_is_one_model_whatever_names_are_asked_for(provider):
    router_ = llms(deployment("*", "any/*", info={"id": "first"}))
    group = attach(router_, "any/*", budget=RICH).groups["any/*"]
    add(router_, deployment("*", "any/*", info={"id": "second"}))
    for n in range(12):
        await router_.acompletion(model=f"any/name-{n}", messages=HI)
    assert len(group.router.pool.names) <= 2


async def test_what_does_not_change_is_read_once(provider, monkeypatch):
    router_ = llms()
    attach(router_, "wise", router=fitted(), budget=RICH)
    monkeypatch.setattr(DeploymentRegistry, "_info_of", None)
    for _ in range(3):
        await router_.acompletion(model="wise", messages=HI)
    assert asked(provider) == ["large"] * 3
