"""Values of a wrong kind are refused where they are given, by their name, with an example."""

import numpy as np
import polars as pl
import pytest

from wiserouter import (
    Budget,
    Contexts,
    Growing,
    LabelBudget,
    Model,
    Optimistic,
    Price,
    RoutingLog,
    Shadow,
    WiseRouter,
)
from wiserouter.errors import InvalidInput

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
        ("labels", 0.1, "LabelBudget(share=0.1)"),
        ("explore", 0.05, "ExploreShare(0.05)"),
    ],
)
def test_a_setting_of_a_router_is_of_its_kind(name, value, example):
    told = refused(WiseRouter, MODELS, **{name: value})
    assert told.startswith(f"{name} must be a ")
    assert told.endswith(f", such as {example}, got {value!r}")


def test_what_is_set_later_is_of_its_kind_too():
    router = WiseRouter(MODELS)
    for name, value in (("labels", 0.1), ("explore", 0.05), ("shadow", True)):
        assert refused(setattr, router, name, value).startswith(f"{name} must be a ")
        setattr(router, name, None)
    router.labels, router.shadow = LabelBudget(share=0.1), Shadow(share=0.1)
    assert WiseRouter(MODELS, growing=Growing(8)).contexts.n_contexts == 1
    assert WiseRouter(MODELS, contexts=Contexts.single()).contexts.n_contexts == 1


@pytest.mark.parametrize("seed", [-1, 1.5, "7"])
def test_a_seed_is_a_whole_number_of_at_least_0(seed):
    rule = f"seed must be a whole number of at least 0, got {seed!r}"
    assert refused(WiseRouter, MODELS, seed=seed) == rule
    assert refused(WiseRouter.fit, LOG, seed=seed) == rule


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
