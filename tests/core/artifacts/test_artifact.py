import json
import os
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter import Budget, EpsilonFirst, Estimates, Model, Price, RoutingLog, Usage, WiseRouter
from wiserouter.artifacts.file import read_artifact, write_artifact
from wiserouter.errors import (
    ArtifactError,
    DamagedArtifact,
    InvalidInput,
    MissingArtifact,
    NewerArtifact,
    NotAnArtifact,
)

PROMPTS = [f"question {i} about {'code' if i % 2 else 'cooking'}" for i in range(40)]


def fitted(**options):
    rng = np.random.default_rng(0)
    log = RoutingLog.from_arrays(PROMPTS, rng.random((40, 2)), rng.random((40, 2)), ("a", "b"))
    return WiseRouter.fit(log, n_contexts=2, models=[Model("a", Price(1e-6, 2e-6), 100)], **options)


@pytest.fixture
def artifact(tmp_path):
    fitted().save(tmp_path / "x.wise")
    return tmp_path / "x.wise"


def rewritten(path, change):
    """Rewrite the manifest of an artifact."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    head = json.loads(members["manifest.json"])
    change(head)
    members["manifest.json"] = json.dumps(head).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)


def test_a_router_comes_back_as_it_was(artifact):
    router, again = fitted(), WiseRouter.load(artifact, seed=0)
    assert again.pool.models == router.pool.models
    assert np.array_equal(again.contexts.centroids, router.contexts.centroids)
    for name, array in router.estimates.arrays().items():
        assert np.array_equal(again.estimates.arrays()[name], array)
    for each in (router, again):
        each.start(Budget(20.0, 40, on_exhausted="cheapest"))
    assert [router.decide(p).model for p in PROMPTS] == [again.decide(p).model for p in PROMPTS]


@pytest.mark.parametrize("estimator", ["means", "ridge"])
def test_costs_by_length_of_an_early_file_are_left_out(estimator, tmp_path, caplog):
    router, path = fitted(estimator=estimator), tmp_path / "x.wise"
    router.save(path)
    manifest, arrays = read_artifact(path)
    manifest.setdefault("finer", {"n_models": 2, "residual": None})
    arrays |= {"finer.length.price": np.ones(2), "finer.length.sums": np.ones((6, 2, 2))}
    arrays |= {"finer.length.usual_tokens": np.array([3.0, np.nan]), "finer.prices.price": np.array([0.0, 1.0])}
    arrays |= {"finer.prices.spend_usd": np.array([2.0, 1.0])}
    write_artifact(path, manifest, arrays)
    again = WiseRouter.load(path, seed=0)
    assert "costs no longer follow the length of a query" in caplog.text
    assert (again.residuals is None) == (estimator == "means")
    again.save(path)
    assert WiseRouter.load(path).estimates.means().cost_usd == pytest.approx(router.estimates.means().cost_usd)


def test_summaries_of_contexts_are_kept(artifact, tmp_path):
    assert WiseRouter.load(artifact).contexts.summaries == fitted().contexts.summaries
    manifest, arrays = read_artifact(artifact)
    del manifest["portraits"]
    write_artifact(tmp_path / "without.wise", manifest, arrays)
    with pytest.raises(DamagedArtifact, match="it lacks 'portraits': fit it again"):
        WiseRouter.load(tmp_path / "without.wise")


def test_equal_routers_give_equal_bytes_and_hashes(tmp_path):
    hashes = {fitted().save(tmp_path / f"{i}.wise") for i in range(2)}
    assert len(hashes) == 1
    assert (tmp_path / "0.wise").read_bytes() == (tmp_path / "1.wise").read_bytes()


def test_policies_and_learning_are_kept(tmp_path):
    policy = EpsilonFirst(10, accounting="paper", confidence_delta=0.1, cost_scale_usd=2.0)
    router = WiseRouter([Model("a"), Model("b")], policy=policy, seed=0)
    router.start(Budget(10.0, 20))
    decision = router.decide("x")
    router.charge(decision, 0.5)
    router.reward(decision, 0.5)
    router.save(tmp_path / "x.wise")
    again = WiseRouter.load(tmp_path / "x.wise")
    assert again.policy.settings() == {
        "length": 10,
        "accounting": "paper",
        "allow_skip": False,
        "confidence_delta": 0.1,
        "cost_scale_usd": 2.0,
    }
    assert again.estimates.n_invoked == 1


def test_an_encoder_of_ones_own_must_be_handed_in_again(tmp_path):
    def encode(texts):
        return np.array([[len(text), text.count("o")] for text in texts], dtype=np.float32)

    fitted(encoder=encode).save(tmp_path / "x.wise")
    with pytest.raises(ArtifactError, match=r"load\(\.\.\., encoder=\.\.\.\)"):
        WiseRouter.load(tmp_path / "x.wise")
    assert WiseRouter.load(tmp_path / "x.wise", encoder=encode).encoder.spec == "custom"


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_file_is_refused(artifact, keep):
    data = artifact.read_bytes()
    artifact.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(DamagedArtifact, match="truncated or damaged"):
        WiseRouter.load(artifact)


def test_any_changed_byte_is_refused_or_harmless(artifact):
    data, manifest = artifact.read_bytes(), read_artifact(artifact)[0]

    @settings(max_examples=300, deadline=None)
    @given(st.integers(0, len(data) - 1), st.integers(1, 255))
    def check(position, flip):
        changed = bytearray(data)
        changed[position] ^= flip
        artifact.write_bytes(changed)
        try:
            again, _ = read_artifact(artifact)
        except ArtifactError:
            return
        assert again == manifest  # a byte of the zip's own bookkeeping, such as a date

    check()


def test_a_newer_format_is_refused(artifact):
    rewritten(artifact, lambda head: head.update(version=99))
    with pytest.raises(NewerArtifact, match=r"format 99.*upgrade"):
        WiseRouter.load(artifact)


def test_a_changed_manifest_is_refused(artifact):
    rewritten(artifact, lambda head: head["content"]["models"][0].update(name="evil"))
    with pytest.raises(DamagedArtifact, match="hash"):
        WiseRouter.load(artifact)


def test_other_files_are_refused(tmp_path):
    text, archive = tmp_path / "log.csv", tmp_path / "other.zip"
    text.write_text("prompt,model\n")
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("readme.txt", "hello")
    for path in (text, archive):
        with pytest.raises(NotAnArtifact, match="not a WISERouter artifact"):
            WiseRouter.load(path)


def test_a_missing_file_is_one_line_with_a_remedy(tmp_path):
    missing = tmp_path / "missing.wise"
    with pytest.raises(MissingArtifact) as refused:
        WiseRouter.load(missing)
    assert isinstance(refused.value, FileNotFoundError)
    assert str(refused.value) == f"{missing}: no such file: correct the path, or make one with `wiserouter fit`"


def test_a_folder_is_no_artifact(tmp_path):
    with pytest.raises(NotAnArtifact, match="cannot be read"):
        WiseRouter.load(tmp_path)


def test_only_an_artifact_is_replaced(artifact, tmp_path):
    notes = tmp_path / "notes.md"
    notes.write_text("mine")
    router = WiseRouter.load(artifact)
    with pytest.raises(InvalidInput, match=r"notes\.md is there and no artifact: name another file, or delete it"):
        router.save(notes)
    assert notes.read_text() == "mine"
    notes.write_text("")
    router.save(notes)
    router.save(notes)


def test_a_missing_folder_is_named_with_the_remedy(artifact, tmp_path):
    with pytest.raises(FileNotFoundError, match="none: no such folder: make it, or name another one"):
        WiseRouter.load(artifact).save(tmp_path / "none" / "support.wise")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a pipe that is a file")
def test_a_pipe_is_not_replaced(artifact, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="pipe must be a regular file"):
        WiseRouter.load(artifact).save(tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


def test_an_artifact_that_lacks_a_part_is_refused(tmp_path):
    write_artifact(tmp_path / "x.wise", {"models": [], "portraits": []}, {})
    with pytest.raises(DamagedArtifact, match=r"contexts\.centroids"):
        WiseRouter.load(tmp_path / "x.wise")


def test_no_pickle_is_ever_written_or_read(tmp_path):
    with pytest.raises(ValueError, match="allow_pickle"):
        write_artifact(tmp_path / "x.wise", {}, {"evil": np.array([object()])})
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_an_earlier_version_lacks_the_times_of_scores(tmp_path):
    estimates = Estimates(1, 2)
    estimates.add_table(np.zeros(2, dtype=np.int64), [[0.2, 0.9]] * 2, [[1.0, 3.0]] * 2)
    router = WiseRouter([Model("a", Price(1e-6, 2e-6)), Model("b", Price(1e-6, 2e-6))], estimates=estimates)
    router.save(tmp_path / "a.wise")
    manifest, arrays = read_artifact(tmp_path / "a.wise")
    former = {name: array for name, array in arrays.items() if name not in ("estimates.scored", "estimates.delay_s")}
    assert len(former) == len(arrays) - 2
    write_artifact(tmp_path / "b.wise", manifest, former)
    means = WiseRouter.load(tmp_path / "b.wise").parts().estimates.means()
    np.testing.assert_array_equal(means.reward, router.parts().estimates.means().reward)


def cut_in_price():
    """Return a router that has learned, after the price of its best model was cut."""
    models = [Model("a", Price(1e-6, 1e-6)), Model("b", Price(5e-6, 5e-6)), Model("c", Price(5e-5, 5e-5))]
    router = WiseRouter(models, growing=None, watch=None, seed=1)
    router.start(Budget(10.0, horizon=5_000))
    for i in range(120):
        decision = router.decide("x", eligible=["a", "b"] if i % 30 else None)
        router.charge(decision, usage=Usage(50, 200))
        router.reward(decision, {"a": 0.3, "b": 0.55, "c": 0.8}[decision.model])
    router.update_model(Model("c", Price(1e-6, 1e-6)))
    return router


def test_an_earlier_price_cut_does_not_lower_an_estimate_after_loading_or_merging(tmp_path):
    router = cut_in_price()
    reward = router.plan.reward
    router.save(tmp_path / "cut.wise")
    loaded = WiseRouter.load(tmp_path / "cut.wise", seed=1)
    np.testing.assert_allclose(loaded.plan.reward, reward)
    loaded.save(tmp_path / "again.wise")
    np.testing.assert_allclose(WiseRouter.load(tmp_path / "again.wise", seed=1).plan.reward, reward)
    with_new = WiseRouter(loaded.pool.models, growing=None, watch=None).parts().policy.first_prices
    assert with_new["c"] == Price(1e-6, 1e-6)
    for order in ([tmp_path / "cut.wise", router], [router, tmp_path / "cut.wise"]):
        assert WiseRouter.merge(order).policy.first_prices["c"] == Price(5e-5, 5e-5)


@pytest.mark.parametrize("first", [{"d": {"input": 1e-6, "output": 1e-6}}, {"c": 1.0}, []])
def test_damaged_first_prices_are_refused(tmp_path, first):
    cut_in_price().save(tmp_path / "cut.wise")
    manifest, arrays = read_artifact(tmp_path / "cut.wise")
    write_artifact(tmp_path / "damaged.wise", manifest | {"first_prices": first}, arrays)
    with pytest.raises(DamagedArtifact, match=r"first.price"):
        WiseRouter.load(tmp_path / "damaged.wise")


def test_a_file_of_an_earlier_version_lacks_first_prices(tmp_path):
    cut_in_price().save(tmp_path / "cut.wise")
    manifest, arrays = read_artifact(tmp_path / "cut.wise")
    del manifest["first_prices"]
    write_artifact(tmp_path / "earlier.wise", manifest, arrays)
    assert WiseRouter.load(tmp_path / "earlier.wise").policy.first_prices["c"] == Price(1e-6, 1e-6)


def test_two_writers_of_one_path_do_not_share_a_draft(tmp_path):
    path = tmp_path / "x.wise"
    write_artifact(path, {"by": "first"}, {}, lambda _: write_artifact(path, {"by": "second"}, {}))
    assert read_artifact(path)[0] == {"by": "first"}
    assert [one.name for one in tmp_path.iterdir()] == ["x.wise"]
