"""Limits beside the budget: their terms, what is refused, the meters, the status and the explanation."""

import numpy as np
import pytest

from wiserouter import (
    Budget,
    Contexts,
    EpsilonFirst,
    Estimates,
    Growing,
    Limit,
    Limits,
    Model,
    Optimistic,
    Price,
    WiseRouter,
)
from wiserouter.budgets.limit_meter import WINDOW, LimitMeter
from wiserouter.budgets.limits import Measure
from wiserouter.errors import InfeasibleLimits, InvalidInput, UnknownDecision, UnknownModel
from wiserouter.routing.journal_reader import JournalReader, find_explanation
from wiserouter.routing.scope_limits import MOST_BETWEEN

REWARD = [[0.5, 0.7, 0.9]]
COST_USD = [[0.01, 0.02, 0.04]]
LATENCY_S = (1.0, 4.0, 2.0)


def models(latency_s=LATENCY_S):
    price = Price(input=1e-6, output=1e-6)
    return [
        Model(name, price=price, resources={} if use is None else {"latency_s": use})
        for name, use in zip(("small", "slow", "large"), latency_s, strict=True)
    ]


def offline_router(latency_s=LATENCY_S, reward=REWARD, cost_usd=COST_USD, contexts=None, n=400, **settings):
    estimates = Estimates(len(reward), 3)
    for context, (gain, usd) in enumerate(zip(reward, cost_usd, strict=True)):
        estimates.add_table(np.full(n, context), np.tile(gain, (n, 1)), np.tile(usd, (n, 1)))
    return WiseRouter(models(latency_s), contexts, estimates=estimates, seed=0, **settings)


def serve(router, n, latency_s=LATENCY_S, scope="default", cost_usd=COST_USD[0]):
    names = router.pool.names
    served = np.zeros(3)
    for _ in range(n):
        decision = router.decide(context=0, scope=scope)
        k = names.index(decision.model)
        served[k] += 1
        router.charge(decision, cost_usd[k], resources={"latency_s": latency_s[k]})
    return served / n


def test_a_latency_limit_is_kept_to_beside_the_budget_and_both_have_their_price():
    router = offline_router()
    router.start(Budget(amount_usd=25.0, horizon=1_000))
    router.set_limits(Limits({"latency_s": Limit(mean=1.4)}))
    shares = serve(router, 1_000)
    assert shares == pytest.approx([0.6, 0.0, 0.4], abs=0.03)
    (limit,) = router.status().limits
    assert limit.name == "latency_s"
    assert limit.calls == 1_000
    assert limit.mean == pytest.approx(1.4, rel=0.005)
    assert limit.used == pytest.approx(1_000 * limit.mean)
    assert limit.price == pytest.approx(0.4, rel=0.1)
    assert limit.nearest is None
    assert router.status().shadow_price == pytest.approx(0.0, abs=1e-6)
    assert router.status().unspent is None
    assert "limit " in str(router.status())


def test_a_router_without_limits_draws_as_before_them():
    plain, limited = offline_router(), offline_router()
    for router in (plain, limited):
        router.start(Budget(amount_usd=25.0, horizon=300))
    limited.set_limits(Limits({"latency_s": Limit(mean=1.4)}), scope="another")
    limited.set_limits(None, scope="another")
    for router in (plain, limited):
        router.charge(router.decide(context=0), 0.02, resources={"latency_s": 1.0})
    chosen = [[router.decide(context=0)[1:10] for _ in range(100)] for router in (plain, limited)]
    assert chosen[0] == chosen[1]
    assert limited.status().limits == ()


def test_limits_that_no_mix_keeps_are_refused_with_the_nearest_ones():
    router = offline_router()
    with pytest.raises(
        InfeasibleLimits, match=r"latency_s 0.5: the nearest that some mix keeps are latency_s 1;"
    ) as info:
        router.set_limits(Limits({"latency_s": Limit(mean=0.5)}))
    assert info.value.asked == {"latency_s": 0.5}
    assert info.value.nearest == pytest.approx({"latency_s": 1.0})
    assert router.limits() is None
    router.set_limits(Limits({"latency_s": Limit(mean=1.0)}))


def test_limits_are_refused_at_the_rate_of_the_budget_in_either_order():
    latency_s, rate = (3.0, 4.0, 1.0), 0.02  # the fast model is the expensive one
    router = offline_router(latency_s)
    router.set_limits(Limits({"latency_s": Limit(mean=1.5)}))
    with pytest.raises(InfeasibleLimits) as info:
        router.start(Budget(amount_usd=rate * 100, horizon=100))
    assert info.value.nearest == pytest.approx({"latency_s": 3.0 - 2.0 / 3.0})
    router.start(Budget(amount_usd=0.04 * 100, horizon=100))
    other = offline_router(latency_s)
    other.start(Budget(amount_usd=rate * 100, horizon=100))
    with pytest.raises(InfeasibleLimits):
        other.set_limits(Limits({"latency_s": Limit(mean=1.5)}))


def test_without_priors_limits_are_taken_and_uses_are_learned():
    router = offline_router((None, None, None))
    router.start(Budget(amount_usd=40.0, horizon=1_000))
    router.set_limits(Limits({"latency_s": Limit(mean=1.4)}))
    assert serve(router, 1_000) == pytest.approx([0.6, 0.0, 0.4], abs=0.05)
    assert router.status().limits[0].mean == pytest.approx(1.4, rel=0.02)


def test_limits_that_become_infeasible_are_loosened_and_the_status_says_so():
    router = offline_router()
    router.start(Budget(amount_usd=40.0, horizon=2_000))
    router.set_limits(Limits({"latency_s": Limit(mean=1.4)}))
    serve(router, 1_000, latency_s=(3.0, 8.0, 6.0))  # all models slow down
    (limit,), (warning,) = router.status().limits, router.status().warnings
    assert limit.nearest == pytest.approx(3.0, rel=0.1)
    assert warning.startswith("no mix of models keeps all limits; the nearest that is kept: latency_s ")
    assert "warning" in str(router.status())
    assert serve(router, 100, latency_s=(3.0, 8.0, 6.0))[0] > 0.95


def test_a_share_above_a_threshold_bounds_a_percentile():
    rng = np.random.default_rng(0)
    router = offline_router()
    router.start(Budget(amount_usd=1_000.0, horizon=3_000))
    router.set_limits(Limits({"latency_s": Limit(share_above=(3.0, 0.1))}))
    above = []
    for _ in range(3_000):
        decision = router.decide(context=0)
        latency_s = LATENCY_S[router.pool.names.index(decision.model)] * rng.exponential()
        above.append(latency_s > 3.0)
        router.charge(decision, 0.01, resources={"latency_s": latency_s})
    assert np.mean(above) == pytest.approx(0.1, rel=0.02)
    assert router.status().limits[0].name == "latency_s > 3"


def test_a_total_is_spent_over_the_horizon():
    router = offline_router()
    router.start(Budget(amount_usd=1_000.0, horizon=1_000))
    router.set_limits(Limits({"latency_s": Limit(total=1_500.0)}))
    serve(router, 1_000)
    (limit,) = router.status().limits
    assert limit.used == pytest.approx(1_500.0, rel=0.01)
    assert (limit.total, limit.bound) == (1_500.0, None)


def test_shares_and_floors_of_quality_hold_in_the_plan():
    reward = [[0.5, 0.7, 0.9], [0.4, 0.5, 0.55]]
    router = offline_router(reward=reward, cost_usd=COST_USD * 2, contexts=Contexts(np.eye(2), np.full(2, 0.5)))
    router.start(Budget(amount_usd=25.0, horizon=1_000))
    router.set_limits(Limits(max_share={"large": 0.4}, min_share={"slow": 0.2}, min_quality={1: 0.5}))
    router.decide(context=0)
    status = router.status()
    mix = status.mix
    assert mix["large"] <= 0.4 + 1e-6
    assert mix["slow"] >= 0.2 - 1e-6
    floor = next(one for one in status.limits if one.name == "min_quality of context 1")
    assert floor.bound == 0.5
    assert floor.planned >= 0.5 - 1e-6
    router.set_limits(Limits(max_share={"large": 0.0}))
    assert {router.decide(context=0).model for _ in range(50)} <= {"small", "slow"}
    with pytest.raises(InfeasibleLimits) as info:
        router.set_limits(Limits(min_quality=0.95))
    router.set_limits(Limits(min_quality=info.value.nearest["min_quality"] - 1e-6))


def test_a_floor_of_quality_alone_may_be_set_before_the_first_decision():
    router = WiseRouter([Model("small", Price(1e-6, 1e-6)), Model("large", Price(1e-5, 1e-5))])
    router.start(Budget(amount_usd=1.0, horizon=10))
    router.set_limits(Limits(min_quality=0.5))
    for _ in range(2):
        router.charge(router.decide("hello"), 0.01)
    (floor,) = router.status().limits
    assert (floor.name, floor.bound) == ("min_quality", 0.5)


def test_each_scope_has_its_own_meter():
    router = offline_router()
    for scope in ("a", "b", "c"):
        router.start(Budget(amount_usd=25.0, horizon=1_000), scope=scope)
    router.set_limits(Limits({"latency_s": Limit(mean=1.4)}))
    router.set_limits(Limits({"latency_s": Limit(mean=1.1)}), scope="b")
    for scope in ("a", "b"):
        serve(router, 300, scope=scope)
    means = [router.status(scope).limits[0].mean for scope in ("a", "b")]
    assert means == pytest.approx([1.4, 1.1], rel=0.05)
    assert router.status("c").limits[0].calls == 0
    assert router.limits("c") == router.limits("a") != router.limits("b")


def test_uses_can_be_recorded_apart_from_the_charge_and_bad_ones_change_nothing():
    router = offline_router()
    router.start(Budget(amount_usd=25.0, horizon=1_000))
    router.set_limits(Limits({"latency_s": Limit(mean=1.4)}))
    decision = router.decide(context=0)
    for bad in ({"latency_s": -1.0}, {"latency_s": float("nan")}, {"cost_usd": 1.0}, {"": 1.0}):
        with pytest.raises(InvalidInput):
            router.charge(decision, 0.01, resources=bad)
        with pytest.raises(InvalidInput):
            router.record_use(decision, bad)
    assert router.status().charged == 0
    router.charge(decision, 0.01)
    router.record_use(decision.id, {"latency_s": 1.2, "energy_wh": 3.0})
    assert router.status().limits[0].mean == 1.2
    with pytest.raises(UnknownDecision):
        router.record_use("nothing", {"latency_s": 1.0})


def test_an_explanation_shows_the_prices_and_why_a_model_is_out():
    router = offline_router()
    router.start(Budget(amount_usd=25.0, horizon=1_000))
    router.set_limits(Limits({"latency_s": Limit(mean=1.4)}))
    why = router.explain(router.decide(context=0))
    assert why.prices == pytest.approx({"budget": 0.0, "latency_s": 0.4}, abs=1e-6)
    small, slow, large = why.models
    assert small.probability + large.probability == pytest.approx(1.0)
    assert small.worth == pytest.approx(large.worth)
    assert slow.excluded_by == "worth no more than small at the prices of budget and limits: latency_s 0.4"
    assert why.as_dict()["prices"] == why.prices


def test_a_model_that_may_not_answer_is_replaced_by_the_one_of_most_worth():
    router = offline_router()
    router.start(Budget(amount_usd=25.0, horizon=1_000))
    router.set_limits(Limits({"latency_s": Limit(mean=1.4)}))
    assert {router.decide(context=0, eligible=["slow", "large"]).model for _ in range(30)} == {"large"}
    assert {router.decide(context=0, eligible=["small", "slow"]).model for _ in range(30)} == {"small"}


def test_a_valuable_request_takes_the_model_that_its_value_pays_for():
    router = offline_router()
    router.start(Budget(amount_usd=25.0, horizon=1_000))
    router.set_limits(Limits({"latency_s": Limit(mean=1.4)}))
    assert {router.decide(context=0, value=5.0).model for _ in range(20)} == {"large"}
    assert {router.decide(context=0, value=0.2).model for _ in range(20)} == {"small"}


def test_models_and_prices_may_change_while_limits_hold():
    router = offline_router()
    router.start(Budget(amount_usd=25.0, horizon=1_000))
    router.set_limits(Limits({"latency_s": Limit(mean=1.4)}))
    serve(router, 50)
    router.add_model(Model("fast", price=Price(1e-6, 1e-6), resources={"latency_s": 0.5}), reward=0.95, cost_usd=0.01)
    assert router.decide(context=0).model == "fast"
    router.retire_model("fast")
    assert {router.decide(context=0).model for _ in range(30)} <= {"small", "large"}


def test_a_router_that_learns_from_nothing_keeps_its_limits():
    rng = np.random.default_rng(1)
    router = WiseRouter(models((None, None, None)), policy=Optimistic(), growing=None, seed=0)
    router.start(Budget(amount_usd=50.0, horizon=2_000))
    router.set_limits(Limits({"latency_s": Limit(mean=1.4)}))
    for _ in range(2_000):
        decision = router.decide("a question")
        k = router.pool.names.index(decision.model)
        router.charge(decision, COST_USD[0][k], resources={"latency_s": LATENCY_S[k]})
        router.reward(decision, float(rng.random() < REWARD[0][k]))
    assert router.status().limits[0].mean == pytest.approx(1.4, rel=0.02)


def test_a_call_that_no_plan_chooses_counts_in_the_contexts_of_that_moment():
    router = WiseRouter(models(), growing=Growing(), seed=0)
    router.start(Budget(amount_usd=1.0, horizon=40, on_exhausted="cheapest"))
    router.set_limits(Limits({"latency_s": Limit(mean=1.5)}))
    questions = ("python code bug loop", "poem verse rhyme ode", "tax invoice law contract", "soup recipe onion salt")
    for at in range(60):  # the last third without a plan
        decision = router.decide(questions[at % 4])
        router.charge(decision, 0.01, resources={"latency_s": 1.0})
        router.reward(decision, 0.5)
    router.refit_contexts(4)
    decisions = [router.decide(question) for question in questions]
    assert len({one.context for one in decisions}) > 1
    assert {router.explain(one).rule for one in decisions} == {"cheapest"}
    (limits,) = router._decider.limits._scopes.values()
    used, calls = limits.in_flight.total(Measure("latency_s"))
    assert 4.0 <= used < 6.0
    assert calls == 4


def test_the_program_is_solved_rarely(monkeypatch):
    from wiserouter.routing import scope_limits

    router = offline_router()
    router.start(Budget(amount_usd=100.0, horizon=100_000))
    router.set_limits(Limits({"latency_s": Limit(mean=1.4)}))
    solved = []
    solve = scope_limits.limited_plan
    monkeypatch.setattr(scope_limits, "limited_plan", lambda *args, **named: solved.append(1) or solve(*args, **named))
    serve(router, 1_000)
    assert 20 < len(solved) < 50
    assert MOST_BETWEEN > 100


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Limit, "needs mean, share_above or total"),
        (lambda: Limit(mean=0.0), "Limit.mean must be above 0, got 0.0"),
        (lambda: Limit(total=-1.0), "Limit.total must be a finite number"),
        (lambda: Limit(share_above=(1.0, 1.5)), "its share must lie between 0 and 1"),
        (lambda: Limit(share_above=3.0), "must be a threshold and a share"),
        (Limits, "must hold at least one limit"),
        (lambda: Limits({"latency_s": 2.0}), "limits must be Limit values"),
        (lambda: Limits({"cost_usd": Limit(mean=1.0)}), "USD are limited by the budget"),
        (lambda: Limits(min_quality=1.5), "Limits.min_quality must lie in"),
        (lambda: Limits(max_share={"a": 0.2}, min_share={"a": 0.3}), "min_share must be at most max_share"),
        (lambda: Limits(min_share={"a": 0.6, "b": 0.6}), "must sum to at most 1"),
        (lambda: Model("a", resources={"latency_s": -1.0}), "latency_s must be a finite number"),
    ],
)
def test_wrong_terms_are_refused(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_limits_of_unknown_models_or_that_leave_no_model_are_refused():
    router = offline_router()
    with pytest.raises(UnknownModel):
        router.set_limits(Limits(max_share={"other": 0.5}))
    with pytest.raises(InvalidInput, match=r"must sum to at least 1, got 0\.6"):
        router.set_limits(Limits(max_share=dict.fromkeys(("small", "slow", "large"), 0.2)))
    assert router.limits() is None


def test_a_phase_of_exploration_is_left_as_it_is():
    router = WiseRouter(models(), policy=EpsilonFirst(30), seed=0)
    router.start(Budget(amount_usd=100.0, horizon=1_000))
    router.set_limits(Limits({"latency_s": Limit(mean=1.4)}))
    assert serve(router, 30) == pytest.approx([1 / 3] * 3)


def test_savings_of_a_meter_are_carried_for_a_window_only():
    meter = LimitMeter(mean=1.0)
    for _ in range(10 * WINDOW):
        meter.add(0.0)
    assert meter.rate(10**6) == pytest.approx(2.0)
    for _ in range(10 * WINDOW):
        meter.add(9.0)
    assert meter.rate(10**6) == 0.0
    assert LimitMeter(mean=1.0, total=5.0).rate(10) == 0.5


def test_a_journal_keeps_the_uses_and_the_prices_of_a_decision(tmp_path):
    router = offline_router()
    router.start(Budget(amount_usd=25.0, horizon=1_000))
    router.set_limits(Limits({"latency_s": Limit(mean=1.4)}))
    journal = router.journal_to(tmp_path / "journal.jsonl")
    decision = router.decide(context=0)
    router.charge(decision, 0.01, resources={"latency_s": 1.2})
    journal.close()
    reader = JournalReader(tmp_path / "journal.jsonl")
    assert find_explanation(reader, decision.id)["prices"] == router.explain(decision).prices
    assert not reader.skipped
    assert [event["resources"] for event in reader if event["event"] == "charge"] == [{"latency_s": 1.2}]
