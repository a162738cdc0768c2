"""Published routers that are tuned on the training half: MetaLLM, CascadeRouting, FrugalGPT, PORT."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from support.field import always, fit, queries_of, serve
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.baselines import PUBLISHED_ROUTERS
from wiserouter.evaluation.baselines.answer_regressions import AnswerForecast, cross_fit_forecast, regress
from wiserouter.evaluation.baselines.base import NOT_SERVED, Answers
from wiserouter.evaluation.baselines.cascade_routing import CascadeRouting, NoisyTruthCascade, Routing
from wiserouter.evaluation.baselines.frugalgpt import FrugalGpt, cascades
from wiserouter.evaluation.baselines.metallm import MetaLlm, price_grid
from wiserouter.evaluation.baselines.model_pairs import PairTables, expected_max
from wiserouter.evaluation.baselines.port import PooledPort, Port, fixed_prices
from wiserouter.evaluation.bench.splits import split_table
from wiserouter.evaluation.datasets.synthetic import make_table


@pytest.fixture(scope="module")
def split():
    return split_table(make_table(800, np.random.default_rng(0)), seed=0, n_contexts=4)


def telling(n, seed=0):
    """Return queries on which the cheap model's wrong answers are short, and the expensive one is always correct."""
    right = np.random.default_rng(seed).random(n) < 0.5
    reward = np.column_stack([right, np.ones(n)])
    return queries_of(reward, np.column_stack([np.where(right, 2.0, 1.0), np.full(n, 100.0)]))


# MetaLLM


@pytest.mark.parametrize(("rate_usd", "model"), [(0.5, 0), (1.0, 0), (2.9, 0), (3.0, 1), (9.0, 1)])
def test_metallm_comes_as_close_to_the_budget_as_one_price_can(rate_usd, model):
    queries = always(50, [0.5, 0.9], [1.0, 3.0])
    assert set(serve(fit(MetaLlm(), queries), queries, rate_usd).given) == {model}


def test_metallm_draws_among_tied_models():
    queries = always(200, [0.5, 0.5], [1.0, 1.0])
    assert 60 < np.sum(serve(fit(MetaLlm(), queries), queries, 1.0).given == 0) < 140


def test_metallm_a_higher_price_never_plans_to_spend_more(split):
    fitted = MetaLlm().fit(split.training(), np.random.default_rng(0))
    scores = [fitted.bound - price * fitted.cost_usd for price in price_grid(fitted.cost_usd)]
    planned = [np.take_along_axis(fitted.cost_usd, s.argmax(axis=1)[:, np.newaxis], axis=1).ravel() for s in scores]
    assert (np.diff(planned, axis=0) <= 0.0).all()
    assert planned[-1] == pytest.approx(fitted.cost_usd.min(axis=1))


# Regressions


def test_cross_fitted_forecasts_do_not_use_the_rewards_that_they_predict():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(120, 30)).astype(np.float32)
    answers = Answers((rng.random((120, 1)) < 0.5).astype(float), np.ones((120, 1)))
    unfair = regress(rows, answers).reward_before(rows)
    fair = cross_fit_forecast(rows, answers, rng).before
    gap = [forecast[answers.reward == 1].mean() - forecast[answers.reward == 0].mean() for forecast in (unfair, fair)]
    assert gap[0] > 0.2
    assert gap[1] < 0.05


def test_scores_after_a_call_use_its_cost():
    queries = telling(200)
    fitted = regress(queries.embeddings, queries.answers)
    assert fitted.reward_before(np.zeros(1))[0] == pytest.approx(queries.answers.reward[:, 0].mean(), abs=0.01)
    assert fitted.reward_after(np.zeros(1), 1.0)[0] < 0.1
    assert fitted.reward_after(np.zeros(1), 2.0)[0] > 0.9


# CascadeRouting


@pytest.mark.parametrize(("one", "other", "spread"), [(0.2, 0.9, 0.5), (0.9, 0.2, 0.1), (0.5, 0.5, 1.0)])
def test_the_better_of_two_is_the_integral(one, other, spread):
    known, _ = quad(lambda d: max(other + d, other) * norm.pdf(d, one - other, spread), -9, 9, points=[0.0])
    assert expected_max(np.array(one), np.array(other), np.array(spread)) == pytest.approx(known, abs=1e-7)


def forecast_of_two():
    """An expensive model that is correct 9 times in 10; an answer of the cheap one reveals its quality."""
    after = np.tile([[1.0, 0.9], [0.0, 0.9]], (10, 1))
    forecast = AnswerForecast(np.tile([0.5, 0.9], (20, 1)), after, np.tile([1.0, 10.0], (20, 1)))
    reward = after.copy()
    reward[:, 1] = 1.0
    reward[:2, 1] = 0.0
    return forecast, Answers(reward, forecast.cost_usd)


@pytest.mark.parametrize(
    ("longest", "prices", "quality", "cost_usd"),
    [
        (2, (0.02, 0.02), 0.95, 6.0),  # the pair: 0.960 - 0.22 beats 0.7 and 0.48; stops at a correct answer
        (2, (0.20, 0.20), 0.50, 1.0),  # nothing is worth 2.0
        (1, (0.02, 0.02), 0.90, 10.0),
    ],
)
def test_a_cascade_by_hand(longest, prices, quality, cost_usd):
    forecast, answers = forecast_of_two()
    tables = PairTables.of(forecast, np.array([0, 1]), longest)
    assert tables.reached(np.array(prices), answers) == pytest.approx((quality, cost_usd))


def test_a_cascade_beats_routing_if_answers_are_informative_and_costs_differ_widely():
    queries, rate_usd = telling(500), 53.0
    runs = [serve(fit(method, queries), queries, rate_usd) for method in (CascadeRouting(), Routing())]
    assert runs[0].reward.mean() > 0.95
    assert runs[1].reward.mean() < 0.85
    assert max(run.cost_usd.mean() for run in runs) < 1.15 * rate_usd
    assert runs[1].calls.max() == 1


def test_noisy_truth_requires_the_true_scores():
    queries = telling(50)
    fitted = fit(NoisyTruthCascade(), queries)
    assert serve(fitted, queries, 50.0, sees_truth=True).reward.mean() > 0.5
    with pytest.raises(InvalidInput, match="true scores"):
        serve(fitted, queries, 50.0)


# FrugalGPT


def test_frugalgpt_continues_if_the_score_is_low():
    queries = telling(300)
    run = serve(fit(FrugalGpt(), queries), queries, 55.0)
    wrong = queries.answers.reward[:, 0] == 0.0
    assert run.reward.mean() > 0.98
    assert (run.given[wrong] == 1).all()
    assert (run.calls[~wrong] == 1).mean() > 0.9


def test_frugalgpt_cannot_serve_the_tightest_budget(split):
    training = split.training()
    fitted = FrugalGpt().fit(training, np.random.default_rng(0))
    cheapest_usd = training.leaderboard().cost_usd.min()
    assert set(serve(fitted, split.test, cheapest_usd).given) == {NOT_SERVED}
    assert NOT_SERVED not in serve(fitted, split.test, 2.0 * cheapest_usd).given


def test_cascades_equal_their_simulation():
    rng = np.random.default_rng(3)
    score, answers = rng.random((25, 3)).round(1), Answers(rng.random((25, 3)), rng.random((25, 3)))
    known = cascades(score, answers)
    for first, second in [(0, 1), (2, 0), (1, 2)]:
        for at, threshold in enumerate(known.threshold[first, second]):
            stops = score[:, first] > threshold
            reward = np.where(stops, answers.reward[:, first], answers.reward[:, second]).mean()
            cost = (answers.cost_usd[:, first] + np.where(stops, 0.0, answers.cost_usd[:, second])).mean()
            assert known.reward[first, second, at] == pytest.approx(reward)
            assert known.cost_usd[first, second, at] == pytest.approx(cost)
            assert not stops.all()


# PORT


def worth(x):
    """Return queries on which the expensive model, at 10 USD more, is better by x / 2."""
    return queries_of(np.column_stack([np.full(len(x), 0.5), 0.5 + x / 2.0]), np.tile([1.0, 11.0], (len(x), 1)), x)


def test_fixed_prices_are_the_minimum_of_the_dual():
    rng = np.random.default_rng(0)
    expected = Answers(rng.random((40, 3)), 1e-4 * rng.random((40, 3)))
    account, budget_usd = np.array([0, 1, 1]), np.array([4e-4, 3e-4])

    def dual(price):
        gain = (expected.reward - price[account] * expected.cost_usd).max(axis=1)
        return budget_usd @ price + np.maximum(gain, 0.0).sum()

    found = fixed_prices(expected, account, budget_usd)
    around = found * rng.uniform(0.5, 1.5, size=(500, 2))
    assert dual(found) <= min(map(dual, around)) + 1e-9


def test_port_is_right_on_average_and_wrong_when_the_stream_drifts():
    streams = np.random.default_rng(1).random((11, 1000))
    fitted = fit(PooledPort(), worth(streams[0]))
    alike = [serve(fitted, worth(x), 4.0, seed).cost_usd.mean() for seed, x in enumerate(streams[1:])]
    assert np.mean(alike) == pytest.approx(4.0, rel=0.15)
    assert serve(fitted, worth(np.sort(streams[1])), 4.0).cost_usd.mean() > 2.0 * 4.0


def test_port_begins_with_random_models_and_splits_the_budget():
    queries = worth(np.random.default_rng(1).random(400))
    run = serve(fit(Port(), queries), queries, 4.0)
    assert set(run.given[:10]) == {NOT_SERVED, 0, 1}
    assert NOT_SERVED not in run.given[10:]
    assert fit(Port(), always(9, [0.5, 0.9], [1.0, 3.0])).split == pytest.approx([0.625, 0.375])


# All


TAKES_LONG = ("routing", "cascade-routing")


def marked(method):
    """Return a method as the parameter of a test."""
    return pytest.param(method, id=method.name, marks=[pytest.mark.slow] if method.name in TAKES_LONG else [])


@pytest.mark.parametrize("method", [marked(make()) for make in PUBLISHED_ROUTERS])
def test_the_unit_of_money_changes_nothing(method, split):
    rate_usd = float(np.sort(split.train.answers.cost_usd.mean(axis=0))[1])
    runs = []
    for factor in (1.0, 1024.0):
        training = split.training()
        training.answers = Answers(training.answers.reward, factor * training.answers.cost_usd)
        fitted = method.fit(training, np.random.default_rng(1))
        test = split.test._replace(answers=Answers(split.test.answers.reward, factor * split.test.answers.cost_usd))
        runs.append(serve(fitted, test, factor * rate_usd, sees_truth=method.sees_truth).given)
    assert np.mean(runs[0] == runs[1]) > 0.99
