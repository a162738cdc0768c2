"""The first calls of `Optimistic`: cheap ones, until a call was paid for."""

import numpy as np
import pytest

from wiserouter import Budget, Contexts, Model, Optimistic, Price, WiseRouter


def priced_in_steps(rng, n_models=4):
    """Return models whose list prices are 1, 5, 25, ... times that of the first, in a random order."""
    steps = rng.permutation(n_models)
    return [Model(f"m{k}", Price(1e-7 * 5.0**step, 4e-7 * 5.0**step)) for k, step in enumerate(steps)], steps


@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize("seed", range(3))
def test_no_expensive_call_is_made_before_the_scale_of_costs_is_known(seed, scale):
    models, steps = priced_in_steps(np.random.default_rng(seed))
    cheapest, least_usd = int(steps.argmin()), scale * 1.3e-4  # a typical call of the cheapest costs 1.3e-4 USD
    router = WiseRouter(models, Contexts.single(), policy=Optimistic(), seed=seed)
    router.start(Budget(200 * least_usd, 200))
    early = [router.decide() for _ in range(3)]
    assert [decision.model for decision in early] == [f"m{cheapest}"] * 3
    for decision in early:
        router.charge(decision, least_usd)
        router.reward(decision, 0.5)
    assert [router.decide().model for _ in range(100)].count(f"m{cheapest}") >= 95


def test_the_first_request_goes_to_the_cheapest_of_those_eligible_with_or_without_a_context():
    models, steps = priced_in_steps(np.random.default_rng(0))
    second = f"m{np.argsort(steps)[1]}"
    eligible = [model.name for model, step in zip(models, steps, strict=True) if step > 0]
    for at in ({}, {"embedding": [0.0]}):
        router = WiseRouter(models, Contexts([[0.0]], [1.0]), policy=Optimistic())
        router.start(Budget(1.0, 10))
        assert router.decide(**at, eligible=eligible).model == second


@pytest.mark.parametrize("at", [{}, {"embedding": [0.0]}])
def test_until_a_call_was_paid_for_that_is_why_the_others_are_excluded(at):
    models, _ = priced_in_steps(np.random.default_rng(0))
    router = WiseRouter(models, Contexts([[0.0]], [1.0]), policy=Optimistic())
    router.start(Budget(1_000.0, 10))
    first = router.decide(**at)
    why = router.explain(first)
    reasons = {model.name: model.excluded_by for model in why.models}
    assert reasons.pop(first.model) is None
    assert set(reasons.values()) == {"no call was paid for yet: only the cheapest model is called"}
    assert (why.rule, why.unspent, why.probability) == ("first", None, 1.0)
    router.charge(first, 1e-4)
    assert router.explain(router.decide(**at)).rule == "plan"
