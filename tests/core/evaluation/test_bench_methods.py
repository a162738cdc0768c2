"""Every method of the bench on instances solved by hand, and the properties stated in its paper."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.tiny_bench import same, served, split
from wiserouter import Budget, Offline
from wiserouter.evaluation.baselines import METHODS, open_methods
from wiserouter.evaluation.baselines.base import Server, Terms
from wiserouter.evaluation.bench.oracles import BOUNDS
from wiserouter.evaluation.bench.serve import serve_all
from wiserouter.evaluation.bench.splits import split_table
from wiserouter.evaluation.datasets.synthetic import make_table
from wiserouter.evaluation.replay import prepare, run

N = 400
PLAIN = split(same(N, [0.2, 0.9], [1.0, 3.0]), same(N, [0.2, 0.9], [1.0, 3.0]))
"""One context; the plan mixes the two models: 0.55 at 2 USD."""

TWO_KINDS = same(N, [[0.2, 0.9, 0.9], [0.8, 0.9, 0.1]], [[1.0, 3.0, 9.0], [1.0, 3.0, 9.0]], context_ids=[0, 1])
KINDS = split(TWO_KINDS, TWO_KINDS)
"""Two contexts, half of the queries each; at 2 USD the plan takes model 1 in the first and model 0 in the second."""

ONLINE = [f"wr-online-{passes}x" for passes in (1, 2, 3, 4)]


def luck(n, seed, sigma=1.5):
    """Return a half with heavy-tailed costs around 1 and 3 USD, and success rates of 0.3 and 0.8."""
    rng = np.random.default_rng(seed)
    factor = np.exp(sigma * rng.standard_normal((n, 2)) - sigma**2 / 2)
    return (rng.random((n, 2)) < [0.3, 0.8]).astype(float), factor * [1.0, 3.0], np.zeros(n, dtype=int)


@pytest.mark.parametrize(("name", "model"), [("always-cheapest", 0), ("always-best", 1)])
def test_always_the_same_model(name, model):
    row = served(name, PLAIN, 2.0)
    assert row["quality"] == pytest.approx([0.2, 0.9][model])
    assert row["spend_ratio"] == pytest.approx([0.5, 1.5][model])
    assert row["collected_usd"] == 0.0
    assert row["capped_quality"] == pytest.approx([0.2, 0.9 * 266 / N][model])  # 800 USD buy 266 answers of 3 USD


def test_single_best_serves_only_where_a_model_is_affordable():
    uneven = same(N, [[0.2, 0.9], [0.5, 0.6]], [[1.0, 3.0], [3.0, 4.0]], context_ids=[0, 1])
    row = served("single-best", split(uneven, uneven), 2.0)
    assert (row["quality"], row["served"]) == (pytest.approx(0.1), 0.5)
    assert served("single-best", KINDS, 3.0)["quality"] == pytest.approx(0.9)


def test_single_best_leaves_budget_that_the_plan_spends():
    rows = {name: served(name, KINDS, 2.0) for name in ("single-best", "wr-offline")}
    assert rows["single-best"]["spend_ratio"] == pytest.approx(0.5)
    assert rows["wr-offline"]["spend_ratio"] == pytest.approx(1.0, abs=0.01)
    assert rows["wr-offline"]["quality"] > rows["single-best"]["quality"] + 0.3


@pytest.mark.parametrize("name", ["static-lp", "wr-offline", "wr-offline-paper"])
def test_plans_take_each_context_where_it_gains_most(name):
    row = served(name, KINDS, 2.0)
    given_to = np.array(row["given"])
    assert np.mean(given_to[0::2] == 1) >= 0.99
    assert np.mean(given_to[1::2] == 0) >= 0.99
    assert row["quality"] == pytest.approx(0.85, abs=0.01)
    assert row["collected_usd"] == pytest.approx(13.0 * N)


def test_zero_mixes_single_models_regardless_of_the_query():
    row = served("zero", KINDS, 2.0)
    assert row["quality"] == pytest.approx(0.7, abs=0.03)
    assert row["spend_ratio"] == pytest.approx(1.0, abs=0.06)
    assert served("zero", KINDS, 0.5)["quality"] == pytest.approx(0.5)  # below its cost it serves the cheapest


def test_the_static_plan_overspends_where_costs_have_heavy_tails_and_the_adaptive_one_does_not():
    ratios = {name: [] for name in ("static-lp", "wr-offline")}
    for seed in range(8):
        work = split(luck(250, seed), luck(250, seed + 100))
        for name, found in ratios.items():
            found.append(served(name, work, 2.0)["spend_ratio"])
    max_call = 0.12  # of the budget, about
    assert max(ratios["static-lp"]) > 1.15
    assert max(ratios["wr-offline"]) < 1.0 + max_call
    assert np.std(ratios["static-lp"]) > 3 * np.std(ratios["wr-offline"])


def test_the_papers_accounting_never_corrects_doubled_costs():
    doubled = split(same(N, [0.5], [1.0]), same(N, [0.5], [2.0]))
    assert served("wr-offline-paper", doubled, 1.0)["spend_ratio"] == pytest.approx(2.0)
    assert served("wr-offline", doubled, 1.0)["spend_ratio"] <= 1.0 + 2.0 / N


def test_wr_offline_is_the_router_of_replay():
    table = make_table(600, np.random.default_rng(1))
    work = split_table(table, 0, n_contexts=6)
    replayed = run(prepare(table, seed=0, n_contexts=6, policy=Offline()), Budget(1e-3 * 300, 300)).outcome
    row = served("wr-offline", work, 1e-3)
    assert row["quality"] == pytest.approx(replayed.quality, abs=0.02)
    assert row["spend_usd"] == pytest.approx(replayed.spend_usd, rel=0.01)


@pytest.mark.parametrize("name", ONLINE)
def test_wr_online_calls_each_model_equally_often_and_pays_for_it(name):
    passes = ONLINE.index(name) + 1
    row = served(name, PLAIN, 2.0)
    assert row["collected_usd"] == pytest.approx(passes * N * 2.0)
    assert row["quality"] == pytest.approx(0.55, abs=0.02)
    assert row["spend_ratio"] == pytest.approx(1.0, abs=0.01)


def test_wr_online_comes_close_to_the_dense_history_for_a_fraction_of_its_cost():
    work = split_table(make_table(1_200, np.random.default_rng(2)), 0, n_contexts=6)
    online, offline = (served(name, work, 1e-3) for name in ("wr-online-1x", "wr-offline"))
    assert online["collected_usd"] < 0.3 * offline["collected_usd"]
    assert online["quality"] > offline["quality"] - 0.05


@pytest.mark.parametrize("name", ["wr-online-paper-1x", "wr-online-paper-4x", "epsilon-first-known"])
def test_epsilon_first_of_the_paper_finds_the_plan_of_an_environment_without_noise(name):
    row = served(name, KINDS, 2.0)
    assert row["quality"] == pytest.approx(0.85, abs=0.01)
    assert row["spend_ratio"] == pytest.approx(1.0, abs=0.01)


def test_epsilon_first_practises_at_the_rate_of_the_budget():
    tight, ample = (served("epsilon-first-1x", KINDS, rate_usd) for rate_usd in (1.2, 2.0))
    assert tight["collected_usd"] <= 1.2 * len(KINDS.training().answers.cost_usd) * 1.02
    assert tight["quality"] <= ample["quality"] == pytest.approx(0.85, abs=0.02)


def test_known_costs_stay_known_in_a_copy():
    rng = np.random.default_rng(0)
    misled = split(same(N, [0.2, 0.9], [1.0, 3.0]), same(N, [0.2, 0.9], [1.0, 3.0]))
    training = misled.training()
    [method] = open_methods(["epsilon-first-known"])
    start = method.history(training).copy()
    start.add_cost(0, 0, 99.0)
    assert start.means().cost_usd.tolist() == [[1.0, 3.0]]
    assert method.fit(training, rng).start(Terms(800.0, N), rng) is not None


def test_random_draws_evenly_among_the_affordable():
    work = split(same(N, [0.2, 0.4, 1.0], [1.0, 2.0, 999.0]), same(N, [0.2, 0.4, 1.0], [1.0, 2.0, 999.0]))
    row = served("random", work, 2.0)
    assert row["quality"] == pytest.approx(0.3, abs=0.02)
    assert 2 not in row["given"]
    assert row["collected_usd"] == 0.0


@pytest.mark.parametrize(("name", "least"), [("epsilon-greedy", 0.85), ("linucb", 0.9)])
def test_bandits_find_the_best_affordable_model(name, least):
    half = same(N, [0.2, 0.9, 1.0], [1.0, 1.1, 999.0])
    row = served(name, split(half, half), 1.5)
    share = np.mean(np.array(row["given"]) == 1)
    assert share >= least
    assert 2 not in row["given"]


def test_optimistic_learns_the_plan_and_practice_helps():
    cold, practised = (served(name, PLAIN, 2.0) for name in ("optimistic-cold", "optimistic"))
    assert practised["quality"] == pytest.approx(0.55, abs=0.01)
    assert cold["quality"] == pytest.approx(0.55, abs=0.05)
    assert cold["collected_usd"] == 0.0
    assert practised["collected_usd"] == pytest.approx(2.0 * N, rel=0.02)


def test_the_oracles_against_brute_force():
    rng = np.random.default_rng(3)
    reward, cost = rng.random((5, 3)), rng.random((5, 3))
    work = split((reward, cost, np.zeros(5, int)), (reward, cost, np.array([0, 0, 0, 1, 1])))
    terms = Terms(1.2, 5)
    best = max(
        sum(reward[i, k] for i, k in enumerate(pick) if k < 3)
        for pick in itertools.product(range(4), repeat=5)
        if sum(cost[i, k] for i, k in enumerate(pick) if k < 3) <= 1.2
    )
    oracle, contexts = (BOUNDS[name](work, terms) for name in ("oracle", "oracle-contexts"))
    assert best <= oracle.reward.sum() <= best + reward.max()  # the oracle may serve a fraction of one query
    assert oracle.cost_usd.sum() == pytest.approx(1.2)
    assert contexts.reward.sum() <= oracle.reward.sum() + 1e-12
    assert contexts.cost_usd.sum() == pytest.approx(1.2)
    assert BOUNDS["oracle"](work, Terms(99.0, 5)).reward == pytest.approx(reward.max(axis=1))


class Anything(Server):
    """Calls random models and returns a random one of their answers."""

    def __init__(self, rng):
        self.rng = rng

    def serve(self, query, funds, call):
        called = [k for k in self.rng.permutation(3).tolist() if self.rng.random() < 0.6]
        for model in called:
            call(model)
        return called[-1] if called and self.rng.random() < 0.9 else -1


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_the_oracle_bounds_random_choices_at_its_spend(seed):
    rng = np.random.default_rng(seed)
    half = rng.random((20, 3)).round(1), rng.random((20, 3)).round(1), rng.integers(0, 2, 20)
    work = split(half, half)
    trace = serve_all(Anything(rng), work.test, Terms(5.0, 20))
    assert trace.reward.mean() <= work.oracle.value(trace.cost_usd.sum() / 20) + 1e-9


@pytest.mark.parametrize("name", METHODS)
def test_the_oracle_bounds_every_method_at_its_spend(name):
    table = make_table(200, np.random.default_rng(4))
    work = split_table(table, 0, n_contexts=4)
    for rate in (2e-4, 1e-3, 1e-2):
        row = served(name, work, rate)
        assert row["quality"] <= row["bound_at_spend"] + 1e-9
        assert row["capped_quality"] <= row["bound"] + 1e-9


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("name", METHODS)
def test_every_method_serves_a_table_without_a_score_above_zero(name):
    table = make_table(40, np.random.default_rng(0))
    halves = split_table(table._replace(reward=np.zeros_like(table.reward)), seed=0, n_contexts=2)
    terms = Terms(float(halves.test.answers.cost_usd.mean()) * halves.test.n, halves.test.n)
    [method] = open_methods([name])
    server = method.fit(halves.training(), np.random.default_rng(1)).start(terms, np.random.default_rng(2))
    assert not serve_all(server, halves.test, terms, sees_truth=method.sees_truth).reward.any()
