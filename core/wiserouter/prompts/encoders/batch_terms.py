"""Words, and pairs of neighbouring words, of many texts at once: polars splits the texts, numpy pairs and looks up.

The terms are those that `words.WORD` finds in one text, for the characters that the Unicode tables of Python and of
polars both have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wiserouter.prompts.encoders.words import UNSPACED
from wiserouter.prompts.half_characters import without_halves
from wiserouter.types import IntArray

if TYPE_CHECKING:
    import polars as pl

_WORD = rf"[[\p{{L}}\p{{N}}_]--[{UNSPACED}]]+|[{UNSPACED}]"
_FILTER_BITS = 20
_MIX = np.uint64(0x9E3779B97F4A7C15)


class SplitTexts(NamedTuple):
    """The words of some texts.

    Attributes
    ----------
    words : polars.Series of str
        In lower case, those of one text after another.
    text : ndarray of int
        The text of each word.
    """

    words: pl.Series
    text: IntArray


def split(texts: Sequence[str], max_chars: int) -> SplitTexts:
    """Return the words of the last `max_chars` characters of each text.

    Examples
    --------
    >>> words, text = split(["A b!", "", "c"], max_chars=100)
    >>> words.to_list(), text.tolist()
    (['a', 'b', 'c'], [0, 0, 2])
    """
    lists = series(texts).str.tail(max_chars).str.to_lowercase().str.extract_all(_WORD)
    text = np.repeat(np.arange(len(texts)), lists.list.len().to_numpy())
    return SplitTexts(lists.explode(empty_as_null=False), text)


def series(texts: Sequence[str]) -> pl.Series:
    """Return texts as a series; lone surrogates, which are no part of a word and have no UTF-8, as question marks."""
    import polars as pl

    try:
        return pl.Series(texts, dtype=pl.String)
    except UnicodeEncodeError:
        return pl.Series([without_halves(text) for text in texts], dtype=pl.String)


class NumberedTexts(NamedTuple):
    """The words of some texts as numbers, which take a sixth of the words' own memory.

    Attributes
    ----------
    names : polars.Series of str
        The different words.
    number : ndarray of int32
        The place in `names` of each word, those of one text after another.
    length : ndarray of int32 of shape (n_texts,)
        Words of each text.
    """

    names: pl.Series
    number: NDArray[np.int32]
    length: NDArray[np.int32]

    @property
    def text(self) -> IntArray:
        """The text of each word."""
        return np.repeat(np.arange(len(self.length)), self.length)


def numbered(texts: Sequence[str], max_chars: int) -> NumberedTexts:
    """Return the words of the last `max_chars` characters of each text, as numbers."""
    words, text = split(texts, max_chars)
    numbers = WordNumbers(words)
    length = np.bincount(text, minlength=len(texts)).astype(np.int32)
    return NumberedTexts(series(numbers.names), numbers.of(words).astype(np.int32), length)


class WordNumbers:
    """Numbers of words, and keys of pairs of them.

    Parameters
    ----------
    words : sequence of str
        Each gets a number, in alphabetical order; every other word gets the number `unknown`.
    """

    def __init__(self, words: Sequence[str] | pl.Series) -> None:
        import polars as pl

        names = (words if isinstance(words, pl.Series) else series(words)).unique().sort()
        self.names = names.to_list()
        self.unknown = len(self.names)
        self._kind = pl.Enum(names)

    def of(self, words: pl.Series) -> IntArray:
        """Return the number of each word."""
        codes = words.cast(self._kind, strict=False).to_physical().cast(int).fill_null(self.unknown)
        return codes.to_numpy()

    def of_texts(self, texts: NumberedTexts) -> IntArray:
        """Return the number of each word of some texts."""
        return self.of(texts.names)[texts.number]

    def keys(self, first: IntArray, second: IntArray) -> IntArray:
        """Return one integer per pair of numbers."""
        return first * (self.unknown + 1) + second

    def pair(self, key: int) -> str:
        """Return the pair of words that has this key."""
        first, second = divmod(key, self.unknown + 1)
        return f"{self.names[first]} {self.names[second]}"


class TermColumns:
    """The columns of the terms of a vocabulary, looked up for many texts at once.

    Parameters
    ----------
    vocabulary : sequence of str
        Words, and pairs of words with a blank between them; the place of a term is its column.

    Examples
    --------
    >>> columns, ends = TermColumns(["a", "a b", "b"]).of(["a b c", "b a"], max_chars=100)
    >>> columns.tolist(), ends.tolist()
    ([0, 1, 2, 2, 0], [0, 3, 5])
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        parts = [term.partition(" ") for term in vocabulary]
        self._numbers = WordNumbers([word for first, _, second in parts for word in (first, second)])
        first, second = (self._numbers.of(series([part[place] for part in parts])) for place in (0, 2))
        is_pair = np.array([bool(blank) for _, blank, _ in parts], dtype=bool)
        columns = np.arange(len(parts), dtype=np.int32)
        self._word_column = np.full(self._numbers.unknown + 1, -1, dtype=np.int32)
        self._word_column[first[~is_pair]] = columns[~is_pair]
        keys = self._numbers.keys(first[is_pair], second[is_pair])
        order = np.argsort(keys)
        self._keys, self._pair_column = keys[order], columns[is_pair][order]
        self._maybe = np.zeros(1 << _FILTER_BITS, dtype=bool)
        self._maybe[_slots(self._keys)] = True

    def of(self, texts: Sequence[str], max_chars: int) -> tuple[NDArray[np.int32], IntArray]:
        """Return the columns of the known terms of all texts, one after another, and the end of each text in them."""
        words, text = split(texts, max_chars)
        return self._of(self._numbers.of(words), text, len(texts))

    def of_chunks(self, chunks: Sequence[NumberedTexts]) -> tuple[NDArray[np.int32], IntArray]:
        """Return the same of texts whose words have numbers."""
        each = [self._of(self._numbers.of_texts(chunk), chunk.text, len(chunk.length)) for chunk in chunks]
        before = np.cumsum([0, *(len(columns) for columns, _ in each)])
        ends = [ends[1:] + start for (_, ends), start in zip(each, before.tolist(), strict=False)]
        return np.concatenate([columns for columns, _ in each]), np.concatenate([[0], *ends]).astype(np.int64)

    def _of(self, number: IntArray, text: IntArray, n_texts: int) -> tuple[NDArray[np.int32], IntArray]:
        """Return the columns and ends of texts, from the number of each word and its text."""
        columns = np.full((len(number), 2), -1, dtype=np.int32)
        columns[:, 0] = self._word_column[number]
        columns[:-1, 1] = self._of_pairs(number, text)
        known = columns >= 0
        per_text = np.bincount(text, weights=known.sum(axis=1), minlength=n_texts)
        return columns[known], np.concatenate([[0], np.cumsum(per_text)]).astype(np.int64)

    def _of_pairs(self, number: IntArray, text: IntArray) -> NDArray[np.int32]:
        """Return the column of each pair of neighbours; -1 where it is unknown, or of two texts."""
        keys = self._numbers.keys(number[:-1], number[1:])
        columns = np.full(len(keys), -1, dtype=np.int32)
        places = np.flatnonzero(self._maybe[_slots(keys)] & (text[:-1] == text[1:]))
        if len(places):
            found = np.minimum(np.searchsorted(self._keys, keys[places]), len(self._keys) - 1)
            same = self._keys[found] == keys[places]
            columns[places[same]] = self._pair_column[found[same]]
        return columns


def _slots(keys: IntArray) -> IntArray:
    """Return the place of each key in a filter: most keys that are not looked for fall on empty places."""
    return ((keys.astype(np.uint64) * _MIX) >> np.uint64(64 - _FILTER_BITS)).astype(np.int64)
