"""What the limits of a group count of its calls: times of a provider that takes time, and uses that settings state.

`test_latency_limit.py` has the mean of calls in real time.
"""

import asyncio
import json

import pytest
import respx
from pydantic import ValidationError

from support.groups import HI, RICH, asked, fitted, llms
from support.providers import TOKENS, URL, answer, deployment
from wiserouter import Limit, Limits
from wiserouter_litellm import attach
from wiserouter_litellm.errors import SettingsError
from wiserouter_litellm.proxy import _groups_of
from wiserouter_litellm.settings.limit_settings import LimitSettings
from wiserouter_litellm.settings.proxy_settings import settings_of

SLEEP_S = {"small": 0.02, "large": 0.2}


async def slow(request):
    await asyncio.sleep(SLEEP_S[json.loads(request.content)["model"]])
    return answer(request)


@pytest.fixture
def provider():
    with respx.mock(assert_all_called=False) as mock:
        mock.route(url__startswith=URL).mock(side_effect=slow)
        yield mock


def in_turn(llms_, n):
    """Return the calls of one caller after another."""

    async def calls():
        for _ in range(n):
            await llms_.acompletion(model="wise", messages=HI)

    return calls()


async def test_the_time_of_a_call_counts(provider, settled):
    router, llms_ = fitted(), llms()
    attach(llms_, "wise", router=router, budget=RICH)
    router.set_limits(Limits({"latency_s": Limit(mean=5.0)}))
    await in_turn(llms_, 3)
    await settled(lambda: router.status().charged == 3)
    (limit,) = router.status().limits
    assert limit.calls == 3
    assert 0.02 <= limit.mean < 5.0


def test_a_proxy_sets_the_limits_of_its_settings():
    limits = {"latency_s": {"mean": 2.0}, "first_token_s": {"share_above": [1.5, 0.05]}}
    settings = settings_of({"groups": {"wise": {"budget_usd": 5, "requests": 100, "limits": limits}}})
    config = {"model_list": [deployment("small"), deployment("large")]}
    groups = _groups_of("wise", settings.accounts["wise"], settings.members("wise"), config)
    expected = Limits({"latency_s": Limit(mean=2.0), "first_token_s": Limit(share_above=(1.5, 0.05))})
    assert groups["wise"].router.limits() == expected


ENERGY = {
    "openai/small": {"energy_wh": {"output_token": 0.001}},
    "openai/large": {"energy_wh": {"call": 0.1, "output_token": 0.009}},
}


def group_of(limits, uses, **more):
    """Return the group of a proxy with these settings."""
    terms = {"budget_usd": 50, "requests": 100, "limits": limits, "uses": uses, "contexts": 1, **more}
    settings = settings_of({"groups": {"wise": terms}})
    config = {"model_list": [deployment("small"), deployment("large")]}
    return _groups_of("wise", settings.accounts["wise"], settings.members("wise"), config)["wise"]


async def test_a_limit_on_energy_counts_the_tokens_of_each_answer(provider, settled):
    group = group_of({"energy_wh": {"total": 40.0}, "latency_s": {"mean": 5.0}}, ENERGY)
    llms_ = llms()
    attach(llms_, "wise", router=group.router)
    await in_turn(llms_, 20)
    await settled(lambda: group.router.status().charged == 20)
    energy, latency = group.router.status().limits
    names = asked(provider)
    expected = sum({"small": 0.001, "large": 0.009}[name] * TOKENS[1] + 0.1 * (name == "large") for name in names)
    assert energy.calls == latency.calls == 20
    assert energy.mean == pytest.approx(expected / 20)


def test_uses_that_are_not_known_are_refused():
    with pytest.raises(SettingsError, match="limits of energy_wh need its uses by model"):
        group_of({"energy_wh": {"mean": 1.0}}, {"openai/small": {"co2_g": {"call": 1.0}}})
    with pytest.raises(SettingsError, match="uses must not name what LiteLLM measures, got latency_s"):
        group_of({}, {"openai/small": {"latency_s": {"call": 1.0}}})
    with pytest.raises(SettingsError, match="'openai/large' uses of energy_wh"):
        group_of({"energy_wh": {"mean": 1.0}}, {"openai/small": {"energy_wh": {"call": 1.0}}})
    with pytest.raises(SettingsError, match="one of openai/small, openai/large; got 'small'"):
        group_of({"energy_wh": {"mean": 1.0}}, {"small": {"energy_wh": {"call": 1.0}}})


async def test_the_largest_share_of_a_model_is_held(provider, settled):
    group = group_of({}, {}, max_share={"openai/large": 0.3}, min_share={"openai/small": 0.1}, min_quality=0.0)
    shares = {"max_share": {"openai/large": 0.3}, "min_share": {"openai/small": 0.1}}
    assert group.router.limits() == Limits(min_quality=0.0, **shares)
    llms_ = llms()
    attach(llms_, "wise", router=group.router)
    await in_turn(llms_, 30)
    await settled(lambda: group.router.status().charged == 30)
    assert asked(provider).count("large") <= 10
    with pytest.raises(SettingsError, match="got 'huge'"):
        group_of({}, {}, max_share={"huge": 0.3})
    with pytest.raises(SettingsError, match="largest shares"):
        group_of({}, {}, max_share={"openai/large": 0.3, "openai/small": 0.3})


def test_a_worker_without_a_store_has_its_share_of_a_total(monkeypatch):
    monkeypatch.setenv("NUM_WORKERS", "4")
    assert group_of({"energy_wh": {"total": 40.0}}, ENERGY).router.limits() == Limits({"energy_wh": Limit(total=10.0)})


@pytest.mark.parametrize("bad", [{}, {"mean": 0.0}, {"share_above": [3.0]}, {"share_above": [3.0, 2.0]}])
def test_a_setting_that_is_no_limit_is_refused(bad):
    with pytest.raises(ValidationError):
        LimitSettings(**bad)
