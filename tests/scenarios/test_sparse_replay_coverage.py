"""Replays of sparse logs whose truth is known: dense tables of which each query keeps the answers of some models.

`WISEROUTER_REPLAYS=100 pytest tests/scenarios/test_sparse_replay_coverage.py -s -m slow` prints the figures of
docs/off_policy.md.
"""

import os

import numpy as np
import pytest

from support.tables import PARETO, ROUTERBENCH, SWEBENCH, needs_tables, read
from wiserouter.evaluation.errors import ThinOverlap
from wiserouter.evaluation.sparse_replay import ROUTER, estimate, judged_halves
from wiserouter.evaluation.table import random_halves

pytestmark = [pytest.mark.slow, needs_tables]

REPLAYS = int(os.environ.get("WISEROUTER_REPLAYS", "10"))
SHARES = (0.1, 0.4)
NOISE = 2 * (0.9 * 0.1 / (len(SHARES) * REPLAYS)) ** 0.5


@pytest.mark.parametrize(
    ("name", "answers", "contexts"), [(ROUTERBENCH, 1, 4), (ROUTERBENCH, 3, 16), (PARETO, 1, 4), (SWEBENCH, 5, 4)]
)
def test_intervals_hold_the_outcome_of_the_plan(name, answers, contexts):
    table, rng = read(name), np.random.default_rng(0)
    held, widths, refused = {"reward": [], "cost_usd": []}, [], 0
    for seed in range(REPLAYS):
        halves = [table.rows(half) for half in random_halves(len(table.prompts), seed)][::-1]
        parts = judged_halves(with_answers(table, answers, rng), seed=seed, n_contexts=contexts)
        for share in SHARES:
            low, high = (max(getattr(part.plan, end) for part in parts) for end in ("floor_usd", "ceiling_usd"))
            rate_usd = low + share * (high - low)
            found = estimate(parts, rate_usd * len(table.prompts)).targets[ROUTER]
            for outcome, results in held.items():
                if isinstance(found[outcome], ThinOverlap):
                    refused += 1
                    continue
                interval = found[outcome].mean
                results.append(interval.low <= truth_of(parts, halves, rate_usd, outcome) <= interval.high)
                widths += [interval.high - interval.low] if outcome == "reward" else []
    figures = ", ".join(f"{outcome} {np.mean(results):.3f}" for outcome, results in held.items())
    total = 2 * len(SHARES) * REPLAYS
    setting = f"{name}, {answers} answers, {contexts} contexts"
    print(f"\n{setting}: {figures}, width {np.mean(widths):.3f}, refused {refused} of {total}")
    assert refused <= total / 2
    assert all(np.mean(results) >= 0.9 - NOISE for results in held.values())


def with_answers(table, answers, rng):
    """Return a table in which each query has so many answers, of random models."""
    hidden = rng.random(table.reward.shape).argsort(axis=1).argsort(axis=1) >= answers
    return table._replace(
        reward=np.where(hidden, np.nan, table.reward), cost_usd=np.where(hidden, np.nan, table.cost_usd)
    )


def truth_of(parts, halves, rate_usd, outcome):
    """Return the mean outcome of the plans on their queries, of which every model's outcome is known."""
    each = [
        (part.plan.mix(rate_usd)[part.context] * getattr(half, outcome)).sum(axis=1)
        for part, half in zip(parts, halves, strict=True)
    ]
    return np.concatenate(each).mean()
