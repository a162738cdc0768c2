"""Estimates of single queries: the mixture, the choice of an estimator, and whole routers."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.problems import problems, rate_of
from wiserouter import Budget, Estimates, Model, Plan, Price, RoutingLog, WiseRouter
from wiserouter.budgets.funds import Funds
from wiserouter.cli import app
from wiserouter.errors import InvalidInput
from wiserouter.fitting import fit_residuals
from wiserouter.fitting.log import reader
from wiserouter.learning.residuals import Sample
from wiserouter.learning.residuals.cross_validation import hold_out
from wiserouter.learning.residuals.held_out_routing import HeldOutRouting, observed_weight
from wiserouter.learning.residuals.model_selection import compare
from wiserouter.planning.mixture import Mixture, ReserveRule
from wiserouter.planning.shift import Shift


def funds(rate_usd, requests=1_000):
    return Funds(rate_usd * requests, requests)


def nothing(n_models):
    return Shift(np.zeros(n_models), own_cost_usd=[float("nan")] * n_models)


def deviations(seed, plan, size=0.3):
    """Return deviations of the rewards of a query in the first context, and its own costs."""
    rng, mean_usd = np.random.default_rng(seed), plan.cost_usd[0]
    reward, cost_usd = rng.normal(size=(2, plan.n_models)) * size
    return Shift(reward, own_cost_usd=np.maximum(mean_usd + cost_usd, 0.1 * mean_usd).tolist())


def figures_of(plan, context, shift):
    return np.clip(plan.reward[context] + shift.reward, 0.0, 1.0), np.array(shift.own_cost_usd)


def worth(plan, context, shift, price):
    reward, cost = figures_of(plan, context, shift)
    return -cost if price == float("inf") else reward - price * cost


@given(problems(max_contexts=6, max_models=6), st.integers(0, 999))
def test_a_shift_of_zero_changes_no_choice(problem, seed):
    plan, rate = Plan(*problem[:3], allow_skip=problem.allow_skip), rate_of(problem)
    mixture = Mixture(plan, "actual")
    for context in range(plan.n_contexts):
        plain = mixture.choose(context, funds(rate), np.random.default_rng(seed))
        shifted = mixture.choose(context, funds(rate), np.random.default_rng(seed), None, nothing(plan.n_models))
        assert shifted == plain


def test_a_shift_of_zero_is_drawn_as_the_linear_program_says():
    plan = Plan([0.5, 0.5], [[0.2, 0.9], [0.1, 0.2]], [[1.0, 3.0], [1.0, 3.0]])
    rng, drawn = np.random.default_rng(0), np.zeros((2, 2))
    for context in (0, 1):
        for _ in range(4_000):
            choice = Mixture(plan, "actual").choose(context, funds(1.3), rng, None, nothing(2))
            drawn[context, choice.model] += 1 / 4_000
            assert choice.probability == pytest.approx(plan.mix(1.3)[context, choice.model])
    assert drawn == pytest.approx(plan.mix(1.3), abs=0.03)


@given(problems(max_contexts=4, max_models=8), st.integers(0, 2**32 - 1), st.booleans())
def test_a_shifted_choice_is_the_argmax(problem, seed, told_price):
    plan, rate = Plan(*problem[:3]), rate_of(problem)
    price = 0.7 if told_price else plan.shadow_price(max(rate, plan.floor_usd))
    shift = deviations(seed, plan)._replace(shadow_price=price if told_price else None)
    price = price if rate >= plan.floor_usd else float("inf")
    choice = Mixture(plan, "actual").choose(0, funds(rate), np.random.default_rng(seed), None, shift)
    reward, cost = figures_of(plan, 0, shift)
    values = worth(plan, 0, shift, price)
    assert values[choice.model] == pytest.approx(values.max(), abs=1e-7)
    assert (choice.expected_reward, choice.expected_cost_usd) == (reward[choice.model], cost[choice.model])
    if np.sum(values >= values.max() - 1e-6) == 1:
        assert choice.probability == 1.0


@given(problems(max_contexts=3, max_models=6), st.integers(0, 2**32 - 1), st.randoms())
def test_the_order_of_models_does_not_matter(problem, seed, random):
    plan, rate = Plan(*problem[:3]), rate_of(problem)
    shift = deviations(seed, plan)
    order = random.sample(range(plan.n_models), plan.n_models)
    other = Plan(problem.freq, problem.reward[:, order], problem.cost_usd[:, order])
    moved = Shift(shift.reward[order], own_cost_usd=[shift.own_cost_usd[k] for k in order])
    values = worth(plan, 0, shift, plan.shadow_price(max(rate, plan.floor_usd)))
    one = Mixture(plan, "actual").choose(0, funds(rate), np.random.default_rng(0), None, shift)
    two = Mixture(other, "actual").choose(0, funds(rate), np.random.default_rng(0), None, moved)
    if rate >= plan.floor_usd:
        assert values[order[two.model]] == pytest.approx(values[one.model], abs=1e-7)


def test_only_allowed_models_are_taken():
    plan = Plan([1.0], [[0.2, 0.5, 0.9]], [[1.0, 2.0, 3.0]])
    shift = Shift(np.array([0.0, 0.0, 0.1]))
    for allowed in ({0}, {0, 1}, {1}):
        assert Mixture(plan, "actual").choose(0, funds(3.0), np.random.default_rng(0), allowed, shift).model in allowed


def test_the_reserve_is_kept_at_the_cost_of_this_query():
    estimates = Estimates(1, 2)
    estimates.add_table(np.zeros(2, dtype=int), [[0.2, 0.9]] * 2, [[1.0, 3.0]] * 2)
    plan = Plan([1.0], *estimates.means())
    mixture = Mixture(plan, "actual", ReserveRule(plan, estimates.cost_spread_usd()))
    last, rng = Funds(3.5, 1), np.random.default_rng(0)
    assert mixture.choose(0, last, rng, None, nothing(2)).model == 1
    long = Shift(own_cost_usd=[1.1, 4.0])
    assert mixture.choose(0, last, rng, None, long).model == 0
    longer = Shift(own_cost_usd=[6.0, 12.0])
    assert mixture.choose(0, last, rng, None, longer).model == 0  # the cheapest, where none fits


def test_a_query_not_worth_its_cost_is_skipped_where_that_is_allowed():
    plan = Plan([1.0], [[0.5]], [[1.0]], allow_skip=True)
    rng, mixture = np.random.default_rng(0), Mixture(plan, "actual")
    assert mixture.choose(0, funds(0.5), rng, None, Shift(np.array([-0.1]))).model == -1
    assert mixture.choose(0, funds(0.5), rng, None, Shift(np.array([0.1]))).model == 0


def log_of(n, *, signal, seed=0, noise=0.1):
    """Return a log whose rewards are linear in the embedding times `signal`; the expensive model is no better."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(n, 4))
    hidden /= np.linalg.norm(hidden, axis=1, keepdims=True)
    edge = 0.4 * signal * hidden[:, 0]
    reward = np.clip(0.5 + np.stack([-edge, edge], axis=1) + noise * rng.normal(size=(n, 2)), 0.0, 1.0)
    cost = np.tile([1.0, 2.0], (n, 1)) * rng.uniform(0.9, 1.1, size=(n, 2))
    return [json.dumps(row.tolist()) for row in hidden], reward, cost


def as_vectors(texts):
    return [json.loads(text) for text in texts]


def fitted(prompts, reward, cost, **options):
    log = RoutingLog.from_arrays(prompts, reward, cost, ("small", "large"))
    return WiseRouter.fit(log, encoder=as_vectors, n_contexts=2, seed=0, **options)


def test_ridge_is_chosen_where_rewards_are_linear_in_the_embedding():
    router = fitted(*log_of(600, signal=1.0), estimator="auto", rate_usd=1.5)
    assert router.comparison.chosen.estimator == "ridge"
    assert router.comparison.chosen.gain > 0.05
    assert router.residuals is not None


@pytest.mark.parametrize("seed", range(5))
def test_means_are_kept_where_there_is_only_noise(seed):
    router = fitted(*log_of(400, signal=0.0, seed=seed), estimator="auto")
    gains = {one.estimator: one.gain / max(one.gain_se, 1e-12) for one in router.comparison.standings}
    assert router.comparison.chosen.estimator == "means" or gains[router.comparison.chosen.estimator] < 3
    assert abs(router.comparison.chosen.gain) < 0.01


def test_a_sparse_log_is_judged_by_what_was_observed():
    prompts, reward, cost = log_of(1_500, signal=1.0)
    rng = np.random.default_rng(5)
    hidden = rng.random(reward.shape) < [0.2, 0.6]
    hidden[hidden.all(axis=1)] = False
    dense = fitted(prompts, reward, cost, estimator="auto", rate_usd=1.5).comparison
    reward[hidden], cost[hidden] = np.nan, np.nan
    sparse = fitted(prompts, reward, cost, estimator="auto", rate_usd=1.5).comparison
    assert sparse.chosen.estimator == "ridge"
    for one, other in zip(dense.standings, sparse.standings, strict=True):
        assert other.value == pytest.approx(one.value, abs=0.03)
        assert other.spend_usd == pytest.approx(1.5, abs=0.03)


def test_weights_make_up_for_what_was_not_observed():
    sample = sample_of(3)
    sample.reward[0, 0] = sample.cost_usd[0, 0] = np.nan
    assert observed_weight(sample)[:, 0].tolist() == pytest.approx([0.0, 1.5, 1.5])
    assert observed_weight(sample)[:, 1].tolist() == [1.0, 1.0, 1.0]


def sample_of(n, seed=0, n_models=3):
    rng = np.random.default_rng(seed)
    return Sample(
        rng.normal(size=(n, 2)).astype(np.float32),
        np.zeros(n, dtype=np.int64),
        rng.random((n, n_models)),
        rng.random((n, n_models)) + np.arange(n_models),
    )


def test_every_candidate_spends_the_rate():
    sample = sample_of(300)
    held_out = hold_out(sample, 1, seed=0)
    for rate in (0.9, 1.2):
        comparison = compare(sample, held_out, rate)
        assert [one.estimator for one in comparison.standings] == ["means", "ridge"]
        assert all(one.spend_usd == pytest.approx(rate, abs=0.02) for one in comparison.standings)
        assert (comparison.standings[0].gain, comparison.standings[0].gain_se) == (0.0, 0.0)
    spend = HeldOutRouting(sample, held_out.ridge.reward, held_out.cost_usd).curve().spend_usd
    assert (np.diff(spend) <= 0).all()


def test_predictions_are_held_out():
    sample = sample_of(200)
    before = hold_out(sample, 1, seed=0)
    sample.reward[7] = 1.0 - sample.reward[7]
    after = hold_out(sample, 1, seed=0)
    assert np.array_equal(before.reward[7], after.reward[7])
    assert not np.array_equal(before.reward[:7], after.reward[:7])


def test_a_long_log_in_batches_gives_the_same(monkeypatch):
    prompts, reward, cost = log_of(90, signal=1.0)
    log = RoutingLog.from_arrays(prompts, reward, cost, ("small", "large"))
    whole = WiseRouter.fit(log, encoder=as_vectors, n_contexts=2, estimator="ridge")
    batches = RoutingLog.batches
    monkeypatch.setattr(reader.RoutingLog, "batches", lambda self: batches(self, rows=7))
    parts = WiseRouter.fit(log, encoder=as_vectors, n_contexts=2, estimator="ridge")
    for name, array in whole.residuals.arrays().items():
        assert parts.residuals.arrays()[name] == pytest.approx(array), name


def test_a_large_log_is_sampled(monkeypatch):
    monkeypatch.setattr(fit_residuals, "RESIDUAL_QUERIES", 30)
    taken = []
    hold_out_of = fit_residuals.hold_out
    monkeypatch.setattr(
        fit_residuals,
        "hold_out",
        lambda sample, *rest, **kw: taken.append(len(sample)) or hold_out_of(sample, *rest, **kw),
    )
    fitted(*log_of(90, signal=1.0), estimator="ridge")
    assert taken == [30]


def replayed(router, table, rate_usd, *, text=False):
    """Route a table with feedback; return its mean reward and spend over budget."""
    prompts, reward, cost = table
    router.start(Budget(rate_usd * len(prompts), len(prompts)))
    scores, spent = [], 0.0
    for i, prompt in enumerate(prompts):
        query = {"text": prompt} if text else {"embedding": json.loads(prompt)}
        decision = router.decide(**query)
        k = router.pool.index(decision.model)
        router.charge(decision, cost[i, k])
        router.reward(decision, reward[i, k])
        scores.append(reward[i, k])
        spent += cost[i, k]
    return float(np.mean(scores)), spent / (rate_usd * len(prompts))


def test_estimates_of_single_queries_earn_more_for_the_same_money():
    test = log_of(400, signal=1.0, seed=1)
    plain, spend = replayed(fitted(*log_of(600, signal=1.0)), test, 1.5)
    shifted, shifted_spend = replayed(fitted(*log_of(600, signal=1.0), estimator="ridge"), test, 1.5, text=True)
    assert shifted > plain + 0.05
    assert 0.97 < shifted_spend < 1.01
    assert 0.97 < spend < 1.01


def test_an_artifact_holds_the_estimators(tmp_path):
    prompts, *table = log_of(200, signal=1.0)
    router = fitted(prompts, *table, estimator="ridge")
    router.save(tmp_path / "r.wise")
    loaded = WiseRouter.load(tmp_path / "r.wise", encoder=as_vectors, seed=0)
    for name, array in router.residuals.arrays().items():
        assert np.array_equal(loaded.residuals.arrays()[name], array), name
    for one in (router, loaded):
        one.start(Budget(30.0, 20))
    for prompt in prompts[:20]:
        assert loaded.decide(prompt)[1:10] == router.decide(prompt)[1:10]


def test_an_artifact_without_them_loads_as_before(tmp_path):
    router = fitted(*log_of(100, signal=1.0))
    router.save(tmp_path / "r.wise")
    assert router.residuals is None
    assert WiseRouter.load(tmp_path / "r.wise", encoder=as_vectors).residuals is None


def test_a_reward_that_replaces_another_counts_once():
    table = log_of(100, signal=1.0)
    one, two = (fitted(*table, estimator="ridge") for _ in range(2))
    for router, scores in ((one, (0.3, 0.9)), (two, (0.9,))):
        router.start(Budget(100.0, 50))
        decision = router.decide(table[0][0])
        for score in scores:
            router.reward(decision, score)
    assert one.estimates.reward == pytest.approx(two.estimates.reward)
    assert one.estimates.labels.tolist() == two.estimates.labels.tolist()
    x = np.array(json.loads(table[0][1]), dtype=np.float32)
    assert one.residuals.ridge.shift(x, 0) == pytest.approx(two.residuals.ridge.shift(x, 0), abs=0.01)


def test_a_decision_remembers_its_query_only_where_that_is_used():
    table = log_of(60, signal=1.0)
    for estimator, is_kept in (("means", False), ("ridge", True)):
        router = fitted(*table, estimator=estimator)
        router.start(Budget(100.0, 50))
        decision = router.decide(table[0][0])
        assert (router._store.find(decision.id).deviations is not None) == is_kept


def test_a_model_may_join_and_answer_for_another():
    table = log_of(60, signal=1.0)
    router = fitted(*table, estimator="ridge")
    router.start(Budget(1_000.0, 50))
    before = router.decide(table[0][0], input_tokens=5)
    router.add_model(Model("new", Price(1e-3, 1e-3)), reward=1.0, cost_usd=1.0)
    router.charge(before, 1.0, model="new")
    router.reward(before, 1.0)
    assert router.decide(table[0][1], eligible=["new"]).model == "new"


def test_an_embedding_that_does_not_fit_is_refused():
    router = fitted(*log_of(60, signal=1.0), estimator="ridge")
    router.start(Budget(100.0, 50))
    with pytest.raises(InvalidInput, match="shape"):
        router.decide(embedding=[1.0], context=0)
    assert router.decide(context=1).probability > 0  # no embedding: the means of the context


def test_a_log_of_a_few_queries_is_refused_or_fitted():
    with pytest.raises(InvalidInput, match="at least 5, got 4"):
        fitted(*log_of(4, signal=1.0), estimator="ridge")
    assert fitted(*log_of(5, signal=1.0), estimator="auto").comparison is not None


@pytest.mark.parametrize("options", [{"estimator": "forest"}, {"estimator": "auto", "rate_usd": -1.0}])
def test_wrong_terms_are_refused_before_anything_is_read(options):
    with pytest.raises(InvalidInput):
        fitted(*log_of(10, signal=1.0), **options)


def test_the_command_compares_and_says_what_it_chose(tmp_path):
    import polars as pl
    from typer.testing import CliRunner

    prompts, reward, cost = log_of(120, signal=0.0)
    columns = {"prompt": [f"{prompt} word{i % 7}" for i, prompt in enumerate(prompts)]}
    for k, name in enumerate(("small", "large")):
        columns |= {f"score|{name}": reward[:, k], f"cost|{name}": cost[:, k]}
    pl.DataFrame(columns).write_parquet(tmp_path / "log.parquet")
    fit = ["fit", str(tmp_path / "log.parquet"), "-o", str(tmp_path / "r.wise"), "--contexts", "2"]
    asked = [*fit, "--estimator", "auto", "--budget-per-query", "1.5"]
    figures = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    assert figures["rate_usd"] == 1.5
    assert [one["estimator"] for one in figures["estimators"]] == ["means", "ridge"]
    assert figures["chosen"] in figures["estimators"]
    printed = CliRunner().invoke(app, asked).stdout
    assert "Held-out queries" in printed
    assert "chosen" in printed
    assert "estimators" not in json.loads(CliRunner().invoke(app, [*fit, "--json"]).stdout)


def test_another_worker_learns_a_reward_less_the_deviation_that_was_predicted(tmp_path):
    table = log_of(100, signal=1.0)
    store = f"sqlite:///{tmp_path / 'budget.db'}"
    one, two = (fitted(*table, estimator="ridge", store=store) for _ in range(2))
    alone = fitted(*table, estimator="ridge")
    for router in (one, alone):
        router.start(Budget(100.0, 50))
        decision = router.decide(table[0][0])
        router.charge(decision, 1.5)
        (two if router is one else alone).reward(decision, 0.9)
    assert two.estimates.reward == pytest.approx(alone.estimates.reward)
