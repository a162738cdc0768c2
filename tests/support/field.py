"""Small benches from arrays: a training half, and the service of given queries by a method."""

import numpy as np

from wiserouter import Model
from wiserouter.evaluation.baselines.base import Answers, Terms, Training
from wiserouter.evaluation.bench.serve import serve_all
from wiserouter.evaluation.bench.splits import Queries
from wiserouter.prompts.contexts import Contexts


def queries_of(reward, cost_usd, embeddings=None):
    """Return queries of one context; without embeddings they are all alike."""
    reward, cost_usd = np.array(reward, float), np.array(cost_usd, float)
    n = len(reward)
    rows = np.zeros((n, 1)) if embeddings is None else np.array(embeddings, float).reshape(n, -1)
    return Queries(rows.astype(np.float32), np.zeros(n, int), np.ones(n, int), Answers(reward, cost_usd))


def training_of(queries):
    """Return the queries as a training half."""
    models = tuple(Model(f"m{k}") for k in range(queries.answers.reward.shape[1]))
    return Training(queries.embeddings, queries.context_ids, queries.chars, Contexts.single(), models, queries.answers)


def fit(method, queries, seed=0):
    """Return the method fitted on queries of one context."""
    return method.fit(training_of(queries), np.random.default_rng([seed, 1]))


def serve(fitted, queries, rate_usd, seed=0, *, sees_truth=False):
    """Return the trace of serving queries at a budget per query."""
    terms = Terms(rate_usd * queries.n, queries.n)
    server = fitted.start(terms, np.random.default_rng([seed, 2]))
    return serve_all(server, queries, terms, sees_truth=sees_truth)


def always(n, reward, cost_usd):
    """Return queries with constant rewards and costs."""
    return queries_of(np.tile(reward, (n, 1)), np.tile(cost_usd, (n, 1)))
