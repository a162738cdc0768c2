"""The terms that occur in most texts of a log, counted in chunks of texts and bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wiserouter.prompts.encoders.batch_terms import NumberedTexts, WordNumbers, numbered
from wiserouter.types import IntArray

_MANY_TEXTS = 100
_CHUNK_TEXTS = 8_192
_MOST_COUNTED = 1_000_000


class CountedTerms(NamedTuple):
    """Terms in alphabetical order, and the number of texts with each."""

    terms: list[str]
    counts: IntArray


class TextCounts:
    """The number of texts with each key, added chunk by chunk.

    Notes
    -----
    From a million keys on, those of the lowest counts are dropped while counting (after the lossy counting of Manku and
    Motwani 2002), so that memory does not grow with the texts.

    Examples
    --------
    >>> counts = TextCounts()
    >>> counts.add(np.array([7, 7, 8]), text=np.array([0, 0, 1]))
    >>> counts.add(np.array([8]), text=np.array([0]))
    >>> counts.total()
    (array([7, 8]), array([1, 2]))
    """

    def __init__(self) -> None:
        self._parts: list[tuple[IntArray, IntArray]] = []

    def add(self, keys: IntArray, text: IntArray) -> None:
        """Count the texts of a chunk with each key; `text` is the place in the chunk of the text of each occurrence."""
        once = np.sort(keys * _CHUNK_TEXTS + text)
        once = once[_starts(once)] // _CHUNK_TEXTS
        self._parts.append(_summed(once, np.ones(len(once), dtype=np.int64)))
        if sum(len(keys) for keys, _ in self._parts) > 2 * _MOST_COUNTED:
            self._parts = [_pruned(*self.total())]

    def total(self) -> tuple[IntArray, IntArray]:
        """Return the keys in ascending order and the number of texts with each."""
        if not self._parts:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        keys, counts = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        order = np.argsort(keys, kind="stable")
        return _summed(keys[order], counts[order])


def frequent_terms(chunks: Sequence[NumberedTexts], most: int) -> CountedTerms:
    """Return the `most` terms that occur in most texts; of ties, the first in the alphabet.

    Parameters
    ----------
    chunks : sequence of NumberedTexts
        The texts, as `in_chunks` returns them.
    most : int
        Terms that are kept.

    Notes
    -----
    A pair occurs in no more texts than each of its words (Agrawal and Srikant 1994), so that only pairs of words that
    are frequent themselves are counted.
    """
    words, word_counts = _counted_words(chunks)
    n_texts = sum([len(chunk.length) for chunk in chunks])
    least = 2 if n_texts >= _MANY_TEXTS and max(word_counts, default=0) > 1 else 1
    if len(words) >= most:
        least = max(least, int(np.partition(word_counts, -most)[-most]))
    frequent = word_counts >= least
    kept = [word for word, enough in zip(words, frequent.tolist(), strict=True) if enough]
    pairs, pair_counts = _counted_pairs(chunks, kept, least)
    counts = np.concatenate([word_counts[frequent], pair_counts])
    terms = kept + pairs
    first = sorted(range(len(terms)), key=lambda place: (-counts[place], terms[place]))[:most]
    order = sorted(first, key=terms.__getitem__)
    return CountedTerms([terms[place] for place in order], counts[order])


def _counted_words(chunks: Sequence[NumberedTexts]) -> CountedTerms:
    """Return the words and the number of texts with each."""
    counts: dict[str, int] = {}
    for chunk in chunks:
        names, in_chunk = chunk.names.to_list(), TextCounts()
        in_chunk.add(chunk.number.astype(np.int64), chunk.text)
        for number, count in zip(*(each.tolist() for each in in_chunk.total()), strict=True):
            counts[names[number]] = counts.get(names[number], 0) + count
        least = 2
        while len(counts) > _MOST_COUNTED:
            counts = {word: count for word, count in counts.items() if count >= least}
            least += 1
    return CountedTerms(list(counts), np.array(list(counts.values()), dtype=np.int64))


def _counted_pairs(chunks: Sequence[NumberedTexts], words: list[str], least: int) -> CountedTerms:
    """Return the pairs of these words that are in at least `least` texts, and the number of texts with each."""
    numbers, counts = WordNumbers(words), TextCounts()
    for chunk in chunks:
        number, text = numbers.of_texts(chunk), chunk.text
        known = number != numbers.unknown
        beside = known[:-1] & known[1:] & (text[:-1] == text[1:])
        counts.add(numbers.keys(number[:-1], number[1:])[beside], text[:-1][beside])
    keys, n_texts = counts.total()
    enough = n_texts >= least
    return CountedTerms([numbers.pair(key) for key in keys[enough].tolist()], n_texts[enough])


def in_chunks(texts: Sequence[str], max_chars: int) -> list[NumberedTexts]:
    """Return the words of the last `max_chars` characters of each text, in chunks of texts."""
    return [numbered(texts[start : start + _CHUNK_TEXTS], max_chars) for start in range(0, len(texts), _CHUNK_TEXTS)]


def _starts(ordered: IntArray) -> NDArray[np.bool_]:
    """Return True for the first of equal numbers."""
    starts = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=starts[1:])
    return starts


def _summed(ordered: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return the different keys of an ordered array, and the sum of the counts of each."""
    first = np.flatnonzero(_starts(ordered))
    return ordered[first], np.add.reduceat(counts, first) if len(first) else counts


def _pruned(keys: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return at most `_MOST_COUNTED` keys, without those of the lowest counts."""
    least = 2
    while len(keys) > _MOST_COUNTED:
        keys, counts = keys[counts >= least], counts[counts >= least]
        least += 1
    return keys, counts
