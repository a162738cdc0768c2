"""The choice of the encoder: by held-out reward at equal spend, and only where it is surely better."""

import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from wiserouter import RoutingLog, WiseRouter, open_encoder
from wiserouter.cli import app
from wiserouter.errors import InvalidInput, MissingExtra
from wiserouter.fitting import encoder_selection
from wiserouter.fitting.encoder_selection import compare_encoders, sample_calls
from wiserouter.fitting.log import LogBatch
from wiserouter.prompts.encoders import encoder_from_state
from wiserouter.prompts.encoders.concatenated import ConcatenatedEncoder

LIGHT = ("tfidf", "tfidf-whole")


def calls_of(n=120, kind_at="start", seed=0):
    """Return calls of two models, of which the dear one pays for one kind of query only, named where `kind_at` says."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(2, size=n)
    words = np.array(["poem about spring", "integral of a function"])[kind]
    filler = ["lorem ipsum dolor " * 80 + f"text {i}" for i in range(n)]
    prompts = [f"{w} {f}" if kind_at == "start" else f"{f} {w}" for w, f in zip(words, filler, strict=True)]
    reward = np.stack([np.where(kind == 0, 0.8, 0.1), np.full(n, 0.85)], axis=1)
    cost = np.tile([1e-4, 1e-3], (n, 1))
    return LogBatch(prompts, np.arange(n), reward, cost)


def test_the_whole_prompt_is_read_where_its_start_says_the_kind():
    found = compare_encoders(calls_of(), 2, encoders=LIGHT)
    assert found.chosen.encoder == "tfidf-whole"
    assert found.chosen.gain > 0.05
    assert found.standings[0].gain == 0.0
    assert len(found.rates_usd) == len(encoder_selection.RATES)


def test_the_default_stays_where_nothing_is_gained():
    found = compare_encoders(calls_of(kind_at="end"), 4, encoders=LIGHT)
    assert found.chosen.encoder == "tfidf"


def test_the_value_of_a_perfect_encoder_is_that_of_the_program():
    calls = calls_of(kind_at="end")
    rate = 5e-4
    found = compare_encoders(calls, 2, encoders=("tfidf",), rate_usd=rate)
    dear = np.sort(calls.reward[:, 1] - calls.reward[:, 0])[::-1]  # the best gains first, at 9e-4 each
    n_dear = (rate - 1e-4) / 9e-4 * len(dear)
    best = calls.reward[:, 0].mean() + dear[: int(n_dear)].sum() / len(dear)
    assert found.standings[0].value == pytest.approx(best, abs=0.03)


def test_sparse_logs_give_the_same_choice():
    calls = calls_of(n=400)
    hidden = np.random.default_rng(1).integers(2, size=len(calls.prompts))
    for name in (calls.reward, calls.cost_usd):
        name[np.arange(len(hidden)), hidden] = np.nan
    assert compare_encoders(calls, 2, encoders=LIGHT).chosen.encoder == "tfidf-whole"


def test_an_encoder_whose_extra_is_missing_is_left_out(monkeypatch):
    def opened(name):
        if name == "minilm":
            raise MissingExtra("the minilm encoder", "onnxruntime", "minilm")
        return open_encoder(name)

    monkeypatch.setattr(encoder_selection, "open_encoder", opened)
    found = compare_encoders(calls_of(n=60), 2)
    assert [one.encoder for one in found.standings] == ["tfidf", "tfidf-whole"]


def test_logs_without_scores_or_queries_are_refused():
    calls = calls_of(n=4)
    with pytest.raises(InvalidInput, match="4 queries"):
        compare_encoders(calls, 2)
    unscored = LogBatch(["a"] * 9, np.arange(9), np.full((9, 2), np.nan), np.ones((9, 2)))
    with pytest.raises(InvalidInput, match="name an encoder"):
        compare_encoders(unscored, 2)


def test_the_sample_has_each_query_once():
    calls = calls_of(n=30)
    log = RoutingLog.from_arrays(calls.prompts, calls.reward, calls.cost_usd, ["small", "large"])
    some = sample_calls(log, np.random.default_rng(0), most=10)
    assert len(set(some.prompts)) == len(some.prompts) == 10
    assert set(some.prompts) <= set(calls.prompts)
    assert len(sample_calls(log, np.random.default_rng(0)).prompts) == 30


@pytest.fixture
def log_file(tmp_path, monkeypatch):
    monkeypatch.setattr(encoder_selection, "ENCODERS", LIGHT)
    monkeypatch.setattr(compare_encoders, "__kwdefaults__", {**compare_encoders.__kwdefaults__, "encoders": LIGHT})
    calls = calls_of()
    columns = {"prompt": calls.prompts}
    for k, name in enumerate(("small", "large")):
        columns |= {f"score|{name}": calls.reward[:, k], f"cost|{name}": calls.cost_usd[:, k]}
    pl.DataFrame(columns).write_parquet(tmp_path / "log.parquet")
    return tmp_path / "log.parquet"


def test_a_fit_chooses_its_encoder_and_keeps_it(log_file, tmp_path):
    router = WiseRouter.fit(log_file, encoder="auto", n_contexts=4)
    assert router.encoders.chosen.encoder == "tfidf-whole"
    router.save(tmp_path / "auto.wise")
    again = WiseRouter.load(tmp_path / "auto.wise")
    assert again.encoder.settings()["max_chars"] > 10_000
    with pytest.raises(InvalidInput, match=r"encoder=router\.encoder"):
        WiseRouter.fit(log_file, encoder="auto", contexts=router.contexts)


def test_the_command_prints_the_comparison(log_file, tmp_path):
    out = str(tmp_path / "auto.wise")
    shown = CliRunner().invoke(app, ["fit", str(log_file), "--encoder", "auto", "--contexts", "4", "-o", out])
    assert "tfidf-whole" in shown.output
    assert "chosen" in shown.output
    told = CliRunner().invoke(app, ["fit", str(log_file), "--encoder", "auto", "--contexts", "4", "-o", out, "--json"])
    fields = json.loads(told.output)
    assert fields["encoder"] == "tfidf-whole"
    assert [one["encoder"] for one in fields["encoders"]] == list(LIGHT)
    assert fields["encoder_queries"] == 120


def test_encoders_are_joined_by_name_and_restored():
    texts = ["sort a list", "sort a dict", "capital of France", "capital of Spain"]
    encoder = open_encoder("tfidf+hashing").fit(texts)
    parts = [part.encode("sort a list") for part in encoder.parts]
    vector = encoder.encode("sort a list")
    assert vector.tolist() == pytest.approx((np.concatenate(parts) / np.sqrt(2)).tolist())
    assert np.linalg.norm(vector) == pytest.approx(1.0)
    assert encoder.encode_many(texts)[0] == pytest.approx(vector, abs=1e-6)
    again = encoder_from_state(encoder.spec, json.loads(json.dumps(encoder.settings())), encoder.state())
    assert again.encode("capital of Italy") == pytest.approx(encoder.encode("capital of Italy"))
    assert encoder.terms_of(vector, 3) == encoder.parts[0].terms_of(parts[0], 3)
    assert ConcatenatedEncoder([open_encoder("hashing")] * 2).terms_of(np.zeros(1024), 3) == []
    with pytest.raises(InvalidInput, match="two encoders"):
        ConcatenatedEncoder([encoder])
    with pytest.raises(InvalidInput, match="joined by"):
        open_encoder("tfidf+nothing")
