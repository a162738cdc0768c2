import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiserouter.conversations.token_growth import UNKNOWN_TOKENS, TokenGrowth, hierarchical_means
from wiserouter.errors import InvalidInput
from wiserouter.types import NO_CONTEXT

cells = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 9_000)), min_size=1, max_size=60)


def learned(*parts):
    tokens = TokenGrowth(3, 4)
    for context, model, grown in (call for part in parts for call in part):
        tokens.learn(context, model, grown, grown // 3)
    return tokens


@given(cells)
def test_means_lie_within_what_was_seen(calls):
    tokens = learned(calls)
    seen = [grown for *_, grown in calls]
    for context in (0, 1, 2, NO_CONTEXT):
        row = tokens.growth(context)
        assert len(row) == 4
        assert min(seen) - 1e-6 <= min(row) <= max(row) <= max(seen) + 1e-6


@given(cells, cells)
def test_merging_commutes_and_equals_learning_everything_in_one_place(mine, theirs):
    merged, other_way, at_once = learned(mine), learned(theirs), learned(mine, theirs)
    merged.merge(learned(theirs))
    other_way.merge(learned(mine))
    for context in (0, 1, 2, NO_CONTEXT):
        np.testing.assert_allclose(merged.output(context), at_once.output(context))
        np.testing.assert_allclose(other_way.output(context), at_once.output(context))
    again = TokenGrowth.of_arrays(at_once.arrays())
    np.testing.assert_allclose(again.growth(1), at_once.growth(1))


def test_shrinkage_beats_plain_and_pooled_means_on_a_hierarchy():
    rng = np.random.default_rng(3)
    true = rng.normal(1_500, 500, (1, 6)) + rng.normal(0, 300, (12, 6))
    count, total, square = np.zeros((3, 12, 6))
    for _ in range(400):
        j, k = rng.integers(12), rng.integers(6)
        grown = true[j, k] + rng.normal(0, 600)
        count[j, k] += 1
        total[j, k] += grown
        square[j, k] += grown**2
    own = hierarchical_means(count, total, square, unknown=0.0)
    plain = np.where(count > 0, total / np.maximum(count, 1), total.sum() / count.sum())
    pooled = np.full_like(own, total.sum() / count.sum())

    def error(means):
        return float(((means - true) ** 2).mean())

    assert error(own) < min(error(plain), error(pooled))


def test_many_observations_of_one_cell_make_it_its_own():
    tokens = TokenGrowth(2, 2)
    rng = np.random.default_rng(0)
    for _ in range(500):
        for context in (0, 1):
            for model in (0, 1):
                tokens.learn(context, model, 1_000 * (1 + context + 2 * model) + rng.normal(0, 50), 100)
    np.testing.assert_allclose(tokens.growth(0), [1_000, 3_000], rtol=0.02)
    np.testing.assert_allclose(tokens.growth(1), [2_000, 4_000], rtol=0.02)


def test_before_anything_is_known_the_stated_tokens_are_taken():
    tokens = TokenGrowth(1, 2)
    assert tokens.first(0) == [UNKNOWN_TOKENS["first"]] * 2
    tokens.learn_first(0, 0, prompt_tokens=7_000, output_tokens=400)
    assert tokens.first(0) == [7_000, 7_000]
    assert tokens.output(NO_CONTEXT) == [400, 400]
    assert tokens.growth(0) == [UNKNOWN_TOKENS["growth"]] * 2


def test_a_shorter_prompt_has_not_grown_and_a_call_without_a_context_teaches_nothing():
    tokens = TokenGrowth(1, 1)
    tokens.learn(0, 0, growth_tokens=-500, output_tokens=10)
    tokens.learn(NO_CONTEXT, 0, growth_tokens=900, output_tokens=900)
    assert (tokens.growth(0)[0], tokens.output(0)[0]) == (0.0, 10.0)


def test_a_new_model_has_the_means_of_the_pool():
    tokens = TokenGrowth(1, 1)
    tokens.learn(0, 0, 1_200, 300)
    tokens.add_model()
    assert tokens.growth(0) == [1_200, 1_200]
    with pytest.raises(InvalidInput, match="shape"):
        tokens.merge(TokenGrowth(1, 1))
