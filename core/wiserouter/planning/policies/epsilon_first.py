"""WR-Online, epsilon-first (paper, Algorithm 2): explore for a number of requests, then follow the plan.

Where the paper's Confidence Level Test passes, exploration ends earlier.

Departures under `accounting="actual"`: means are shrunk, every call debits its true cost, and the plan follows the
estimates as they grow; under `"paper"` the estimates freeze when exploration ends and exploitation debits their means.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wiserouter.budgets.funds import Funds
from wiserouter.learning.estimates import Estimates
from wiserouter.planning.choice_inputs import ContextFigures
from wiserouter.planning.policies.confidence_test import ordering_is_certain
from wiserouter.planning.policies.offline import Offline
from wiserouter.planning.policy import Accounting, Allowed, Choice
from wiserouter.planning.shift import Shift
from wiserouter.pricing.pool import Model
from wiserouter.types import NO_CONTEXT, FloatArray
from wiserouter.validation import check_amount, check_count, check_delta

PER_PAIR = 4
"""Exploration requests per (context, model) by default, and before the first test."""

TEST_GROWTH = 1.05
"""The test is made again each time that there are 5 % more observations."""


class EpsilonFirst(Offline):
    """Explores the least-invoked model of each context for `length` requests, then follows the plan.

    Parameters
    ----------
    length : int, optional
        Number of exploration requests, epsilon(T) in the paper; 4 per (context, model) by default. With
        `confidence_delta` it is the largest number, and by default there is none: exploration lasts until the test
        passes.
    accounting : {"actual", "paper"}, default "actual"
        Debit true costs, or after exploration their estimated means.
    allow_skip : bool, default False
        Allow the paper's null action.
    confidence_delta : float, optional
        End exploration as soon as `ordering_is_certain` at this delta in (0, 1). It needs rewards for every pair.
    cost_scale_usd : float, optional
        The most that a call can cost, for that test; the largest mean cost by default.

    Raises
    ------
    InvalidInput
        If `length` is not a whole number of at least 1, `confidence_delta` not between 0 and 1, or `cost_scale_usd`
        not a finite number of at least 0.

    Notes
    -----
    The test is conservative (paper, Appendix "Confidence Level Test"): where models are close in cost it asks for more
    requests than most workloads have, so give `length` too. It is first made after 4 requests per pair; two models in
    one context have a single ratio and nothing to compare it with, so that exploration ends there.
    """

    name = "epsilon-first"

    def __init__(
        self,
        length: int | None = None,
        *,
        accounting: Accounting = "actual",
        allow_skip: bool = False,
        confidence_delta: float | None = None,
        cost_scale_usd: float | None = None,
    ) -> None:
        super().__init__(accounting=accounting, allow_skip=allow_skip)
        self.length = None if length is None else check_count("length", length, least=1)
        self.confidence_delta = None if confidence_delta is None else check_delta("confidence_delta", confidence_delta)
        self.cost_scale_usd = None if cost_scale_usd is None else check_amount("cost_scale_usd", cost_scale_usd)

    def bind(self, freq: FloatArray, estimates: Estimates, models: Sequence[Model] = ()) -> None:
        """Take the context frequencies, and the estimates that the router keeps up to date."""
        self._freq, self._estimates, self._mixture, self._solve_at = freq, estimates, None, 0.0
        default = PER_PAIR * estimates.calls.size
        self._length = self.length or (default if self.confidence_delta is None else float("inf"))
        self._test_at = 2.0 * default  # a cost and a reward each
        self._certain = False

    def choose(
        self, context: int, funds: Funds, rng: np.random.Generator, allowed: Allowed = None, shift: Shift | None = None
    ) -> Choice:
        """Draw the least-invoked model while exploring, then from the plan's mix at rate b / tau."""
        exploring = self._estimates.n_invoked < self._length and not self._is_certain()
        if exploring or self._current() is None:
            return self._explore(context, rng, allowed)
        return super().choose(context, funds, rng, allowed, shift)

    def settings(self) -> dict[str, object]:
        """Return the keyword arguments that make an equal policy."""
        return {
            "length": self.length,
            **super().settings(),
            "confidence_delta": self.confidence_delta,
            "cost_scale_usd": self.cost_scale_usd,
        }

    def _is_certain(self) -> bool:
        """Return True once the test has passed; it is made again if enough was learned."""
        seen = self._estimates
        if self.confidence_delta is not None and not self._certain and seen.n_observations >= self._test_at:
            self._test_at = seen.n_observations * TEST_GROWTH
            self._certain = ordering_is_certain(
                seen.reward / np.maximum(seen.labels, 1.0),
                seen.cost / np.maximum(seen.calls, 1.0),
                np.minimum(seen.labels, seen.calls),
                self.confidence_delta,
                cost_scale_usd=self.cost_scale_usd,
                allow_skip=self.allow_skip,
            )
        return self._certain

    def _explore(self, context: int, rng: np.random.Generator, allowed: Allowed) -> Choice:
        invoked = _of_context(self._estimates.invoked, context)
        models = list(range(len(invoked)) if allowed is None else allowed)
        fewest = invoked[models].min()
        tied = [k for k in models if invoked[k] == fewest]
        model = tied[int(rng.integers(len(tied)))]
        seen = self._estimates
        tables = (seen.calls, seen.cost, seen.labels, seen.reward)
        calls, cost, labels, reward = (_of_context(table, context) for table in tables)
        means = (reward / np.maximum(labels, 1.0)).tolist(), (cost / np.maximum(calls, 1.0)).tolist()
        figures = ContextFigures(*means, calls.tolist(), labels.tolist(), [], invoked=invoked.tolist())
        mix = tuple([(k, 1.0 / len(tied)) for k in tied])
        expected_reward, expected_usd = figures.means(model)  # a call of unknown cost is expected to cost nothing
        return Choice(model, 1.0 / len(tied), 0.0, expected_usd, expected_reward, "actual", mix, figures, "explore")


def _of_context(table: FloatArray, context: int) -> FloatArray:
    """Return the row of a context, or the sum of all rows where there is none."""
    row: FloatArray = table.sum(axis=0) if context == NO_CONTEXT else table[context]
    return row
