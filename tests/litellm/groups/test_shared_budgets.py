"""One budget over several groups: one account, one shadow price, and each group keeps to its own models."""

import asyncio

import pytest

from support.billing_stub import Behaviour, billing_stub
from support.groups import HI, llms
from support.providers import deployment
from wiserouter import Budget, Contexts, Estimates, Model, Offline, Price, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter_litellm import BudgetRefused, SettingsError, attach
from wiserouter_litellm.hooks.wise_callback import WiseCallback
from wiserouter_litellm.proxy import _groups_of
from wiserouter_litellm.settings.proxy_settings import settings_of

CHEAP, DEAR = (1e-6, 2e-6), (1e-5, 3e-5)
PRICES = {f"{group}-{name}": price for group in "ab" for name, price in (("small", CHEAP), ("large", DEAR))}
COST_USD = {"small": 20 * CHEAP[0] + 50 * CHEAP[1], "large": 20 * DEAR[0] + 50 * DEAR[1]}
MONTHLY = {"budget_usd": 5.0, "requests": 100}


def row(name, url="http://provider.test/v1", **params):
    """Return a deployment of the group that its name begins with."""
    prices = dict(zip(("input_cost_per_token", "output_cost_per_token"), PRICES[name], strict=True))
    return deployment(name, name[0], url=url, info={"wiserouter_model": name}, **prices, **params)


def pair(rewards, store="memory://"):
    """Return a router over both groups that knows all four models; `rewards` in the order of `PRICES`."""
    estimates = Estimates(1, 4)
    for k, name in enumerate(PRICES):
        for _ in range(200):
            estimates.add_cost(0, k, COST_USD[name[2:]])
            estimates.add_reward(0, k, rewards[k])
    models = [Model(name, Price(*price), max_output_tokens=1_000) for name, price in PRICES.items()]
    return WiseRouter(models, Contexts.single(), estimates=estimates, policy=Offline(), store=store, seed=0)


def configured(block, *rows):
    """Return the groups that the proxy would make of the settings."""
    settings = settings_of(block)
    config = {"model_list": list(rows) or [row(name) for name in PRICES]}
    opened = {}
    for name, account in settings.accounts.items():
        opened |= _groups_of(name, account, settings.members(name), config)
    return opened


@pytest.fixture
def stub():
    with billing_stub(prices=dict(PRICES)) as running:
        yield running


def both(stub, router, **budget):
    """Return a LiteLLM router with the groups `a` and `b` under one budget."""
    llm = llms(*[row(name, stub.url) for name in PRICES])
    attach(llm, "a", router=router, budget=Budget(**budget))
    attach(llm, "b", router=router)
    return llm


async def test_two_groups_spend_one_account(stub, settled):
    router = pair([0.1, 0.9, 0.1, 0.9])
    llm = both(stub, router, amount_usd=0.01, horizon=100, limit="hard")
    llm._wiserouter_callback.groups["a"].max_wait_s = llm._wiserouter_callback.groups["b"].max_wait_s = 0.0
    calls = [llm.acompletion(model="ab"[i % 2], messages=HI, max_tokens=50) for i in range(120)]
    done = await asyncio.gather(*calls, return_exceptions=True)
    answered = sum(not isinstance(each, Exception) for each in done)
    await settled(lambda: router.status().charged == answered)
    assert all(isinstance(each, BudgetRefused) for each in done if isinstance(each, Exception))
    assert {call.model[0] for call in stub.calls} == {"a", "b"}
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd)
    assert 0 < stub.ledger_usd <= 0.01


async def test_each_group_keeps_to_its_own_models(stub):
    llm = both(stub, pair([0.9, 0.9, 0.1, 0.1]), amount_usd=10.0, horizon=100)
    for group in "abab":
        await llm.acompletion(model=group, messages=HI, max_tokens=50)
    assert [call.model[0] for call in stub.calls] == list("abab")


async def test_money_goes_to_the_group_where_it_buys_more(stub, settled):
    """The large model gains .8 in one group and .05 in the other, and the budget pays for one in two."""
    router = pair([0.1, 0.9, 0.45, 0.5])
    llm = both(stub, router, amount_usd=60 * (COST_USD["small"] + COST_USD["large"]) / 2, horizon=60)
    for i in range(60):
        await llm.acompletion(model="ab"[i % 2], messages=HI, max_tokens=50)
        await settled(lambda i=i: router.status().charged == i + 1)
    models = [call.model for call in stub.calls]
    assert models.count("a-large") >= 27
    assert models.count("b-large") <= 3


async def test_both_groups_see_one_shadow_price(stub, monkeypatch):
    router = pair([0.1, 0.9, 0.3, 0.8])
    llm = both(stub, router, amount_usd=1_000 * (COST_USD["small"] + COST_USD["large"]) / 2, horizon=1_000)
    made, decide = [], router.decide
    monkeypatch.setattr(router, "decide", lambda **terms: made.append(decide(**terms)) or made[-1])
    for group in "abab":
        await llm.acompletion(model=group, messages=HI, max_tokens=50)
    assert len({decision.shadow_price for decision in made}) == 1
    assert made[0].shadow_price > 0


async def test_a_fallback_between_them_is_charged_once(stub, settled):
    router = pair([0.1, 0.9, 0.1, 0.9])
    llm = llms(*[row(name, stub.url) for name in PRICES], fallbacks=[{"a": ["b"]}])
    attach(llm, "a", router=router, budget=Budget(10.0, 100, limit="hard"))
    attach(llm, "b", router=router)
    stub.behaviours = {name: Behaviour(status=429) for name in ("a-small", "a-large")}
    await llm.acompletion(model="a", messages=HI, max_tokens=50)
    await settled(lambda: router.status().charged == 1 and router.status().in_flight == 0)
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd)
    assert router.pool.names == tuple(PRICES)


def test_a_second_budget_is_refused(stub):
    router = pair([0.5] * 4)
    llm = llms(*[row(name, stub.url) for name in PRICES])
    attach(llm, "a", router=router, budget=Budget(1.0, 100))
    with pytest.raises(InvalidInput, match="shares the router of group 'a', whose budget runs: leave out budget"):
        attach(llm, "b", router=router, budget=Budget(1.0, 100))


def test_two_prices_of_one_model_are_refused(stub):
    router = pair([0.5] * 4)
    odd = row("b-small", stub.url)
    odd["model_info"]["wiserouter_model"] = "a-large"
    llm = llms(row("a-small", stub.url), row("a-large", stub.url), odd)
    attach(llm, "a", router=router, budget=Budget(1.0, 100))
    with pytest.raises(InvalidInput, match=r"must have one price for each model.*'b'.*'a'.*'a-large'"):
        attach(llm, "b", router=router)
    assert router.pool.by_name["a-large"].price.input == DEAR[0]


def test_groups_name_their_budget():
    groups = configured(
        {
            "budgets": {"monthly": MONTHLY},
            "groups": {"a": {"budget": "monthly"}, "b": {"budget": "monthly", "cap_output_tokens": 9}},
        }
    )
    assert groups["a"].router is groups["b"].router
    assert groups["a"].shared_budget == groups["b"].shared_budget == "monthly"
    assert [groups[name].cap_output_tokens for name in "ab"] == [None, 9]
    assert groups["a"].router.pool.names == tuple(PRICES)
    assert groups["a"].router.budget().amount_usd == 5.0


def test_a_group_may_have_its_own_beside_them():
    block = {
        "budgets": {"monthly": MONTHLY},
        "groups": {"a": {"budget": "monthly"}, "b": {**MONTHLY, "budget_usd": 1.0}},
    }
    groups = configured(block)
    assert groups["a"].router is not groups["b"].router
    assert [groups[name].router.budget().amount_usd for name in "ab"] == [5.0, 1.0]
    assert [groups[name].shared_budget for name in "ab"] == ["monthly", None]


@pytest.mark.parametrize("store", ["sqlite", "memory"])
def test_teams_have_their_budgets_across_groups(store, tmp_path):
    from litellm.proxy._types import UserAPIKeyAuth

    scopes = {"by": "team", "budgets": {"red": MONTHLY}, "others": {"budget_usd": 1.0, "requests": 10}, "max_others": 1}
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path}/budget.db"
    shared = {**MONTHLY, "scopes": scopes, "store": url}
    groups = configured(
        {"budgets": {"monthly": shared}, "groups": {"a": {"budget": "monthly"}, "b": {"budget": "monthly"}}}
    )
    router = groups["a"].router
    for name in "ab":
        resolver = groups[name].scope_resolver
        scope = resolver.scope_of({"user_api_key_auth": UserAPIKeyAuth(team_id="red")})
        router.charge(router.decide(context=0, scope=scope), 0.25)
        resolver.open("team:blue")
    assert router.status("team:red").spent_usd == router.status().spent_usd == 0.5
    assert groups["a"].scope_resolver.opened == groups["b"].scope_resolver.opened == ("team:red", "team:blue")
    with pytest.raises(Exception, match=r"group 'b' has no budget for team 'green': max_others=1"):
        groups["b"].scope_resolver.open("team:green")
    router.close()


def test_workers_share_it_through_their_store(tmp_path):
    shared = {**MONTHLY, "limit": "hard", "store": f"sqlite:///{tmp_path}/budget.db", "cap": None}
    del shared["cap"]
    block = {"budgets": {"monthly": shared}, "groups": {"a": {"budget": "monthly"}, "b": {"budget": "monthly"}}}
    workers = [configured(block) for _ in range(2)]
    first, second = workers[0]["a"].router, workers[1]["b"].router
    first.charge(first.decide(context=0, input_tokens=5, max_output_tokens=5), 0.25)
    for router in (first, second):
        router._store.refresh()
    assert second.status().spent_usd == 0.25
    for router in (first, second):
        router.close()


BUDGETS = {"monthly": MONTHLY, "weekly": MONTHLY}


@pytest.mark.parametrize(
    ("block", "key", "message"),
    [
        (
            {"groups": {"a": {"budget": "montly"}}, "budgets": BUDGETS},
            ".groups.a.budget",
            "must be one of monthly, weekly, got 'montly': did you mean monthly",
        ),
        (
            {"groups": {"a": {"budget": "x"}}},
            ".groups.a.budget",
            "needs a block `budgets`, got 'x'; a budget of this group alone is `budget_usd`",
        ),
        (
            {"groups": {"a": {"budget": "monthly"}}, "budgets": BUDGETS},
            ".budgets.weekly",
            "no group has it: write `budget: weekly`",
        ),
        ({"groups": {"a": {"budget": 5}}}, ".groups.a", "unknown key 'budget', did you mean budget_usd"),
        (
            {"groups": {"a": {"budget": "monthly", "store": "memory://"}}, "budgets": BUDGETS},
            ".groups.a",
            "unknown key 'store', the keys here are encoder_timeout_s, .*budget",
        ),
        (
            {"groups": {"a": {"budget": "monthly", "budget_usd": 5}}, "budgets": BUDGETS},
            ".groups.a",
            "unknown key 'budget_usd', did you mean budget",
        ),
        (
            {"groups": {"a": {"budget": "monthly"}}, "budgets": {"monthly": {"budget_usd": -1}}},
            ".budgets.monthly.budget_usd",
            "greater than 0, got -1",
        ),
        (
            {"groups": {"a": {"budget": "monthly"}}, "budgets": {"monthly": {**MONTHLY, "limt": "hard"}}},
            ".budgets.monthly",
            "unknown key 'limt', did you mean limit",
        ),
        (
            {"groups": {"a": MONTHLY, "b": {"budget": "a"}}, "budgets": {"a": MONTHLY}},
            "",
            "budgets.a must have another name than the group 'a'",
        ),
        ({"groups": {"a": MONTHLY}, "budget": {"monthly": MONTHLY}}, "", "unknown key 'budget', did you mean budgets"),
        (
            {"groups": {"a": {"budget": "monthly", "fallback_policy": "inisde"}}, "budgets": BUDGETS},
            ".groups.a.fallback_policy",
            "'inside', 'refuse' or 'outside', got 'inisde'",
        ),
    ],
)
def test_what_is_wrong_is_named(block, key, message):
    with pytest.raises(SettingsError, match=message) as wrong:
        settings_of(block)
    assert wrong.value.key == f"callback_settings.wiserouter{key}"


def test_two_prices_are_named_at_the_start():
    odd = row("b-small")
    odd["model_info"]["wiserouter_model"] = "a-large"
    with pytest.raises(SettingsError, match="groups that share a budget must have one price for each model") as wrong:
        configured(
            {"budgets": {"monthly": MONTHLY}, "groups": {"a": {"budget": "monthly"}, "b": {"budget": "monthly"}}},
            row("a-small"),
            row("a-large"),
            odd,
        )
    assert wrong.value.key == "callback_settings.wiserouter.budgets.monthly"


def test_a_group_without_deployments_is_named():
    with pytest.raises(SettingsError, match="group 'b' has no deployments") as wrong:
        configured(
            {"budgets": {"monthly": MONTHLY}, "groups": {"a": {"budget": "monthly"}, "b": {"budget": "monthly"}}},
            row("a-small"),
        )
    assert wrong.value.key == "callback_settings.wiserouter.groups.b"


def test_a_callback_of_shared_groups_finds_every_decision():
    groups = configured(
        {"budgets": {"monthly": MONTHLY}, "groups": {"a": {"budget": "monthly"}, "b": {"budget": "monthly"}}}
    )
    callback = WiseCallback(groups)
    decision = groups["b"].router.decide(context=0)
    groups["b"].router.charge(decision, 0.1)
    assert callback.feedback(decision.id, 1.0, any_caller=True) is False
