"""The choice of the encoder: the one whose contexts bring most reward on held-out queries, at equal spend.

The queries of a sample are divided into folds. For each encoder, the queries of a fold get their estimates from
encoder, contexts and means that were fitted on the other folds. All encoders then route the held-out queries at the
shadow prices at which their true spend is that of some budgets, and differ in reward only. Where a log lacks some
observations, one counts by the inverse of the share of queries on which its model was observed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wiserouter.errors import InvalidInput, MissingExtra
from wiserouter.fitting.log import LogBatch, RoutingLog
from wiserouter.fitting.log.batch import merged
from wiserouter.fitting.query_sample import QuerySample
from wiserouter.learning.estimates import Estimates
from wiserouter.prompts.contexts import Contexts
from wiserouter.prompts.encoders import Encoder, open_encoder
from wiserouter.prompts.encoders.concatenated import joined
from wiserouter.types import Embedding, FloatArray, IntArray

AUTO_ENCODER = "auto"
ENCODERS = ("tfidf", "tfidf-whole", "minilm", "tfidf+minilm")
"""The encoders that are compared, the default first."""

ENCODER_QUERIES = 1_000
"""They are compared on at most this many queries, drawn evenly from the log: MiniLM takes up to 90 ms for each."""

N_FOLDS = 5
RATES = (0.1, 0.25, 0.5, 0.75)
"""The budgets at which they are compared, between always the cheapest model (0) and always the best one (1)."""

_PRETRAINED = frozenset({"minilm"})
_PRICES = 60


class EncoderScore(NamedTuple):
    """The result of one encoder on the held-out queries.

    Attributes
    ----------
    encoder : str
        Its name in `open_encoder`.
    value : float
        Mean reward of the held-out queries, over all budgets.
    gain, gain_se : float
        Reward beyond that of the first encoder, and its standard error over the queries.
    """

    encoder: str
    value: float
    gain: float
    gain_se: float


class EncoderComparison(NamedTuple):
    """All encoders on one sample.

    Attributes
    ----------
    n_queries : int
        Number of held-out queries.
    rates_usd : tuple of float, USD per query
        The budgets.
    standings : tuple of EncoderScore
        The first is the default.
    chosen : EncoderScore
        The one whose gain less its standard error is largest: the default stays unless another is surely better.
    """

    n_queries: int
    rates_usd: tuple[float, ...]
    standings: tuple[EncoderScore, ...]
    chosen: EncoderScore


def sample_calls(log: RoutingLog, rng: np.random.Generator, most: int = ENCODER_QUERIES) -> LogBatch:
    """Return the calls of at most `most` queries of a log, each equally likely, one row per query; takes two passes."""
    sample = QuerySample(most, rng)
    for batch in log.batches():
        sample.add(batch)
    bound = sample.bound(most) if sample.prompts else np.uint64(0)
    parts = []
    for batch in log.batches():
        rows = np.flatnonzero(sample.rank(batch.query) <= bound)
        prompts = [batch.prompts[row] for row in rows]
        parts.append(LogBatch(prompts, batch.query[rows], batch.reward[rows], batch.cost_usd[rows]))
    return merged(parts)


def compare_encoders(
    calls: LogBatch,
    n_contexts: int,
    *,
    encoders: Sequence[str] = ENCODERS,
    rate_usd: float | None = None,
    seed: int = 0,
) -> EncoderComparison:
    """Return the standings of encoders on the calls of some queries.

    Parameters
    ----------
    calls : LogBatch
        One row per query.
    n_contexts : int
        Number of contexts to find.
    encoders : sequence of str
        Their names, the default first; those whose extra is not installed are left out.
    rate_usd : float, USD per query, optional
        The only budget to compare at; several by default.
    seed : int, default 0
        Seeds folds and clusters.

    Raises
    ------
    InvalidInput
        If there are fewer queries than folds, or no reward at all.
    """
    n = len(calls.prompts)
    if n < N_FOLDS or np.isnan(calls.reward).all():
        raise InvalidInput(
            f"encoder='auto' compares encoders on held-out queries with scores, got {n} queries: name an encoder",
            value=n,
        )
    fold = np.random.default_rng(seed).permutation(np.arange(n) % N_FOLDS)
    weight = _weight(calls)
    rates = _rates(calls) if rate_usd is None else (rate_usd,)
    values: dict[str, FloatArray] = {}
    pretrained: dict[str, Embedding] = {}
    for name in encoders:
        try:
            predicted = _predicted(calls, fold, name, n_contexts, seed, pretrained)
        except MissingExtra:
            continue
        values[name] = np.mean([_value(calls, weight, *predicted, rate) for rate in rates], axis=0)
    first = next(iter(values.values()))
    standings = tuple(_score(name, value, value - first) for name, value in values.items())
    return EncoderComparison(n, rates, standings, max(standings, key=lambda one: one.gain - one.gain_se))


def chosen_encoder(comparison: EncoderComparison) -> Encoder:
    """Return the encoder that a comparison chose, to be fitted on all prompts."""
    return open_encoder(comparison.chosen.encoder)


def _score(name: str, value: FloatArray, gain: FloatArray) -> EncoderScore:
    error = float(gain.std(ddof=1)) / np.sqrt(len(gain))
    return EncoderScore(name, float(value.mean()), float(gain.mean()), float(error))


def _predicted(
    calls: LogBatch, fold: IntArray, name: str, n_contexts: int, seed: int, pretrained: dict[str, Embedding]
) -> tuple[FloatArray, FloatArray]:
    """Return the reward and cost that contexts of the other folds predict for each query and model."""
    parts = name.split("+")
    for part in _PRETRAINED.intersection(parts) - pretrained.keys():
        pretrained[part] = open_encoder(part).encode_many(calls.prompts)
    reward, cost_usd = np.empty(calls.reward.shape), np.empty(calls.reward.shape)
    for i in range(N_FOLDS):
        train, held_out = np.flatnonzero(fold != i), fold == i
        texts = [calls.prompts[row] for row in train]
        vectors = [
            pretrained[part] if part in pretrained else open_encoder(part).fit(texts).encode_many(calls.prompts)
            for part in parts
        ]
        rows = vectors[0] if len(vectors) == 1 else joined(vectors)
        contexts = Contexts.fit(rows[train], min(n_contexts, len(train)), seed=seed)
        estimates = Estimates(contexts.n_contexts, calls.reward.shape[1])
        estimates.add_table(contexts.assign_many(rows[train]), calls.reward[train], calls.cost_usd[train])
        means, assigned = estimates.means(), contexts.assign_many(rows[held_out])
        reward[held_out], cost_usd[held_out] = means.reward[assigned], means.cost_usd[assigned]
    return np.nan_to_num(reward), np.nan_to_num(cost_usd, nan=np.inf)


def _weight(calls: LogBatch) -> FloatArray:
    """Return the inverse of the share of queries on which each model was observed; 0 where it was not."""
    seen = (~np.isnan(calls.reward + calls.cost_usd)).astype(np.float64)
    weight: FloatArray = seen / np.maximum(seen.mean(axis=0), 1e-12)
    return weight


def _rates(calls: LogBatch) -> tuple[float, ...]:
    """Return budgets between always the cheapest model and always the best one."""
    with np.errstate(invalid="ignore"):  # a model that was never observed has a mean of NaN
        reward, cost_usd = (
            np.nansum(values, axis=0) / (~np.isnan(values)).sum(axis=0) for values in (calls.reward, calls.cost_usd)
        )
    low, high = float(np.nanmin(cost_usd)), float(cost_usd[np.nanargmax(reward)])
    return tuple(low + share * (high - low) for share in RATES)


def _value(
    calls: LogBatch, weight: FloatArray, reward: FloatArray, cost_usd: FloatArray, rate_usd: float
) -> FloatArray:
    """Return the contribution of each query to the mean reward, routed by predictions so that the true spend is a rate.

    Between the two neighbouring prices that spend more and less, the choices are mixed.
    """
    rows, true_reward, true_usd = np.arange(len(reward)), np.nan_to_num(calls.reward), np.nan_to_num(calls.cost_usd)
    finite = cost_usd[np.isfinite(cost_usd) & (cost_usd > 0)]
    top = 2.0 / finite.min() if finite.size else 1.0
    prices = np.concatenate([[1e-12 * top], np.geomspace(1e-6 * top, top, _PRICES)])
    spend, value = np.empty(len(prices)), np.empty((len(prices), len(rows)))
    for g, price in enumerate(prices.tolist()):
        chosen = np.argmax(reward - price * cost_usd, axis=1)
        w = weight[rows, chosen]
        spend[g], value[g] = float((w * true_usd[rows, chosen]).mean()), w * true_reward[rows, chosen]
    above = np.flatnonzero(np.minimum.accumulate(spend) >= rate_usd)
    g = int(above[-1]) if above.size else 0
    h = min(g + 1, len(prices) - 1)
    gap = spend[g] - spend[h]
    share = float(np.clip((rate_usd - spend[h]) / gap, 0.0, 1.0)) if gap > 0 and above.size else 1.0
    mixed: FloatArray = share * value[g] + (1.0 - share) * value[h]
    return mixed
