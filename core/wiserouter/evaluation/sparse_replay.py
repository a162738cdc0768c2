r"""Replay of a sparse log, in which a query has the answers of some models only: estimates in place of runs.

Such a log cannot be routed, since scores are missing. The outcome of a plan is estimated from the calls that the log
has. With :math:`\pi(k \mid c)` the plan's share of model `k` in context `c`, :math:`p(k \mid c)` the share of the
queries of `c` that have the outcome of `k`, and :math:`\hat q` the means that the plan was made of, each query counts

.. math::
    \sum_k \pi(k \mid c)\, \hat q(c, k) + \sum_{k\ \text{seen}} \frac{\pi(k \mid c)}{p(k \mid c)} (y_k - \hat q(c, k)),

which is doubly robust (Dudik, Langford and Li 2011) and, where every outcome is known, their mean. It holds if, within
a context, which models were asked did not depend on what else bears on scores and costs. Estimated chances can only
make the intervals wider than necessary (Hirano, Imbens and Ridder 2003).

Each half of the queries is judged by the plan of a router that has learned from the other half, so that no plan is
judged by what it has learned from, and every query counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wiserouter.errors import InfeasibleBudget, InvalidInput, LogError
from wiserouter.evaluation.errors import ThinOverlap
from wiserouter.evaluation.off_policy import Estimate, Overlap, doubly_robust, overlap_of
from wiserouter.evaluation.off_policy.overlap import refusal_of, weights_of
from wiserouter.evaluation.replay import check_pool, embeddings_of
from wiserouter.evaluation.table import Table, random_halves
from wiserouter.fitting.log import RoutingLog
from wiserouter.planning.plan import Plan
from wiserouter.pricing.pool import Model
from wiserouter.prompts.encoders import EncoderLike
from wiserouter.router import WiseRouter
from wiserouter.types import FloatArray, IntArray

ROUTER, LOGGED = "wiserouter", "as-logged"
"""Names of the router's plan and of the log's own choices, among the targets."""

Outcome = Literal["reward", "cost_usd"]


class JudgedPlan(NamedTuple):
    """The plan of a router, and the queries whose calls judge it.

    Attributes
    ----------
    plan : Plan
        The linear program of its models in service.
    calls : Table
        The queries, with the columns of these models; NaN where a model was not asked.
    context : ndarray of shape (n_queries,)
        The context of each query in the plan.
    """

    plan: Plan
    calls: Table
    context: IntArray


class Estimated(NamedTuple):
    """An outcome per query, and how much the log shows of it."""

    mean: Estimate
    overlap: Overlap


Result = Estimated | ThinOverlap | None
"""The estimate; the refusal where the log has too few of a target's choices; None where no call has the outcome."""


class SparseReplay(NamedTuple):
    """The estimated outcomes of the plan at a budget, and of other ways to choose.

    Attributes
    ----------
    budget_usd : float
        The budget for all queries.
    queries : int
        Their number.
    seed : int
        The seed of the halves.
    models : dict of str to float
        The share of queries of each model in the plan.
    targets : dict of str to dict
        Reward and cost per query of each target.
    """

    budget_usd: float
    queries: int
    seed: int
    models: dict[str, float]
    targets: dict[str, dict[Outcome, Result]]

    def as_dict(self) -> dict[str, object]:
        """Return everything for JSON, with the other targets by name under `naive`."""
        figures = {name: {str(key): _fields(one) for key, one in found.items()} for name, found in self.targets.items()}
        return {
            "method": ROUTER,
            "queries": self.queries,
            "budget_usd": self.budget_usd,
            "seed": self.seed,
            "models": self.models,
            "level": 0.95,
            **figures.pop(ROUTER),
            "naive": figures,
        }


def queries_with_calls(table: Table, *, runs: bool = False) -> Table:
    """Return the queries of a table that have a call, which is one with a score or a cost.

    Parameters
    ----------
    table : Table
        The queries.
    runs : bool, default False
        Whether they are runs of several calls: one that several models served shows none of them, and is left out.

    Raises
    ------
    LogError
        If none has.
    """
    asked = _asked(table).sum(axis=1)
    kept = np.flatnonzero(asked == 1 if runs else asked > 0)
    if not len(kept):
        whole = " in runs that one model served" if runs else ""
        raise LogError(f"replay needs calls with a score or a cost{whole}, got none")
    return table.rows(kept)


def _asked(table: Table) -> NDArray[np.bool_]:
    """Return True for each query and model with a score or a cost."""
    return np.asarray(~(np.isnan(table.reward) & np.isnan(table.cost_usd)))


def judged_halves(
    table: Table,
    *,
    seed: int,
    encoder: EncoderLike = "tfidf",
    n_contexts: int = 16,
    models: Sequence[Model] | None = None,
) -> list[JudgedPlan]:
    """Fit a router on each half of the queries, and let the calls of the other half judge its plan.

    Parameters
    ----------
    table : Table
        The queries.
    seed : int
        Seed of the halves and of the clusters.
    encoder : str, callable or Encoder, default "tfidf"
        The encoder.
    n_contexts : int, default 16
        Number of contexts.
    models : sequence of Model, optional
        What is known of the models beside the log: their prior qualities and prices decide where scores do not.

    Raises
    ------
    InvalidInput
        If the table has only one query, or a half no cost of a model; or if a model is not in the table.
    """
    n = len(table.prompts)
    if n < 2:
        raise InvalidInput(f"a replay must have two queries or more, to learn from and to route, got {n}", value=n)
    halves = [table.rows(half) for half in random_halves(n, seed)]
    routers = [
        WiseRouter.fit(RoutingLog.from_arrays(*half), encoder=encoder, n_contexts=n_contexts, models=models, seed=seed)
        for half in halves
    ]
    return [judged(router, half) for router, half in zip(routers, halves[::-1], strict=True)]


def judged(router: WiseRouter, table: Table) -> JudgedPlan:
    """Let the calls of all queries judge the plan of a router that was fitted elsewhere.

    Raises
    ------
    InvalidInput
        If the router's models are not all in the table, or it has learned nothing yet.
    """
    check_pool(router, table.models)
    if router.plan is None:
        raise InvalidInput("the router has learned nothing yet, so it has no plan: fit it on a log")
    kept = [k for k, model in enumerate(router.pool.models) if not model.retired]
    names = tuple(router.pool.names[k] for k in kept)
    columns = [table.models.index(name) for name in names]
    plan = Plan(router.plan.freq, router.plan.reward[:, kept], router.plan.cost_usd[:, kept])
    calls = Table(table.prompts, table.reward[:, columns], table.cost_usd[:, columns], names)
    return JudgedPlan(plan, calls, router.contexts.assign_many(embeddings_of(router, table.prompts)))


def estimate(parts: Sequence[JudgedPlan], budget_usd: float, seed: int = 0) -> SparseReplay:
    """Estimate the outcome of the plans at a budget for all queries, and those of one model throughout.

    Raises
    ------
    InvalidInput
        If the budget does not pay for the cheapest models.
    """
    n, names = sum(len(part.context) for part in parts), parts[0].calls.models
    planned = [_planned(part, budget_usd, n) for part in parts]
    targets = {ROUTER: planned, "always-cheapest": _always(parts, lambda plan: -plan.cost_usd)}
    if any(np.isfinite(part.calls.reward).any() for part in parts):  # without a score none is known to be the best
        targets["always-best"] = _always(parts, lambda plan: plan.reward)
    targets[LOGGED] = [_shares(part) for part in parts]
    found = {name: _results(parts, target) for name, target in targets.items()}
    shares = np.vstack(planned).mean(axis=0).tolist()
    return SparseReplay(budget_usd, n, seed, dict(zip(names, shares, strict=True)), found)


def _planned(part: JudgedPlan, budget_usd: float, n_queries: int) -> FloatArray:
    """Return the probability of each model at each query of a part, at a budget for a number of queries."""
    try:
        return part.plan.mix(budget_usd / n_queries)[part.context]
    except InfeasibleBudget as error:
        least = f"at least {error.floor_usd * n_queries:.6g} USD for {n_queries:,} queries, each to its cheapest model"
        raise InvalidInput(f"a budget must be {least}, got {budget_usd:.6g}: raise it", value=budget_usd) from error


def _always(parts: Sequence[JudgedPlan], figure: Callable[[Plan], FloatArray]) -> list[FloatArray]:
    """Return the target that sends everything to the model with the largest mean of a figure over all plans."""
    best = int(np.argmax(sum(part.plan.freq @ figure(part.plan) for part in parts)))
    return [np.eye(part.plan.n_models)[np.full(len(part.context), best)] for part in parts]


def _shares(part: JudgedPlan) -> FloatArray:
    """Return the share of each model among the calls of each query's context."""
    asked = _asked(part.calls)
    share = _mean_by_context(asked / np.maximum(asked.sum(axis=1, keepdims=True), 1), part.context)
    shares: FloatArray = share / share.sum(axis=1, keepdims=True)
    return shares


def _results(parts: Sequence[JudgedPlan], target: Sequence[FloatArray]) -> dict[Outcome, Result]:
    return {
        "reward": _result(parts, target, "reward", [(part.calls.reward, part.plan.reward) for part in parts]),
        "cost_usd": _result(parts, target, "cost_usd", [(part.calls.cost_usd, part.plan.cost_usd) for part in parts]),
    }


def _result(
    parts: Sequence[JudgedPlan], target: Sequence[FloatArray], name: str, of_parts: list[tuple[FloatArray, FloatArray]]
) -> Result:
    """Return the estimate of one outcome, from what each part has seen of it and what its plan predicts."""
    seen = [~np.isnan(outcome) for outcome, _ in of_parts]
    if not any(one.any() for one in seen):
        return None
    chance = np.vstack([_mean_by_context(one, part.context) for one, part in zip(seen, parts, strict=True)])
    outcome = np.vstack([outcome for outcome, _ in of_parts])
    predicted = np.vstack([mean[part.context] for (_, mean), part in zip(of_parts, parts, strict=True)])
    wanted = np.vstack(target)
    nothing, everything = np.zeros(len(wanted)), np.ones(len(wanted))
    acted, drawn = np.column_stack([wanted, nothing]), np.column_stack([chance, nothing])  # the last action skips
    overlap = overlap_of(acted, drawn, parts[0].calls.models)
    if overlap.is_thin:
        return refusal_of(overlap, name)
    errors = np.where(np.isnan(outcome), 0.0, outcome - predicted)
    corrections = (weights_of(wanted, chance) * errors).sum(axis=1)
    return Estimated(doubly_robust(everything, corrections, nothing, (wanted * predicted).sum(axis=1)), overlap)


def _mean_by_context(values: FloatArray, context: IntArray) -> FloatArray:
    """Return for each query the mean of its context's rows."""
    group = np.unique(context, return_inverse=True)[1]
    totals = np.zeros((int(group.max()) + 1, values.shape[1]))
    np.add.at(totals, group, values)
    mean: FloatArray = (totals / np.bincount(group)[:, np.newaxis])[group]
    return mean


def _fields(result: Result) -> dict[str, Any] | None:
    if result is None:
        return None
    if isinstance(result, ThinOverlap):
        return {"refused": str(result)}
    return {**result.mean._asdict(), "worth": result.overlap.effective}
