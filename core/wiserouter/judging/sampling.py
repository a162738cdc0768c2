r"""The calls that are judged: more of them at the start of a horizon, and of rarely chosen models a larger share.

A score pays over the requests still to come, so that it is worth most at first. When the share `x` of the horizon has
passed, the share of the calls that is taken is

.. math:: \min(1, c / \sqrt{x}), \qquad c = 1 - \sqrt{1 - s},

which over the whole horizon is the share `s`.

Of a model with `n` calls the share `min(1, c / sqrt(n))` is taken, where `c` makes the shares of all models add up to
the share of all calls. What a model is worth is known as well as it has been judged, and so is whether a judge prefers
cheap models. In equal shares, a router that nearly always chooses one model has hardly a score of the others. Within
each context and model the sample is systematic: whatever was asked or answered, the next call has the same chance.
"""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Callable, Collection

from wiserouter.errors import InvalidInput

MOST_STRATA = 10_000
"""Pairs of context and model, and models, that are counted; the one met longest ago is forgotten first."""

RECOUNT_GROWTH = 1.05
"""The shares of the models are computed again after 5 % more calls, or when the share of all has changed by as much."""


class SystematicSample:
    """Takes every n-th call of each context and model, from a random start.

    Parameters
    ----------
    share : float
        The share of all calls to take, in [0, 1].
    rng : random.Random
        Draws the starts.
    passed : callable, optional
        Returns the share of the horizon that has passed; without it, calls are taken evenly.

    Examples
    --------
    Of a single model the share itself is taken, and of two the rare one is taken more often:

    >>> sample = SystematicSample(0.25, random.Random(0))
    >>> sum(sample.takes(0, "small") for _ in range(100))
    25
    >>> sum(sample.takes(0, "large") for _ in range(4))
    4
    """

    def __init__(self, share: float, rng: random.Random, passed: Callable[[], float] | None = None) -> None:
        if not (isinstance(share, int | float) and 0.0 <= share <= 1.0):
            raise InvalidInput(f"share must lie in [0, 1], got {share!r}: it is the share of the calls to judge")
        self.share, self._rng, self._passed = float(share), rng, passed
        self._calls: OrderedDict[str, int] = OrderedDict()
        self._phase: OrderedDict[tuple[int, str], float] = OrderedDict()
        self._n, self._counted, self._level, self._level_share = 0, 0, 0.0, 0.0
        self._taken, self._wanted = 0, 0.0

    def takes(self, context: int, model: str) -> bool:
        """Return True if the next call of a model in a context is taken."""
        stratum = context, model
        phase = self._phase.get(stratum)
        if phase is None:
            phase = self._rng.random()
            _make_room(self._phase)
        phase += self._share_of(model)
        taken = phase >= 1.0
        self._taken += taken
        self._phase[stratum] = phase - taken
        return taken

    def _share_of(self, model: str) -> float:
        """Count a call of a model, and return the share of its calls that is taken now."""
        calls = self._calls.get(model, 0) + 1
        if calls == 1:
            _make_room(self._calls)
        self._calls[model] = calls
        self._n += 1
        share = self.share if self._passed is None else share_at(self.share, self._passed())
        self._wanted += share
        if share == 1.0:
            return share
        changed = abs(share - self._level_share) >= (RECOUNT_GROWTH - 1.0) * share > 0.0
        if changed or self._n >= self._counted * RECOUNT_GROWTH:
            self._counted, self._level, self._level_share = self._n, level(self._calls.values(), share), share
        # between two counts the level grows as where all models are chosen in the same proportions; where they have
        # changed, more is taken than is wanted, and less of the calls to come
        surplus = max(self._taken / self._wanted, 1.0) if self._wanted else 1.0
        return min(1.0, self._level * math.sqrt(self._n / self._counted / calls) / surplus**2)


def share_at(share: float, passed: float) -> float:
    """Return the share of the calls to take when a share of the horizon has passed.

    Examples
    --------
    >>> [round(share_at(0.2, passed), 3) for passed in (0.0, 0.01, 0.1, 0.5, 1.0)]
    [1.0, 1.0, 0.334, 0.149, 0.106]
    >>> share_at(1.0, 0.5), share_at(0.0, 0.5)
    (1.0, 0.0)
    """
    first = 1.0 - math.sqrt(1.0 - share)
    if passed > first * first:
        return first / math.sqrt(passed)
    return 1.0 if share else 0.0


def level(calls: Collection[int], share: float) -> float:
    """Return the `c` for which the models' shares min(1, c / sqrt(n)) are a share of all calls.

    Examples
    --------
    >>> c = level([100, 16], 0.25)  # 25 of the 116, and 4 more: 10 c + 4 c = 29
    >>> round(c, 4), round(level([100, 1], 0.5) / 10, 4)
    (2.0714, 0.495)
    """
    rest, wanted = sorted(calls, reverse=True), share * sum(calls)
    while True:  # the rarest model is taken in full where its share would be 1 or more
        found = wanted / sum(math.sqrt(n) for n in rest)
        if len(rest) == 1 or found < math.sqrt(rest[-1]):
            return found
        wanted -= rest.pop()


def _make_room(kept: OrderedDict) -> None:  # type: ignore[type-arg]
    if len(kept) >= MOST_STRATA:
        kept.popitem(last=False)
