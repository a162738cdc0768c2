"""Learning while serving, through the router: budgets kept, models tried, plans renewed when due."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter import Budget, Contexts, Estimates, Model, Offline, Optimistic, Price, WiseRouter
from wiserouter.artifacts.file import read_artifact, write_artifact
from wiserouter.budgets.funds import Funds
from wiserouter.errors import BudgetError, DamagedArtifact, InvalidInput, QuerySkipped
from wiserouter.evaluation.simulation import Stream, open_method, paper_environment, play
from wiserouter.learning.optimistic_estimates import OptimisticEstimates
from wiserouter.planning.policies import open_policy, optimistic
from wiserouter.types import NO_CONTEXT

REWARD = np.array([[0.3, 0.5, 0.9], [0.6, 0.65, 0.7], [0.1, 0.8, 0.85]])
COST = np.array([0.001, 0.004, 0.02]) * np.array([[1.0], [2.0], [0.5]])
PRICES = (Price(1e-6, 2e-6), Price(4e-6, 8e-6), Price(2e-5, 4e-5))


def pool(prices=PRICES, most_usd=0.12):
    return [Model(f"m{k}", price, max_cost_usd=most_usd) for k, price in enumerate(prices)]


def opened(budget, *, models=None, policy=None, n_contexts=3, seed=0, **options):
    contexts = Contexts(np.eye(n_contexts), np.full(n_contexts, 1 / n_contexts))
    router = WiseRouter(models or pool(), contexts, policy=policy or Optimistic(), seed=seed, **options)
    router.start(budget)
    return router


def work(router, n, *, seed=0, in_flight=1, feedback=1.0, reward=REWARD, cost=COST, **asked):
    """Serve `n` requests, `in_flight` of them at a time; return the chosen models, -1 where one was refused."""
    rng, names, chosen, waiting = np.random.default_rng(seed), router.pool.names, [], []
    for _ in range(n):
        j = int(rng.integers(len(reward)))
        try:
            decision = router.decide(context=j, **asked)
        except BudgetError:
            chosen.append(-1)
            if waiting:  # calls in flight end while requests are refused
                settle(router, *waiting.pop(0))
            continue
        k = names.index(decision.model)
        chosen.append(k)
        luck = min(rng.lognormal(-0.08, 0.4), 3.0), rng.random() < reward[j, k], rng.random() < feedback
        waiting.append((decision, cost[j, k] * luck[0], luck[1:]))
        while len(waiting) >= in_flight:
            settle(router, *waiting.pop(0))
    for one in waiting:
        settle(router, *one)
    return np.array(chosen)


def settle(router, decision, cost_usd, scored):
    router.charge(decision, cost_usd)
    if scored[1]:
        router.reward(decision, float(scored[0]))


# the reserve rule


@pytest.mark.parametrize("in_flight", [1, 8])
@pytest.mark.parametrize("over", [1.35, 1.6])
def test_a_hard_budget_near_the_cheapest_models_serves_the_requests(in_flight, over):
    n, worst_usd = 300, {f"m{k}": 3.0 * COST[:, k].max() for k in range(3)}
    amount = over * COST[:, 0].mean() * n + in_flight * worst_usd["m0"]
    served = []
    for seed in range(6):
        router = opened(Budget(amount, n, limit="hard"), seed=seed)
        chosen = work(router, n, seed=seed, in_flight=in_flight, worst_case_usd=worst_usd)
        served.append((chosen >= 0).mean())
        assert router.status().spent_usd <= amount
    assert min(served) >= 0.96
    assert np.mean(served) >= 0.985


def test_what_calls_in_flight_hold_back_is_left_to_the_last_requests():
    router = opened(Budget(1.0, 300, limit="hard"), models=[Model("only", max_cost_usd=0.01)], n_contexts=1)
    asked = []
    choose = router.policy.choose
    router.policy.choose = lambda context, funds, *rest: asked.append(funds) or choose(context, funds, *rest)
    first = router.decide(context=0)
    router.charge(first, 0.002)
    second = router.decide(context=0)
    router.decide(context=0)
    held_usd = second.reserved_usd - second.expected_cost_usd
    assert [funds.cushion_usd for funds in asked] == pytest.approx([0.01, 0.01, 0.01 + held_usd])


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.2, 20.0), st.sampled_from(["all", "some", "none"]))
def test_a_hard_budget_is_never_exceeded_whatever_is_known_of_prices(seed, over, known):
    prices = {"all": PRICES, "some": (None, PRICES[1], None), "none": (None,) * 3}[known]
    amount = over * COST[:, 0].mean() * 200
    router = opened(Budget(amount, 200, limit="hard"), models=pool(prices, 0.13), seed=seed)
    work(router, 200, seed=seed, in_flight=3)
    assert router.status().spent_usd <= amount


@pytest.mark.parametrize("prices", [PRICES, (None, PRICES[1], None), (None,) * 3])
def test_an_expected_budget_ends_within_one_call(prices):
    for seed in range(5):
        amount = 4 * COST[:, 0].mean() * 400
        router = opened(Budget(amount, 400), models=pool(prices), seed=seed)
        assert (work(router, 400, seed=seed) >= 0).mean() > 0.97
        assert router.status().spent_usd <= amount + 3 * COST.max()


# what it learns


def test_it_finds_the_best_model_of_each_context():
    router = opened(Budget(100.0, 1_500))
    work(router, 1_500)
    assert router.policy.plan.mix(1.0).argmax(axis=1).tolist()[0] == 2
    assert router.estimates.calls[0].argmax() == 2


@pytest.mark.parametrize("seed", range(4))
def test_without_prices_no_budget_keeps_it_on_the_models_tried_first(seed):
    cost, reward = np.array([[0.7, 0.9, 0.25, 0.1]]), np.array([[0.6, 0.8, 0.9, 0.2]])
    router = opened(Budget(0.5 * 400, 400), models=[Model(n) for n in "abcd"], n_contexts=1, seed=seed)
    chosen = work(router, 400, seed=seed, reward=reward, cost=cost)
    assert (np.bincount(chosen, minlength=4) > 0).all()
    assert (chosen[100:] == 2).mean() > 0.6


@pytest.mark.parametrize(("feedback", "in_flight"), [(1.0, 1), (0.1, 1), (1.0, 100)])
def test_rare_or_late_feedback_does_not_block_learning(feedback, in_flight):
    reward = np.array([[0.2, 0.3, 0.9]] * 3)
    router = opened(Budget(100.0, 2_000))
    chosen = work(router, 2_000, reward=reward, feedback=feedback, in_flight=in_flight)
    assert (chosen[1_000:] == 2).mean() > 0.6


def test_without_any_feedback_the_budget_is_not_spent_on_exploration_for_ever():
    router = opened(Budget(100.0, 2_000))
    shares = np.bincount(work(router, 2_000, feedback=0.0), minlength=3) / 2_000
    assert router.status().spent_usd <= 100.0
    assert shares.sum() == 1.0


def test_a_model_that_is_added_later_is_tried_and_used():
    router = opened(Budget(6.0, 2_000), models=pool()[:2])
    work(router, 1_000)
    router.add_model(Model("new", Price(1e-6, 2e-6)))
    cost, reward = np.column_stack([COST[:, :2], COST[:, 0]]), np.column_stack([REWARD[:, :2], [0.97] * 3])
    chosen = work(router, 1_000, cost=cost, reward=reward, seed=1)
    assert router.policy.plan.reward.shape == (3, 3)
    assert (chosen[-500:] == 2).mean() > 0.6


def test_a_new_budget_renews_the_bonus():
    router = opened(Budget(1.0, 30))
    work(router, 30)
    bonus = router.policy._live.reward - router.policy.plan.reward
    router.start(Budget(1_000.0, 100_000))
    router.decide(context=0)
    assert (router.policy._live.reward - router.policy.plan.reward).sum() > bonus.sum()


def test_calls_of_its_own_are_no_history_when_the_pool_changes():
    router = opened(Budget(100.0, 400))
    for _ in range(300):
        decision = router.decide(context=0)
        router.charge(decision, 0.001)
    router.add_model(Model("new"))
    assert router.policy.plan.freq[0] > 0.95


# when plans are renewed


def counted(monkeypatch, cls, name):
    calls, original = [], getattr(cls, name)
    monkeypatch.setattr(cls, name, lambda self, *args: calls.append(args) or original(self, *args))
    return calls


def test_rows_are_renewed_only_when_due(monkeypatch):
    router = opened(Budget(100.0, 10_000))
    work(router, 2_000)
    router.release(router.decide(context=1))
    refreshed, rows = (
        counted(monkeypatch, OptimisticEstimates, "refresh"),
        counted(monkeypatch, OptimisticEstimates, "row"),
    )
    for _ in range(50):
        router.release(router.decide(context=1))
    assert refreshed == rows == []
    router.estimates.observed[1] += 1_000  # much is new there
    for _ in range(5):
        router.release(router.decide(context=0))
        router.release(router.decide(context=1))
    assert (rows, refreshed) == ([(1,)], [])
    work(router, 2_000, seed=1)
    checks = 4  # drift is tested each 500 requests, and the policy computes all again
    assert len(refreshed) == pytest.approx(checks + math.log(2) / math.log(optimistic.REFRESH_GROWTH), abs=3)
    assert len(rows) - 1 <= 3 * len(refreshed) + 3 * math.log(2) / math.log(optimistic.REVISE_GROWTH) + 3


def test_its_plan_is_hardly_behind_one_that_is_built_again():
    apart = []
    for seed in range(3):
        router = opened(Budget(4.0, 800), seed=seed)
        for part in range(39):
            work(router, 20, seed=100 * seed + part)
            status, live = router.status(), router.policy._live
            fresh = Optimistic()
            fresh.bind(router.contexts.freq, router.estimates, router.pool.models)
            fresh._refresh(Funds(status.left_usd, status.horizon_left, share=status.horizon_left / status.horizon))
            mixes = [plan.mix(max(status.rate_usd, plan.floor_usd)) for plan in (live, fresh._live)]
            apart.append(np.abs(mixes[0] - mixes[1]).sum(axis=1).mean() / 2)
    assert np.mean(apart) < 0.05
    assert np.median(apart) < 0.01


def test_the_same_seed_gives_the_same_run():
    runs = [work(opened(Budget(5.0, 500), seed=3), 500, seed=1).tolist() for _ in range(2)]
    assert runs[0] == runs[1]


# decisions


def test_before_anything_is_known_it_decides_and_has_no_plan():
    for prices in (PRICES, (None,) * 3, (None, PRICES[0], None)):
        router = opened(Budget(10.0, 100), models=pool(prices))
        assert router.plan is None
        assert router.status().shadow_price is None
        assert router.decide(context=1).expected_cost_usd > 0
        assert router.decide(context=NO_CONTEXT).expected_cost_usd > 0


def test_the_plan_and_the_expected_reward_are_at_the_means():
    router = opened(Budget(100.0, 2_000), policy=Optimistic(alpha=1.0))
    work(router, 200)
    plan, live = router.plan, router.policy._live
    assert np.all(plan.reward <= live.reward)
    assert np.any(plan.reward < live.reward - 0.03)
    assert np.array_equal(plan.cost_usd, live.cost_usd)
    decision = router.decide(context=2)
    k = router.pool.index(decision.model)
    assert decision.expected_reward == router.plan.reward[2, k]
    anywhere = router.decide(context=NO_CONTEXT)
    k = router.pool.index(anywhere.model)
    assert anywhere.expected_reward == pytest.approx(router.plan.without_context().reward[0, k])


def test_only_eligible_models_are_chosen():
    router = opened(Budget(100.0, 600))
    work(router, 300, eligible=["m0", "m2"])
    assert router.estimates.calls[:, 1].sum() == 0
    assert {router.decide(context=NO_CONTEXT, eligible=["m1"]).model} == {"m1"}


def test_the_null_action_saves_a_budget_below_the_floor():
    router = opened(Budget(0.2, 1_000), policy=Optimistic(allow_skip=True))
    rng, skipped = np.random.default_rng(0), 0
    for _ in range(1_000):
        j = int(rng.integers(3))
        try:
            decision = router.decide(context=j)
        except (QuerySkipped, BudgetError):  # the latter for the last request, at less than a mean call
            skipped += 1
            continue
        k = router.pool.index(decision.model)
        router.charge(decision, COST[j, k])
        router.reward(decision, float(rng.random() < REWARD[j, k]))
    assert 0 < skipped < 1_000
    assert 0.9 * 0.2 <= router.status().spent_usd <= 0.2 + COST.max()


def test_settings_reopen_and_are_checked():
    policy = Optimistic(alpha=-0.2, allow_skip=True)
    again = open_policy("optimistic", policy.settings())
    assert (again.name, again.settings()) == ("optimistic", {"alpha": -0.2, "allow_skip": True, "practice_for": None})
    for alpha in (math.nan, math.inf):
        with pytest.raises(InvalidInput, match="alpha must be a finite number"):
            Optimistic(alpha=alpha)


def test_a_saved_router_goes_on_where_it_was(tmp_path):
    router = opened(Budget(100.0, 1_000), policy=Optimistic(alpha=0.3))
    work(router, 300)
    router.save(tmp_path / "r.wise")
    again = WiseRouter.load(tmp_path / "r.wise", seed=0)
    assert again.policy.settings() == {"alpha": 0.3, "allow_skip": False, "practice_for": None}
    for name, array in router.estimates.arrays().items():
        assert np.array_equal(again.estimates.arrays()[name], array), name
    router.policy._refresh(Funds(100.0, 1_000))
    again.policy._refresh(Funds(100.0, 1_000))
    assert again.plan.reward == pytest.approx(router.plan.reward, rel=1e-9)
    assert again.plan.cost_usd == pytest.approx(router.plan.cost_usd, rel=1e-9)


def test_an_artifact_without_token_counts_is_refused(tmp_path):
    router = opened(Budget(100.0, 1_000))
    work(router, 50)
    router.save(tmp_path / "new.wise")
    manifest, arrays = read_artifact(tmp_path / "new.wise")
    later = ("estimates.metered", "estimates.input_tokens", "estimates.output_tokens")
    write_artifact(tmp_path / "old.wise", manifest, {k: v for k, v in arrays.items() if k not in later})
    with pytest.raises(DamagedArtifact, match=r"it lacks 'estimates\.metered': fit it again"):
        WiseRouter.load(tmp_path / "old.wise")


# thin logs


def thin_history(world, seed, calls=150):
    """Return a log of few calls, most of them of the models that an earlier policy preferred."""
    rng = np.random.default_rng([seed, 7])
    liking = rng.dirichlet(np.full(world.cost_usd.shape[1], 0.5))
    history = Estimates(*world.cost_usd.shape)
    for _ in range(calls):
        j, k = rng.choice(len(world.freq), p=world.freq), rng.choice(len(liking), p=liking)
        history.add_cost(j, k, world.cost_usd[j, k])
        history.add_reward(j, k, float(rng.random() < world.reward[j, k]))
    return history


class Unheard(Estimates):
    """Estimates that receive no more feedback."""

    def add_reward(self, *_, **__):
        pass


def served_blindly(policy, world, seed):
    """Return the mean true reward of a run without feedback that starts from a thin log."""
    estimates = Unheard.of_arrays(thin_history(world, seed).arrays())
    method = open_method("optimistic", world)._replace(policy=policy, estimates=estimates)
    stream = Stream.of(world, seed)
    chosen = play(world, stream, method, seed).chosen
    return np.where(chosen >= 0, world.reward[stream.contexts, chosen], 0.0).mean()


def thin_log_figures(seeds):
    figures = {}
    for name, policy in {
        "pessimistic": lambda: Optimistic(alpha=-0.3),
        "means": lambda: Optimistic(alpha=0.0),
        "offline": Offline,
    }.items():
        worlds = [(paper_environment(seed, 400, n_contexts=4, n_models=6), seed) for seed in seeds]
        figures[name] = np.array([served_blindly(policy(), world, seed) for world, seed in worlds])
    return figures


def test_on_a_thin_log_without_feedback_shrunk_means_and_pessimism_beat_offline():
    figures = thin_log_figures(range(24))
    for name in ("pessimistic", "means"):
        gain = figures[name] - figures["offline"]
        assert gain.mean() > 2 * gain.std(ddof=1) / np.sqrt(len(gain)), name
    gain = figures["pessimistic"] - figures["means"]
    assert gain.mean() > -gain.std(ddof=1) / np.sqrt(len(gain))


def test_pessimism_lowers_the_choice_of_what_was_hardly_observed():
    thin = np.zeros(2)
    for seed in range(8):
        world = paper_environment(seed, 400, n_contexts=4, n_models=6)
        history = thin_history(world, seed)
        for at, alpha in enumerate((0.0, -0.3)):
            policy = Optimistic(alpha=alpha)
            policy.bind(world.freq, Estimates.of_arrays(history.arrays()))
            policy._refresh(Funds(world.budget_usd, 400))
            mix = policy._live.mix(max(world.budget_usd / 400, policy._live.floor_usd))
            thin[at] += (world.freq[:, np.newaxis] * mix)[history.labels <= 3].sum()
    assert thin[1] < thin[0]


def planned_in_decisions(router, n, feedback=1.0):
    """Serve `n` requests; return for each decision whether it planned anything."""
    policy, planned, rng = router.policy, [], np.random.default_rng(1)
    for _ in range(n):
        j = int(rng.integers(router.contexts.n_contexts))
        before = policy._revise_at[j], policy._refresh_at
        decision = router.decide(context=j)
        planned.append((policy._revise_at[j], policy._refresh_at) != before)
        router.charge(decision, 0.01 * rng.lognormal())
        if rng.random() < feedback:
            router.reward(decision, float(rng.random() < 0.5))
    return np.array(planned)


@pytest.mark.parametrize("feedback", [0.0, 0.3, 1.0])
def test_a_large_table_is_planned_where_something_is_learned_and_a_small_one_at_the_next_decision(feedback):
    models = [Model(f"m{k}", Price(1e-6 * (k + 1), 4e-6 * (k + 1))) for k in range(20)]
    large, small = (opened(Budget(500.0, 10_000), models=models, n_contexts=n) for n in (40, 8))
    planned = planned_in_decisions(large, 400, feedback)
    assert planned[10:].sum() <= 1  # a bucket of drift detection may end in a decision
    assert planned_in_decisions(small, 400, feedback).mean() > 0.5


@pytest.mark.parametrize("feedback", [0.0, 1.0])
def test_the_only_context_of_all_requests_is_planned_again_too(feedback):
    models = [Model(f"m{k}", Price(1e-7 * (k + 1), 4e-7 * (k + 1))) for k in range(800)]
    router = opened(Budget(500.0, 10_000), models=models, n_contexts=1)
    assert not planned_in_decisions(router, 40, feedback)[5:].any()
    assert router.policy._estimates.observed[0] - router.policy._revise_at[0] <= 1


def test_what_was_planned_ahead_is_what_would_be_planned_now():
    models = [Model(f"m{k}", Price(1e-6 * (k + 1), 4e-6 * (k + 1))) for k in range(20)]
    router = opened(Budget(500.0, 10_000), models=models, n_contexts=40)
    planned_in_decisions(router, 300)
    policy = router.policy
    for j in range(40):
        mean, reward, cost_usd = policy._optimistic.row(j)
        assert policy.live_plan.reward[j] == pytest.approx(reward)
        assert policy.live_plan.cost_usd[j] == pytest.approx(cost_usd)
        assert policy.plan.reward[j] == pytest.approx(mean)


def test_trials_of_a_practice_are_worth_as_much_at_its_end_as_at_its_start():
    doubt = {}
    for practice_for in (None, 300):
        router = opened(Budget(3.0, 300), policy=Optimistic(practice_for=practice_for))
        chosen = work(router, 295)
        program, bounds = router.policy.plan, router.policy.live_plan.reward
        doubt[practice_for] = (bounds - program.reward).mean(), (np.bincount(chosen, minlength=3) / 295).min()
        assert router.policy.settings()["practice_for"] == practice_for
        assert open_policy("optimistic", router.policy.settings()).practice_for == practice_for
    assert doubt[300][0] > 2.0 * doubt[None][0]
    assert doubt[300][1] > doubt[None][1]


@pytest.mark.parametrize("practice_for", [0, -1, 2.5, True, "many"])
def test_a_practice_is_for_a_whole_number_of_requests(practice_for):
    with pytest.raises(InvalidInput, match="practice_for"):
        Optimistic(practice_for=practice_for)
