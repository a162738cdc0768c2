import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter.fitting import query_counts
from wiserouter.fitting.log import LogBatch
from wiserouter.fitting.log.query_keys import query_keys, ranks
from wiserouter.fitting.query_counts import QueryCounts, contexts_of
from wiserouter.fitting.query_sample import QuerySample


def rows(ids, prompts=None):
    nothing = np.zeros((len(ids), 1))
    return LogBatch(list(prompts or ids), query_keys(ids), nothing, nothing, list(ids))


def cut(ids, size):
    return [rows(ids[i : i + size]) for i in range(0, len(ids), size)]


IDS = st.lists(st.integers(0, 30).map(str), min_size=1, max_size=120)


@settings(max_examples=50, deadline=None)
@given(IDS, st.integers(1, 8), st.integers(1, 40), st.randoms())
def test_a_sample_depends_on_the_set_of_queries_alone(ids, most, size, random):
    def sample(ids):
        drawn = QuerySample(most, np.random.default_rng(0))
        for batch in cut(ids, size):
            drawn.add(batch)
        return drawn.prompts

    shuffled = list(ids)
    random.shuffle(shuffled)
    assert len(sample(ids)) == min(most, len(set(ids)))
    assert set(sample(ids)) == set(sample(shuffled)) == set(sample([*ids, *ids]))


def test_queries_with_many_rows_are_no_likelier():
    ids = [str(i) for i in range(10) for _ in range(1 + 20 * (i == 0))]
    drawn = np.zeros(10)
    for seed in range(400):
        sample = QuerySample(3, np.random.default_rng(seed))
        for batch in cut(ids, 7):
            sample.add(batch)
        drawn[[int(prompt) for prompt in sample.prompts]] += 1
    assert drawn / 400 == pytest.approx(np.full(10, 0.3), abs=0.1)  # 4 standard deviations


def test_a_query_keeps_its_first_prompt_and_order():
    sample = QuerySample(5, np.random.default_rng(0))
    sample.add(rows(["b", "a", "b"], ["first", "second", "third"]))
    sample.add(rows(["a", "c"], ["fourth", "fifth"]))
    assert sample.prompts == ["first", "second", "fifth"]


def test_long_prompts_make_the_sample_smaller():
    sample = QuerySample(100, np.random.default_rng(0), most_chars=1_000)
    for i in range(300):
        sample.add(rows([str(i)], ["x" * 90]))
    assert len(sample.prompts) == 11
    endless = QuerySample(100, np.random.default_rng(0), most_chars=10)
    endless.add(rows(["a", "b"], ["x" * 90, "y" * 90]))
    assert len(endless.prompts) == 1


def test_the_lowest_ranks_are_a_sample_of_the_sample():
    sample = QuerySample(20, np.random.default_rng(0))
    batch = rows([str(i) for i in range(100)])
    sample.add(batch)
    chosen = [batch.prompts[i] for i in np.flatnonzero(sample.rank(batch.query) <= sample.bound(5))]
    assert len(chosen) == 5
    assert set(chosen) <= set(sample.prompts)
    assert sample.bound(1_000) == sample.bound(20)


def test_ranks_are_even_and_differ_between_salts():
    keys = np.arange(100_000)
    some, others = (ranks(keys, salt) / 2.0**64 for salt in (1, 2**63))
    for drawn in (some, others):
        assert np.histogram(drawn, 10, (0, 1))[0] == pytest.approx(np.full(10, 10_000), abs=400)
    assert abs(np.corrcoef(some, others)[0, 1]) < 0.015
    assert len(np.unique(ranks(keys, 1))) == len(keys)


@settings(max_examples=50, deadline=None)
@given(IDS, st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_each_query_counts_where_its_first_row_falls(ids, size, seed):
    where = np.random.default_rng(seed).integers(3, size=len(ids))
    first = {}
    for name, context in zip(ids, where.tolist(), strict=True):
        first.setdefault(name, context)
    with QueryCounts(3) as counts:
        for i, batch in enumerate(cut(ids, size)):
            counts.add(contexts_of(batch, where[i * size : (i + 1) * size], 3))
        assert counts.total().tolist() == np.bincount(list(first.values()), minlength=3).tolist()


def test_counts_go_to_disk_and_the_files_are_closed(monkeypatch):
    monkeypatch.setattr(query_counts, "_IN_MEMORY", 64)
    with QueryCounts(2) as counts:
        counts.add(contexts_of(rows([str(i) for i in range(5_000)]), np.arange(5_000) % 2, 2))
        assert counts.total().tolist() == [2_500, 2_500]
        parts = list(counts._parts)
    assert all(part.closed for part in parts)
