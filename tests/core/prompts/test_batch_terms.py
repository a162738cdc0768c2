"""Terms of many texts at once, against the terms of one text after another."""

import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter.prompts.encoders import term_counts
from wiserouter.prompts.encoders.batch_terms import TermColumns, numbered, split
from wiserouter.prompts.encoders.term_counts import frequent_terms, in_chunks
from wiserouter.prompts.encoders.tfidf import FEW_TEXTS, TfidfEncoder
from wiserouter.prompts.encoders.words import WORD

LETTERS = "ab ,_2\u4e2d\u3042\u00c9\u0130\u03a3\u0301\u00df\ud800"
texts = st.lists(st.text(LETTERS, max_size=12), max_size=20)


def terms_of(text: str, max_chars: int) -> list[str]:
    words = WORD.findall(text[-max_chars:].lower())
    return words + [" ".join(pair) for pair in pairwise(words)]


@settings(deadline=None)
@given(texts=texts, max_chars=st.integers(1, 8))
def test_words_are_those_of_one_text_after_another(texts, max_chars):
    words, text = split(texts, max_chars)
    found = [WORD.findall(one[-max_chars:].lower()) for one in texts]
    assert words.to_list() == [word for one in found for word in one]
    assert text.tolist() == [place for place, one in enumerate(found) for _ in one]


@settings(deadline=None)
@given(texts=texts, drop=st.integers(0, 3))
def test_columns_are_those_of_one_text_after_another(texts, drop):
    vocabulary = sorted({term for text in texts for term in terms_of(text, 100)})[drop:]
    columns, ends = TermColumns(vocabulary).of(texts, 100)
    halves = [numbered(texts[:3], 100), numbered(texts[3:], 100)]
    for one, other in zip(TermColumns(vocabulary).of_chunks(halves), (columns, ends), strict=True):
        assert one.tolist() == other.tolist()
        assert one.dtype == other.dtype
    for text, start, end in zip(texts, ends[:-1], ends[1:], strict=True):
        expected = [vocabulary.index(term) for term in terms_of(text, 100) if term in vocabulary]
        assert sorted(columns[start:end].tolist()) == sorted(expected)


@settings(deadline=None)
@given(texts=texts.filter(len), most=st.integers(1, 12))
def test_frequent_terms_are_those_in_most_texts(texts, most):
    seen = Counter(term for text in texts for term in set(terms_of(text, 100)))
    kept = sorted(sorted(seen, key=lambda term: (-seen[term], term))[:most])
    terms, counts = frequent_terms(in_chunks(texts, 100), most)
    assert terms == kept
    assert counts.tolist() == [seen[term] for term in kept]


def test_chunks_of_texts_add_up(monkeypatch):
    rng = np.random.default_rng(0)
    log = [" ".join(rng.choice(list("abcdefgh"), size=4)) for _ in range(150)]
    whole = frequent_terms(in_chunks(log, 100), 30)
    monkeypatch.setattr(term_counts, "_CHUNK_TEXTS", 7)
    parts = frequent_terms(in_chunks(log, 100), 30)
    assert parts.terms == whole.terms
    assert np.array_equal(parts.counts, whole.counts)


def test_few_texts_and_many_have_the_same_vectors():
    rng = np.random.default_rng(0)
    log = [" ".join(rng.choice(["sort", "list", "\u4e2d\u6587", "Stra\u00dfe"], size=5)) for _ in range(5 * FEW_TEXTS)]
    encoder = TfidfEncoder(dim=3).fit(log)
    few = [encoder.encode_many(log[start : start + FEW_TEXTS]) for start in range(0, len(log), FEW_TEXTS)]
    assert np.concatenate(few) == pytest.approx(encoder.encode_many(log), abs=1e-6)
    few, many = (encoder._weighed(*encoder._columns(texts)) for texts in (log[:FEW_TEXTS], log))
    assert (few != many[:FEW_TEXTS]).nnz == 0


def test_a_vocabulary_from_elsewhere_is_read_as_it_is():
    columns, _ = TermColumns(["a b c", "", " ", "\ud800", "b"]).of(["a b c ? \ud800"], 100)
    assert columns.tolist() == [4]


@pytest.mark.slow
def test_every_assigned_character_is_read_alike():
    import unicodedata

    codes = [code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) not in {"Cn", "Cs"}]
    characters = [chr(code) for code in codes]
    words, text = split(characters, 1)
    found = pl.DataFrame({"text": text, "word": words}).group_by("text", maintain_order=True).agg("word")
    by_text = dict(zip(found["text"].to_list(), found["word"].to_list(), strict=True))
    different = [one for i, one in enumerate(characters) if by_text.get(i, []) != WORD.findall(one.lower())]
    assert different == []
