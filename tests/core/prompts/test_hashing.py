"""The encoder that needs no log: equal vectors everywhere, weights by rarity, and vectors that follow new weights."""

import math
import subprocess
import sys
from collections import Counter
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter import open_encoder
from wiserouter.errors import EncoderError
from wiserouter.prompts.encoders import encoder_from_state
from wiserouter.prompts.encoders.hashing import HashingTfidf
from wiserouter.prompts.encoders.words import WORD

TEXTS = [
    "sort a list",
    "sort a dict",
    "the capital of France",
    "the capital of Spain and of France",
    "数学 の 問題",
    "!?",
]
words = st.lists(
    st.sampled_from(["sort", "list", "dict", "the", "capital", "of", "france", "spain", "a"]), max_size=12
).map(" ".join)


def test_the_name_opens_it_and_it_encodes_before_any_text():
    encoder = open_encoder("hashing")
    assert encoder.spec == "hashing"
    assert np.linalg.norm(encoder.encode("sort a list")) == pytest.approx(1.0)
    assert not encoder.encode("!?").any()
    assert encoder.encode_many([]).shape == (0, 512)


def test_another_process_gives_equal_vectors():
    code = "from wiserouter import open_encoder; print(open_encoder('hashing').encode('sort a list').tobytes().hex())"
    run = [subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(2)]
    assert run[0].decode().strip() == open_encoder("hashing").encode("sort a list").tobytes().hex()
    assert run[0] == run[1]


def test_rare_words_weigh_more_once_texts_were_seen():
    texts = [f"please explain topic{i % 9}" for i in range(90)]
    encoder = HashingTfidf().fit(texts)
    blind = HashingTfidf().encode_many(["please explain topic1", "please explain topic2"])
    seen = encoder.encode_many(["please explain topic1", "please explain topic2"])
    assert seen[0] @ seen[1] < blind[0] @ blind[1] - 0.2


@settings(max_examples=50, deadline=None)
@given(first=st.lists(words, min_size=1, max_size=8), second=st.lists(words, min_size=1, max_size=8))
def test_vectors_follow_new_weights_without_their_texts(first, second):
    former = HashingTfidf(dim=64).fit(first)
    former_vectors = former.encode_many(second)
    later = former.refitted(former_vectors)
    assert np.allclose(former.converted(former_vectors, later), later.encode_many(second), atol=1e-5)
    assert np.allclose(later.encode_many(second), HashingTfidf(dim=64).fit(second).encode_many(second), atol=1e-5)


def test_a_saved_encoder_gives_the_same_vectors_and_a_damaged_one_is_refused():
    encoder = HashingTfidf(dim=32).fit(TEXTS)
    again = encoder_from_state("hashing", encoder.settings(), encoder.state())
    assert np.array_equal(again.encode_many(TEXTS), encoder.encode_many(TEXTS))
    for idf in (np.ones(31), np.zeros(32), np.full(32, np.nan), np.full(32, np.inf)):
        with pytest.raises(EncoderError, match="cannot be restored"):
            encoder_from_state("hashing", {"dim": 32}, {"idf": idf})


def by_the_formula(text, dim, idf):
    """Return the vector of a text as the head of the module defines it, with other means."""
    times = Counter(WORD.findall(text.lower()))
    hashes = [crc32(word.encode("utf-8", "surrogatepass")) for word in times]
    signs = [-1.0 if hashed >= 2**31 else 1.0 for hashed in hashes]
    weights = [sign * (1.0 + math.log(n)) for sign, n in zip(signs, times.values(), strict=True)]
    vector = np.bincount([hashed % dim for hashed in hashes] or [0], weights or [0.0], dim).astype(np.float32) * idf
    length = np.linalg.norm(vector)
    return vector / length if length else vector


@given(st.text(max_size=80) | st.text("ab_Z9 \t\n\x1c.-'é語", max_size=80), st.sampled_from([3, 512]))
def test_vectors_follow_the_formula_bit_by_bit(text, dim):
    for encoder in (HashingTfidf(dim), HashingTfidf(dim).fit(TEXTS)):
        assert np.array_equal(encoder.encode(text), by_the_formula(text, dim, encoder.state()["idf"]))
