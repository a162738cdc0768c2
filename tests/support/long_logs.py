"""A long log of any number of rows, written in batches so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

N_TOPICS, N_MODELS = 24, 10
N_COMMON, N_OWN = 20_000, 500
"""Words that all prompts share, by Zipf's law, and words of one topic only."""

BATCH_QUERIES = 20_000
ROW_GROUP = 262_144

SCHEMA = {
    "query_id": pl.String,
    "prompt": pl.String,
    "model": pl.String,
    "reward": pl.Float64,
    "cost_usd": pl.Float64,
}
MODELS = np.array([f"model-{k:02d}" for k in range(N_MODELS)])


def write_long_log(path: Path, rows: int, *, calls_per_query: int = 1, words: int = 30, seed: int = 0) -> None:
    """Write a parquet of `rows` calls; a query has about `words` words and `calls_per_query` calls."""

    def batches(columns, predicate, n_rows, batch_size) -> Iterator[pl.DataFrame]:
        rng = np.random.default_rng(seed)
        for start in range(0, rows, BATCH_QUERIES * calls_per_query):
            yield _calls(rng, min(BATCH_QUERIES * calls_per_query, rows - start), calls_per_query, words)

    register_io_source(batches, schema=SCHEMA).sink_parquet(path, row_group_size=ROW_GROUP)


def _calls(rng: np.random.Generator, rows: int, calls_per_query: int, words: int) -> pl.DataFrame:
    """Return some calls, those of one query one after another."""
    query = np.arange(rows) // calls_per_query
    n = int(query[-1]) + 1
    topic = rng.integers(N_TOPICS, size=n)
    model = (rng.integers(N_MODELS, size=n)[query] + np.arange(rows) % calls_per_query) % N_MODELS
    ids, prompts = np.array(_ids(rng, n), dtype=object), np.array(_prompts(rng, topic, words), dtype=object)
    quality = 0.3 + 0.5 * model / N_MODELS + 0.2 * ((topic[query] + model) % 3 == 0)
    return pl.DataFrame(
        {
            "query_id": ids[query],
            "prompt": prompts[query],
            "model": MODELS[model],
            "reward": (rng.random(rows) < quality).astype(np.float64),
            "cost_usd": 1e-4 * 2.0**model * rng.gamma(4.0, 0.25, size=rows),
        },
        schema=SCHEMA,
    )


def _ids(rng: np.random.Generator, n: int) -> list[str]:
    """Return ids as long as those of frameworks: 32 hexadecimal digits."""
    digits = rng.bytes(16 * n).hex()
    return [digits[i : i + 32] for i in range(0, 32 * n, 32)]


def _prompts(rng: np.random.Generator, topic: np.ndarray, words: int) -> list[str]:
    """Return prompts of which a third are words of their topic."""
    lengths = rng.poisson(words, size=len(topic)) + 1
    ends = np.cumsum(lengths)
    drawn = rng.zipf(1.2, size=ends[-1]) % N_COMMON
    own = rng.random(ends[-1]) < 1 / 3
    drawn[own] = N_COMMON + np.repeat(topic, lengths)[own] * N_OWN + rng.integers(N_OWN, size=own.sum())
    spelt = _WORDS[drawn]
    return [" ".join(spelt[end - n : end]) for end, n in zip(ends.tolist(), lengths.tolist(), strict=True)]


def _spelt(number: int) -> str:
    """Return a made-up word."""
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    first, rest = number % len(syllables), number // len(syllables)
    return syllables[first] + (_spelt(rest - 1) if rest else "")


_WORDS = np.array([_spelt(number) for number in range(N_COMMON + N_TOPICS * N_OWN)], dtype=object)
