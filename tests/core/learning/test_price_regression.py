"""The regression on prices: against the joint Gaussian written out, and where prices carry no signal."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from support.random_effects import toward_price_line
from wiserouter import Budget, Estimates, Model, Price, WiseRouter
from wiserouter.learning.cost_prior import log_prices
from wiserouter.learning.optimistic_estimates import OptimisticEstimates, mean_within_range
from wiserouter.learning.random_effects import DEVIATIONS, LEVEL, LEVEL_SPREAD, SLOPE, SLOPE_SPREAD


def pools(seed, n_models=6, most_untried=3):
    rng = np.random.default_rng(seed)
    noise = rng.uniform(0.001, 0.1, n_models)
    noise[: rng.integers(0, most_untried + 1)] = np.inf
    return rng.random(n_models), noise, rng.normal(0.0, 1.5, n_models)


def joint(mean, noise, log_price):
    """Condition the joint normal distribution of all models on the observed means, for each deviation from the line.

    Return the means and the variances of the mixture over the deviations.
    """
    tried, believed, variances, evidence = np.isfinite(noise), [], [], []
    line = LEVEL + SLOPE * log_price
    for deviation in DEVIATIONS:
        prior = LEVEL_SPREAD**2 + SLOPE_SPREAD**2 * np.outer(log_price, log_price) + deviation**2 * np.eye(len(mean))
        of_seen = prior[np.ix_(tried, tried)] + np.diag(noise[tried])
        believed.append(line + prior[:, tried] @ np.linalg.solve(of_seen, (mean - line)[tried]))
        gained = prior[:, tried] @ np.linalg.solve(of_seen, prior[tried])
        variances.append(np.diag(prior - gained))
        evidence.append(multivariate_normal(line[tried], of_seen).pdf(mean[tried]))
    mean = np.average(believed, axis=0, weights=evidence)
    variance = np.average(variances + (np.array(believed) - mean) ** 2, axis=0, weights=evidence)
    return np.clip(mean, 0.0, 1.0), variance


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_it_is_the_posterior_of_the_joint_distribution(seed):
    pool = pools(seed)
    believed, expected = toward_price_line(*pool), joint(*pool)
    assert believed[0] == pytest.approx(expected[0], abs=1e-8)
    assert believed[1] == pytest.approx(expected[1], abs=1e-8)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_order_of_the_models_does_not_matter_and_beliefs_are_rewards(seed):
    mean, noise, log_price = pools(seed)
    order = np.random.default_rng(seed).permutation(len(mean))
    believed = toward_price_line(mean, noise, log_price)[0]
    assert toward_price_line(mean[order], noise[order], log_price[order])[0] == pytest.approx(believed[order])
    assert np.all((believed >= 0) & (believed <= 1))


def test_what_is_known_well_stays():
    mean, _, log_price = pools(1)
    assert toward_price_line(mean, np.full(6, 1e-9), log_price)[0] == pytest.approx(mean, abs=1e-6)


def test_a_pool_that_was_never_tried_is_on_the_prior_line():
    believed = toward_price_line(np.zeros(3), np.full(3, np.inf), np.array([-1.0, 0.0, 1.0]))[0]
    assert believed == pytest.approx([LEVEL - SLOPE, LEVEL, LEVEL + SLOPE])


@pytest.mark.parametrize("slope", [0.1, -0.1])
def test_a_model_that_was_never_tried_follows_the_others_up_or_down(slope):
    log_price = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    noise = np.array([0.001, 0.001, 0.001, 0.001, np.inf])
    believed = toward_price_line(0.5 + slope * log_price, noise, log_price)[0]
    assert believed[4] == pytest.approx(0.5 + 2.0 * slope, abs=0.05)  # the prior line rises by .04


def squared_errors(of_pool, calls, seed):
    """Return the mean squared error of the posterior means, relative to the plain means, after some coin tosses."""
    rng, errors = np.random.default_rng(seed), []
    for _ in range(400):
        reward, log_price = of_pool(rng)
        seen = rng.binomial(calls, reward) / calls
        noise = seen * (1.0 - seen) / (calls - 1)
        believed = toward_price_line(seen, np.full(len(reward), noise.mean()), log_price)[0]
        errors.append((np.mean((believed - reward) ** 2), np.mean((seen - reward) ** 2)))
    ours, plain = np.mean(errors, axis=0)
    return ours / plain


@pytest.mark.parametrize("calls", [3, 10, 30, 100, 1_000])
def test_prices_that_say_nothing_do_not_hurt(calls):
    assert squared_errors(lambda rng: (rng.random(8), rng.normal(0.0, 2.0, 8)), calls, calls) <= 1.005


@pytest.mark.parametrize(("calls", "most"), [(3, 0.4), (10, 0.5), (30, 0.7)])
def test_prices_that_order_the_models_take_most_of_the_error_of_a_few_calls(calls, most):
    def ordered(rng):
        log_price = rng.normal(0.0, 1.5, 8)
        return np.clip(0.5 + 0.08 * log_price + rng.normal(0.0, 0.08, 8), 0.0, 1.0), log_price

    assert squared_errors(ordered, calls, calls) <= most


def learned_from(models):
    """Return the mean rewards of one context after ten calls of each model but the last."""
    estimates = Estimates(1, len(models))
    rng = np.random.default_rng(0)
    for k in range(len(models) - 1):
        for reward in rng.binomial(1, 0.2 + 0.2 * k, 10):
            estimates.add_invoked(0, k)
            estimates.add_reward(0, k, float(reward))
    estimates.met[:, 0] += estimates.invoked.sum(axis=1)
    outlook = OptimisticEstimates(estimates, models, 0.0)
    outlook.refresh(1_000, 1.0)
    return np.array(outlook.row(0).mean), estimates


def test_a_router_believes_what_prices_promise_and_without_prices_what_the_others_show():
    priced = [Model(f"m{k}", Price(10.0**k * 1e-7, 10.0**k * 1e-7)) for k in range(4)]
    believed, estimates = learned_from(priced)
    seen = estimates.reward[0, :3] / 10.0
    noise = (10.0 * seen * (1.0 - seen)).sum() + 2.0 * 0.25
    of_model = np.array([noise / (27.0 + 2.0) / 10.0] * 3 + [np.inf])
    mean, variance = joint(np.append(seen, 0.0), of_model, log_prices(estimates, [m.price for m in priced]))
    assert believed == pytest.approx(mean_within_range(mean, np.sqrt(variance)), abs=1e-5)
    assert believed[3] > believed[1]
    mean, variance = joint(np.append(seen, 0.0), of_model, np.zeros(4))
    unpriced = learned_from([Model(f"m{k}") for k in range(4)])[0]
    assert unpriced == pytest.approx(mean_within_range(mean, np.sqrt(variance)), abs=1e-5)


def test_a_free_model_and_one_without_a_price_are_typical():
    prices = [Price(1e-6, 0.0), Price(0.0, 0.0), Price(1e-4, 0.0), None]
    assert log_prices(Estimates(2, 4), prices) == pytest.approx([-np.log(10.0), 0.0, np.log(10.0), 0.0])
    assert log_prices(Estimates(2, 2), prices[:2]).tolist() == [0.0, 0.0]
    assert log_prices(Estimates(2, 2), ()).tolist() == []


def test_a_cut_of_a_price_makes_no_model_worse():
    router = WiseRouter([Model(f"m{k}", Price(0.0, 10.0**k * 1e-6)) for k in range(3)])
    router.start(Budget(1_000.0, 1_000))
    for k in range(60):
        decision = router.decide(context=0, eligible=[f"m{k % 3}"])
        router.charge(decision, 1e-5 * 10 ** (k % 3))
        router.reward(decision, float(k % 3 == 2 or k % 2))
    before = router.plan.reward
    router.update_model(Model("m2", Price(0.0, 1e-6)))
    assert router.plan.reward == pytest.approx(before, abs=0.005)  # a refresh takes in the latest calls
    assert router.plan.cost_usd[0][2] < 1.01e-4
