"""A log that holds the embeddings of its prompts."""

import joblib
import numpy as np
import polars as pl
import pytest

from wiserouter import Budget, RoutingLog, WiseRouter
from wiserouter.errors import LogError

KINDS = np.repeat(np.eye(3, dtype=np.float32), 20, axis=0) + np.linspace(0, 0.01, 60, dtype=np.float32)[:, None]


def frame(embeddings=KINDS) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    columns = {f"{kind}|{name}": rng.random(60) for kind in ("score", "cost") for name in ("small", "large")}
    return pl.DataFrame({"prompt": [f"p{i}" for i in range(60)], "embedding": list(embeddings), **columns})


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_the_embeddings_of_a_log_are_used_as_they_are(tmp_path, layout):
    table = frame()
    by_prompt = dict(zip(table["prompt"], KINDS, strict=True))
    if layout == "long":
        costs = table.rename({"score|small": "reward", "cost|small": "cost_usd"})
        table = costs.select("prompt", "embedding", "reward", "cost_usd", pl.lit("small").alias("model"))
    table.write_parquet(tmp_path / "log.parquet")
    router = WiseRouter.fit(tmp_path / "log.parquet", encoder="column", n_contexts=3)
    same = WiseRouter.fit(table, encoder=lambda texts: [by_prompt[text] for text in texts], n_contexts=3)
    assert router.contexts.centroids == pytest.approx(same.contexts.centroids)
    assert np.array_equal(router.estimates.cost, same.estimates.cost)
    assert router.encoder is None
    router.save(tmp_path / "a.wise")
    served = WiseRouter.load(tmp_path / "a.wise", encoder=lambda texts: [by_prompt[text] for text in texts])
    served.start(Budget(amount_usd=100.0, horizon=10))
    assert served.decide("p30").context == router.contexts.assign(KINDS[30])
    loaded = WiseRouter.load(tmp_path / "a.wise")
    loaded.start(Budget(amount_usd=100.0, horizon=10))
    assert loaded.decide(embedding=KINDS[30]).context == router.contexts.assign(KINDS[30])


def test_parts_keep_their_embeddings(tmp_path):
    for i, half in enumerate(frame().iter_slices(25)):
        half.write_parquet(tmp_path / f"{i}.parquet")
    alone = WiseRouter.fit(tmp_path, encoder="column", n_contexts=3, estimator="ridge")
    with joblib.parallel_config(backend="threading", n_jobs=2):
        together = WiseRouter.fit(tmp_path, encoder="column", n_contexts=3, estimator="ridge")
    assert np.array_equal(alone.contexts.centroids, together.contexts.centroids)
    assert alone.contexts.centroids.shape == (3, 3)


@pytest.mark.parametrize("bad", [None, [1.0, 2.0], [1.0, float("nan"), 0.0], [1.0, None, 0.0]])
def test_an_embedding_that_is_none_is_refused_by_its_row(bad):
    rows = [list(map(float, row)) for row in KINDS]
    rows[7] = bad
    with pytest.raises(LogError, match=r"row 8, column 'embedding': an embedding must hold 3 finite numbers"):
        WiseRouter.fit(frame(rows), encoder="column", n_contexts=2)


def test_a_log_without_embeddings_is_refused():
    with pytest.raises(LogError, match="needs a column 'embedding'"):
        WiseRouter.fit(frame().drop("embedding"), encoder="column")
    with pytest.raises(LogError, match="an embedding must be a list of numbers"):
        WiseRouter.fit(frame().with_columns(pl.lit("text").alias("embedding")), encoder="column")


def test_other_fits_do_not_read_the_column():
    log = RoutingLog.from_frame(frame())
    assert next(log.batches()).embeddings is None
    assert next(log.embedded().batches()).embeddings.tolist() == KINDS.tolist()
