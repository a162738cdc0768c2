"""The metrics of one run: one method under one budget on one split."""

from __future__ import annotations

from typing import Any

import numpy as np

from wiserouter.evaluation.baselines.base import NOT_SERVED, Terms
from wiserouter.evaluation.bench.serve import ServingTrace
from wiserouter.evaluation.bench.splits import TrainTestSplit, single_models_plan

ResultRow = dict[str, Any]

_ROUNDING = 1e-9


def row_of(method: str, split: TrainTestSplit, terms: Terms, trace: ServingTrace) -> ResultRow:
    """Return the metrics of one run.

    Returns
    -------
    dict
        `quality` is the mean score of all test queries, one not served counting 0; `capped_quality` the same without
        answers beyond the budget; `bound` the quality of the oracle at the budget, and `bound_at_spend` at the actual
        spend; `single_at_spend` that of the best mixture of single models, by their means in the test half, at the
        actual spend; `serve_s` the time of all decisions, with the learning from them; `table_usd` the cost of every
        answer to the training half. `given`, `reward` and `cost_usd` hold one entry per query. Times are processor
        time, in the unit of their names.
    """
    n = len(trace.given)
    spent = trace.cost_usd.cumsum()
    in_budget = spent <= terms.budget_usd * (1.0 + _ROUNDING)
    micros = trace.decide_s * 1e6
    return {
        "method": method,
        "seed": split.seed,
        "budget_usd": terms.budget_usd,
        "queries": n,
        "quality": float(trace.reward.mean()),
        "capped_quality": float(trace.reward[in_budget].sum() / n),
        "spend_usd": float(spent[-1]),
        "spend_ratio": float(spent[-1]) / terms.budget_usd,
        "served": float((trace.given != NOT_SERVED).mean()),
        "calls_per_query": float(trace.calls.mean()),
        "bound": split.oracle.value(terms.rate_usd),
        "bound_at_spend": split.oracle.value(float(spent[-1]) / n),
        "single_at_spend": single_models_plan(split.test).value(float(spent[-1]) / n),
        "table_usd": float(split.train.answers.cost_usd.sum()),
        "prepare_s": split.prepare_s,
        "serve_s": float(trace.decide_s.sum()),
        "decide_us": float(np.median(micros)),
        "decide_p99_us": float(np.quantile(micros, 0.99)),
        "given": trace.given.tolist(),
        "reward": trace.reward.tolist(),
        "cost_usd": trace.cost_usd.tolist(),
    }
