"""Reference policies that need no router, and the oracle, which no policy can exceed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from wiserouter.evaluation.outcome import NOT_SERVED, Outcome, outcome_of
from wiserouter.planning.plan import Plan
from wiserouter.types import FloatArray, IntArray

if TYPE_CHECKING:
    from wiserouter.learning.estimates import Means


def always(model: int, n_queries: int) -> IntArray:
    """Return the same model for every query."""
    return np.full(n_queries, model, dtype=np.int64)


def cheapest_model(means: Means, freq: FloatArray) -> int:
    """Return the model with the lowest mean cost."""
    return int((freq @ means.cost_usd).argmin())


def best_model(means: Means, freq: FloatArray) -> int:
    """Return the model with the highest mean reward, at any cost."""
    return int((freq @ means.reward).argmax())


def single_best(means: Means, rate_usd: float, contexts: IntArray) -> IntArray:
    """Return the best model of each query's context among those with a mean cost of at most `rate_usd`.

    SingleBest of the paper (Section "Baselines"): queries of a context without an affordable model are not served.

    Examples
    --------
    >>> from wiserouter.learning.estimates import Means
    >>> means = Means(reward=np.array([[0.2, 0.9], [0.5, 0.6]]), cost_usd=np.array([[1.0, 3.0], [3.0, 4.0]]))
    >>> single_best(means, 2.0, np.array([0, 1])).tolist()
    [0, -1]
    """
    affordable = means.cost_usd <= rate_usd
    best = np.where(affordable, means.reward, -1.0).argmax(axis=1)
    return np.where(affordable.any(axis=1), best, NOT_SERVED)[contexts]


def oracle_plan(reward: FloatArray, cost_usd: FloatArray) -> Plan:
    """Return the oracle: the linear program over single queries, with every score and cost known beforehand.

    A fractional multiple-choice knapsack, whose value is an upper bound on every choice of answers at the same spend,
    cascades included.

    Parameters
    ----------
    reward, cost_usd : ndarray of shape (n_queries, n_models)
        The true table.
    """
    n = len(reward)
    return Plan(np.full(n, 1.0 / n), reward, cost_usd, allow_skip=True)


def oracle_outcome(
    reward: FloatArray, cost_usd: FloatArray, models: tuple[str, ...], budget_usd: float, seed: int
) -> Outcome:
    """Return the outcome of the oracle under a budget; it may serve a fraction of a query."""
    n = len(reward)
    plan, rate = oracle_plan(reward, cost_usd), budget_usd / n
    mix = plan.mix(rate)
    return Outcome(
        method="oracle",
        queries=n,
        served=round(float(mix.sum())),
        quality=plan.value(rate),
        spend_usd=plan.spend_usd(rate) * n,
        budget_usd=budget_usd,
        seed=seed,
        models={name: float(share) for name, share in zip(models, mix.mean(axis=0), strict=True)},
    )


def reference_outcomes(
    means: Means,
    freq: FloatArray,
    contexts: IntArray,
    reward: FloatArray,
    cost_usd: FloatArray,
    *,
    models: tuple[str, ...],
    budget_usd: float,
    seed: int,
) -> list[Outcome]:
    """Return the outcomes of always-cheapest, always-best, single-best per context and the oracle on one test set."""
    n = len(reward)
    chosen = {
        "always-cheapest": always(cheapest_model(means, freq), n),
        "always-best": always(best_model(means, freq), n),
        "single-best": single_best(means, budget_usd / n, contexts),
    }
    outcomes = [
        outcome_of(method, picks, reward, cost_usd, models=models, budget_usd=budget_usd, seed=seed)
        for method, picks in chosen.items()
    ]
    return [*outcomes, oracle_outcome(reward, cost_usd, models, budget_usd, seed)]
