"""OrcaRouter, Avengers-Pro, the constrained bandit, shrunk neighbours, and published learners with one answer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.field import always, fit, queries_of, serve, training_of
from support.tiny_bench import same, split
from support.tiny_bench import served as served_by
from wiserouter.evaluation.baselines.avengers_pro import AvengersPro, ClusterScores
from wiserouter.evaluation.baselines.base import NOT_SERVED, Answers
from wiserouter.evaluation.baselines.constrained_bandit import ConfidenceBounds, ConstrainedBandit
from wiserouter.evaluation.baselines.one_answer import (
    AnsweredNeighbours,
    barouter_once,
    pareto_bandit_once,
    pilot_once,
)
from wiserouter.evaluation.baselines.orca_router import OrcaRouter
from wiserouter.evaluation.baselines.price_table import price_table
from wiserouter.evaluation.baselines.shrunk_neighbors import (
    COUNTS,
    STRENGTHS,
    ShrunkNeighbors,
    chosen_settings,
    left_out,
    others_nearest,
)
from wiserouter.prompts.contexts import Contexts

N = 240
FITTED = (OrcaRouter, AvengersPro, ShrunkNeighbors)
LEARNERS = (ConstrainedBandit, pareto_bandit_once, barouter_once, pilot_once)


def two_kinds(reward, cost_usd, n=N):
    """Return queries of two kinds in turn, whose embeddings are the two unit vectors."""
    kind = np.arange(n) % 2
    return queries_of(np.array(reward)[kind], np.array(cost_usd)[kind], np.eye(2)[kind])


SEPARABLE = two_kinds([[0.1, 0.9], [0.9, 0.1]], [[1.0, 1.0], [1.0, 1.0]])
"""At equal costs model 1 is right on the first kind, model 0 on the second."""

PRICED = two_kinds([[0.2, 0.9], [0.8, 0.9]], [[1.0, 3.0], [1.0, 3.0]])
"""At 2 USD per query the expensive model belongs to the first kind alone."""


@pytest.mark.parametrize("method", FITTED)
def test_fitted_methods_separate_two_kinds_of_queries(method):
    given = serve(fit(method(), SEPARABLE), SEPARABLE, 1.0).given
    assert (given[0::2] == 1).all()
    assert (given[1::2] == 0).all()


@pytest.mark.parametrize("method", [OrcaRouter, ShrunkNeighbors])
def test_fitted_methods_spend_where_it_gains_most(method):
    trace = serve(fit(method(), PRICED), PRICED, 2.0)
    assert np.mean(trace.given[0::2] == 1) >= 0.99
    assert np.mean(trace.given[1::2] == 0) >= 0.99
    assert trace.cost_usd.mean() == pytest.approx(2.0, rel=0.01)


def test_clusters_take_the_expensive_model_where_it_is_better_and_not_where_it_is_worse():
    better_once = two_kinds([[0.2, 0.9], [0.9, 0.2]], [[1.0, 3.0], [1.0, 3.0]])
    trace = serve(fit(AvengersPro(), better_once), better_once, 2.0)
    assert (trace.given[0::2] == 1).all()
    assert (trace.given[1::2] == 0).all()
    assert set(serve(fit(AvengersPro(), better_once), better_once, 1.0).given) == {0}


@pytest.mark.parametrize("method", FITTED)
@pytest.mark.parametrize(("rate_usd", "model"), [(0.5, 0), (1.0, 0), (9.0, 1)])
def test_fitted_methods_take_one_model_at_the_ends(method, rate_usd, model):
    queries = always(100, [0.2, 0.9], [1.0, 3.0])
    assert set(serve(fit(method(), queries), queries, rate_usd).given) == {model}


@pytest.mark.parametrize("make", LEARNERS)
def test_learners_find_the_better_of_two_models_from_one_answer_per_query(make):
    work = split(same(N, [0.1, 0.9], [1.0, 1.0]), same(N, [0.1, 0.9], [1.0, 1.0]))
    row = served_by(make(), work, 2.0)
    assert row["quality"] >= 0.85
    assert row["collected_usd"] == pytest.approx(N, rel=0.02)  # one call per training query


@pytest.mark.parametrize("make", LEARNERS)
def test_learners_keep_to_a_small_budget(make):
    work = split(same(N, [0.5, 0.9], [1.0, 30.0]), same(N, [0.5, 0.9], [1.0, 30.0]))
    assert served_by(make(), work, 3.0)["spend_ratio"] <= 1.15


def test_the_constrained_bandit_serves_nothing_once_the_budget_is_used_up():
    queries = always(60, [0.9], [1.0])
    trace = serve(fit(ConstrainedBandit(), queries), queries, 0.5)
    assert trace.cost_usd.sum() <= 30.0 + 1.0
    assert (trace.given[-5:] == NOT_SERVED).all() or trace.cost_usd.sum() < 30.0


def test_confidence_bounds_by_hand():
    bounds = ConfidenceBounds((1, 2), horizon=100)
    for reward in (1.0, 0.0) * 50:
        bounds.add(0, 0, reward, 2.0 + reward)
    reward, cost_usd = bounds.optimistic()
    width = np.sqrt(np.log(100) / 200)
    assert reward[0] == pytest.approx([0.5 + width, 1.0])
    assert cost_usd[0] == pytest.approx([2.5 - 3.0 * width, 0.0])


def test_scores_of_clusters_by_hand():
    clusters = Contexts(np.eye(2, dtype=np.float32), np.array([0.5, 0.5]))
    answers = Answers(np.array([[0.0, 0.5, 1.0], [0.4, 0.4, 0.4]]), np.array([[1.0, 2.0, 5.0], [1.0, 2.0, 5.0]]))
    scores = ClusterScores.of(clusters, np.array([0, 1]), answers)
    assert scores.performance.tolist() == [[0.0, 0.5, 1.0], [0.0, 0.0, 0.0]]
    assert scores.efficiency[0] == pytest.approx([1.0, 0.75, 0.0])
    performance, _ = scores.sums(np.eye(2, dtype=np.float32)[:1])
    assert performance[0] == pytest.approx([0.0, 0.5, 1.0])


@given(st.integers(0, 10_000), st.sampled_from(COUNTS), st.sampled_from(STRENGTHS))
@settings(max_examples=25, deadline=None)
def test_left_out_means_against_a_loop(seed, k, strength):
    rng = np.random.default_rng(seed)
    rows, reward = rng.normal(size=(15, 3)).astype(np.float32), rng.random((15, 2))
    found = left_out(others_nearest(rows, max(COUNTS)), reward, k, strength)
    for i in range(15):
        others = sorted((j for j in range(15) if j != i), key=lambda j: ((rows[i] - rows[j]) ** 2).sum())[:k]
        mean = np.delete(reward, i, axis=0).mean(axis=0)
        assert found[i] == pytest.approx((reward[others].sum(axis=0) + strength * mean) / (len(others) + strength))


def test_without_a_pattern_neighbours_shrink_to_the_means_of_the_models():
    rng = np.random.default_rng(0)
    near = others_nearest(rng.normal(size=(200, 4)).astype(np.float32), max(COUNTS))
    noise = (rng.random((200, 2)) < [0.3, 0.6]).astype(float)
    assert chosen_settings(near, noise)[1] >= 32.0
    kind = np.arange(200) % 2
    near = others_nearest(np.eye(2, dtype=np.float32)[kind], max(COUNTS))
    assert chosen_settings(near, np.array([[0.0, 1.0], [1.0, 0.0]])[kind])[1] == 0.0


def test_a_price_table_spends_at_most_the_rate():
    rng = np.random.default_rng(1)
    expected = Answers(rng.random((50, 3)), rng.random((50, 3)) + np.array([0.1, 1.0, 5.0]))
    table = price_table(expected, expected.cost_usd)
    assert (np.diff(table.spend_usd) <= 1e-12).all()
    for rate in (0.8, 2.0, 4.0):
        price = table.price(rate)
        chosen = (expected.reward - price * expected.cost_usd).argmax(axis=1)
        assert expected.cost_usd[np.arange(50), chosen].mean() <= rate


def test_a_model_without_answers_is_tried_first():
    known = AnsweredNeighbours(3, 1, most=500)
    for i in range(300):
        known.add(np.array([i], np.float32), i % 2, float(i < 150), 1.0 + i % 2)
    means = known.means(np.zeros(1, np.float32))
    assert means.reward.tolist() == [1.0 if k == 2 else pytest.approx(0.75) for k in range(3)]
    assert means.cost_usd.tolist() == [1.0, 2.0, 0.0]


def test_learners_pay_for_practice_and_read_no_other_answers():
    for make in LEARNERS:
        training = training_of(SEPARABLE)
        make().fit(training, np.random.default_rng(0))
        assert not training.bought
