"""The setting `priors`: prior qualities of the deployments, which decide until scores come."""

import pytest

from support.providers import deployment
from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter.integration import PriorScore, PriorScores
from wiserouter_litellm import SettingsError
from wiserouter_litellm.groups.group_setup import open_group
from wiserouter_litellm.proxy import _groups_of
from wiserouter_litellm.settings.proxy_settings import settings_of

WISE = {"budget_usd": 5.0, "requests": 100}
CONFIG = {"model_list": [deployment("small"), deployment("large"), deployment("gpt-4.1")]}


def scores_with(priors=None):
    """Return the score and its weight of each model of a group with this setting, or without it."""
    block = WISE if priors is None else {**WISE, "priors": priors}
    account = settings_of({"groups": {"wise": block}}).accounts["wise"]
    groups = _groups_of("wise", account, {"wise": account}, CONFIG)
    pool = groups["wise"].router.pool
    return {model.name.removeprefix("openai/"): (model.score, model.score_weight) for model in pool.models}


def test_scores_by_model_a_file_and_published_scores(tmp_path):
    unlisted = (None, 20.0)
    assert scores_with({"small": 0.4, "openai/large": 0.8}) == {
        "small": (0.4, 20.0),
        "large": (0.8, 20.0),
        "gpt-4.1": unlisted,
    }
    (tmp_path / "own.csv").write_text("model,score,standard_error\nlarge,0.5,0.25\n")
    assert scores_with(str(tmp_path / "own.csv")) == {"small": unlisted, "large": (0.5, 4.0), "gpt-4.1": unlisted}
    assert scores_with("code") == {"small": unlisted, "large": unlisted, "gpt-4.1": (0.524, 20.0)}
    assert scores_with("maths")["gpt-4.1"] == (0.821, 20.0)
    assert scores_with() == dict.fromkeys(("small", "large", "gpt-4.1"), unlisted)


@pytest.mark.parametrize(
    ("priors", "message"),
    [("chess", "a family of published scores"), ("missing.csv", r"missing\.csv: no such file"), ({"a": 72}, "72")],
)
def test_priors_that_make_no_sense_stop_the_boot(priors, message):
    with pytest.raises(SettingsError, match=message):
        scores_with(priors)


def test_models_that_a_budget_does_not_have_are_named(caplog):
    prices = {"openai/small": {"input": 1e-7, "output": 1e-7}, "smal": {"input": 1e-7, "output": 1e-7}}
    account = settings_of({"groups": {"wise": {**WISE, "prices": prices, "priors": {"Large": 0.8, "smal": 0.4}}}})
    _groups_of("wise", account.accounts["wise"], account.members("wise"), CONFIG)
    has = "; it has openai/small, openai/large, openai/gpt-4.1"
    assert f"prices of models that 'wise' does not have are not used: smal{has}" in caplog.messages
    assert f"priors of models that 'wise' does not have are not used: smal{has}" in caplog.messages


def test_a_router_keeps_its_scores_where_the_settings_have_none():
    price = Price(1e-6, 2e-6)
    router = WiseRouter([Model("small", price, score=0.3), Model("large", price, score=0.9)])
    priors = PriorScores([PriorScore("large", 0.6)])
    rows = [deployment("small"), deployment("large")]
    group = open_group("wise", rows, router=router, budget=Budget(1.0, 100), priors=priors)
    assert [model.score for model in group.router.pool.models] == [0.3, 0.6]


def test_a_prior_decides_in_a_group_without_scores():
    rows = [deployment("small"), deployment("large")]
    for priors, most in (({"small": 0.4, "large": 0.8}, "large"), ({"small": 0.8, "large": 0.4}, "small")):
        scores = PriorScores([PriorScore(name, score) for name, score in priors.items()])
        router = open_group("wise", rows, budget=Budget(1.0, 100), priors=scores, seed=0).router
        chosen = []
        for _ in range(20):
            decision = router.decide()
            chosen.append(decision.model.removeprefix("openai/"))
            router.charge(decision, 0.001)
        assert chosen.count(most) >= 18
