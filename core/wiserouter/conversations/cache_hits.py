r"""The probability that a provider still has a prefix in its cache, learned from the tokens that bills say were read.

With the share :math:`s_i` of the warm prefix that call :math:`i` read, of :math:`n` calls after a gap of one bucket,

.. math:: \hat p = \frac{\kappa\, p_0 + \sum_i s_i}{\kappa + n}

is the posterior mean of a Beta prior of mean :math:`p_0` that counts for :math:`\kappa = 2` calls: two misses halve it,
so that a caller who never caches is soon known. Providers keep prefixes for 5 minutes after their last use, some of
them for up to an hour, so the gap since the last call has three buckets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from wiserouter.errors import InvalidInput
from wiserouter.learning.shrinkage import PRIOR_COUNT
from wiserouter.pricing.prices import Price
from wiserouter.types import FloatArray

USUAL_LIFETIME_S = 300.0
GAP_BOUNDS_S = (USUAL_LIFETIME_S, 3600.0)
"""The ends of the first two buckets of gaps: the usual lifetime of a cached prefix, and the longest common one."""

PRIOR_HIT = (0.9, 0.2, 0.02)
"""Prior hit probability per bucket. In published logs of coding agents, one model held for a session reads 89 to 93 %
of its prompts from the cache within the usual lifetime; few providers keep a prefix for longer."""


def bucket_of(gap_s: float) -> int:
    """Return the bucket of a gap: 0 up to 5 minutes, 1 up to 1 hour, 2 beyond.

    Examples
    --------
    >>> bucket_of(300.0), bucket_of(301.0), bucket_of(7200.0)
    (0, 1, 2)
    """
    return bisect_left(GAP_BOUNDS_S, gap_s)


class CacheHits:
    """Hit probability per (model, gap since its last call), and what first visits and writes look like.

    Parameters
    ----------
    prices : sequence of Price or None
        One per model. A model whose reads are not cheaper than its input has no cache that matters.

    Examples
    --------
    >>> hits = CacheHits([Price(input=3e-6, output=15e-6, cache_read=3e-7)])
    >>> hits.hit_probability(0, gap_s=60.0)
    0.9
    >>> for _ in range(2):
    ...     hits.learn(0, gap_s=60.0, warm_tokens=8000, read_tokens=0)
    >>> hits.hit_probability(0, gap_s=60.0)
    0.45
    """

    def __init__(self, prices: Sequence[Price | None]) -> None:
        self._caches = [price is not None and price.cache_read_usd < price.input for price in prices]
        n_models, n_gaps = len(prices), len(PRIOR_HIT)
        self.calls, self.shares = np.zeros((n_models, n_gaps)), np.zeros((n_models, n_gaps))
        self.firsts, self.shared_tokens = np.zeros(n_models), np.zeros(n_models)
        self.unread_tokens, self.written_tokens = np.zeros(n_models), np.zeros(n_models)
        self._refresh()

    def hit_probability(self, model: int, gap_s: float) -> float:
        """Return the expected share of a warm prefix that a call after `gap_s` seconds reads from the cache."""
        return self._hit[model][bucket_of(gap_s)]

    @property
    def of_all(self) -> tuple[list[list[float]], list[float]]:
        """The hit probabilities by bucket of gap, and `first_read_tokens`, each for all models."""
        return self._hit, self._first_read

    def first_read_tokens(self, model: int) -> float:
        """Return the mean tokens that a first visit reads: the system prompt that conversations share; 0 if unknown."""
        return self._first_read[model]

    def write_share(self, model: int) -> float:
        """Return the share of the unread prompt tokens that is billed as written to the cache; 1 before any is known.

        Providers bill writes only where the caller, or the provider by itself, marks the prompt for caching.
        """
        return self._write_share[model]

    def learn(self, model: int, gap_s: float, warm_tokens: int, read_tokens: int) -> None:
        """Count a call that had a warm prefix; one that had none teaches nothing here."""
        if warm_tokens <= 0:
            return
        bucket = bucket_of(gap_s)
        self.calls[model, bucket] += 1.0
        self.shares[model, bucket] += min(read_tokens / warm_tokens, 1.0)
        self._hit[model][bucket] = self._posterior(model, bucket)

    def learn_first(self, model: int, read_tokens: int) -> None:
        """Count the first visit of a conversation to a model, and the tokens that it read from the cache."""
        self.firsts[model] += 1.0
        self.shared_tokens[model] += read_tokens
        self._first_read[model] = _ratio(self.shared_tokens[model], self.firsts[model], 0.0)

    def learn_write(self, model: int, unread_tokens: int, written_tokens: int) -> None:
        """Count the prompt tokens that a call did not read, and those of them that were billed as written."""
        self.unread_tokens[model] += unread_tokens
        self.written_tokens[model] += written_tokens
        self._write_share[model] = min(_ratio(self.written_tokens[model], self.unread_tokens[model], 1.0), 1.0)

    def merge(self, other: CacheHits) -> None:
        """Add the sums of another worker; the order of merges never matters."""
        for name, sums in other.arrays().items():
            mine = getattr(self, name)
            if mine.shape != sums.shape:
                raise InvalidInput(f"cache hits to merge must have shape {mine.shape}, got {sums.shape}")
            mine += sums
        self._refresh()

    def add_model(self, price: Price | None) -> None:
        """Take one more model, at the prior."""
        self._caches.append(price is not None and price.cache_read_usd < price.input)
        for name, sums in self.arrays().items():
            setattr(self, name, np.concatenate([sums, np.zeros((1, *sums.shape[1:]))]))
        self._refresh()

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return the sums by name, for an artifact."""
        names = ("calls", "shares", "firsts", "shared_tokens", "unread_tokens", "written_tokens")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def of_arrays(cls, prices: Sequence[Price | None], arrays: Mapping[str, FloatArray]) -> Self:
        """Return the cache hits of a pool with these prices, whose `arrays()` these are."""
        hits = cls(prices)
        for name, sums in hits.arrays().items():
            sums[...] = arrays[name]
        hits._refresh()
        return hits

    def _posterior(self, model: int, bucket: int) -> float:
        if not self._caches[model]:
            return 0.0
        seen, read = float(self.calls[model, bucket]), float(self.shares[model, bucket])
        return (PRIOR_COUNT * PRIOR_HIT[bucket] + read) / (PRIOR_COUNT + seen)

    def _refresh(self) -> None:
        models = range(len(self._caches))
        self._hit = [[self._posterior(k, b) for b in range(len(PRIOR_HIT))] for k in models]
        self._first_read = [_ratio(self.shared_tokens[k], self.firsts[k], 0.0) for k in models]
        self._write_share = [min(_ratio(self.written_tokens[k], self.unread_tokens[k], 1.0), 1.0) for k in models]


def _ratio(part: float, whole: float, otherwise: float) -> float:
    """Return part / whole as a plain number, and another value where the whole is 0."""
    return float(part / whole) if whole else otherwise
