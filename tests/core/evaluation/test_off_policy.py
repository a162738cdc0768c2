import itertools
import json
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from wiserouter import (
    NO_CONTEXT,
    Budget,
    Contexts,
    EpsilonFirst,
    Estimates,
    ExploreShare,
    Model,
    Offline,
    Plan,
    Price,
    WiseRouter,
)
from wiserouter.errors import InfeasibleBudget, InvalidInput, UnknownModel
from wiserouter.evaluation.errors import ThinOverlap
from wiserouter.evaluation.off_policy import (
    Decisions,
    always,
    at_logged_estimates,
    at_plan,
    check_contexts,
    doubly_robust,
    evaluate,
    evaluate_each,
    ips,
    overlap_of,
    read_decisions,
    snips,
)
from wiserouter.evaluation.off_policy.outcome_model import running_mean_predictions
from wiserouter.routing.journal_reader import JournalReader

FREQ = np.array([0.25, 0.75])
REWARD = np.array([[0.2, 0.4, 0.9], [0.5, 0.55, 0.6]])
COST = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 4.0]])
NAMES = ("small", "middle", "large")


def drawn(n, logged, seed=0, **known):
    """Return decisions of contexts, drawn with these probabilities (2, 3); rewards are 0 or 1, costs vary."""
    rng = np.random.default_rng(seed)
    context = rng.choice(2, size=n, p=FREQ)
    chosen = (rng.random((n, 1)) > logged[context].cumsum(axis=1)[:, :2]).sum(axis=1)
    outcomes = {
        "reward": (rng.random(n) < REWARD[context, chosen]).astype(float),
        "cost_usd": COST[context, chosen] * rng.uniform(0, 2, n),
    }
    return Decisions.of_arrays(NAMES, chosen, logged[context], context=context, freq=FREQ, **(outcomes | known))


def with_skip(mix, context):
    return np.column_stack([mix, np.zeros(len(mix))])[context]


UNIFORM = np.full((2, 3), 1 / 3)


def test_the_estimates_by_hand():
    weight, reward = np.array([2.0, 0.5, 0.0, 1.0]), np.array([1.0, 0.0, 1.0, 0.5])
    one = ips(weight, reward)
    assert one.mean == pytest.approx(2.5 / 4)  # terms 2, 0, 0, 0.5
    assert one.se == pytest.approx(np.sqrt((1.375**2 + 2 * 0.625**2 + 0.125**2) / 3 / 4))
    one = snips(weight, reward)
    assert one.mean == pytest.approx(2.5 / 3.5)
    assert one.se == pytest.approx(np.sqrt((2 * 2 / 7) ** 2 + (0.5 * 5 / 7) ** 2 + (1.5 / 7) ** 2) / 3.5)
    predicted, expected = np.array([0.5, 0.5, 1.0, 0.0]), np.array([0.25, 0.5, 0.75, 0.5])
    assert doubly_robust(weight, reward, predicted, expected).mean == pytest.approx((1.25 + 0.25 + 0.75 + 1.0) / 4)
    assert one.total(10)[:1] == pytest.approx((25 / 3.5,))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 3.0))
def test_intervals_invert_halls_transformation(seed, skew):
    terms = np.exp(skew * np.random.default_rng(seed).normal(size=200))
    one = ips(np.ones(200), terms)
    a = min(stats.skew(terms) / np.sqrt(200), 1 / 3)
    ends = [(one.mean - end) / one.se for end in (one.low, one.high)]
    transformed = [t + a * t**2 / 3 + a**2 * t**3 / 27 + a / 6 for t in ends]
    reach = stats.t(2 * 200 / (stats.kurtosis(terms, fisher=False) - 1)).ppf(0.975)
    assert transformed == pytest.approx([reach, -reach], abs=1e-5)
    assert one.low < one.mean < one.high


def test_without_skewness_or_spread_the_interval_is_the_usual_one():
    one = ips(np.ones(4), np.array([0.0, 1.0, 0.0, 1.0]))
    assert (one.low, one.high) == pytest.approx((0.5 - 1.959964 * one.se, 0.5 + 1.959964 * one.se), abs=0.002)
    assert ips(np.ones(4), np.full(4, 0.5))[:3] == (0.5, 0.5, 0.5)


def test_a_log_with_everything_known_gives_the_textbook_estimates():
    log = drawn(2_000, UNIFORM)
    target = with_skip(np.array([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]), log.context)
    weight = target[np.arange(2_000), log.chosen] * 3
    evaluated = evaluate(log, target)
    assert evaluated.ips == pytest.approx(ips(weight, log.reward))
    assert evaluated.snips == pytest.approx(snips(weight, log.reward))
    assert evaluated.overlap.effective == pytest.approx(2_000 / (3 * target**2).sum(axis=1).mean())
    assert evaluated.overlap[2:] == (pytest.approx(3.0), 0.0, 0.0, {})


# Exact means over everything that could have been drawn: the oracle of unbiasedness, also where draws follow the past.


def learner(history):
    """Return the probabilities of two models, given earlier draws and outcomes."""
    gained = [sum((y for a, y in history if a == k), Fraction(0)) for k in (0, 1)]
    lead = Fraction(1, 4) if gained[0] >= gained[1] else Fraction(3, 4)
    return np.array([1 - lead, lead])


def every_history(outcomes):
    """Yield each history of a learner with its probability: the draws and their probabilities."""
    for actions in itertools.product((0, 1), repeat=len(outcomes)):
        history, chances, likelihood = [], [], Fraction(1)
        for action, row in zip(actions, outcomes, strict=True):
            chance = learner(history)
            likelihood *= chance[action]
            chances.append(chance)
            history.append((action, row[action]))
        yield np.array(actions), np.array(chances, dtype=float), float(likelihood)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(*[st.sampled_from([Fraction(0), Fraction(1, 2), Fraction(1)])] * 2), min_size=6, max_size=6),
    st.floats(0, 1),
    st.integers(0, 1),
)
def test_ips_and_dr_are_unbiased_if_probabilities_depend_on_the_past(outcomes, share, apart):
    table, each = np.array(outcomes, dtype=float), np.arange(6)
    target, group = np.tile([1 - share, share], (6, 1)), each % 2 * apart
    total = np.zeros(3)
    for chosen, chances, likelihood in every_history(outcomes):
        y, weight = table[each, chosen], (target / chances)[each, chosen]
        q = running_mean_predictions(group, chosen, y, np.ones(6, dtype=bool), 2)
        dr = doubly_robust(weight, y, q[each, chosen], (target * q).sum(axis=1)).mean
        total += likelihood * np.array([ips(weight, y).mean, dr, weight.mean()])
    truth = (target * table).sum(axis=1).mean()
    assert total == pytest.approx([truth, truth, 1.0])


def test_one_round_of_exploration_counts_as_uniform_draws():
    table = np.random.default_rng(0).random((3, 3))
    target = np.array([0.2, 0.3, 0.5])
    rounds = list(itertools.permutations(range(3)))
    mean = np.mean([[3 * target[a] * table[i, a] for i, a in enumerate(order)] for order in rounds])
    assert mean == pytest.approx((target * table).sum(axis=1).mean())


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.floats(0, 0.5))
def test_predictions_are_the_means_of_earlier_outcomes(seed, n_groups, missing):
    rng = np.random.default_rng(seed)
    group, chosen, y = rng.integers(n_groups, size=30), rng.integers(3, size=30), rng.random(30)
    known = rng.random(30) >= missing
    evaluated = running_mean_predictions(group, chosen, np.where(known, y, np.nan), known, 3)
    for i in range(30):
        seen = known[:i]
        overall = y[:i][seen].sum() / (seen.sum() + 1)
        for k in range(3):
            mine = seen & (chosen[:i] == k)
            anywhere = (y[:i][mine].sum() + overall) / (mine.sum() + 1)
            here = mine & (group[:i] == group[i])
            assert evaluated[i, k] == pytest.approx((y[:i][here].sum() + anywhere) / (here.sum() + 1))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_logging_policy_itself_gives_the_plain_mean(seed):
    rng = np.random.default_rng(seed)
    log = drawn(300, rng.dirichlet(np.ones(3), size=2), seed)
    for outcome in ("reward", "cost_usd"):
        evaluated, values = evaluate(log, log.logged, outcome), getattr(log, outcome)
        assert evaluated.ips.mean == pytest.approx(values.mean())
        assert evaluated.snips.mean == pytest.approx(values.mean())
        assert evaluated.ips.se == pytest.approx(values.std(ddof=1) / np.sqrt(300))
        assert abs(evaluated.dr.mean - values.mean()) < 4 * evaluated.dr.se
        assert evaluated.overlap.effective == pytest.approx(300)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_dr_with_a_perfect_model_varies_as_the_target_itself(seed):
    rng = np.random.default_rng(seed)
    log, mix = drawn(200, rng.dirichlet(np.ones(3), size=2), seed), rng.dirichlet(np.ones(3), size=2)
    target, each = mix[log.context], np.arange(200)
    value = (target * REWARD[log.context]).sum(axis=1)
    y = REWARD[log.context, log.chosen]
    weight = target[each, log.chosen] / log.logged[each, log.chosen]
    evaluated = doubly_robust(weight, y, y, value)
    assert evaluated.mean == pytest.approx(value.mean())
    assert evaluated.se == pytest.approx(value.std(ddof=1) / np.sqrt(200))


# Refusals


def test_a_target_never_drawn_is_refused_with_the_numbers():
    log = drawn(1_000, np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]))
    with pytest.raises(ThinOverlap, match=r"100.00% of its choices .* \(100.00% never; large 100.00%\)") as refused:
        evaluate(log, always(log, "large"))
    error = refused.value
    assert (error.outcome, error.decisions, error.never, error.left_out) == ("reward", 1_000, 1.0, 1.0)
    assert (error.effective, error.where) == (0.0, {"large": 1.0})
    assert "ExploreShare" in str(error)
    assert "explored" not in str(error)
    with pytest.raises(ThinOverlap, match="use the 10 explored decisions alone"):
        evaluate(log._replace(explored=np.arange(1_000) < 10), always(log, "large"))


def test_a_target_almost_never_drawn_is_refused_for_any_draws():
    log = drawn(1_000, np.array([[0.499, 0.499, 0.002]] * 2))
    assert not (log.chosen == 2).all()
    with pytest.raises(ThinOverlap) as refused:
        evaluate(log, always(log, "large"))
    assert (refused.value.never, refused.value.left_out) == (0.0, 1.0)
    assert refused.value.largest_weight == pytest.approx(500)


def test_too_few_effective_decisions_are_refused():
    few = drawn(250, UNIFORM)
    assert evaluate(few, few.logged).overlap.effective == pytest.approx(250)
    with pytest.raises(ThinOverlap, match="worth 0 of the target"):  # weight 3 is above 250 / 100
        evaluate(few, always(few, "large"))
    enough = drawn(330, UNIFORM)
    assert evaluate(enough, always(enough, "large")).overlap.effective == pytest.approx(110)


def test_a_small_share_may_be_left_out_and_no_more():
    logged = np.tile([0.5, 0.5, 0.0, 0.0], (10_000, 1))
    for lost, thin in ((0.0007, False), (0.0015, True)):  # .1 / sqrt(10,000) = .001
        overlap = overlap_of(np.tile([0.5 - lost, 0.5, lost, 0.0], (10_000, 1)), logged, NAMES)
        assert overlap.left_out == pytest.approx(lost)
        assert overlap.is_thin == thin


def test_what_is_left_out_makes_the_decisions_worth_no_more():
    logged = np.array([[0.5, 0.5, 0.0, 0.0]] * 100 + [[0.0, 1.0, 0.0, 0.0]] * 900)
    overlap = overlap_of(np.tile([1.0, 0.0, 0.0, 0.0], (1_000, 1)), logged, NAMES)
    assert overlap.left_out == pytest.approx(0.9)
    assert overlap.effective == pytest.approx(1_000 * 0.1**2 / 0.2)  # weights of 2 for 50 decisions


def test_one_heavy_decision_is_left_out():
    log = drawn(2_000, UNIFORM)
    logged = log.logged.copy()
    logged[7, :3] = (1 - 1e-9) / 2
    logged[7, log.chosen[7]] = 1e-9
    evaluated = evaluate(log._replace(logged=logged), log.logged)
    assert evaluated.overlap.largest_weight > 1e8
    assert evaluated.overlap.left_out == pytest.approx(1 / 6_000)
    assert evaluated.ips.mean == pytest.approx(log.reward.mean(), abs=1e-3)


# Missing outcomes


def test_scoring_that_depends_on_context_and_model_is_corrected():
    log = drawn(8_000, UNIFORM)
    rate = np.array([[0.9, 0.5, 0.1], [0.2, 0.6, 0.9]])[log.context, log.chosen]
    known = np.random.default_rng(1).random(8_000) < rate
    partial = log._replace(reward=np.where(known, log.reward, np.nan))
    plain = log.reward[known].mean()
    for target in (log.logged, always(log, "middle"), always(log, "large")):
        evaluated = evaluate(partial, target)
        truth = float(FREQ @ (REWARD * target[0, :3]).sum(axis=1))
        for one in (evaluated.ips, evaluated.snips, evaluated.dr):
            assert abs(one.mean - truth) < 3.5 * one.se
    assert abs(plain - float(FREQ @ REWARD.mean(axis=1))) > 0.02


def test_models_without_scores_and_logs_without_scores_are_refused():
    log = drawn(2_000, UNIFORM)
    unscored = log._replace(reward=np.where(log.chosen == 2, np.nan, log.reward))
    with pytest.raises(ThinOverlap, match="cannot estimate the reward"):
        evaluate(unscored, always(log, "large"))
    evaluate(unscored, always(log, "large"), "cost_usd")
    nothing = log._replace(reward=np.full(2_000, np.nan))
    assert not nothing.has_outcome("reward")
    with pytest.raises(InvalidInput, match="no decision has a reward"):
        evaluate(nothing, log.logged)
    with pytest.raises(InvalidInput, match=r"shape \(2000, 4\)"):
        evaluate(log, log.logged[:, :3])


# Targets


def test_a_plan_at_another_rate_and_with_another_pool():
    log = drawn(50, UNIFORM)._replace(context=np.array([0, 1, NO_CONTEXT] * 16 + [0, 1]))
    plan = Plan(FREQ, REWARD, COST)
    target = at_plan(log, plan, NAMES, 2.0)
    assert target[0, :3] == pytest.approx(plan.mix(2.0)[0])
    assert target[1, :3] == pytest.approx(plan.mix(2.0)[1])
    assert target[2, :3] == pytest.approx(plan.without_context().mix(2.0)[0])
    less = at_plan(log, plan, NAMES, 2.0, without=["large"])
    assert less[:2, [0, 1]] == pytest.approx(Plan(FREQ, REWARD[:, :2], COST[:, :2]).mix(2.0))
    assert not less[:, 2].any()
    skipping = at_plan(log, Plan(FREQ, REWARD, COST, allow_skip=True), NAMES, 0.25)
    assert skipping.sum(axis=1) == pytest.approx(1.0)
    assert skipping[:, -1].any()
    assert (always(log, "large")[:, 2] == 1.0).all()


def test_a_plan_is_a_target_at_each_rate_that_pays_for_the_cheapest_model_of_every_context():
    log = drawn(3, UNIFORM)._replace(context=np.array([0, 1, NO_CONTEXT]))
    plan = Plan([0.5, 0.5], [[0.2, 0.4, 0.9], [0.2, 0.4, 0.9]], [[1.0, 4.0, 9.0], [4.0, 1.0, 9.0]])
    assert (plan.floor_usd, plan.without_context().floor_usd) == (1.0, 2.5)
    target = at_plan(log, plan, NAMES, 1.0)
    assert target[:, :3].tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]


def test_invalid_targets_are_refused():
    log, plan = drawn(10, UNIFORM), Plan(FREQ, REWARD, COST)
    with pytest.raises(UnknownModel, match="got 'unknown'"):
        always(log, "unknown")
    with pytest.raises(UnknownModel):
        at_plan(log, plan, NAMES, 2.0, without=["unknown"])
    with pytest.raises(UnknownModel, match="got 'vast'"):
        at_plan(log, plan, ("small", "middle", "vast"), 2.0)
    with pytest.raises(InfeasibleBudget):
        at_plan(log, plan, NAMES, 0.5)
    with pytest.raises(InvalidInput, match="a pool needs a model"):
        at_plan(log, plan, NAMES, 2.0, without=NAMES)
    with pytest.raises(InvalidInput, match="the log has a context 1, the plan has 1"):
        at_plan(log, plan.without_context(), NAMES, 2.0)
    with pytest.raises(InvalidInput, match="rate_usd"):
        at_logged_estimates(log, -1.0)
    wider = log.with_models(["small", "vast"])
    assert wider.models == (*NAMES, "vast")
    assert (wider.logged[:, [0, 1, 2, 4]] == log.logged).all()
    assert not wider.logged[:, 3].any()


def test_contexts_must_be_those_of_the_log():
    log = drawn(10, UNIFORM)
    check_contexts(log, Contexts(np.eye(2), FREQ))
    with pytest.raises(InvalidInput, match=r"context 0 has a share of 0\.2500, the file has 0\.5000"):
        check_contexts(log, Contexts(np.eye(2), [0.5, 0.5]))
    with pytest.raises(InvalidInput, match="no such context"):
        check_contexts(log._replace(share={0: 0.25, 5: 0.75}), Contexts(np.eye(2), FREQ))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.0, 5.0), st.integers(1, 39))
def test_the_plan_at_logged_estimates_uses_no_later_estimates(seed, rate, at):
    rng = np.random.default_rng(seed)
    log = drawn(40, UNIFORM, seed)
    known = log._replace(
        expected_reward=np.where(rng.random((40, 3)) < 0.1, np.nan, rng.random((40, 3))),
        expected_cost_usd=rng.uniform(0.5, 4.0, (40, 3)),
    )
    target = at_logged_estimates(known, rate)
    other = known.expected_reward.copy()
    other[at:] = rng.random((40 - at, 3))
    assert np.array_equal(
        at_logged_estimates(known._replace(expected_reward=other), rate)[:at], target[:at], equal_nan=True
    )
    rows = {}
    for i, context in enumerate(log.context):  # solved again at each decision, from the estimates so far
        seen = ~np.isnan(known.expected_reward[i])
        if seen.any():
            rows[context] = (
                np.where(seen, known.expected_reward[i], 0.0),
                np.where(seen, known.expected_cost_usd[i], 99.0),
            )
        if context not in rows:
            assert np.isnan(target[i]).all()
            continue
        met = sorted(rows)
        freq = FREQ[met] / FREQ[met].sum()
        plan = Plan(freq, [rows[j][0] for j in met], [rows[j][1] for j in met])
        assert target[i, :3] == pytest.approx(plan.mix(max(rate, plan.floor_usd))[met.index(context)])


# Journals


def router(freq=FREQ, **options):
    estimates = Estimates(2, 3)
    estimates.add_table(np.arange(2), REWARD, COST)
    options.setdefault("policy", Offline(accounting="paper"))
    return WiseRouter(
        [Model(name) for name in NAMES], Contexts(np.eye(2), freq), estimates=estimates, seed=0, **options
    )


def served(router, path, n, *, amount_usd, seed=0, label=1.0, contexts=(0, 1)):
    """Serve with a journal, and return the logged decisions."""
    rng = np.random.default_rng(seed)
    journal = router.journal_to(path)
    router.start(Budget(amount_usd, n, on_exhausted="cheapest"))
    for j in rng.choice(contexts, size=n, p=FREQ):
        decision = router.decide(context=int(j))
        k = router.pool.index(decision.model)
        router.charge(decision, float(COST[j, k] * rng.uniform(0, 2)))
        if rng.random() < label:
            router.reward(decision, float(rng.random() < REWARD[j, k]))
    journal.close()
    return read_decisions(JournalReader(path))


def test_a_journal_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "d.jsonl"
    one = router()
    journal = one.journal_to(path)
    one.start(Budget(200.0, 100))
    decisions = [one.decide(context=j) for j in (0, 1, 1, NO_CONTEXT)]
    one.charge(decisions[0], 2.5)
    one.charge(decisions[1], 9.0, model="large")  # a fallback answered
    one.reward(decisions[0], 0.1)
    one.reward(decisions[0], 0.7)
    one.release(decisions[2])
    journal.close()
    log = read_decisions(JournalReader(path))
    assert (log.models, log.n, log.left_out) == (NAMES, 4, 0)
    assert log.context.tolist() == [0, 1, 1, NO_CONTEXT]
    assert [NAMES[k] for k in log.chosen] == [d.model for d in decisions]
    assert log.logged[np.arange(4), log.chosen].tolist() == [d.probability for d in decisions]
    assert log.cost_usd[:2].tolist() == [2.5, 9.0]
    assert log.reward[0] == 0.7
    assert np.isnan(log.cost_usd[2:]).all()
    assert np.isnan(log.reward[1:]).all()
    assert log.share == {0: 0.25, 1: 0.75, NO_CONTEXT: 1.0}
    assert log.expected_reward[0] == pytest.approx(REWARD[0])
    assert log.expected_cost_usd[1] == pytest.approx(COST[1])


def test_lines_that_a_journal_has_twice_count_once(tmp_path):
    path = tmp_path / "d.jsonl"
    once = served(router(), path, 5, amount_usd=10.0)
    path.write_text(2 * path.read_text())
    twice = read_decisions(JournalReader(path))
    assert (twice.n, twice.cost_usd.tolist()) == (5, once.cost_usd.tolist())


def test_a_skipped_query_costs_and_yields_nothing(tmp_path):
    one = router(policy=Offline(allow_skip=True, accounting="paper"))
    journal = one.journal_to(tmp_path / "d.jsonl")
    one.start(Budget(1e-9, 10))
    with pytest.raises(Exception, match="skips this query"):
        one.decide(context=1)
    journal.close()
    log = read_decisions(JournalReader(tmp_path / "d.jsonl"))
    assert (log.chosen.tolist(), log.cost_usd.tolist(), log.reward.tolist()) == ([-1], [0.0], [0.0])
    assert log.logged[0, -1] == pytest.approx(1.0)


def test_only_decisions_in_the_latest_contexts_count(tmp_path):
    served(router(), tmp_path / "d.jsonl", 5, amount_usd=10.0)
    log = served(router(freq=[0.5, 0.5]), tmp_path / "d.jsonl", 7, amount_usd=14.0)
    assert (log.n, log.left_out) == (7, 5)
    assert set(log.share.values()) == {0.5}


def test_a_journal_must_have_all_probabilities(tmp_path):
    with pytest.raises(InvalidInput, match="must hold decisions, got none"):
        read_decisions([{"event": "charge", "id": "a", "cost_usd": 1.0}])
    served(router(), tmp_path / "d.jsonl", 3, amount_usd=6.0)
    events = [json.loads(line) for line in (tmp_path / "d.jsonl").read_text().splitlines()]
    events[0]["models"][0]["probability"] = 0.3
    events[0]["models"][1]["probability"] = events[0]["models"][2]["probability"] = 0.3
    with pytest.raises(InvalidInput, match="must have all its probabilities") as wrong:
        read_decisions(events)
    assert wrong.value.value == events[0]["id"]


def test_an_exploration_phase_covers_every_model(tmp_path):
    explorer = WiseRouter(
        [Model(name) for name in NAMES], Contexts(np.eye(2), FREQ), policy=EpsilonFirst(1_200), seed=0
    )
    log = served(explorer, tmp_path / "d.jsonl", 2_000, amount_usd=4_000.0)
    assert log.explored.sum() == 1_200
    assert log.logged[log.explored][:, :3] == pytest.approx(1 / 3)
    with pytest.raises(ThinOverlap, match="use the 1,200 explored decisions alone"):
        evaluate(log, always(log, "middle"))
    phase = log.where(log.explored)
    for k, name in enumerate(NAMES):
        evaluated, cost = evaluate(phase, always(phase, name)), evaluate(phase, always(phase, name), "cost_usd")
        for one, two in zip(evaluated[1:], cost[1:], strict=True):
            assert abs(one.mean - FREQ @ REWARD[:, k]) < 3 * one.se
            assert abs(two.mean - FREQ @ COST[:, k]) < 3 * two.se
    assert not np.isnan(at_logged_estimates(phase, 2.0)[200:]).any()
    evaluate(phase, at_logged_estimates(phase, 2.0))


def test_a_share_of_exploration_covers_other_budgets(tmp_path):
    plan = Plan(FREQ, REWARD, COST)
    fixed = router(explore=ExploreShare(0.3))
    log = served(fixed, tmp_path / "d.jsonl", 1_500, amount_usd=3_000.0, label=0.8)
    without = served(router(), tmp_path / "e.jsonl", 400, amount_usd=600.0)
    for rate, less in ((1.5, ()), (2.5, ()), (2.0, ("large",))):
        target = at_plan(log, plan, NAMES, rate, less)
        for outcome, table in (("reward", REWARD), ("cost_usd", COST)):
            evaluated = evaluate(log, target, outcome)
            truth = sum(FREQ[j] * target[log.context == j][0, :3] @ table[j] for j in (0, 1))
            for one in evaluated[1:]:
                assert abs(one.mean - truth) < 3 * one.se
    assert at_logged_estimates(log, 2.5)[20:] == pytest.approx(
        at_plan(log, plan, NAMES, 2.5)[20:]
    )  # both contexts were met
    with pytest.raises(ThinOverlap):
        evaluate(without, at_plan(without, plan, NAMES, 3.0))


@pytest.mark.parametrize("field", ["id", "model", "models", "context", "rule", "skip_probability"])
def test_an_event_that_lacks_a_field_is_refused_in_one_line(tmp_path, field):
    served(router(), tmp_path / "d.jsonl", 3, amount_usd=6.0)
    events = [json.loads(line) for line in (tmp_path / "d.jsonl").read_text().splitlines()]
    del events[0][field]
    with pytest.raises(InvalidInput, match="must have the fields that a journal gives it"):
        read_decisions(events)


def test_a_journal_of_too_many_models_is_refused(tmp_path):
    served(router(), tmp_path / "d.jsonl", 1, amount_usd=2.0)
    event = json.loads((tmp_path / "d.jsonl").read_text().splitlines()[0])
    event["models"] += [event["models"][0] | {"name": f"m{i}"} for i in range(1_000)]
    with pytest.raises(InvalidInput, match="at most 1,000 models, got 1,003"):
        read_decisions([event])


def test_damaged_lines_of_a_journal_are_left_out(tmp_path):
    path = tmp_path / "d.jsonl"
    whole = served(router(), path, 20, amount_usd=40.0)
    lines = path.read_text().splitlines()
    events = [json.loads(line) for line in lines]
    bad = [
        json.dumps(
            {name: value for name, value in (events[0] | {"id": f"without {left_out}"}).items() if name != left_out}
        )
        for left_out in events[0]
    ]
    bad += ["[" * 100_000, '{"event": "charge", "id": "a"}', '{"event": "reward", "id": "a", "reward": NaN}', "7"]
    path.write_text("\n".join([*lines, *bad]) + "\n")
    reader = JournalReader(path)
    again = read_decisions(reader)
    unused = {"event", "decided_at", "probability", "input_tokens"}  # without "event" a line is of no kind
    # journals of former versions lack these
    unused |= {"conversation", "visit", "run_id", "unspent", "warnings", "value"}
    assert reader.skipped == len(bad) - len(unused & set(events[0]))
    assert again.n == whole.n + len(unused & set(events[0])) - 1


def test_several_workers_give_the_figures_of_one_and_its_refusals():
    logged = np.array([[0.5, 0.5, 0.0], [0.4, 0.6, 0.0]])
    decisions = drawn(2_000, logged)
    targets = [always(decisions, name) for name in NAMES]
    alone = list(evaluate_each(decisions, targets))
    together = list(evaluate_each(decisions, targets, n_jobs=2))
    assert [one["reward"] for one in alone[:2]] == [evaluate(decisions, target) for target in targets[:2]]
    assert alone[:2] == together[:2]
    assert isinstance(together[2]["reward"], ThinOverlap)
    assert (str(together[2]["reward"]), vars(together[2]["reward"])) == (
        str(alone[2]["reward"]),
        vars(alone[2]["reward"]),
    )


def test_little_is_kept_of_each_decision(tmp_path):
    served = WiseRouter([Model("small", Price(1e-7, 4e-7)), Model("large", Price(1e-6, 4e-6))], seed=0)
    served.start(Budget(1.0, 100))
    journal = served.journal_to(tmp_path / "j.jsonl")
    decision = served.decide("hi")
    assert journal.flush()
    journal.close()
    (line,), n = (tmp_path / "j.jsonl").read_text().splitlines(), 2_000
    tracemalloc.start()
    found = read_decisions(json.loads(line.replace(decision.id, f"{i:032}")) for i in range(n))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.n == n
    assert peak / n < 1_500  # bytes; the line itself takes 5,000
