"""What could be reached by knowing the answers of the test half beforehand: bounds, not methods.

`oracle` is the linear program over single queries, a multiple-choice knapsack with fractions: it bounds every choice of
answers at the same spend, cascades included. `oracle-contexts` is the paper's linear program at the true means of the
test half: the most that a plan can expect which sees nothing of a query but its context.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wiserouter.evaluation.baselines.base import NOT_SERVED, Terms
from wiserouter.evaluation.bench.serve import Trace
from wiserouter.evaluation.bench.splits import Queries, Split
from wiserouter.learning.estimates import Estimates
from wiserouter.planning.plan import Plan
from wiserouter.types import FloatArray

Bound = Callable[[Split, Terms], Trace]


def oracle(halves: Split, terms: Terms) -> Trace:
    """Return the best choice of answers for the budget; of one query a fraction."""
    return _expected(halves.test, halves.bound.mix(terms.rate_usd))


def oracle_contexts(halves: Split, terms: Terms) -> Trace:
    """Return what the plan at the true means of the test half expects."""
    test = halves.test
    true = Estimates(halves.contexts.n_contexts, len(halves.models))
    true.add_table(test.placed, *test.answers)
    freq = np.bincount(test.placed, minlength=halves.contexts.n_contexts) / test.n
    plan = Plan(freq, *true.means(shrink=False), allow_skip=True)
    return _expected(test, plan.mix(terms.rate_usd)[test.placed])


def _expected(queries: Queries, mix: FloatArray) -> Trace:
    """Return what a mix of shape (n_queries, n_models) expects of every query."""
    served = mix.sum(axis=1)
    return Trace(
        given=np.where(served > 0.0, mix.argmax(axis=1), NOT_SERVED),
        calls=np.ceil(served - 1e-9).astype(np.int64),
        reward=(mix * queries.answers.reward).sum(axis=1),
        cost_usd=(mix * queries.answers.cost_usd).sum(axis=1),
        decide_s=np.zeros(queries.n),
    )


BOUNDS: dict[str, Bound] = {"oracle": oracle, "oracle-contexts": oracle_contexts}
"""By name; the first bounds all methods."""
