"""The oracles of the bench: upper bounds that know the answers of the test half beforehand, not methods.

`oracle` is the linear program over single queries (`reference_policies.oracle_plan`). `oracle-contexts` is the paper's
linear program at the true means of the test half: the most that a plan can expect that knows a query's context only.
`zero-hindsight` and `always-best-hindsight` are `zero` and `always-best` with the means of the test half instead of the
training half: the best mixture of single models, and the best single model at any cost.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wiserouter.evaluation.baselines.base import NOT_SERVED, Terms
from wiserouter.evaluation.bench.serve import ServingTrace
from wiserouter.evaluation.bench.splits import Queries, TrainTestSplit, single_models_plan
from wiserouter.learning.estimates import Estimates
from wiserouter.planning.plan import Plan
from wiserouter.types import FloatArray

Bound = Callable[[TrainTestSplit, Terms], ServingTrace]


def _oracle(split: TrainTestSplit, terms: Terms) -> ServingTrace:
    return _expected(split.test, split.oracle.mix(terms.rate_usd))


def _context_oracle(split: TrainTestSplit, terms: Terms) -> ServingTrace:
    test = split.test
    true = Estimates(split.contexts.n_contexts, len(split.models))
    true.add_table(test.context_ids, *test.answers)
    freq = np.bincount(test.context_ids, minlength=split.contexts.n_contexts) / test.n
    plan = Plan(freq, *true.means(shrink=False), allow_skip=True)
    return _expected(test, plan.mix(terms.rate_usd)[test.context_ids])


def _single_models(split: TrainTestSplit, terms: Terms) -> ServingTrace:
    mix = single_models_plan(split.test).mix(terms.rate_usd)
    return _expected(split.test, np.repeat(mix, split.test.n, axis=0))


def _best_model(split: TrainTestSplit, terms: Terms) -> ServingTrace:  # noqa: ARG001
    reward = split.test.answers.reward
    best = np.zeros_like(reward)
    best[:, reward.mean(axis=0).argmax()] = 1.0
    return _expected(split.test, best)


def _expected(queries: Queries, mix: FloatArray) -> ServingTrace:
    """Return the expected trace of a mix of shape (n_queries, n_models)."""
    served = mix.sum(axis=1)
    return ServingTrace(
        given=np.where(served > 0.0, mix.argmax(axis=1), NOT_SERVED),
        calls=np.ceil(served - 1e-9).astype(np.int64),
        reward=(mix * queries.answers.reward).sum(axis=1),
        cost_usd=(mix * queries.answers.cost_usd).sum(axis=1),
        decide_s=np.zeros(queries.n),
    )


BOUNDS: dict[str, Bound] = {
    "oracle": _oracle,
    "oracle-contexts": _context_oracle,
    "zero-hindsight": _single_models,
    "always-best-hindsight": _best_model,
}
"""The oracles by name; the first is an upper bound on every method."""
