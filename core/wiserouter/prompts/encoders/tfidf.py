"""TF-IDF and truncated SVD (latent semantic analysis; Deerwester et al. 1990): the default encoder.

A text of terms t with counts f_t becomes x_t = (1 + ln f_t) * idf_t, idf_t = ln((1 + n) / (1 + n_t)) + 1, scaled to
length 1, and is projected on the leading right singular vectors of the log. Terms are words and pairs of neighbouring
words; where a script puts no blanks between words (Chinese, Japanese) each character counts as a word. Elsewhere the
numbers equal scikit-learn's TfidfVectorizer(sublinear_tf=True) and TruncatedSVD (the tests hold them equal), but one
text takes a tenth of the time, and the fitted state is three arrays.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from wiserouter.errors import EncoderError, InvalidInput
from wiserouter.parallel.forks import import_between_forks
from wiserouter.prompts.encoders.base import Settings, State, check_embeddings, tail, unit
from wiserouter.prompts.encoders.batch_terms import TermColumns
from wiserouter.prompts.encoders.term_counts import frequent_terms, in_chunks
from wiserouter.prompts.encoders.words import WORD
from wiserouter.types import Embedding, FloatArray, IntArray
from wiserouter.validation import check_count

if TYPE_CHECKING:
    from scipy.sparse import csr_array

FEW_TEXTS = 32
"""Up to this many texts are encoded one by one, which needs no polars."""

_NEGLIGIBLE = 1e-5
_LARGEST = 1e6


class TfidfEncoder:
    """Words weighted by rarity, projected on the main directions of the log.

    Parameters
    ----------
    dim : int
        Largest number of dimensions; fewer where the log has fewer directions.
    max_features : int
        Largest number of terms; those in most texts are kept.
    max_chars : int
        Characters to read from the end of a text (see `tail`).
    seed : int
        Seeds the randomized SVD.

    Notes
    -----
    A term must occur in two texts once the log has 100. From a million words or pairs on, the rarest so far are dropped
    while counting, so that memory does not grow with the texts. A text
    without a known term becomes the zero vector, and a log without any term (punctuation, empty texts) gives an encoder
    of one dimension that is always zero.

    Examples
    --------
    >>> encoder = TfidfEncoder(dim=2).fit(["sort a list", "sort a dict", "capital of France"])
    >>> encoder.encode("the capital of Spain").shape
    (2,)
    >>> encoder.encode("!?")
    array([0., 0.], dtype=float32)
    """

    spec = "tfidf"

    def __init__(self, dim: int = 64, max_features: int = 20_000, max_chars: int = 1_000, seed: int = 0) -> None:
        self._dim = check_count("dim", dim, least=1)
        self._max_features = check_count("max_features", max_features, least=1)
        self._max_chars = check_count("max_chars", max_chars, least=1)
        self._seed = check_count("seed", seed)
        self._vocabulary: dict[str, int] = {}
        self._idf: FloatArray = np.empty(0)
        self._components: Embedding | None = None
        self._table: TermColumns | None = None

    @property
    def is_fitted(self) -> bool:
        """Whether it has learned from a log, and so can encode."""
        return self._components is not None

    def fit(self, texts: Sequence[str]) -> Self:
        """Learn the terms, their weights and the projection from `texts`.

        Raises
        ------
        InvalidInput
            If there is no text.
        """
        self._fit(texts)
        return self

    def fit_encode(self, texts: Sequence[str]) -> Embedding:
        """Learn from `texts`, and return the vectors that `encode_many` gives them, without splitting them again."""
        weights = self._fit(texts)
        return self.encode_many(texts) if weights is None else self._vectors(weights)

    def _fit(self, texts: Sequence[str]) -> csr_array | None:
        """Learn from `texts`, and return their weights; None where they have no term."""
        if len(texts) == 0:
            raise InvalidInput("texts must hold at least one text, got none: fit the encoder on a log", value=texts)
        chunks = in_chunks(texts, self._max_chars)
        terms, counts = frequent_terms(chunks, self._max_features)
        self._vocabulary = {term: column for column, term in enumerate(terms)}
        self._table = None
        self._idf = np.log((1 + len(texts)) / (1 + counts)) + 1
        if not terms:
            self._components = np.zeros((0, 1), "f4")
            return None
        columns = self._term_columns().of_chunks(chunks) if len(texts) > FEW_TEXTS else self._columns(texts)
        weights = self._weighed(*columns)
        self._components = _directions(weights, self._dim, self._seed)
        return weights

    def encode(self, text: str) -> Embedding:
        """Return the unit vector of `text`, or zeros if it has no known term; shape (d,)."""
        if self._components is None:
            raise EncoderError("the tfidf encoder must be fitted before it encodes: call fit(texts) with a log")
        columns, weights = self._weights(text)
        vector = weights @ self._components[columns]
        known = float(vector @ vector) > _NEGLIGIBLE**2
        return unit(vector) if known else np.zeros_like(vector)

    def encode_many(self, texts: Sequence[str]) -> Embedding:
        """Return the vectors of `texts`, each as `encode` gives it up to rounding; shape (n, d)."""
        if len(texts) == 0 or self._components is None:
            return np.zeros((0, self.encode("").size), dtype=np.float32)
        return self._vectors(self._weighed(*self._columns(texts)))

    def terms_of(self, direction: Embedding, most: int) -> list[str]:
        """Return the terms whose vectors point most in `direction`, of shape (d,), the clearest first.

        Examples
        --------
        >>> encoder = TfidfEncoder(dim=2).fit(["sort a list", "sort a dict", "capital of France"])
        >>> encoder.terms_of(encoder.encode("france"), 2)
        ['capital', 'capital of']
        """
        if self._components is None:
            raise EncoderError("the tfidf encoder must be fitted before it names terms: call fit(texts) with a log")
        strength = self._components @ np.asarray(direction, dtype=np.float32)
        names = list(self._vocabulary)
        return [names[k] for k in np.argsort(-strength, kind="stable")[:most] if strength[k] > _NEGLIGIBLE]

    def state(self) -> State:
        """Return the vocabulary (UTF-8 bytes of a JSON list), the idf of each term and the components (terms, d)."""
        if self._components is None:
            raise EncoderError("the tfidf encoder must be fitted before it is saved: call fit(texts) with a log")
        names = json.dumps(list(self._vocabulary)).encode()
        return {
            "vocabulary": np.frombuffer(names, dtype=np.uint8),
            "idf": self._idf,
            "components": self._components,
        }

    def settings(self) -> Settings:
        """Return the arguments of the constructor."""
        return {
            "dim": self._dim,
            "max_features": self._max_features,
            "max_chars": self._max_chars,
            "seed": self._seed,
        }

    @classmethod
    def restore(cls, settings: Settings, arrays: State) -> Self:
        """Return the encoder whose `settings()` and `state()` these are."""
        encoder = cls(**settings)  # type: ignore[arg-type]  # checked by the constructor
        terms = json.loads(arrays["vocabulary"].tobytes())
        encoder._vocabulary = {term: column for column, term in enumerate(terms)}
        encoder._idf = np.asarray(arrays["idf"], dtype=np.float64)
        encoder._components = np.asarray(arrays["components"], dtype=np.float32)
        _check_state(terms, encoder._idf, encoder._components)
        return encoder

    def _terms(self, text: str) -> list[str]:
        """Return the words of the end of `text`, then its pairs of neighbouring words."""
        words = WORD.findall(tail(text, self._max_chars).lower())
        return words + [" ".join(pair) for pair in pairwise(words)]

    def _weights(self, text: str) -> tuple[NDArray[np.intp], Embedding]:
        """Return the columns of the known terms of `text` and their weights, of length 1 together."""
        known = self._vocabulary
        counts = Counter(known[term] for term in self._terms(text) if term in known)
        columns = np.fromiter(counts.keys(), dtype=np.intp, count=len(counts))
        times = np.fromiter(counts.values(), dtype=np.float64, count=len(counts))
        return columns, unit(((1 + np.log(times)) * self._idf[columns]).astype(np.float32))

    def _vectors(self, weights: csr_array) -> Embedding:
        """Return the vectors of texts with these weights."""
        vectors = weights @ self._components
        length = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))[:, np.newaxis]
        known = length > _NEGLIGIBLE
        return check_embeddings(np.where(known, vectors / np.where(known, length, 1.0), 0.0), len(vectors))

    def _columns(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], IntArray]:
        """Return the columns of the known terms of all texts, and the end of each text in them."""
        if len(texts) > FEW_TEXTS:
            return self._term_columns().of(texts, self._max_chars)
        known = self._vocabulary
        columns = [[known[term] for term in self._terms(text) if term in known] for text in texts]
        ends = np.cumsum([0, *map(len, columns)])
        return np.fromiter(chain.from_iterable(columns), dtype=np.int32, count=ends[-1]), ends

    def _term_columns(self) -> TermColumns:
        self._table = self._table or TermColumns(list(self._vocabulary))
        return self._table

    def _weighed(self, columns: NDArray[np.int32], ends: IntArray) -> csr_array:
        """Return the weights of texts, of shape (n_texts, n_terms), from the columns of their terms."""
        import_between_forks("scipy.sparse")
        from scipy.sparse import csr_array

        n_texts = len(ends) - 1
        matrix = csr_array((np.ones(len(columns)), columns, ends), shape=(n_texts, len(self._vocabulary)))
        matrix.sum_duplicates()
        weights = ((1 + np.log(matrix.data)) * self._idf[matrix.indices]).astype(np.float32)
        row = np.repeat(np.arange(n_texts), np.diff(matrix.indptr))
        matrix.data = weights / np.sqrt(np.bincount(row, weights**2, n_texts))[row].astype(np.float32)
        return matrix


def _check_state(terms: object, idf: FloatArray, components: Embedding) -> None:
    """Raise `ValueError` unless there are a finite weight and a finite row of components for each term."""
    if not isinstance(terms, list) or not all(isinstance(term, str) for term in terms) or len({*terms}) < len(terms):
        raise ValueError("vocabulary must be a list of different terms")
    n_terms, dim = components.shape if components.ndim == 2 else (-1, 0)
    if idf.shape != (len(terms),) or n_terms != len(terms) or not dim:
        raise ValueError(f"idf and components must have a row for each of {len(terms)} terms, got {components.shape}")
    if not (np.abs(idf) <= _LARGEST).all() or not (np.abs(components) <= _LARGEST).all():
        raise ValueError(f"idf and components must be finite and at most {_LARGEST:g}")


def _directions(matrix: csr_array, dim: int, seed: int) -> Embedding:
    """Return the leading right singular vectors of `matrix` as columns, of shape (n_terms, d), d <= dim."""
    import_between_forks("sklearn", "sklearn.utils.extmath")
    import sklearn  # noqa: F401 first: its modules import one another, which two threads cannot do at once
    from sklearn.utils.extmath import randomized_svd
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # the same bits on any number of cores
        _, strength, vectors = randomized_svd(matrix, min(dim, *matrix.shape), n_iter=5, random_state=seed)
    if not strength[0] > 0.0:  # no text has a known term
        return np.zeros((matrix.shape[1], 1), dtype=np.float32)
    strong = strength > _NEGLIGIBLE * strength[0]
    return np.ascontiguousarray(vectors[strong].T, dtype=np.float32)
