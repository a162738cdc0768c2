r"""The move of observations from one set of contexts to another: linear, so that no sum of a model changes.

Let w be the sums of the old contexts, S the share of the queries of each old context that lie in each new one (rows sum
to 1), and T the observations of single queries by old and new context. The sums of the new contexts are

.. math:: w' = S^T w + c, \qquad c = \sum_o T_o - S^T \sum_n T_n :

all sums move in proportion, and the correction c sets those queries right whose new context is known. Since both are
linear, sums that arrive later for the old contexts move by the same S, and each worker of a store adds its own c.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from wiserouter.learning.estimates import FIELDS
from wiserouter.types import NO_CONTEXT, FloatArray, IntArray

Sums = Mapping[str, FloatArray]
"""Arrays of shape (n_contexts, n_models), by the names in `FIELDS`."""

_UNSEEN = 1e-9
_DRAWS = 2.0**32


class KnownQueries(NamedTuple):
    """Queries whose old and new contexts are known, and their observations.

    Attributes
    ----------
    old, new, model : ndarray of int of shape (n,)
        The contexts before and after, and the model that was called.
    values : ndarray of shape (n, len(FIELDS))
        What each query adds to the sums.
    """

    old: IntArray
    new: IntArray
    model: IntArray
    values: FloatArray


def spread_of(old: IntArray, new: IntArray, n_old: int, freq: FloatArray) -> FloatArray:
    """Return the share of each old context in each new one, of shape (n_old, n_new), by queries that are in both.

    An old context without a query is spread over all new ones by their frequencies.

    Examples
    --------
    >>> spread_of(np.array([0, 0, 0, 0]), np.array([0, 1, 1, 1]), 2, np.array([0.5, 0.5])).round(2).tolist()
    [[0.25, 0.75], [0.5, 0.5]]
    """
    spread = np.tile(_UNSEEN * np.maximum(freq, _UNSEEN), (n_old, 1))
    np.add.at(spread, (old, new), 1.0)
    return np.asarray(spread / spread.sum(axis=1, keepdims=True))


def moved_sums(sums: Sums, spread: FloatArray) -> dict[str, FloatArray]:
    """Return sums in proportion to where their contexts went, each array of shape (n_new, n_models)."""
    return {name: spread.T @ table for name, table in sums.items()}


def correction(sums: Sums, spread: FloatArray, known: KnownQueries) -> dict[str, FloatArray]:
    """Return the sums that set those right which moved in proportion, for queries whose new context is known.

    Each column adds up to 0. Sums that have faded hold less than the queries added, and as much less is set right, so
    that no count becomes negative.
    """
    n_old, n_new = spread.shape
    n_models = next(iter(sums.values())).shape[1]
    found = {}
    for name, values in zip(FIELDS, known.values.T, strict=True):
        table = np.zeros((n_old, n_new, n_models))
        np.add.at(table, (known.old, known.new, known.model), values)
        part = table.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            left = np.where(part > 0.0, np.clip(sums[name] / part, 0.0, 1.0), 0.0)
        exact = np.einsum("onk,ok->nk", table, left)
        found[name] = exact - spread.T @ (part * left)
    return found


def drawn_context(decision_id: str, context: int, spreads: Sequence[FloatArray]) -> int:
    """Return where a decision lies after moves: drawn in proportion, and always the same for one decision.

    Examples
    --------
    >>> halves = np.array([[0.5, 0.5]])
    >>> {drawn_context(str(i), 0, [halves]) for i in range(50)} == {0, 1}
    True
    """
    for at, spread in enumerate(spreads):
        if not NO_CONTEXT < context < len(spread):
            return NO_CONTEXT
        draw = int.from_bytes(blake2b(f"{at}|{decision_id}".encode(), digest_size=4).digest()) / _DRAWS
        context = int(min(np.searchsorted(spread[context].cumsum(), draw, side="right"), spread.shape[1] - 1))
    return context
