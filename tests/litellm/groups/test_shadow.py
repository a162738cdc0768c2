"""Shadow mode of a group: LiteLLM selects as without us, and the router records what it would have done."""

from contextlib import suppress

import litellm
import pytest
import respx

from support.groups import HI, asked, fitted, llms
from support.providers import URL, cost_usd, deployment, failing
from wiserouter import Budget, Shadow
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.off_policy.shadow_calls import read_shadow_calls
from wiserouter.routing.journal_reader import JournalReader
from wiserouter_litellm import attach
from wiserouter_litellm.errors import SettingsError
from wiserouter_litellm.settings.proxy_settings import settings_of

OBSERVED = "shadow:default"
TINY = Budget(1e-9, every="1d", limit="hard")


def session(acts, share):
    """Return the id of a session on one side of a share."""
    return next(f"s{i}" for i in range(99) if Shadow(share).acts(f" s{i}") is acts)


def weighted(name, weight):
    return deployment(name, weight=weight)


async def test_the_traffic_goes_where_it_went_and_its_true_cost_is_learned(provider, settled):
    router = fitted("small")
    callback = attach(
        llms(weighted("small", 0), weighted("large", 1)), "wise", router=router, budget=TINY, mode="shadow"
    )
    response = await callback._router.acompletion(model="wise", messages=HI, max_tokens=7_000)
    assert asked(provider) == ["large"]
    await settled(lambda: router.status(OBSERVED).charged == 1)
    assert (router.status().decided, router.status().spent_usd) == (0, 0.0)
    assert router.status(OBSERVED).spent_usd == pytest.approx(cost_usd("small"))
    assert router.estimates.calls[0].tolist() == [50, 51]
    assert callback.feedback(response, 0.5) is False
    assert router.estimates.labels[0].tolist() == [50, 51]


def test_a_sync_call_is_observed_too(provider):
    router = fitted("small")
    callback = attach(
        llms(weighted("small", 0), weighted("large", 1)), "wise", router=router, budget=TINY, mode="shadow"
    )
    assert callback._router.completion(model="wise", messages=HI)
    assert asked(provider) == ["large"]
    assert router.status(OBSERVED).decided == 1


async def test_calls_by_a_router_that_the_client_brings_are_not_observed(provider):
    router = fitted("small")
    callback = attach(llms(), "wise", router=router, budget=TINY, mode="shadow")
    for config, decided in ((None, 1), ({"model_list": []}, 1)):
        request = {"body": {"model": "wise", "user_config": config}}
        await callback._router.acompletion(model="wise", messages=HI, proxy_server_request=request)
        assert router.status(OBSERVED).decided == decided


async def test_the_calls_of_a_session_are_one_draw_where_nothing_is_acted_on(provider, settled, tmp_path):
    router = fitted("small")
    callback = attach(llms(), "wise", router=router, budget=Budget(10.0, 100), mode="shadow")
    journal = router.journal_to(tmp_path / "j.jsonl")
    for name in "abab":
        await callback._router.acompletion(model="wise", messages=HI, metadata={"session_id": name})
    await settled(lambda: router.status(OBSERVED).charged == 4)
    journal.close()
    assert read_shadow_calls(JournalReader(tmp_path / "j.jsonl")).unit.tolist() == [0, 1, 0, 1]


async def test_a_share_of_the_sessions_is_acted_on(provider, settled, tmp_path):
    router = fitted("small")
    rows = llms(weighted("small", 0), weighted("large", 1))
    callback = attach(rows, "wise", router=router, budget=Budget(10.0, 100), mode="shadow", share=0.5)
    journal = router.journal_to(tmp_path / "j.jsonl")
    for acts in (True, False, True, False):
        await callback._router.acompletion(model="wise", messages=HI, metadata={"session_id": session(acts, 0.5)})
    assert asked(provider) == ["small", "large", "small", "large"]
    await settled(lambda: router.status().charged == router.status(OBSERVED).charged == 2)
    journal.close()
    assert read_shadow_calls(JournalReader(tmp_path / "j.jsonl")).unit.tolist() == [0, 1, 0, 1]
    assert router.status().amount_usd == 5.0


@pytest.mark.parametrize("share", [1e-9 + 0.5, 1.0])
async def test_where_the_budget_of_the_share_is_used_up_the_call_is_only_observed(provider, settled, share):
    router = fitted("small")
    rows = llms(weighted("small", 0), weighted("large", 1))
    callback = attach(rows, "wise", router=router, budget=TINY, mode="shadow", share=share, cap_output_tokens=50)
    await callback._router.acompletion(model="wise", messages=HI, metadata={"session_id": session(True, 0.5)})
    assert asked(provider) == ["large"]
    await settled(lambda: router.status(OBSERVED).charged == 1)


async def test_a_fault_changes_nothing_for_the_call(provider, monkeypatch):
    router = fitted("small")
    callback = attach(
        llms(weighted("small", 0), weighted("large", 1)), "wise", router=router, budget=TINY, mode="shadow"
    )
    monkeypatch.setattr(router, "observe", lambda **_: 1 / 0)
    await callback._router.acompletion(model="wise", messages=HI)
    assert asked(provider) == ["large"]
    assert callback.groups["wise"].faults["shadow"] == 1


async def test_a_failed_call_is_retried_by_litellm_and_settled_once(settled):
    router = fitted("small")
    callback = attach(llms(num_retries=2), "wise", router=router, budget=TINY, mode="shadow")
    with respx.mock(assert_all_called=False) as provider:
        provider.route(url__startswith=URL).mock(side_effect=failing("large", status=429))
        for _ in range(4):
            with suppress(litellm.RateLimitError):
                await callback._router.acompletion(model="wise", messages=HI)
        await settled(lambda: router.status(OBSERVED).in_flight == 0)
        assert router.status(OBSERVED).charged == asked(provider).count("small")


async def test_the_journal_reports_what_ran_and_what_would_have(provider, settled, tmp_path):
    router = fitted("small")
    callback = attach(
        llms(weighted("small", 0), weighted("large", 1)), "wise", router=router, budget=TINY, mode="shadow"
    )
    journal = router.journal_to(tmp_path / "j.jsonl")
    await callback._router.acompletion(model="wise", messages=HI)
    await settled(lambda: router.status(OBSERVED).charged == 1)
    journal.flush()
    calls = read_shadow_calls(JournalReader(tmp_path / "j.jsonl"))
    assert (calls.models[calls.ran[0]], calls.cost_usd[0]) == ("large", pytest.approx(cost_usd("large")))
    assert calls.would_be[0, calls.models.index("small")] == 1.0
    journal.close()


def test_settings_say_what_is_wrong():
    wise = {"budget_usd": 1.0, "every": "1d"}
    assert settings_of({"groups": {"wise": {**wise, "mode": "shadow", "share": 0.1}}}).groups["wise"].share == 0.1
    with pytest.raises(SettingsError, match="share needs mode: shadow"):
        settings_of({"groups": {"wise": {**wise, "share": 0.1}}})
    with pytest.raises(SettingsError, match="needs unit: call"):
        settings_of({"groups": {"wise": {**wise, "mode": "shadow", "unit": "run"}}})
    with pytest.raises(InvalidInput, match="unit='call'"):
        attach(llms(), "wise", router=fitted(), budget=Budget(1.0, 10), mode="shadow", unit="run")
    with pytest.raises(InvalidInput, match="needs a budget for mode='shadow'"):
        attach(llms(), "wise", router=fitted(), mode="shadow")
