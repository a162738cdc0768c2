"""Replay of a dense log: the router learns from one half and routes the other half under a budget.

The protocol is that of the paper (Section "LLM Routing Experiment Setup"): a 50:50 split by seed, statistics from the
training half, and a workload budget for the test half. The router is called as in production: decide, charge, reward.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wiserouter.budgets.budget import Budget
from wiserouter.errors import BudgetError, InvalidInput, LogError, QuerySkipped
from wiserouter.evaluation.outcome import NOT_SERVED, Outcome, outcome_of
from wiserouter.evaluation.reference_policies import reference_outcomes
from wiserouter.evaluation.table import Table, random_halves
from wiserouter.fitting.log import LogBatch, LogColumns, RoutingLog
from wiserouter.fitting.log.layout import CONVERSATION
from wiserouter.planning.policies import Policy
from wiserouter.prompts.encoders import EncoderLike
from wiserouter.router import WiseRouter
from wiserouter.types import Embedding, FloatArray, IntArray

Tick = Callable[[int], None]


class Replay(NamedTuple):
    """The outcomes of the router, the reference policies and the oracle on the same queries."""

    outcome: Outcome
    references: list[Outcome]

    def as_dict(self) -> dict[str, object]:
        """Return the router's figures for JSON, with those of the other policies by name under `naive`."""
        return {**self.outcome.as_dict(), "naive": {other.method: other.as_dict() for other in self.references}}


class ReplaySetup(NamedTuple):
    """A fitted router and the test queries that it is to serve, with their embeddings and contexts."""

    router: WiseRouter
    test: Table
    embeddings: Embedding
    contexts: IntArray
    seed: int


def open_log(path: str | Path, *, columns: LogColumns | None = None, **settings: Any) -> RoutingLog:
    """Return a log to replay; where it has a column `conversation`, that is the id of its queries: of runs.

    The parameters are those of `RoutingLog.read`.
    """
    log = RoutingLog.read(path, columns=columns, **settings)
    if CONVERSATION not in log.columns():
        return log
    return RoutingLog.read(path, columns=replace(columns or LogColumns(), query_id=CONVERSATION), **settings)


def table_of(log: RoutingLog) -> Table:
    """Return all queries of a log; NaN where a score or a cost is missing.

    The calls of a conversation are one query: a run, with the text of its first call, the cost of all calls and their
    mean score.
    """
    batch: LogBatch = log.totals() if log.layout.of_runs else log.table()
    return Table(batch.prompts, batch.reward, batch.cost_usd, log.models)


def complete_queries(table: Table) -> tuple[Table, int]:
    """Return the queries that have a score and a cost for every model, and the number of queries left out.

    Raises
    ------
    LogError
        If no query is complete.
    """
    if not len(kept := np.flatnonzero(table.complete)):
        raise LogError(
            "a dense table needs queries with a score and a cost of every model, got none: name fewer models, or say "
            "by a column query_id which rows are of one query"
        )
    return table.rows(kept), len(table.prompts) - len(kept)


def prepare(
    table: Table,
    *,
    seed: int,
    encoder: EncoderLike = "tfidf",
    n_contexts: int = 16,
    policy: Policy | None = None,
    estimator: str = "smoothed",
    rate_usd: float | None = None,
) -> ReplaySetup:
    """Fit a router on one half of a table as `WiseRouter.fit` does, and assign the other half to its contexts.

    Under a hard limit the worst case of a call is the most expensive call of its model in the whole table.

    Raises
    ------
    InvalidInput
        If the table has only one query.
    """
    n = len(table.prompts)
    if n < 2:
        raise InvalidInput(f"a replay must have two queries or more, to learn from and to route, got {n}", value=n)
    train, test = (table.rows(half) for half in random_halves(n, seed))
    router = WiseRouter.fit(
        RoutingLog.from_arrays(*train),
        encoder=encoder,
        n_contexts=n_contexts,
        policy=policy,
        estimator=estimator,
        rate_usd=rate_usd,
        seed=seed,
    )
    return _setup(router, test, table.cost_usd.max(axis=0), seed)


def prepare_with(router: WiseRouter, table: Table, *, seed: int) -> ReplaySetup:
    """Assign all queries of a table to the contexts of a router that was fitted elsewhere.

    Raises
    ------
    InvalidInput
        If the router's models are not all in the table.
    """
    names = router.pool.names
    check_pool(router, table.models)
    columns = [table.models.index(name) for name in names]
    same = Table(table.prompts, table.reward[:, columns], table.cost_usd[:, columns], names)
    return _setup(router, same, same.cost_usd.max(axis=0), seed)


def check_pool(router: WiseRouter, models: Collection[str]) -> None:
    """Raise `InvalidInput` if a model of the router is not among those of a log."""
    missing = set(router.pool.names) - set(models)
    if missing:
        raise InvalidInput(f"the log must hold every model of the router, got none of {', '.join(sorted(missing))}")


def run(setup: ReplaySetup, budget: Budget, tick: Tick | None = None) -> Replay:
    """Route the test queries under a budget, and compare with the reference policies and the oracle."""
    router = _fresh(setup)
    router.start(budget)
    test = setup.test
    chosen = np.fromiter(_served(router, setup, tick), dtype=np.int64, count=len(test.prompts))
    figures = {"models": test.models, "budget_usd": budget.amount_usd, "seed": setup.seed}
    outcome = outcome_of("wiserouter", chosen, test.reward, test.cost_usd, **figures)  # type: ignore[arg-type]
    means = setup.router.estimates.means(shrink=False)
    references = reference_outcomes(
        means,
        setup.router.contexts.freq,
        setup.contexts,
        test.reward,
        test.cost_usd,
        **figures,  # type: ignore[arg-type]
    )
    return Replay(outcome, references)


def _served(router: WiseRouter, setup: ReplaySetup, tick: Tick | None) -> Iterable[int]:
    """Yield the model that serves each test query, in order."""
    test = setup.test
    for i, embedding in enumerate(setup.embeddings):
        if tick is not None:
            tick(1)
        try:
            decision = router.decide(embedding=embedding)
        except (BudgetError, QuerySkipped):
            yield NOT_SERVED
            continue
        model = router.pool.index(decision.model)
        router.charge(decision, float(test.cost_usd[i, model]))
        router.reward(decision, float(test.reward[i, model]))
        yield model


def _setup(router: WiseRouter, test: Table, max_cost_usd: FloatArray, seed: int) -> ReplaySetup:
    models = [replace(m, max_cost_usd=float(d)) for m, d in zip(router.pool.models, max_cost_usd, strict=True)]
    bounded = WiseRouter(
        models,
        router.contexts,
        encoder=router.encoder,
        policy=router.policy,
        estimates=router.estimates,
        residuals=router.residuals,
        seed=seed,
    )
    embeddings = embeddings_of(bounded, test.prompts)
    return ReplaySetup(bounded, test, embeddings, bounded.contexts.assign_many(embeddings), seed)


def embeddings_of(router: WiseRouter, prompts: list[str]) -> Embedding:
    """Return the embeddings of prompts as far as the router reads them: of no dimension where it has one context."""
    if router.encoder is None or (router.contexts.n_contexts == 1 and router.residuals is None):
        return np.zeros((len(prompts), 0), dtype=np.float32)
    return router.encoder.encode_many(prompts)


def _fresh(setup: ReplaySetup) -> WiseRouter:
    """Return a router with the history of the setup, without what earlier runs learned."""
    router = setup.router
    policy = type(router.policy)(**router.policy.settings())
    residuals = None if router.residuals is None else router.residuals.copy()
    estimates = router.estimates.copy()
    return WiseRouter(
        router.pool.models, router.contexts, policy=policy, estimates=estimates, residuals=residuals, seed=setup.seed
    )
