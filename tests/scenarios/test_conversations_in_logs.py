"""A log of conversations: holding out whole ones, in place of single calls, chooses no better.

The calls of a conversation are nearly equal, and so are their scores. Where one of them is held out, the others show
its score, so that the regression may look better than it is on new conversations. New ones are routed by both fits.
WISEROUTER_SEEDS=3 runs three times as many seeds; with -s the test prints the figures of docs/fitting.md.
"""

import os
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest

from wiserouter.fitting import fit_residuals
from wiserouter.fitting.fit import fit_parts
from wiserouter.learning.residuals import ridge_selection
from wiserouter.learning.residuals.cross_validation import HeldOut, context_means
from wiserouter.learning.residuals.ridge import alike

pytestmark = pytest.mark.slow

SEEDS = 2 * int(os.environ.get("WISEROUTER_SEEDS", "1"))
CONVERSATIONS, TURNS, TOPICS, FOLDS = 60, 20, 12, 5
BASE_REWARD = np.array([0.45, 0.52, 0.58, 0.63])
COST_USD = np.array([1e-4, 3e-4, 1e-3, 3e-3])
RATES_USD = (2e-4, 4e-4, 8e-4, 1.5e-3)


class Traffic(NamedTuple):
    """The words of conversations, and the chance of a good answer of each model in each."""

    words: list[list[str]]
    reward: np.ndarray


def traffic(rng, topics, n_conversations):
    topic = rng.integers(TOPICS, size=n_conversations)
    reward = BASE_REWARD + topics[topic] + rng.normal(0.0, 0.25, (n_conversations, len(BASE_REWARD)))
    words = [
        [
            *(f"topic{one}word{word}" for word in rng.integers(6, size=3)),
            *(f"own{word}" for word in rng.integers(3_000, size=8)),
        ]
        for one in topic
    ]
    return Traffic(words, reward.clip(0.0, 1.0))


def log_of(rng, past, *, same_model):
    rows = []
    for conversation, words in enumerate(past.words):
        first = rng.integers(len(COST_USD))
        for _ in range(TURNS):
            model = first if same_model else rng.integers(len(COST_USD))
            prompt = " ".join([*words, *(f"said{word}" for word in rng.integers(500, size=2))])
            reward = float(rng.random() < past.reward[conversation, model])
            cost_usd = COST_USD[model] * rng.lognormal(0.0, 0.2)
            rows.append((prompt, f"model{model}", reward, cost_usd, f"chat{conversation}"))
    return pl.DataFrame(rows, schema=["prompt", "model", "reward", "cost_usd", "conversation"], orient="row")


def value(true_reward, reward, cost_usd):
    """Return the mean reward of new conversations at equal spend, over several budgets."""
    prices = np.concatenate([[0.0], np.geomspace(0.1, 1e5, 400)])
    chosen = [np.argmax(reward - price * cost_usd, axis=1) for price in prices]
    spent_usd = np.array([COST_USD[one].mean() for one in chosen])
    earned = np.array([true_reward[np.arange(len(one)), one].mean() for one in chosen])
    order = np.argsort(spent_usd, kind="stable")
    return np.interp(RATES_USD, spent_usd[order], earned[order]).mean()


def folds(n_calls):
    """Return the fold of each call, one for all calls of a conversation."""
    conversation = np.arange(n_calls) // TURNS
    return (np.random.default_rng(0).permutation(CONVERSATIONS) % FOLDS)[conversation]


def left_out(embeddings, reward, strengths):
    """Return for each penalty what a regression without the conversation of a call predicts for it."""
    predicted, fold = [np.zeros(reward.shape) for _ in strengths], folds(len(reward))
    for models, rows in alike(reward):
        for one in range(FOLDS):
            others, out = rows[fold[rows] != one], np.flatnonzero(fold == one)
            center = embeddings[others].mean(axis=0, dtype=np.float64)
            z, mean = embeddings[others] - center, reward[np.ix_(others, models)].mean(axis=0)
            squares, vectors = np.linalg.eigh(z @ z.T)
            known = vectors.T @ (reward[np.ix_(others, models)] - mean)
            seen = (embeddings[out] - center) @ z.T @ vectors
            for each, strength in zip(predicted, strengths, strict=True):
                each[np.ix_(out, models)] = mean + seen @ (known / (squares.clip(0.0) + strength)[:, np.newaxis])
    return predicted


def hold_out(sample, n_contexts, seed):
    fold, reward, cost_usd = folds(len(sample)), np.zeros(sample.reward.shape), np.zeros(sample.reward.shape)
    for one in range(FOLDS):
        means, contexts = context_means(sample.rows(fold != one), n_contexts), sample.contexts[fold == one]
        reward[fold == one], cost_usd[fold == one] = means.reward[contexts], means.cost_usd[contexts]
    return HeldOut(reward, cost_usd, ridge_selection.select_ridge(sample.embeddings, sample.reward))


def value_of_a_fit(log, new, estimator):
    fitted = fit_parts(log, encoder="tfidf", n_contexts=16, estimator=estimator)
    rows = fitted.encoder.encode_many([" ".join(words) for words in new.words])
    contexts, means = fitted.contexts.assign_many(rows), fitted.estimates.means()
    shift = 0.0 if fitted.residuals is None else fitted.residuals.ridge.shifts(rows, contexts)
    return value(new.reward, means.reward[contexts] + shift, means.cost_usd[contexts])


@pytest.mark.parametrize("estimator", ["smoothed", "ridge", "auto"])
@pytest.mark.parametrize("same_model", [False, True], ids=["any model", "one model"])
def test_new_conversations_are_routed_no_better_where_whole_ones_are_held_out(estimator, same_model, monkeypatch):
    by_call, by_conversation = [], []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        topics = rng.normal(0.0, 0.1, (TOPICS, len(BASE_REWARD)))
        log = log_of(rng, traffic(rng, topics, CONVERSATIONS), same_model=same_model)
        found = partial(value_of_a_fit, log, traffic(rng, topics, 1_500), estimator)
        by_call.append(found())
        with monkeypatch.context() as patched:
            patched.setattr(ridge_selection, "left_out", left_out)
            patched.setattr(fit_residuals, "hold_out", hold_out)
            by_conversation.append(found())
    gain = np.subtract(by_conversation, by_call)
    error = gain.std(ddof=1) / np.sqrt(SEEDS)
    print(f"\n{estimator}: {np.mean(by_call):.4f} by call, held out by conversation {gain.mean():+.4f} ± {error:.4f}")
    assert gain.any()
    assert gain.mean() < error + 0.005
