"""The calls that are judged: a uniform share of those of each context and model."""

from __future__ import annotations

import random
from collections import OrderedDict

from wiserouter.errors import InvalidInput

MOST_STRATA = 10_000
"""Pairs of context and model that are counted; the one met longest ago is forgotten first."""


class SystematicSample:
    """Takes every n-th call of each stratum, from a random start.

    Parameters
    ----------
    share : float
        The share of the calls to take, in [0, 1].
    rng : random.Random
        Draws the starts.

    Examples
    --------
    >>> sample = SystematicSample(0.25, random.Random(0))
    >>> sum(sample.takes("small") for _ in range(100))
    25
    """

    def __init__(self, share: float, rng: random.Random) -> None:
        if not (isinstance(share, int | float) and 0.0 <= share <= 1.0):
            raise InvalidInput(f"share must lie in [0, 1], got {share!r}: it is the share of the calls to judge")
        self.share, self._rng = float(share), rng
        self._phase: OrderedDict[object, float] = OrderedDict()

    def takes(self, stratum: object) -> bool:
        """Return True if the next call of a stratum is taken."""
        phase = self._phase.get(stratum)
        if phase is None:
            phase = self._rng.random()
            if len(self._phase) >= MOST_STRATA:
                self._phase.popitem(last=False)
        phase += self.share
        taken = phase >= 1.0
        self._phase[stratum] = phase - taken
        return taken
