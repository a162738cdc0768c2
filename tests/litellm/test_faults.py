"""Faults of the adapter: traffic continues in LiteLLM's order, with an error in the log; a hard budget stays closed."""

import litellm
import pytest

from support.groups import HI, RICH, asked, fitted, llms
from support.providers import cost_usd, deployment
from wiserouter import Budget
from wiserouter.integration import Bill
from wiserouter_litellm import BudgetUncertain, SettingsError, WiseRoutingStrategy, attach
from wiserouter_litellm.proxy import build_callback


class Broken(RuntimeError):
    pass


def break_selection(callback, monkeypatch, secret="sk-very-secret"):
    def fail(*_, **__):
        raise Broken("the plan is on fire")

    monkeypatch.setattr(callback.groups["wise"].router, "decide", fail)
    return secret


async def test_a_fault_lets_traffic_pass_and_is_logged_once(provider, monkeypatch, caplog):
    router_ = llms()
    callback = attach(router_, "wise", router=fitted(), budget=RICH)
    break_selection(callback, monkeypatch)
    for _ in range(5):
        assert (await router_.acompletion(model="wise", messages=HI)).choices
    assert len(asked(provider)) == 5
    assert callback.groups["wise"].faults["selection"] == 5
    errors = [r for r in caplog.records if r.name == "wiserouter.litellm" and r.levelname == "ERROR"]
    assert len(errors) == 1
    assert "the plan is on fire" in errors[0].exc_text
    assert "hello there" not in errors[0].getMessage() + errors[0].exc_text


async def test_a_fault_under_a_hard_budget_stays_closed(provider, monkeypatch):
    router_ = llms(num_retries=2)
    callback = attach(router_, "wise", router=fitted(), budget=Budget(10.0, 100, limit="hard"))
    break_selection(callback, monkeypatch)
    with pytest.raises(BudgetUncertain, match="hard budget stays closed") as refused:
        await router_.acompletion(model="wise", messages=HI)
    assert refused.value.status_code == 503
    assert asked(provider) == []


@pytest.mark.parametrize("limit", ["expected", "hard"])
def test_the_sync_door_behaves_alike(provider, monkeypatch, limit):
    router_ = llms()
    callback = attach(router_, "wise", router=fitted(), budget=Budget(10.0, 100, limit=limit))
    break_selection(callback, monkeypatch)
    if limit == "hard":
        with pytest.raises(BudgetUncertain):
            router_.completion(model="wise", messages=HI)
    else:
        assert router_.completion(model="wise", messages=HI).choices


async def test_the_strategy_behaves_alike(provider, monkeypatch):
    router_ = llms()
    strategy = WiseRoutingStrategy(router_, "wise", router=fitted(), budget=RICH)
    strategy.install()
    break_selection(strategy.callback, monkeypatch)
    assert (await router_.acompletion(model="wise", messages=HI)).choices


async def test_a_bill_that_cannot_be_read_is_a_fault_and_the_answer_arrives(provider, monkeypatch, settled, caplog):
    router_ = llms()
    callback = attach(router_, "wise", router=fitted(), budget=RICH)

    def fail(*_, **__):
        raise Broken("no such bill")

    monkeypatch.setattr("wiserouter_litellm.settlement.own_answers.read_answer", fail)
    assert (await router_.acompletion(model="wise", messages=HI)).choices
    await settled(lambda: callback.groups["wise"].faults["accounting"] == 1)
    status = callback.groups["wise"].router.status()
    assert (status.presumed, status.in_flight) == (1, 0)
    assert status.spent_usd == pytest.approx(status.amount_usd - status.left_usd)
    assert status.spent_usd > 0  # the expected cost: better than free


async def test_a_group_without_any_price_left_fails_open_or_stays_closed(provider):
    free = {"model_name": "wise", "litellm_params": {"model": "openai/unheard-of", "api_key": "x"}}
    for limit in ("expected", "hard"):
        router_ = llms()
        callback = attach(router_, "wise", router=fitted(), budget=Budget(10.0, 100, limit=limit))
        rows = litellm.Router([free]).get_model_list(model_name="wise")
        monkey = callback.groups["wise"]
        if limit == "hard":
            with pytest.raises(BudgetUncertain):
                await super(type(callback), callback).async_filter_deployments("wise", rows, HI, {})
        else:
            kept = await super(type(callback), callback).async_filter_deployments("wise", rows, HI, {})
            assert [one["litellm_params"] for one in kept] == [one["litellm_params"] for one in rows]
        assert monkey.faults["selection"] == 1


async def test_a_lost_decision_is_counted_not_raised(provider, settled):
    router_ = llms()
    router = fitted()
    callback = attach(router_, "wise", router=router, budget=RICH)
    await router_.acompletion(model="wise", messages=HI)
    await settled(lambda: router.status().charged == 1)
    callback.groups["wise"].settle("never-decided", Bill(0.5, model="large"))
    callback.groups["wise"].release("never-decided")
    assert callback.groups["wise"].faults["lost_decisions"] == 1
    assert router.status().spent_usd == pytest.approx(cost_usd("large"))


def test_attaching_twice_or_nothing_is_refused():
    from wiserouter.errors import InvalidInput

    router_ = llms()
    attach(router_, "wise", router=fitted(), budget=RICH)
    with pytest.raises(InvalidInput, match="'wise' is attached already"):
        attach(router_, "wise", router=fitted(), budget=RICH)
    with pytest.raises(InvalidInput, match="'nope' has no deployments"):
        attach(router_, "nope", budget=RICH)
    with pytest.raises(InvalidInput, match="needs a budget"):
        attach(llms(deployment("small")), "wise")


def test_a_litellm_that_would_lose_decisions_is_refused(monkeypatch):
    monkeypatch.setattr(
        "wiserouter_litellm.deployments.litellm_compat.Router", object
    )  # LiteLLM 1.110 has no such method
    with pytest.raises(SettingsError, match=r"litellm: its version must be below 1\.110, got 1\.") as refused:
        attach(llms(), "wise", budget=RICH)
    assert refused.value.key == "litellm"
    assert "for a proxy with 'litellm[proxy]<1.110'" in str(refused.value)
    with pytest.raises(SettingsError, match="below 1"):
        WiseRoutingStrategy(llms(), "wise", budget=RICH)
    with pytest.raises(SettingsError, match="below 1"):
        build_callback()
