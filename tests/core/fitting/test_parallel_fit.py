"""A fit over several workers has the bits of a fit in one process."""

import os
import shutil
import signal
from importlib.util import find_spec
from pathlib import Path

import joblib
import numpy as np
import polars as pl
import pytest

from support.long_logs import write_long_log
from wiserouter import Budget, RoutingLog, WiseRouter
from wiserouter.errors import LogError
from wiserouter.fitting import part_counts
from wiserouter.fitting.log import log_files
from wiserouter.fitting.query_sample import QuerySample
from wiserouter.parallel.backends import parallel_backend


def letters(prompts):
    """Return a tiny embedding: counts of some letters."""
    return [[1.0, *(prompt.count(one) for one in "aeiou")] for prompt in prompts]


def wide(folder: Path, *, files: int, rows: int = 40) -> pl.DataFrame:
    """Write a wide log in several files, one folder a day, and return it as one frame."""
    rng = np.random.default_rng(0)
    frames = []
    for day in range(files):
        prompts = [" ".join(rng.choice(["sort", "list", "poem", "sea", "proof"], size=4)) for _ in range(rows)]
        columns = {f"{kind}|{name}": rng.random(rows) for kind in ("score", "cost") for name in ("small", "large")}
        frames.append(pl.DataFrame({"prompt": prompts, **columns}))
        path = folder / f"day={day}" / "calls.parquet"
        path.parent.mkdir(parents=True)
        frames[-1].write_parquet(path)
    return pl.concat(frames)


def same(one: WiseRouter, other: WiseRouter) -> bool:
    """Whether two routers have the same bits."""
    arrays = [
        {**r.estimates.arrays(), "centroids": r.contexts.centroids, "freq": r.contexts.freq} for r in (one, other)
    ]
    return all(np.array_equal(array, arrays[1][name]) for name, array in arrays[0].items())


def test_any_number_of_workers_gives_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(log_files, "PART_ROWS", 50)
    wide(tmp_path, files=3)
    alone = WiseRouter.fit(tmp_path, n_contexts=3, estimator="ridge")
    with joblib.parallel_config(backend="threading", n_jobs=3):
        together = WiseRouter.fit(tmp_path, n_contexts=3, estimator="ridge")
    assert same(alone, together)
    assert alone.save(tmp_path / "a.wise") == together.save(tmp_path / "b.wise")


@pytest.mark.slow
def test_a_router_fitted_by_other_processes_learns(tmp_path):
    wide(tmp_path, files=2)
    router = WiseRouter.fit(tmp_path, encoder=letters, n_contexts=2, n_jobs=2)
    before = router.estimates.calls.sum()
    router.start(Budget(amount_usd=100.0, horizon=10))
    router.charge(router.decide("sort a list"), cost_usd=0.2)
    assert router.estimates.calls.sum() == before + 1


def test_files_of_a_folder_are_one_log(tmp_path):
    frame = wide(tmp_path / "log", files=3)
    whole, parts = (
        WiseRouter.fit(frame, encoder=letters, n_contexts=3),
        WiseRouter.fit(tmp_path / "log", encoder=letters, n_contexts=3),
    )
    assert parts.contexts.n_queries == whole.contexts.n_queries == 120
    assert parts.contexts.centroids == pytest.approx(whole.contexts.centroids)
    assert parts.estimates.cost == pytest.approx(whole.estimates.cost, rel=1e-12)
    assert [one.prompts for one in parts.contexts.summaries] == [one.prompts for one in whole.contexts.summaries]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_text_files_are_parts_of_a_log_by_pattern(tmp_path, ending):
    frame = wide(tmp_path / "log", files=2)
    for i, half in enumerate(frame.iter_slices(30)):
        half.write_csv(tmp_path / f"{i}.csv") if ending == "csv" else half.write_ndjson(tmp_path / f"{i}.jsonl")
    log = RoutingLog.read(str(tmp_path / f"*.{ending}"))
    assert [query for part in log.parts() for batch in part.batches() for query in batch.query.tolist()] == list(
        range(80)
    )
    assert log.table().prompts == frame["prompt"].to_list()
    assert log.table().cost_usd == pytest.approx(frame.select("cost|small", "cost|large").to_numpy())


def test_folders_are_columns(tmp_path):
    wide(tmp_path, files=2)
    log = RoutingLog.read(tmp_path)
    assert log.columns()[-1] == "day"
    long = tmp_path / "long" / "model=small"
    long.mkdir(parents=True)
    pl.DataFrame({"prompt": ["hi"], "cost_usd": [0.1]}).write_csv(long / "calls.csv")
    assert RoutingLog.read(tmp_path / "long").models == ("small",)


def test_an_error_names_the_file_and_its_row(tmp_path):
    wide(tmp_path, files=2)
    bad = pl.read_parquet(tmp_path / "day=1" / "calls.parquet").with_columns(
        pl.when(pl.int_range(pl.len()) == 7).then(-1.0).otherwise(pl.col("cost|small")).alias("cost|small")
    )
    bad.write_parquet(tmp_path / "day=1" / "calls.parquet")
    with pytest.raises(LogError, match=r"day=1/calls.parquet, row 8, column 'cost\|small'"):
        WiseRouter.fit(tmp_path, encoder=letters, n_contexts=2)


def test_a_folder_without_a_log_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(LogError, match="no file here is a log"):
        RoutingLog.read(tmp_path)


def test_a_url_is_read_by_fsspec(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    frame = wide(tmp_path, files=2)
    memory = fsspec.filesystem("memory")
    for path in sorted(tmp_path.rglob("*.parquet")):
        memory.pipe_file(f"/bucket/{path.relative_to(tmp_path)}", path.read_bytes())
    for url in ("memory://bucket", "memory://bucket/*/calls.parquet"):
        log = RoutingLog.read(url)
        assert log.table().prompts == frame["prompt"].to_list()
        assert log.columns()[-1] == "day"
    [one, other] = __import__("pickle").loads(__import__("pickle").dumps(log.parts()))
    assert [len(part.table().prompts) for part in (one, other)] == [40, 40]
    with pytest.raises(FileNotFoundError, match="no such file"):
        RoutingLog.read("memory://nowhere")


def test_a_sample_of_parts_is_that_of_the_whole():
    log = RoutingLog.from_arrays([f"p{i % 70}" for i in range(100)], np.ones((100, 1)), np.ones((100, 1)), ["small"])
    batches = list(log.batches(rows=10))
    for most_chars in (10**6, 40):
        whole = QuerySample(12, np.random.default_rng(3), most_chars)
        merged = whole.empty()
        for batch in batches:
            whole.add(batch)
            part = merged.empty()
            part.add(batch)
            merged.merge(part)
        assert merged.prompts == whole.prompts


# --- engines


ROWS, FILES = 200_000, 8
"""Of the log that engines fit."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of calls in 8 files."""
    folder = tmp_path_factory.mktemp("calls")
    for i in range(FILES):
        write_long_log(folder / f"{i}.parquet", ROWS // FILES, words=6, seed=i)
    return folder


@pytest.fixture(scope="module")
def alone(folder):
    """Return the hash of the artifact that one process fits."""
    return WiseRouter.fit(folder, n_contexts=4).save(folder.parent / "alone.wise")


def hash_of(folder: Path) -> str:
    return WiseRouter.fit(folder, n_contexts=4, n_jobs=2).save(folder.parent / "together.wise")


def kill_first(marker: Path):
    """Return a task of the fit that ends the first worker in which it runs."""
    count = part_counts.count_part

    def counts(terms, part):
        if not marker.exists():
            marker.write_text("killed")
            os.kill(os.getpid(), signal.SIGKILL)
        return count(terms, part)

    return counts


@pytest.fixture
def one_is_killed(monkeypatch, tmp_path):
    """Let one worker be killed in the middle."""
    monkeypatch.setattr("wiserouter.fitting.fit.count_part", kill_first(tmp_path / "killed"))
    yield
    assert (tmp_path / "killed").exists()


@pytest.mark.slow
def test_processes_give_the_hash_of_one(folder, alone):
    assert hash_of(folder) == alone


@pytest.mark.slow
@pytest.mark.usefixtures("one_is_killed")
def test_processes_give_the_hash_of_one_where_one_is_killed(folder, alone):
    assert hash_of(folder) == alone


@pytest.mark.slow
@pytest.mark.usefixtures("one_is_killed")
def test_dask_gives_the_hash_of_one_process_also_where_a_worker_is_killed(folder, alone):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        parallel_backend("dask", cluster.scheduler_address),
    ):
        assert hash_of(folder) == alone


@pytest.mark.slow
@pytest.mark.usefixtures("one_is_killed")
def test_ray_gives_the_hash_of_one_process_also_where_a_worker_is_killed(folder, alone):
    if find_spec("ray") is None:  # not imported here: the backend does so after it has set what Ray reads then
        pytest.skip("Ray is not installed")
    with parallel_backend("ray"):
        assert hash_of(folder) == alone


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("joblibspark") is None, reason="the development group leaves Spark out; `uv run poe spark` has it"
)
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
@pytest.mark.usefixtures("one_is_killed")
@pytest.mark.filterwarnings("ignore")  # of joblibspark, on Spark's local mode
def test_spark_gives_the_hash_of_one_process_also_where_a_worker_is_killed(folder, alone):
    with parallel_backend("spark"):
        assert hash_of(folder) == alone
