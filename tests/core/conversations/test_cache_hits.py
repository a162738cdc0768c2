import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from wiserouter.conversations.cache_hits import PRIOR_HIT, CacheHits, bucket_of
from wiserouter.errors import InvalidInput
from wiserouter.learning.shrinkage import PRIOR_COUNT
from wiserouter.pricing.prices import Price

CACHED, PLAIN = Price(input=3e-6, output=15e-6, cache_read=3e-7, cache_write=3.75e-6), Price(input=1e-6, output=2e-6)

calls = st.lists(
    st.tuples(st.integers(0, 1), st.floats(0, 1e5), st.integers(0, 50_000), st.integers(0, 60_000)), max_size=40
)


@given(st.lists(st.booleans(), max_size=60), st.sampled_from([0.0, 299.0, 301.0, 3_600.0, 4_000.0]))
def test_whole_hits_and_misses_give_the_mean_of_the_beta_posterior(outcomes, gap_s):
    hits = CacheHits([CACHED])
    for hit in outcomes:
        hits.learn(0, gap_s, warm_tokens=5_000, read_tokens=5_000 * hit)
    prior = PRIOR_HIT[bucket_of(gap_s)]
    posterior = beta(PRIOR_COUNT * prior + sum(outcomes), PRIOR_COUNT * (1 - prior) + len(outcomes) - sum(outcomes))
    assert hits.hit_probability(0, gap_s) == pytest.approx(posterior.mean())


@given(calls)
def test_probabilities_stay_in_the_unit_interval_and_follow_only_their_own_bucket(made):
    hits = CacheHits([CACHED, CACHED])
    for call in made:
        hits.learn(*call)
    for model in (0, 1):
        for gap_s in (10.0, 1_000.0, 1e6):
            assert 0.0 <= hits.hit_probability(model, gap_s) <= 1.0
    if all(model == 0 for model, *_ in made):
        assert hits.hit_probability(1, 10.0) == PRIOR_HIT[0]


def test_a_model_whose_reads_are_not_cheaper_never_hits():
    hits = CacheHits([PLAIN, None])
    for model in (0, 1):
        hits.learn(model, 1.0, 5_000, 5_000)
        assert hits.hit_probability(model, 1.0) == 0.0


def test_a_call_without_a_warm_prefix_teaches_nothing_of_hits():
    hits = CacheHits([CACHED])
    hits.learn(0, 1.0, warm_tokens=0, read_tokens=0)
    assert hits.hit_probability(0, 1.0) == PRIOR_HIT[0]


def test_first_visits_and_writes_are_means_of_what_was_billed():
    hits = CacheHits([CACHED])
    assert (hits.first_read_tokens(0), hits.write_share(0)) == (0.0, 1.0)
    hits.learn_first(0, 2_500)
    hits.learn_first(0, 0)
    hits.learn_write(0, unread_tokens=1_000, written_tokens=250)
    assert (hits.first_read_tokens(0), hits.write_share(0)) == (1_250.0, 0.25)


@given(calls, calls)
def test_merging_commutes_and_equals_learning_everything_in_one_place(mine, theirs):
    def learned(*parts):
        hits = CacheHits([CACHED, CACHED])
        for call in (call for part in parts for call in part):
            hits.learn(*call)
            hits.learn_first(call[0], call[3])
        return hits

    merged, other_way, at_once = learned(mine), learned(theirs), learned(mine, theirs)
    merged.merge(learned(theirs))
    other_way.merge(learned(mine))
    for name, sums in at_once.arrays().items():
        np.testing.assert_allclose(merged.arrays()[name], sums)
        np.testing.assert_allclose(other_way.arrays()[name], sums)
    assert merged.hit_probability(1, 10.0) == pytest.approx(at_once.hit_probability(1, 10.0))


def test_arrays_round_trip_and_a_new_model_starts_at_the_prior():
    hits = CacheHits([CACHED])
    hits.learn(0, 1.0, 100, 0)
    again = CacheHits.of_arrays([CACHED], hits.arrays())
    assert again.hit_probability(0, 1.0) == hits.hit_probability(0, 1.0) < PRIOR_HIT[0]
    again.add_model(CACHED)
    assert again.hit_probability(1, 1.0) == PRIOR_HIT[0]
    with pytest.raises(InvalidInput, match="shape"):
        again.merge(hits)
