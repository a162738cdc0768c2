import tracemalloc

import numpy as np
import polars as pl
import pytest

from support.long_logs import write_long_log
from wiserouter import Contexts, Model, Optimistic, RoutingLog, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.fitting import fit as fitting
from wiserouter.fitting import fit_residuals, query_counts
from wiserouter.fitting.fit import fit_log, sample_queries
from wiserouter.fitting.log import log_files, reader
from wiserouter.prompts.encoders import open_encoder


def letters(texts):
    return [[text.count("a"), text.count("b")] for text in texts]


def silent(step, rows):
    pass


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    prompts = [("a" if i % 4 else "b") * 5 for i in range(n)]
    return prompts, rng.random((n, 2)), rng.random((n, 2))


def fitted(log, **options):
    return fit_log(log, open_encoder(letters), 2, seed=0, progress=options.get("progress", silent))


def test_estimates_are_sums_per_cluster():
    prompts, reward, cost = table(40)
    result = fitted(RoutingLog.from_arrays(prompts, reward, cost, ("m", "n")))
    mine = np.array([p[0] == "a" for p in prompts])
    j = int(result.contexts.freq.argmax())
    assert result.contexts.freq[j] == 0.75
    assert result.estimates.reward[j] == pytest.approx(reward[mine].sum(axis=0))
    assert result.estimates.cost_sq[1 - j] == pytest.approx((cost[~mine] ** 2).sum(axis=0))
    assert result.max_cost_usd == pytest.approx(cost.max(axis=0))
    assert result.contexts.n_queries == 40


def test_a_query_counts_once_however_many_models_answered_it(tmp_path):
    rows = [("q0", "aaa", m, 0.5, 0.1) for m in "mnop"] + [("q1", "bbb", "m", 0.5, 0.1)] * 3
    frame = pl.DataFrame(rows, schema=["query_id", "prompt", "model", "reward", "cost_usd"], orient="row")
    frame.write_parquet(tmp_path / "log.parquet")
    result = fitted(RoutingLog.read(tmp_path / "log.parquet"))
    assert result.contexts.freq.tolist() == [0.5, 0.5]
    assert result.contexts.n_queries == 2
    assert result.estimates.calls.sum() == 7


def test_a_file_is_as_good_as_a_log(tmp_path):
    frame = pl.DataFrame({"prompt": ["aaa", "bbb"], "score|m": [0.5, 1.0], "cost|m": [0.1, 0.2]})
    frame.write_csv(tmp_path / "log.csv")
    router = WiseRouter.fit(tmp_path / "log.csv", encoder=letters, n_contexts=2)
    assert router.pool.names == ("m",)


def test_contexts_of_a_router_that_has_fitted_none_are_refused():
    log = RoutingLog.from_arrays(["a b", "c d"], [[0.0], [1.0]], [[0.1], [0.2]], ("m",))
    for contexts in (Contexts.single(), Contexts([[1.0, 0.0, 0.0]], [1.0])):
        with pytest.raises(InvalidInput, match="that were fitted on a log"):
            WiseRouter.fit(log, encoder=letters, contexts=contexts)


def test_batches_do_not_matter(monkeypatch):
    prompts, reward, cost = table(50)
    log = RoutingLog.from_arrays(prompts, reward, cost, ("m", "n"))
    whole = fitted(log)
    batches = RoutingLog.batches
    monkeypatch.setattr(reader.RoutingLog, "batches", lambda self: batches(self, rows=7))
    parts = fitted(log)
    assert np.array_equal(parts.contexts.centroids, whole.contexts.centroids)
    for name, array in whole.estimates.arrays().items():
        assert parts.estimates.arrays()[name] == pytest.approx(array), name


def test_the_sample_is_uniform_and_seeded(monkeypatch):
    monkeypatch.setattr(fitting, "SAMPLE_QUERIES", 10)
    ones = np.full((40, 1), 0.5)
    log = RoutingLog.from_arrays([str(i) for i in range(40)], ones, ones, ("m",))
    drawn = np.zeros(40)
    for seed in range(400):
        sample = sample_queries(log, np.random.default_rng(seed), silent).prompts
        assert len(set(sample)) == 10
        drawn[[int(prompt) for prompt in sample]] += 1
    assert drawn / 400 == pytest.approx(np.full(40, 0.25), abs=0.09)  # 4 standard deviations
    assert sample_queries(log, np.random.default_rng(399), silent).prompts == sample


def test_progress_is_reported():
    done = {}
    prompts, reward, cost = table(30)
    log = RoutingLog.from_arrays(prompts, reward, cost, ("m", "n"))
    fitted(log, progress=lambda step, rows: done.__setitem__(step, done.get(step, 0) + rows))
    assert done == {"reading": 30, "clustering": 0, "estimating": 30, "fitting the regression": 0}


def test_a_model_without_any_reward_is_left_to_its_prior():
    prompts, reward, cost = table(40)
    reward[:, 1] = np.nan
    log = RoutingLog.from_arrays(prompts, reward, cost, ("m", "n"))
    assert isinstance(WiseRouter.fit(log, n_contexts=2).policy, Optimistic)
    for score, better in ((0.0, "m"), (1.0, "n")):
        router = WiseRouter.fit(log, n_contexts=1, models=[Model("n", score=score, score_weight=1e3)])
        at_means = router.plan.reward[0]
        assert router.pool.names[int(np.argmax(at_means))] == better
    with pytest.raises(InvalidInput, match="at least one reward of every model, got none of n"):
        WiseRouter.fit(log, n_contexts=2, estimator="ridge")


def test_a_log_of_costs_alone_is_welcome():
    prompts, reward, cost = table(40)
    log = RoutingLog.from_arrays(prompts, np.full_like(reward, np.nan), cost, ("m", "n"))
    router = WiseRouter.fit(log, n_contexts=2)
    assert router.estimates.labels.sum() == 0
    assert router.estimates.cost.sum(axis=0) == pytest.approx(cost.sum(axis=0))
    assert router.plan.ceiling_usd > 0


def test_fewer_prompts_than_contexts_lower_the_contexts(caplog):
    prompts, reward, cost = table(40)
    router = WiseRouter.fit(RoutingLog.from_arrays(prompts[:3], reward[:3], cost[:3], ("m", "n")), n_contexts=16)
    assert router.contexts.n_contexts <= 3
    assert f"contexts: {router.contexts.n_contexts} in place of 16" in caplog.text


def test_rows_of_a_query_need_not_be_neighbours(tmp_path):
    rows = [(f"q{i}", ("a" if i % 4 else "b") * 5, m, 0.5, 0.1) for m in "mn" for i in range(40)]
    frame = pl.DataFrame(rows, schema=["query_id", "prompt", "model", "reward", "cost_usd"], orient="row")
    result = fitted(RoutingLog.from_frame(frame))
    assert sorted(result.contexts.freq) == [0.25, 0.75]
    assert result.contexts.n_queries == 40
    assert all(len(set(summary.prompts)) == 5 for summary in result.contexts.summaries)


def test_equal_prompts_are_encoded_once():
    calls = []

    def encode(texts):
        calls.append(list(texts))
        return letters(texts)

    frame = pl.DataFrame({"prompt": ["a", "b", "a"], "model": ["m"] * 3, "reward": [0.5] * 3, "cost_usd": [0.1] * 3})
    result = fit_log(RoutingLog.from_frame(frame), open_encoder(encode), 2, seed=0, progress=silent)
    assert calls[-1] == ["a", "b"]
    assert sorted(result.estimates.calls[:, 0]) == [1, 2]


def test_given_contexts_are_kept_and_counted():
    prompts, reward, cost = table(40)
    first = fitted(RoutingLog.from_arrays(prompts, reward, cost, ("m", "n")))
    steps = set()
    other = RoutingLog.from_arrays(["bbbbb"] * 3, reward[:3], cost[:3], ("m", "n"))
    result = fit_log(
        other, first.encoder, 2, seed=0, progress=lambda step, rows: steps.add(step), contexts=first.contexts
    )
    assert steps == {"estimating"}
    assert np.array_equal(result.contexts.centroids, first.contexts.centroids)
    assert (sorted(result.contexts.freq), result.contexts.n_queries) == ([0.0, 1.0], 3)
    assert result.contexts.summaries == first.contexts.summaries


def test_given_contexts_need_their_encoder_and_one_cost():
    prompts, reward, cost = table(40)
    log = RoutingLog.from_arrays(prompts, reward, cost, ("m", "n"))
    first = fitted(log)
    with pytest.raises(InvalidInput, match=r"pass encoder=router\.encoder"):
        WiseRouter.fit(log, contexts=first.contexts)
    cost[:, 0] = reward[:, 0] = np.nan
    part = WiseRouter.fit(
        RoutingLog.from_arrays(prompts, reward, cost, ("m", "n")), encoder=first.encoder, contexts=first.contexts
    )
    assert [model.max_cost_usd for model in part.pool.models] == [None, cost[:, 1].max()]
    cost[:, 1] = np.nan
    with pytest.raises(InvalidInput, match="at least one cost of every model, got none of m, n"):
        WiseRouter.fit(
            RoutingLog.from_arrays(prompts, reward, cost, ("m", "n")), encoder=first.encoder, contexts=first.contexts
        )


def test_memory_does_not_grow_with_the_rows(tmp_path, monkeypatch):
    """Python's and numpy's own memory; tests/benchmarks/test_fit_memory.py measures that of the process."""
    monkeypatch.setattr(fitting, "SAMPLE_QUERIES", 500)
    monkeypatch.setattr(fit_residuals, "RESIDUAL_QUERIES", 200)
    monkeypatch.setattr(query_counts, "_IN_MEMORY", 1_000)
    monkeypatch.setattr(log_files, "PART_ROWS", 2_000)
    batches = RoutingLog.batches
    monkeypatch.setattr(reader.RoutingLog, "batches", lambda self: batches(self, rows=1_000))

    def fit(rows):
        write_long_log(tmp_path / "log.parquet", rows, words=8)
        log = RoutingLog.read(tmp_path / "log.parquet")
        tracemalloc.reset_peak()
        fit_log(log, open_encoder(letters), 2, seed=0, progress=silent, estimator="ridge")
        return tracemalloc.get_traced_memory()[1]

    fit(1_000)  # loads what is loaded late
    tracemalloc.start()
    try:
        few, many = fit(10_000), fit(25_000)
    finally:
        tracemalloc.stop()
    assert many < 1.15 * few + 100_000, (few, many)  # 15,000 ids and their numbers would be 2 MB
