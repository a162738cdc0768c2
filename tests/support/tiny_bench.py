"""Splits of small tables solved by hand, for methods of the bench."""

import numpy as np

from wiserouter.evaluation.baselines import open_methods
from wiserouter.evaluation.baselines.base import Answers, Terms
from wiserouter.evaluation.bench.list_prices import list_prices
from wiserouter.evaluation.bench.metrics import row_of
from wiserouter.evaluation.bench.serve import serve_all
from wiserouter.evaluation.bench.splits import Queries, TrainTestSplit
from wiserouter.evaluation.datasets import LoadedTable
from wiserouter.evaluation.datasets.checksums import content_hash
from wiserouter.evaluation.reference_policies import oracle_plan
from wiserouter.pricing.pool import Model
from wiserouter.prompts.contexts import Contexts


def opened(table, embeddings=None):
    """Return a table as `open_table` does."""
    digest = content_hash(table.prompts, table.models, table.reward, table.cost_usd, embeddings)
    return LoadedTable("made_up", table, [], embeddings, digest, 0)


def queries(reward, cost_usd, context_ids, n_contexts):
    answers = Answers(np.asarray(reward, dtype=float), np.asarray(cost_usd, dtype=float))
    embeddings = np.eye(n_contexts, dtype=np.float32)[context_ids]
    return Queries(embeddings, np.asarray(context_ids), np.full(len(context_ids), 10), answers)


def split(train, test, *, seed=0):
    """Return the split into halves of (reward, cost_usd, context_ids); a context is its own embedding."""
    n_contexts = max(max(half[2]) for half in (train, test)) + 1
    learned, served = (queries(*half, n_contexts) for half in (train, test))
    freq = np.bincount(learned.context_ids, minlength=n_contexts) / learned.n
    mean = learned.answers.cost_usd.mean(axis=0)
    prices = list_prices({f"m{k}": float(usd) for k, usd in enumerate(mean)})
    models = tuple(Model(name, price) for name, price in prices.items())
    oracle = oracle_plan(*served.answers)
    return TrainTestSplit(learned, served, Contexts(np.eye(n_contexts), freq), models, seed, 0.0, oracle)


def same(n, reward, cost_usd, context_ids=None):
    """Return a half of `n` equal queries, or with one row of `reward` and `cost_usd` per context in `context_ids`."""
    where = np.zeros(n, dtype=int) if context_ids is None else np.resize(context_ids, n)
    return np.atleast_2d(reward)[where], np.atleast_2d(cost_usd)[where], where


def served(name, work, rate_usd, *, seed=0):
    """Return the metrics of a method, given by name or as an object, and the cost of its training data."""
    [method] = open_methods([name]) if isinstance(name, str) else [name]
    training, terms = work.training(), Terms(rate_usd * work.test.n, work.test.n)
    server = method.fit(training, np.random.default_rng([seed, 1])).start(terms, np.random.default_rng([seed, 2]))
    trace = serve_all(server, work.test, terms, sees_truth=method.sees_truth)
    return row_of(method.name, work, terms, trace) | {"collected_usd": training.collected_usd}
