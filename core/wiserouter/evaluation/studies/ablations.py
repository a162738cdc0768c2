"""The ablation study of encoder, dimensions, number of contexts and clustering (paper, Appendix "Ablation Study").

As in the paper the study uses the training half alone, a fifth of which is held out, drawn again for each seed. The
paper does not state the budget; here quality is the mean over the bench's six budgets. The encoders are those that the
table and this installation provide; the text lists what was left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from wiserouter.errors import MissingExtra
from wiserouter.evaluation.baselines.base import Terms
from wiserouter.evaluation.baselines.wiserouter_methods import wr_offline
from wiserouter.evaluation.bench.budget_grid import budgets_of
from wiserouter.evaluation.bench.serve import serve_all
from wiserouter.evaluation.bench.splits import Vectors, build_split, embedder
from wiserouter.evaluation.datasets import LoadedTable
from wiserouter.evaluation.report.section import ReportSection
from wiserouter.evaluation.table import Table, random_halves
from wiserouter.prompts.contexts import Contexts
from wiserouter.types import Embedding, IntArray

COUNTS = (8, 12, 20)
RADII = (0.2, 0.4, 0.6, 0.8)
"""Radii of DBSCAN, in cosine distance."""
PCA_DIMS = (32, 256)
HELD_OUT = 5
"""One in `HELD_OUT` queries of the training half is held out."""

TEXT = """
Mean quality of `wr-offline` over the six budgets on a fifth of the training half that is held out, ± the standard
deviation over seeds; contexts: the mean number fitted. Of encoders, dimensions, numbers of contexts and DBSCAN, one is
changed at a time (paper, Appendix "Ablation Study")."""

Cluster = Callable[[Embedding, int], Contexts]


class Setting(NamedTuple):
    """One line of the table."""

    name: str
    encoder: str | None
    pca: int | None
    cluster: Cluster


class Fold(NamedTuple):
    """The learning queries and the held-out ones of a seed's training half."""

    seed: int
    parts: tuple[IntArray, IntArray]


def ablations(
    loaded: LoadedTable, seeds: Iterable[int] = range(5), encoders: Sequence[str | None] | None = None
) -> ReportSection:
    """Return the section on quality with each encoder, number of contexts and clustering.

    Parameters
    ----------
    loaded : LoadedTable
        The table.
    seeds : iterable of int
        Each draws the training half and its held-out part.
    encoders : sequence of str or None, optional
        As `open_encoder` takes them, None for the table's own embeddings; by default all available ones.
    """
    folds = [Fold(seed, held_out(len(loaded.table.prompts), seed)) for seed in seeds]
    rows: list[list[str]] = []
    left_out: list[str] = []
    for encoder in encoders or _encoders(loaded):
        try:
            vectors = [_vectors(loaded, fold, encoder) for fold in folds]
        except MissingExtra:
            left_out.append(f"{encoder} (its extra is not installed)")
            continue
        first = not rows
        for setting in _settings(encoder, clusters=first):
            if setting.pca is not None and setting.pca >= _most_dims(vectors):
                left_out.append(f"{setting.name} (there are not more than {_most_dims(vectors)} dimensions)")
            else:
                rows.append(_row(loaded.table, setting, folds, vectors))
    if loaded.embeddings is None:
        left_out.append("other embeddings (the table has none)")
    text = TEXT + (f" Left out: {', '.join(left_out)}." if left_out else "")
    return ReportSection("ablations", "Ablations", text, ("setting", "quality", "contexts"), rows)


def held_out(n: int, seed: int) -> tuple[IntArray, IntArray]:
    """Return the training half of a seed as four fifths to learn from and one held-out fifth."""
    train, _ = random_halves(n, seed)
    cut = len(train) - len(train) // HELD_OUT
    return train[:cut], train[cut:]


def k_means(n_contexts: int) -> Cluster:
    """Return the clustering of the bench, for a number of contexts."""
    return lambda rows, seed: Contexts.fit(rows, min(n_contexts, len(rows)), seed=seed)


def dbscan(radius: float) -> Cluster:
    """Return DBSCAN: a context is the centre of a cluster, and one more the centre of all unclustered queries."""

    def clustered(rows: Embedding, seed: int) -> Contexts:  # noqa: ARG001
        from sklearn.cluster import DBSCAN

        labels = DBSCAN(eps=radius, metric="cosine").fit_predict(rows)
        _, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
        centres = np.stack([rows[inverse == i].mean(axis=0) for i in range(len(counts))])
        return Contexts(centres, counts / counts.sum())

    return clustered


def reduced(vectors: Vectors, dims: int | None, seed: int) -> Vectors:
    """Return the vectors projected on the principal components of the training part."""
    if dims is None:
        return vectors
    from sklearn.decomposition import PCA

    fitted = PCA(dims, random_state=seed).fit(vectors.train)
    return Vectors(*(np.asarray(fitted.transform(part), dtype=np.float32) for part in vectors))


def _encoders(loaded: LoadedTable) -> list[str | None]:
    return ["tfidf", "minilm"] if loaded.embeddings is None else [None, "tfidf", "minilm"]


def _settings(encoder: str | None, *, clusters: bool) -> Iterator[Setting]:
    name = encoder or "the table's embeddings"
    yield Setting(f"{name}, J=16", encoder, None, k_means(16))
    yield from (Setting(f"{name}, J=16, PCA {dims}", encoder, dims, k_means(16)) for dims in PCA_DIMS)
    if clusters:
        yield from (Setting(f"{name}, J={count}", encoder, None, k_means(count)) for count in COUNTS)
        yield from (Setting(f"{name}, DBSCAN {radius}", encoder, None, dbscan(radius)) for radius in RADII)


def _vectors(loaded: LoadedTable, fold: Fold, encoder: str | None) -> Vectors:
    learned, held = fold.parts
    own = loaded.embeddings if encoder is None else None
    encode = embedder(loaded.table.prompts, own, learned, encoder)
    return Vectors(encode(learned), encode(held))


def _most_dims(vectors: list[Vectors]) -> int:
    return min(int(min(each.train.shape)) for each in vectors)


def _row(table: Table, setting: Setting, folds: list[Fold], vectors: list[Vectors]) -> list[str]:
    each = [_quality(table, setting, *one) for one in zip(folds, vectors, strict=True)]
    (quality, contexts), (error, _) = np.mean(each, axis=0), np.std(each, axis=0)
    return [setting.name, f"{quality:.4f} ± {error:.4f}", f"{contexts:.1f}"]


def _quality(table: Table, setting: Setting, fold: Fold, vectors: Vectors) -> tuple[float, float]:
    """Return the mean quality over the budgets and the number of contexts."""
    rows = reduced(vectors, setting.pca, fold.seed)
    contexts = setting.cluster(rows.train, fold.seed)
    split = build_split(table, fold.parts, rows, contexts, fold.seed)
    fitted = wr_offline().fit(split.training(), np.random.default_rng([fold.seed, 1]))
    quality = []
    for rate_usd in budgets_of(table.cost_usd).paper:
        terms = Terms(rate_usd * split.test.n, split.test.n)
        server = fitted.start(terms, np.random.default_rng([fold.seed, 2]))
        quality.append(float(serve_all(server, split.test, terms).reward.mean()))
    return float(np.mean(quality)), float(contexts.n_contexts)
