"""Uses that follow from tokens, such as energy: stated by model, counted by calls, and kept to a limit."""

import numpy as np
import pytest

from wiserouter import Budget, Contexts, Estimates, Limit, Limits, Model, Price, Usage, UseRate, WiseRouter
from wiserouter.errors import InvalidInput, UnknownModel
from wiserouter.planning.limited_plan import Constraint, limited_plan

REWARD, TOKENS = np.array([[0.4, 0.7, 0.9], [0.6, 0.65, 0.8]]), (200, 300, 500)
ENERGY = {"small": UseRate(output_token=4e-4), "middle": UseRate(0.05, 1e-5, 1e-3), "large": UseRate(0.1, 0.0, 4e-3)}


def router():
    estimates = Estimates(2, 3)
    for context in range(2):
        estimates.add_table(np.full(400, context), np.tile(REWARD[context], (400, 1)), np.full((400, 3), 1e-3))
    models = [Model(name, Price(1e-6, 1e-6)) for name in ENERGY]
    return WiseRouter(models, Contexts(np.eye(2), [0.5, 0.5]), estimates=estimates, seed=0, watch=None)


@pytest.mark.parametrize("limit", ["mean", "total"])
def test_a_limit_on_energy_is_kept_at_the_best_quality(limit):
    one, rng, n = router(), np.random.default_rng(1), 4_000
    one.start(Budget(100.0, n))
    one.set_use_rates({name: {"energy_wh": rate} for name, rate in ENERGY.items()})
    one.set_limits(Limits({"energy_wh": Limit(mean=0.8) if limit == "mean" else Limit(total=0.8 * n)}))
    used = quality = 0.0
    for context in rng.integers(0, 2, n).tolist():
        decision = one.decide(context=context)
        k = one.pool.index(decision.model)
        usage = Usage(100, 1 + round(rng.exponential(TOKENS[k])))
        one.charge(decision, usage=usage)
        used += ENERGY[decision.model].of(usage)
        quality += REWARD[context, k]
    mean = np.array([[rate.of(Usage(100, 1 + TOKENS[k])) for k, rate in enumerate(ENERGY.values())]] * 2)
    best = limited_plan(np.full(2, 0.5), REWARD, [Constraint("wh", mean, 0.8)]).value
    (seen,) = one.status().limits
    assert seen.mean == pytest.approx(used / n)
    assert used / n == pytest.approx(0.8, rel=0.02)
    assert quality / n == pytest.approx(best, rel=0.01)


def test_what_a_call_reports_comes_first_and_a_call_without_tokens_uses_nothing():
    one = router()
    one.start(Budget(10.0, 100))
    one.set_use_rates({"small": {"energy_wh": UseRate(1.0), "co2_g": UseRate(input_token=0.5)}})
    one.set_limits(Limits({"energy_wh": Limit(mean=100.0), "co2_g": Limit(mean=100.0)}))
    calls = [({"usage": Usage(10, 5), "resources": {"energy_wh": 7.0}}, 7.0, 5.0), ({"cost_usd": 0.0}, 7.0, 5.0)]
    calls += [({"usage": Usage(30, 5)}, 4.0, 10.0)]
    for charge, energy_wh, co2_g in calls:
        one.charge(one.decide(context=0, eligible=["small"]), **charge)
        assert [limit.mean for limit in one.status().limits] == [energy_wh, co2_g]


def test_arms_have_the_rates_of_their_family_unless_they_have_their_own():
    arms = [Model("gpt", Price(1e-6, 1e-6), params={"reasoning_effort": effort}) for effort in ("low", "high")]
    one = WiseRouter(arms, seed=0)
    one.start(Budget(10.0, 100))
    one.set_use_rates(
        {"gpt": {"energy_wh": UseRate(1.0), "co2_g": UseRate(2.0)}, arms[1].name: {"co2_g": UseRate(3.0)}}
    )
    one.set_limits(Limits({"energy_wh": Limit(mean=100.0), "co2_g": Limit(mean=100.0)}))
    for arm, means in zip(arms, ([1.0, 2.0], [1.0, 2.5]), strict=True):
        one.charge(one.decide(eligible=[arm.name]), usage=Usage(1, 1))
        assert [limit.mean for limit in one.status().limits] == means


def test_rates_that_are_none_are_refused_and_change_nothing():
    one = router()
    one.set_use_rates({"small": {"energy_wh": UseRate(1.0)}})
    with pytest.raises(UnknownModel, match="small, middle, large; got 'huge'"):
        one.set_use_rates({"huge": {"energy_wh": UseRate(1.0)}})
    with pytest.raises(InvalidInput, match="a resource must have a name"):
        one.set_use_rates({"small": {"energy_usd": UseRate(1.0)}})
    for wrong in ({"call": -1.0}, {"input_token": float("nan")}, {"output_token": float("inf")}):
        with pytest.raises(InvalidInput, match=f"UseRate.{next(iter(wrong))}"):
            UseRate(**wrong)
    one.start(Budget(10.0, 100))
    one.set_limits(Limits({"energy_wh": Limit(mean=5.0)}))
    one.charge(one.decide(context=0, eligible=["small"]), usage=Usage(1, 1))
    assert one.status().limits[0].mean == 1.0
