"""The optimistic policy against a transcription that keeps nothing: when it computes again, and what it draws from."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter import NO_CONTEXT, Estimates, Model, Offline, Optimistic, Plan, Price
from wiserouter.budgets.funds import Funds
from wiserouter.errors import InvalidInput
from wiserouter.learning.optimistic_estimates import OptimisticEstimates
from wiserouter.learning.shrinkage import PRIOR_COUNT
from wiserouter.planning.choice_inputs import Counts
from wiserouter.planning.mixture import Mixture, ReserveRule
from wiserouter.planning.shift import Shift

FREQ = np.array([0.2, 0.5, 0.3])
REWARD = np.array([[0.3, 0.5, 0.9], [0.6, 0.65, 0.7], [0.1, 0.8, 0.85]])
COST = np.array([0.001, 0.004, 0.02]) * np.array([[1.0], [2.0], [0.5]])
PRICES = (Price(1e-6, 2e-6), Price(4e-6, 8e-6), Price(2e-5, 4e-5))
MODELS = [Model(f"m{k}", price, score=0.3 + 0.2 * k) for k, price in enumerate(PRICES)]


class Transcription:
    """The rules of the policy, with a plan and a mixture that are built again for each choice."""

    def __init__(self, estimates, alpha=None, allow_skip=False):
        self.seen, self.allow_skip = estimates, allow_skip
        known = {model.name: model.price for model in MODELS}
        self.bounds = OptimisticEstimates(estimates, MODELS, 1.0 if alpha is None else alpha, known)
        self.refresh(Funds(0.0, 1))

    def refresh(self, funds):
        self.requests, self.unpaid = funds.requests, not self.seen.calls.any()
        of_all = self.bounds.refresh(funds.requests, funds.share)
        self.means, self.reward, self.cost = (np.array(table) for table in of_all)
        self.calls, self.labels = self.seen.calls.copy(), self.seen.labels.copy()
        self.spread = np.array(self.bounds.spread_usd)
        self.revise_at = [max(n + 1.0, 1.01 * n) for n in self.seen.observed]
        n_seen = self.seen.n_observations + self.seen.n_invoked
        self.refresh_at = max(n_seen + 1.0, 1.02 * n_seen)

    def follow(self, context, funds):
        n_seen = self.seen.n_observations + self.seen.n_invoked
        if n_seen >= self.refresh_at or (self.unpaid and self.seen.calls.any()) or funds.requests > 2.0 * self.requests:
            self.refresh(funds)
        elif context != NO_CONTEXT and self.seen.observed[context] >= self.revise_at[context]:
            self.means[context], self.reward[context], self.cost[context] = self.bounds.row(context)
            self.calls[context], self.labels[context] = self.seen.calls[context], self.seen.labels[context]
            n = self.seen.observed[context]
            self.revise_at[context] = max(n + 1.0, 1.01 * n)

    def choose(self, context, funds, rng, allowed=None, shift=None):
        self.follow(context, funds)
        plan = Plan(self.bounds.freq, self.reward, self.cost, allow_skip=self.allow_skip)
        rule = ReserveRule(plan, self.bounds.spread_usd, with_spread=False, drift=3.0)
        counts = Counts(self.calls, self.labels)
        mixture = Mixture(plan, "actual", rule, counts, self.means)
        if context == NO_CONTEXT:
            mixture, at = mixture.without_context, 0
            shift = None if shift is None or shift.valued is None else Shift(valued=shift.valued)
        else:
            at = context
        models = range(3) if allowed is None else sorted(allowed)
        if self.unpaid:
            row = mixture.plan.rows[at]
            allowed = [min(models, key=lambda k: (row.cost_usd[k], -row.reward[k]))]
        elif context != NO_CONTEXT and shift is None and funds.rate_usd < plan.floor_usd:
            cost, spread = self.cost[context], self.bounds.spread_usd[context]
            calls = self.seen.calls.sum(axis=0)
            least = min(cost[k] for k in models)
            near = [
                k
                for k in models
                if math.log(cost[k] / least) <= spread[k] / cost[k] / math.sqrt(calls[k] + PRIOR_COUNT)
            ]
            allowed = [max(near, key=lambda k: (self.means[context, k] / cost[k], -cost[k]))]
        return mixture.choose(at, funds, rng, allowed, shift)


def told(choice):
    figures = choice.figures
    return [
        choice.model,
        choice.probability,
        choice.shadow_price if math.isfinite(choice.shadow_price) else -1.0,
        choice.expected_cost_usd,
        choice.expected_reward,
        choice.floor_usd,
        *figures.rewards,
        *figures.costs_usd,
        *figures.calls,
        *figures.labels,
        *figures.weighed,
        *figures.guarded_cost_usd,
        figures.drift_margin_usd,
    ]


@pytest.mark.parametrize("start", ["nothing", "history"])
@pytest.mark.parametrize("alpha", [None, 2.0, -1.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_each_choice_is_that_of_the_rules(alpha, start, seed):
    rng = np.random.default_rng(seed)
    estimates = Estimates(3, 3)
    if start == "history":
        at = np.arange(60) % 3
        estimates.add_table(at, np.clip(REWARD[at] + rng.normal(0, 0.1, (60, 3)), 0, 1), COST[at])
    policy = Optimistic(alpha=alpha)
    assert policy.settings() == {"alpha": alpha, "allow_skip": False, "practice_for": None}
    policy.bind(FREQ, estimates, MODELS)
    if start == "history":
        assert estimates.met[:, 0] == pytest.approx(60.0 * FREQ)
    else:
        assert estimates.met[:, 0] == pytest.approx(FREQ)
        assert policy.plan is policy.live_plan is None
    rules = Transcription(estimates, alpha)
    left, horizon = 1.2, 240
    for step in range(horizon):
        context = int(rng.integers(-1, 3)) if step % 5 == 0 else int(rng.integers(0, 3))
        context = NO_CONTEXT if context < 0 else context
        requests = horizon - step + (1_000 if step == 120 else 0)
        funds = Funds(left * (0.02 if step % 17 == 16 else 1.0), requests, (), 0.0, (horizon - step) / horizon)
        allowed = [0, 2] if step % 11 == 10 else [1, 2] if step % 17 == 16 else None
        shift = Shift(reward=[0.1, -0.2, 0.0]) if step % 7 == 6 else None
        mine, its = (one.choose(context, funds, np.random.default_rng(step), allowed, shift) for one in (policy, rules))
        assert told(mine) == pytest.approx(told(its), rel=1e-9, abs=1e-12)
        assert np.array(mine.mix) == pytest.approx(np.array(its.mix))
        at, k = (1 if context == NO_CONTEXT else context), mine.model
        estimates.add_invoked(at, k)
        estimates.met[at, 0] += 1
        cost = float(COST[at, k] * rng.lognormal(-0.08, 0.4))
        if step > 2:
            estimates.add_cost(at, k, cost)
        left -= cost
        if rng.random() < 0.7:
            estimates.add_reward(at, k, float(rng.random() < REWARD[at, k]))
        if step % 40 == 39:
            at_means = policy.plan
            assert at_means is policy.plan
            rules.follow(NO_CONTEXT, policy._funds)
            assert at_means.reward == pytest.approx(rules.means)
            assert at_means.cost_usd == pytest.approx(rules.cost)
            assert at_means.freq == pytest.approx(rules.bounds.freq)
            assert policy.live_plan.reward == pytest.approx(rules.reward)


def test_a_skipping_policy_plans_with_the_null_action():
    estimates = Estimates(1, 2)
    estimates.add_table(np.zeros(9, dtype=int), [[0.2, 0.9]] * 9, [[1.0, 3.0]] * 9)
    policy = Optimistic(allow_skip=True)
    policy.bind(np.ones(1), estimates)
    assert policy.plan.allow_skip
    assert policy.live_plan.allow_skip
    assert policy.plan.floor_usd == 0.0
    assert policy.settings() == {"alpha": None, "allow_skip": True, "practice_for": None}
    assert not Optimistic().allow_skip
    assert (Optimistic.name, Optimistic.watches_by_default) == ("optimistic", True)
    with pytest.raises(InvalidInput) as refused:
        Optimistic(alpha=math.nan)
    assert str(refused.value) == "alpha must be a finite number, got nan"
    assert math.isnan(refused.value.value)


def test_where_a_model_costs_nothing_it_serves_below_the_floor():
    estimates = Estimates(1, 3)
    estimates.add_table(np.zeros(9, dtype=int), [[0.2, 0.9, 0.5]] * 9, [[0.0, 3.0, 2.0]] * 9)
    policy = Optimistic()
    policy.bind(np.ones(1), estimates)
    funds = Funds(-1.0, 10)
    assert policy.choose(0, funds, np.random.default_rng(0)).model == 0
    assert policy.choose(0, funds, np.random.default_rng(0), allowed=[2, 1]).model == 2


# The plan that follows its estimates


@settings(max_examples=15)
@given(st.sampled_from(["actual", "paper"]), st.booleans(), st.integers(0, 10**6))
def test_a_live_plan_is_solved_when_due_from_what_was_seen_by_then(accounting, allow_skip, seed):
    rng = np.random.default_rng(seed)
    estimates = Estimates(3, 3)
    live = Offline(accounting=accounting, allow_skip=allow_skip)
    funds, solved_at = Funds(5.0, 100), 0.0
    expected = None
    with pytest.raises(InvalidInput, match="estimates must hold at least one cost, got none"):
        live.bind(FREQ, estimates)
    for _ in range(80):
        at, k = int(rng.integers(3)), int(rng.integers(3))
        estimates.add_cost(at, k, float(COST[at, k] * rng.lognormal()))
        if rng.random() < 0.5:
            estimates.add_reward(at, k, float(rng.random()))
        if expected is None:
            live.bind(FREQ, estimates)
        if estimates.n_observations >= solved_at:
            actual = accounting == "actual"
            expected = Plan(FREQ, *estimates.means(shrink=actual), allow_skip=allow_skip)
            counts = estimates.calls.copy(), estimates.labels.copy()
            spread = np.array(estimates.cost_spread_usd())
            n_seen = estimates.n_observations
            solved_at = max(n_seen + 1.0, 1.02 * n_seen) if actual else math.inf
        context = int(rng.integers(3))
        choice = live.choose(context, funds, np.random.default_rng(1), None)
        assert live.plan.reward == pytest.approx(expected.reward)
        assert live.plan.cost_usd == pytest.approx(expected.cost_usd)
        assert live.plan.allow_skip is allow_skip
        rule = ReserveRule(expected, spread) if accounting == "actual" else None
        mixture = Mixture(expected, accounting, rule, Counts(*counts))
        assert choice[:7] == mixture.choose(context, funds, np.random.default_rng(1))[:7]
        assert choice.figures == mixture.figures(context)
        without = live.choose(NO_CONTEXT, funds, np.random.default_rng(1), None)
        if accounting == "paper":
            assert without.figures.rewards == pytest.approx((FREQ @ expected.reward).tolist())
            assert without.figures.guarded_cost_usd is None
        assert without.figures.calls == counts[0].sum(axis=0).tolist()
        assert live.choose(NO_CONTEXT, funds, np.random.default_rng(1), [2]).model in (2, -1)
