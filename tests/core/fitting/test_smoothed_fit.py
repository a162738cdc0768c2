"""The default of a fit: means of contexts that borrow from other models, contexts and a regression."""

import numpy as np
import polars as pl
import pytest

from wiserouter import Budget, Growing, Model, Optimistic, RoutingLog, WiseRouter
from wiserouter.errors import DamagedArtifact
from wiserouter.evaluation.datasets.synthetic import make_table
from wiserouter.fitting import fit_residuals

TABLE = make_table(200, np.random.default_rng(0))


def log(reward=TABLE.reward):
    return RoutingLog.from_arrays(TABLE.prompts, reward, TABLE.cost_usd, TABLE.models)


def fitted(**options):
    return WiseRouter.fit(log(), n_contexts=4, seed=0, **options)


def test_a_fit_of_a_complete_log_is_smoothed_and_counts_as_before():
    smoothed, plain = fitted().estimates, fitted(estimator="means").estimates
    assert smoothed.smoothing is not None
    assert plain.smoothing is None
    for name, sums in plain.arrays().items():
        np.testing.assert_array_equal(smoothed.arrays()[name], sums)
    assert np.abs(smoothed.means().reward - plain.means().reward).max() > 1e-4
    np.testing.assert_array_equal(smoothed.means().cost_usd, plain.means().cost_usd)


def test_the_plan_is_that_of_smoothed_means():
    router = fitted()
    np.testing.assert_array_equal(router.plan.reward, router.estimates.means().reward)


def test_a_log_of_one_answer_per_query_is_smoothed(tmp_path):
    rows = {"prompt": TABLE.prompts, "model": [TABLE.models[i % 4] for i in range(200)]}
    rows |= {"reward": [TABLE.reward[i, i % 4] for i in range(200)], "cost_usd": TABLE.cost_usd[:, 0]}
    pl.DataFrame(rows).write_parquet(tmp_path / "long.parquet")
    truth = TABLE.reward.mean(axis=0)

    def error(estimator):
        router = WiseRouter.fit(tmp_path / "long.parquet", n_contexts=4, estimator=estimator)
        return np.abs(router.contexts.freq @ router.estimates.means().reward - truth).mean()

    assert error("smoothed") < error("means")


def test_a_log_without_scores_has_nothing_to_smooth(tmp_path):
    rows = {"prompt": TABLE.prompts, "model": [TABLE.models[i % 4] for i in range(200)]}
    pl.DataFrame(rows | {"cost_usd": TABLE.cost_usd[:, 0]}).write_parquet(tmp_path / "costs.parquet")
    assert WiseRouter.fit(tmp_path / "costs.parquet", n_contexts=4).estimates.smoothing is None


def test_parts_that_are_to_be_merged_keep_their_means():
    first = fitted()
    part = WiseRouter.fit(log(), encoder=first.encoder, contexts=first.contexts)
    assert part.estimates.smoothing is None
    merged = WiseRouter.merge([first, part]).estimates
    assert merged.smoothing is None
    np.testing.assert_allclose(merged.reward, 2 * part.estimates.reward)


def test_the_regression_of_a_large_log_is_that_of_a_sample(monkeypatch):
    monkeypatch.setattr(fit_residuals, "RESIDUAL_QUERIES", 150)
    taken = []
    by_text = fit_residuals.regression_by_context
    monkeypatch.setattr(
        fit_residuals, "regression_by_context", lambda sample, n: taken.append(len(sample)) or by_text(sample, n)
    )
    estimates = fitted().estimates
    assert taken == [150]
    assert estimates.labels.sum() == 800


def test_auto_is_smoothed_where_it_does_not_tell_queries_apart():
    router = fitted(estimator="auto")
    assert (router.residuals is None) == (router.estimates.smoothing is not None)


def test_an_artifact_keeps_what_smooths_its_rewards(tmp_path):
    router = fitted()
    router.save(tmp_path / "r.wise")
    again = WiseRouter.load(tmp_path / "r.wise")
    np.testing.assert_array_equal(again.estimates.means().reward, router.estimates.means().reward)
    again.start(Budget(1.0, 100))
    again.decide(TABLE.prompts[0])
    again.add_model(Model("new", max_cost_usd=0.01), reward=0.5, cost_usd=0.001)
    again.save(tmp_path / "more.wise")
    means = WiseRouter.load(tmp_path / "more.wise").estimates.means().reward
    np.testing.assert_allclose(means[:, :4], router.estimates.means().reward)


@pytest.mark.parametrize(
    ("name", "change", "rule"),
    [
        ("smoothing.labels", lambda array: -array, "smoothing.labels must hold finite numbers from 0"),
        ("smoothing.reward", lambda array: array * np.nan, "smoothing.reward must hold"),
        ("smoothing.reward", lambda array: array[:1], "smoothing.reward"),
        ("smoothing.labels", lambda _: None, "smoothing.labels"),
    ],
)
def test_damaged_smoothing_is_refused(tmp_path, name, change, rule):
    from wiserouter.artifacts.file import read_artifact, write_artifact

    fitted().save(tmp_path / "r.wise")
    manifest, arrays = read_artifact(tmp_path / "r.wise")
    changed = {key: change(array) if key == name else array for key, array in arrays.items()}
    kept = {key: array for key, array in changed.items() if array is not None}
    write_artifact(tmp_path / "r.wise", manifest, kept, lambda _: None)
    with pytest.raises(DamagedArtifact, match=rule):
        WiseRouter.load(tmp_path / "r.wise")


def test_contexts_that_are_found_again_take_it_along():
    growing = Growing(n_contexts=6, first_after=20, per_context=5, background=False)
    parts = fitted().parts().settings() | {"policy": Optimistic()}
    router = WiseRouter(**parts, growing=growing, seed=0)
    before = router.estimates.smoothing
    router.start(Budget(1.0, 1_000))
    for prompt in TABLE.prompts:
        router.charge(router.decide(prompt), 1e-4)
    after = router.estimates.smoothing
    assert after.reward.shape == router.estimates.shape != before.reward.shape
    np.testing.assert_allclose(after.reward.sum(axis=0), before.reward.sum(axis=0), atol=1e-9)
    np.testing.assert_allclose(after.labels.sum(axis=0), 200.0)
