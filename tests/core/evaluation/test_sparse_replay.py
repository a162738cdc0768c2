"""Replays of logs in which a query has the answers of some models only."""

import numpy as np
import pytest

from wiserouter import Model, Price, RoutingLog, WiseRouter
from wiserouter.errors import InvalidInput, LogError, ThinOverlap
from wiserouter.evaluation.datasets.synthetic import make_table
from wiserouter.evaluation.sparse_replay import estimate, judged, judged_halves, queries_with_calls
from wiserouter.evaluation.table import Table, random_halves

NAN = float("nan")


def thinned(table, rng, share=(0.25, 0.25, 0.25, 0.25)):
    """Return the table with one answer per query, of a model drawn with the given probabilities."""
    drawn = rng.choice(len(table.models), size=len(table.prompts), p=share)
    kept = np.arange(len(table.models)) == drawn[:, np.newaxis]
    return table._replace(reward=np.where(kept, table.reward, NAN), cost_usd=np.where(kept, table.cost_usd, NAN))


def test_intervals_hold_the_outcome_of_the_plan():
    rng, held = np.random.default_rng(0), {"reward": [], "cost_usd": []}
    for seed in range(20):
        table = make_table(2_000, rng)
        sparse = thinned(table, rng)
        train, test = random_halves(2_000, seed)
        router = WiseRouter.fit(RoutingLog.from_arrays(*sparse.rows(train)), n_contexts=4, seed=seed)
        rate_usd = 0.5 * (router.plan.floor_usd + router.plan.ceiling_usd)
        run = estimate([judged(router, sparse.rows(test))], rate_usd * len(test), seed)
        context = router.contexts.assign_many(router.encoder.encode_many(table.rows(test).prompts))
        mix = router.plan.mix(rate_usd)[context]
        for name, results in held.items():
            truth = float((mix * getattr(table, name)[test]).sum(axis=1).mean())
            found = run.targets["wiserouter"][name].mean
            results.append(found.low <= truth <= found.high)
    assert np.mean(held["reward"]) >= 0.9
    assert np.mean(held["cost_usd"]) >= 0.9


def test_each_half_is_judged_by_a_router_that_learned_from_the_other():
    sparse = thinned(make_table(800, np.random.default_rng(1)), np.random.default_rng(2))
    parts = judged_halves(sparse, seed=3, n_contexts=2)
    halves = [sparse.rows(half) for half in random_halves(800, 3)]
    for part, learned, judge in zip(parts, halves, halves[::-1], strict=True):
        router = WiseRouter.fit(RoutingLog.from_arrays(*learned), n_contexts=2, seed=3)
        np.testing.assert_allclose(part.plan.cost_usd, router.plan.cost_usd)
        np.testing.assert_array_equal(part.calls.reward, judge.reward)
    run = estimate(parts, 800 * 1e-3, 3)
    assert (run.queries, run.seed) == (800, 3)
    assert sum(run.models.values()) == pytest.approx(1.0)
    assert run.as_dict()["naive"].keys() == {"always-cheapest", "always-best", "as-logged"}


def test_of_a_complete_log_the_estimate_is_the_mean():
    full = make_table(500, np.random.default_rng(0))
    part = judged(WiseRouter.fit(RoutingLog.from_arrays(*full), n_contexts=4), full)
    run = estimate([part], 500 * part.plan.ceiling_usd * 0.4)
    mix = part.plan.mix(part.plan.ceiling_usd * 0.4)[part.context]
    for name in ("reward", "cost_usd"):
        known = getattr(full, name)
        truth = {"wiserouter": (mix * known).sum(axis=1).mean(), "as-logged": known.mean()}
        for target, mean in truth.items():
            assert run.targets[target][name].mean.mean == pytest.approx(mean)


def test_an_estimate_weights_the_means_of_each_context_and_model():
    rng = np.random.default_rng(0)
    sparse = thinned(make_table(1_000, rng), rng)
    part = judged(WiseRouter.fit(RoutingLog.from_arrays(*sparse), n_contexts=1), sparse)
    run = estimate([part], 1_000 * part.plan.ceiling_usd * 0.5)
    means = np.nanmean(sparse.reward, axis=0)
    shares = np.array([run.models[name] for name in sparse.models])
    assert run.targets["wiserouter"]["reward"].mean.mean == pytest.approx(shares @ means)


def test_a_log_that_shows_too_little_of_a_plan_says_so():
    sparse = thinned(make_table(400, np.random.default_rng(0)), np.random.default_rng(0), (0.01, 0.97, 0.01, 0.01))
    run = estimate(judged_halves(sparse, seed=0, n_contexts=1), 400.0, 0)
    refusal = run.targets["always-cheapest"]["reward"]
    assert isinstance(refusal, ThinOverlap)
    assert run.as_dict()["naive"]["always-cheapest"]["reward"] == {"refused": str(refusal)}


def test_calls_without_scores_show_costs():
    sparse = thinned(make_table(800, np.random.default_rng(0)), np.random.default_rng(0))
    run = estimate(judged_halves(sparse._replace(reward=np.full((800, 4), NAN)), seed=0, n_contexts=1), 0.8, 0)
    assert run.targets["wiserouter"]["reward"] is None
    assert run.targets.keys() == {"wiserouter", "always-cheapest", "as-logged"}
    assert run.as_dict()["cost_usd"]["worth"] > 100


def test_a_run_of_several_models_shows_none_of_them():
    scores = np.array([[1.0, NAN], [0.5, 0.5], [NAN, NAN]])
    table = Table(["one", "both", "none"], scores, np.full((3, 2), NAN), ("m", "n"))
    assert queries_with_calls(table).prompts == ["one", "both"]
    assert queries_with_calls(table, runs=True).prompts == ["one"]
    with pytest.raises(LogError, match="in runs that one model served, got none"):
        queries_with_calls(table.rows(np.array([1])), runs=True)


def test_what_cannot_be_replayed_is_refused():
    empty = np.full((2, 2), NAN)
    with pytest.raises(LogError, match="calls with a score or a cost, got none"):
        queries_with_calls(Table(["a", "b"], empty, empty, ("m", "n")))
    with pytest.raises(InvalidInput, match="two queries or more, to learn from and to route, got 1"):
        judged_halves(Table(["a"], np.ones((1, 2)), np.ones((1, 2)), ("m", "n")), seed=0)
    sparse = thinned(make_table(400, np.random.default_rng(0)), np.random.default_rng(0))
    with pytest.raises(InvalidInput, match=r"at least .* USD for 400 queries, each to its cheapest model, got 1e-09"):
        estimate(judged_halves(sparse, seed=0, n_contexts=1), 1e-9, 0)
    with pytest.raises(InvalidInput, match="got none of other"):
        judged(WiseRouter([Model("other", Price(1e-6, 1e-6))]), sparse)
    with pytest.raises(InvalidInput, match="has learned nothing yet, so it has no plan"):
        judged(WiseRouter([Model("nano", Price(1e-6, 1e-6))]), sparse)
