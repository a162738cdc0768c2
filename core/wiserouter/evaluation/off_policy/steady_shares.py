r"""Whether what runs without the router is drawn with the same shares at all times, as its estimate assumes.

Of each unit the first call is a draw: those that follow may have been drawn with it, and where each is drawn by itself,
the rarer model is met later. The draws are divided into parts by time. With `n_i` draws in a part, of which `k_i` are
of the model that is drawn most often, in a share `p` of all, :math:`\sum_i (k_i - n_i p)^2 / (n_i p (1 - p))` has the
distribution of chi-square where the shares are the same. Its quantile is that of Wilson and Hilferty (1931).
"""

from __future__ import annotations

import math

import numpy as np

from wiserouter.evaluation.off_policy.shadow_calls import UNNAMED, ShadowCalls

LEAST_DRAWS = 30
"""Draws of a part."""

MOST_PARTS = 50
"""Parts of a journal."""

CHANCE_Z = 3.1
"""Standard errors beyond which shares differ by more than chance: once in a thousand journals."""


def shares_are_steady(calls: ShadowCalls) -> bool:
    """Return False where the models that ran without the router, unnamed, had other shares at other times."""
    seen = np.flatnonzero(~calls.acted & (calls.incumbent == UNNAMED))
    drawn = calls.ran[seen][np.sort(np.unique(calls.unit[seen], return_index=True)[1])]
    n_parts = min(len(drawn) // LEAST_DRAWS, MOST_PARTS)
    if n_parts < 2:
        return True
    is_most = drawn == np.bincount(drawn).argmax()
    p = float(is_most.mean())
    if p == 1.0:
        return True
    parts = np.array_split(is_most, n_parts)
    square = sum((part.sum() - len(part) * p) ** 2 / (len(part) * p * (1.0 - p)) for part in parts)
    free = n_parts - 1
    spread = 2.0 / (9.0 * free)
    return float((square / free) ** (1.0 / 3.0) - 1.0 + spread) <= CHANCE_Z * math.sqrt(spread)
