"""Values of a wrong kind are refused where they are given, by their name, with an example."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from wiserouter import (
    Budget,
    Contexts,
    Growing,
    LabelBudget,
    Limit,
    Limits,
    Model,
    Optimistic,
    Price,
    RoutingLog,
    Shadow,
    UseRate,
    WiseRouter,
)
from wiserouter.errors import InvalidInput, MissingArtifact
from wiserouter.integration import prepare_router

MODELS = [Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))]
LOG = RoutingLog.from_arrays(["hi", "bye"], np.ones((2, 2)), np.ones((2, 2)), ["small", "large"])


def refused(call, *arguments, **settings):
    with pytest.raises(InvalidInput) as error:
        call(*arguments, **settings)
    return str(error.value)


@pytest.mark.parametrize("budget", [50, None, {"amount_usd": 50}])
def test_start_takes_a_budget(budget):
    told = refused(WiseRouter(MODELS).start, budget)
    assert told == f"budget must be a Budget, such as Budget(amount_usd=50, horizon=10_000), got {budget!r}"


@pytest.mark.parametrize(
    ("name", "value", "example"),
    [
        ("policy", "optimistic", "Optimistic()"),
        ("policy", Optimistic, "Optimistic()"),
        ("growing", 8, "Growing(8)"),
        ("contexts", 1, "Contexts.single()"),
        ("estimates", 4, "Estimates(n_contexts=1, n_models=2)"),
        ("labels", 0.1, "LabelBudget(share=0.1)"),
        ("explore", 0.05, "ExploreShare(0.05)"),
    ],
)
def test_a_setting_of_a_router_is_of_its_kind(name, value, example):
    told = refused(WiseRouter, MODELS, **{name: value})
    assert told.startswith(f"{name} must be a{'n' if name in {'explore', 'estimates'} else ''} ")
    assert told.endswith(f", such as {example}, got {value!r}")


def test_what_is_set_later_is_of_its_kind_too():
    router = WiseRouter(MODELS)
    for name, value in (("labels", 0.1), ("explore", 0.05), ("shadow", True)):
        assert refused(setattr, router, name, value).startswith(f"{name} must be a")
        setattr(router, name, None)
    router.labels, router.shadow = LabelBudget(share=0.1), Shadow(share=0.1)
    assert WiseRouter(MODELS, growing=Growing(8)).contexts.n_contexts == 1
    assert WiseRouter(MODELS, contexts=Contexts.single()).contexts.n_contexts == 1


@pytest.mark.parametrize("seed", [-1, 1.5, "7"])
def test_a_seed_is_a_whole_number_of_at_least_0(seed):
    rule = f"seed must be a whole number of at least 0, got {seed!r}"
    assert refused(WiseRouter, MODELS, seed=seed) == rule
    assert refused(WiseRouter.fit, LOG, seed=seed) == rule


@pytest.mark.parametrize("store", [5, None, Path("budget.db")])
def test_a_store_is_a_url_or_a_store(store):
    told = refused(WiseRouter, MODELS, store=store)
    assert told.startswith("store must be a URL such as 'sqlite:///budget.db'")
    assert told.endswith(f"got {store!r}")


def test_a_scope_is_a_text():
    told = refused(WiseRouter(MODELS).start, Budget(1.0, 10), scope=5)
    assert told == "scope must be a str, such as 'team-a', got 5"


def test_the_weight_of_the_uncertainty_is_a_number():
    assert refused(Optimistic, alpha="1") == "alpha must be a finite number, got '1'"


def test_a_pool_is_a_list_of_models():
    for models in (["small"], "small"):
        assert "models must be Model values, such as Model('gpt-mini'), got 's" in refused(WiseRouter, models)
        assert "models must be Model values, such as Model('gpt-mini'), got 's" in refused(
            WiseRouter.fit, LOG, models=models
        )
    assert "models must be a list of Model values" in refused(WiseRouter, MODELS[0])


def test_the_number_of_contexts_is_checked_before_a_log_is_read():
    for n_contexts in (0, "16", 4.0):
        told = refused(WiseRouter.fit, "missing.csv", n_contexts=n_contexts)
        assert told == f"n_contexts must be a whole number of at least 1, got {n_contexts!r}"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"scale": "1..5"}, "a scale must be the worst and the best score, such as (1, 5), got '1..5'"),
        ({"scale": 5}, "a scale must be the worst and the best score, such as (1, 5), got 5"),
        ({"columns": {"reward": "x"}}, 'columns must be a LogColumns, such as LogColumns(reward="rating"), got {'),
    ],
)
def test_a_log_is_read_by_settings_of_their_kinds(tmp_path, settings, says):
    (tmp_path / "calls.csv").write_text("prompt,model,reward,cost_usd\nhi,small,1,0.1\n")
    assert refused(RoutingLog.read, tmp_path / "calls.csv", **settings).startswith(says)
    assert RoutingLog.read(tmp_path / "calls.csv", scale=[1, 5]).scale == (1, 5)


@pytest.mark.parametrize("path", ["", None, [], pl.DataFrame({"prompt": ["hi"]})])
def test_a_log_is_named_by_a_path(path):
    assert "a log must be named by the path of a file, a folder or a pattern" in refused(RoutingLog.read, path)


def test_a_log_is_named_by_any_list_of_paths(tmp_path):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("prompt,model,reward,cost_usd\nhi,small,1,0.1\n")
    names = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    for paths in (tmp_path.glob("*.csv"), set(names), map(str, names), np.array(names), pl.Series(names), [names]):
        assert len(RoutingLog.read(paths).paths()) == 2
    assert RoutingLog.read(tmp_path / "a.csv", scale=np.array([0, 5])).scale == (0, 5)


def test_models_are_read_once():
    assert WiseRouter(model for model in MODELS).pool.names == ("small", "large")
    fitted = WiseRouter.fit(LOG, n_contexts=1, models=(model for model in MODELS))
    assert {model.price for model in fitted.pool.models} == {model.price for model in MODELS}


def test_a_budget_that_is_right_starts():
    router = WiseRouter(MODELS, seed=np.int64(7))
    router.start(Budget(1.0, 10))
    assert router.decide("hi").model in {"small", "large"}


def test_an_observer_has_its_methods_and_a_listener_is_a_function():
    router = WiseRouter(MODELS)
    assert "decision, event and note" in refused(router.report_to, object())
    for follow in (router.follow, router.follow_orders):
        assert refused(follow, "scopes").startswith("listener must be a function")


@pytest.mark.parametrize("alias", ["", None, 7, ["call", ""], ["call", 7]])
def test_an_alias_is_a_name(alias):
    router = WiseRouter(MODELS)
    router.start(Budget(1.0, 10))
    decision = router.decide("hi")
    assert refused(router.alias, alias, decision).startswith("alias must be")
    router.alias(["call", "answer"], decision)
    assert router.decision("answer") == router.decision("call")


def test_limits_are_limits_and_shares_have_names():
    router = WiseRouter(MODELS)
    for limits in ({"latency_s": Limit(mean=2.0)}, Limit(mean=2.0)):
        told = refused(router.set_limits, limits)
        assert told == f'limits must be a Limits, such as Limits({{"latency_s": Limit(mean=2.0)}}), got {limits!r}'
    for name in ("resources", "max_share", "min_share"):
        assert refused(Limits, **{name: 0.3}) == f"Limits.{name} must be a mapping of names to numbers, got 0.3"


def test_rates_are_of_models_and_of_resources():
    router, rate = WiseRouter(MODELS), UseRate(call=1.0)
    assert refused(router.set_use_rates, [rate]).startswith("rates must be a mapping of names to numbers, got [")
    told = refused(router.set_use_rates, {"small": rate})
    assert told == f"rates of 'small' must be a mapping of names to numbers, got {rate!r}"
    told = refused(router.set_use_rates, {"small": {"energy_wh": 0.1}})
    assert told == "a rate must be a UseRate, such as UseRate(output_token=0.0004), got 0.1"


def test_a_model_conversations_and_the_router_of_an_adapter_are_of_their_kind():
    router = WiseRouter(MODELS)
    assert refused(router.update_model, "small").startswith("model must be a Model, such as Model('small', Price(")
    told = """conversations must be a Conversations, such as Conversations("run"), got 'run'"""
    assert refused(router.keep_conversations, "run") == refused(WiseRouter, MODELS, conversations="run") == told
    told = refused(prepare_router, "support.wise", {}, Budget(1.0, 10))
    assert told == "router must be a WiseRouter, such as WiseRouter.load('support.wise'), got 'support.wise'"


def test_a_prior_quality_that_is_out_of_range_is_named():
    assert refused(Model, "small", score=55) == "Model.score must lie in [0, 1], got 55: rescale the score"


def test_routers_to_merge_are_a_list_of_files_that_are_there(tmp_path):
    told = refused(WiseRouter.merge, "support.wise")
    assert told.startswith("routers must be a list of routers or artifacts, got 'support.wise' alone")
    with pytest.raises(MissingArtifact, match="no such file: correct the path"):
        WiseRouter.merge([tmp_path / "a.wise", tmp_path / "b.wise"])
