"""LiteLLM's own filters beside the budget: tags, regions and the order of deployments keep their meaning."""

import litellm
import pytest
import respx

from support.groups import HI, asked, fitted, llms
from support.providers import URL, cost_usd, deployment, failing
from wiserouter import Budget
from wiserouter_litellm import BudgetRefused, attach

HARD = Budget(10.0, 100, limit="hard")
EXPECTED = Budget(10.0, 100)
LIMITS = pytest.mark.parametrize("budget", [HARD, EXPECTED], ids=["hard", "expected"])


def attached(*deployments, budget=HARD, prefer="large", **settings):
    router, litellm_router = fitted(prefer), llms(*deployments, **settings)
    attach(litellm_router, "wise", router=router, budget=budget)
    return litellm_router, router


def tagged(**tags):
    return [deployment(name, tags=list(each)) for name, each in tags.items()]


async def ask(litellm_router, *tags, **kwargs):
    metadata = {"metadata": {"tags": list(tags)}} if tags else {}
    return await litellm_router.acompletion(model="wise", messages=HI, max_tokens=60, **metadata, **kwargs)


@LIMITS
@pytest.mark.parametrize("prefer", ["small", "large"])
async def test_a_tagged_request_goes_where_its_tag_says(provider, settled, prefer, budget):
    rows = tagged(small=["paid"], large=["free"])
    litellm_router, router = attached(*rows, budget=budget, prefer=prefer, enable_tag_filtering=True)
    await ask(litellm_router, "free")
    await ask(litellm_router, "paid")
    assert asked(provider) == ["large", "small"]
    await settled(lambda: router.status().charged == 2)
    assert router.status().in_flight == 0
    assert router.status().spent_usd == pytest.approx(cost_usd("small") + cost_usd("large"))


@LIMITS
@pytest.mark.parametrize("prefer", ["small", "large"])
async def test_an_untagged_request_does_not_reach_a_reserved_deployment(provider, prefer, budget):
    rows = tagged(small=["default"], large=["teamA"])
    litellm_router, _ = attached(*rows, budget=budget, prefer=prefer, enable_tag_filtering=True)
    await ask(litellm_router)
    assert asked(provider) == ["small"]


@LIMITS
async def test_a_region_leaves_its_own_deployments(provider, settled, budget):
    rows = [deployment("small", region_name="us"), deployment("large", region_name="eu")]
    litellm_router, router = attached(*rows, budget=budget, prefer="small", enable_pre_call_checks=True)
    await ask(litellm_router, allowed_model_region="eu")
    assert asked(provider) == ["large"]
    await settled(lambda: router.status().charged == 1)


async def test_a_filter_that_leaves_a_more_expensive_model_reserves_its_worst_case(provider, settled):
    rows = tagged(small=["paid"], large=["free"])
    litellm_router, router = attached(*rows, prefer="small", enable_tag_filtering=True)
    reserved = []
    charge = router.charge
    router.charge = lambda decision, *args, **kw: (
        reserved.append(router.decision(decision)),
        charge(decision, *args, **kw),
    )
    response = await ask(litellm_router, "free")
    await settled(lambda: router.status().charged == 1)
    assert reserved[0].model == "large"
    assert reserved[0].reserved_usd >= cost_usd("large", (20, 60))
    assert router.status().released == 1
    assert litellm_router._wiserouter_callback.feedback(response, 1.0) is False


async def test_a_filter_cannot_send_what_the_budget_does_not_bear(provider, settled):
    rows = tagged(small=["paid"], large=["free"])
    tight = Budget(cost_usd("small", (60, 60)), 10, limit="hard")
    litellm_router, router = attached(*rows, budget=tight, prefer="small", enable_tag_filtering=True)
    with pytest.raises(BudgetRefused):
        await ask(litellm_router, "free")
    assert asked(provider) == []
    await settled(lambda: router.status().in_flight == 0)
    assert router.status().spent_usd == 0.0
    await ask(litellm_router, "paid")
    assert asked(provider) == ["small"]


@LIMITS
async def test_a_request_that_no_deployment_may_serve_owes_nothing(provider, settled, budget):
    rows = tagged(small=["paid"], large=["free"])
    litellm_router, router = attached(*rows, budget=budget, enable_tag_filtering=True, num_retries=1)
    with pytest.raises(ValueError, match="Not allowed to access model"):
        await ask(litellm_router, "vip")
    await ask(litellm_router, "free")
    await settled(lambda: router.status().charged == 1)
    assert router.status().presumed == 0


@LIMITS
@pytest.mark.parametrize("prefer", ["small", "large"])
async def test_another_order_answers_where_one_fails_without_retries(settled, prefer, budget):
    rows = [deployment("small", order=1), deployment("large", order=2)]
    litellm_router, router = attached(*rows, budget=budget, prefer=prefer, allowed_fails=1_000)
    other = {"small": "large", "large": "small"}[prefer]
    with respx.mock() as mock:
        mock.route(url__startswith=URL).mock(side_effect=failing(prefer))
        await ask(litellm_router)
        assert asked(mock) == [prefer, other]
    await settled(lambda: router.status().charged == 1)
    assert router.status().presumed == 1


@pytest.mark.parametrize("prefer", ["small", "large"])
def test_on_the_synchronous_path_the_configured_order_comes_first(prefer):
    rows = [deployment("small", order=1), deployment("large", order=2)]
    litellm_router, _ = attached(*rows, prefer=prefer, allowed_fails=1_000)
    with respx.mock() as mock:
        mock.route(url__startswith=URL).mock(side_effect=failing("small"))
        litellm_router.completion(model="wise", messages=HI, max_tokens=60)
        assert asked(mock) == ["small", "large"]


async def test_where_every_order_fails_the_error_is_the_providers(settled):
    rows = [deployment("small", order=1), deployment("large", order=2)]
    litellm_router, router = attached(*rows, allowed_fails=1_000)
    with respx.mock() as mock:
        mock.route(url__startswith=URL).mock(side_effect=failing("small", "large"))
        with pytest.raises(litellm.InternalServerError):
            await ask(litellm_router)
        assert sorted(asked(mock)) == ["large", "small"]
    await settled(lambda: router.status().presumed == 2)


@pytest.mark.parametrize(
    ("params", "settings"),
    [
        ({"tags": ["free"]}, {"enable_tag_filtering": True}),
        ({"rpm": 1}, {"optional_pre_call_checks": ["enforce_model_rate_limits"]}),
        ({"rpm": 1}, {"enable_pre_call_checks": True}),
    ],
    ids=["tags", "rate", "rate-filter"],
)
@LIMITS
async def test_what_litellm_refuses_after_the_decision_holds_no_money(provider, settled, budget, params, settings):
    rows = [deployment(name, **params) for name in ("small", "large")]
    litellm_router, router = attached(*rows, budget=budget, prefer="small", **settings)
    kept, tags = [], ["paid"] if "tags" in params else []  # the errors keep their frames, and these the attempts
    for _ in range(5):
        try:
            await ask(litellm_router, *tags)
        except Exception as error:
            kept.append(error)
    filters = "enable_pre_call_checks" not in settings or not hasattr(litellm_router, "registry")  # until LiteLLM 1.109
    assert len(kept) >= (3 if filters else 0)
    await settled(lambda: router.status().charged == 5 - len(kept))
    assert (router.status().in_flight, router.status().reserved_usd) == (0, 0.0)
    assert router.status().spent_usd == pytest.approx(sum(map(cost_usd, asked(provider))))
