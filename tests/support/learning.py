"""Learning on the public tables from single observations and a price list, compared with a router fitted on them."""

from typing import NamedTuple

import numpy as np

from support.tables import PARETO, ROUTERBENCH, SWEBENCH
from wiserouter import Budget, Contexts, Estimates, Growing, Model, Offline, Optimistic, Price, WiseRouter, open_encoder
from wiserouter.errors import BudgetError
from wiserouter.evaluation.table import Table, random_halves

FITTED_CONTEXTS = 16

USD_PER_MTOK = {  # input and output, as published, by column of the table
    ROUTERBENCH: (
        (1, 2), (0.8, 2.4), (8, 24), (8, 24), (10, 30), (0.9, 0.9), (0.6, 0.6), (0.8, 0.8), (0.3, 0.3), (0.776, 0.776),
        (0.2, 0.2),
    ),
    PARETO: ((0.02, 0.03), (0.5, 1.5), (1.25, 10), (0.3, 2.5)),
    SWEBENCH: (
        (0.2, 0.6), (3, 15), (1.25, 10), (1.1, 4.4), (15, 75), (0.9, 3), (1.25, 10), (0.25, 2), (0.05, 0.4), (0.1, 0.5),
    ),
}  # fmt: skip


class EncodedSplit(NamedTuple):
    """A table split by seed, and the contexts of its queries, fitted on the prompts of the training half."""

    table: Table
    train: np.ndarray
    test: np.ndarray
    embeddings: np.ndarray
    fitted: Contexts
    contexts: np.ndarray
    seed: int


class Learned(NamedTuple):
    """Quality on the test half, of the router that learned and of the fitted one, and the spend of the former.

    A budget binds where more of it would still buy reward, by the final estimates of the router that learned.
    """

    quality: float
    fitted_quality: float
    spend_ratio: float
    binds: bool


def encoded_split(table: Table, seed: int) -> EncodedSplit:
    train, test = random_halves(len(table.prompts), seed)
    prompts = [table.prompts[i] for i in train]
    embeddings = open_encoder("tfidf").fit(prompts).encode_many(table.prompts)
    fitted = Contexts.fit(embeddings[train], FITTED_CONTEXTS, seed=seed)
    return EncodedSplit(table, train, test, embeddings, fitted, fitted.assign_many(embeddings), seed)


def served(router: WiseRouter, split: EncodedSplit, order: np.ndarray) -> np.ndarray:
    """Return the score of each query, 0 if it was not served."""
    table, scores = split.table, np.zeros(len(order))
    for at, i in enumerate(order):
        try:
            decision = router.decide(embedding=split.embeddings[i])
        except BudgetError:
            continue
        model = router.pool.index(decision.model)
        router.charge(decision, float(table.cost_usd[i, model]))
        router.reward(decision, float(table.reward[i, model]))
        scores[at] = table.reward[i, model]
    return scores


def learned(name: str, split: EncodedSplit, rate_usd: float) -> Learned:
    """Learn on the training half and serve the test half out of one budget, beginning with one context."""
    table, train, test, *_ = split
    models = [
        Model(model, Price(*(usd / 1e6 for usd in price)))
        for model, price in zip(table.models, USD_PER_MTOK[name], strict=True)
    ]
    order = np.concatenate([np.random.default_rng(100 + split.seed).permutation(train), test])
    router = WiseRouter(models, growing=Growing(background=False), policy=Optimistic(), seed=split.seed)
    router.start(Budget(rate_usd * len(order), len(order)))
    quality = float(served(router, split, order)[len(train) :].mean())
    status, plan = router.status(), router.plan
    binds = plan.shadow_price(max(rate_usd, plan.floor_usd)) > 0
    return Learned(quality, fitted_quality(split, rate_usd), status.spent_usd / status.amount_usd, bool(binds))


def fitted_quality(split: EncodedSplit, rate_usd: float) -> float:
    """Return the quality on the test half of a router fitted on every model's answer to the training half."""
    table, train, test, *_ = split
    estimates = Estimates(FITTED_CONTEXTS, len(table.models))
    estimates.add_table(split.contexts[train], table.reward[train], table.cost_usd[train])
    models = [Model(model) for model in table.models]
    router = WiseRouter(models, split.fitted, policy=Offline(), estimates=estimates, seed=split.seed)
    router.start(Budget(rate_usd * len(test), len(test)))
    return float(served(router, split, test).mean())
