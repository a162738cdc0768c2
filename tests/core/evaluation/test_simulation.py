import json
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from wiserouter import Budget, Contexts, EpsilonFirst, Estimates, Plan, WiseRouter
from wiserouter.budgets.funds import Funds
from wiserouter.cli import app
from wiserouter.errors import BudgetError, InvalidInput, MissingExtra
from wiserouter.evaluation.outcome import NOT_SERVED
from wiserouter.evaluation.simulation import (
    Environment,
    RunScore,
    SimulatedMethod,
    Stream,
    Study,
    default_methods,
    open_method,
    paper_environment,
    play,
    play_hard,
    routerbench_like,
    score_of,
    simulate,
    slopes,
    summarise,
)
from wiserouter.evaluation.simulation.environment import CAP_SIGMAS
from wiserouter.evaluation.simulation.routerbench_environment import MODELS
from wiserouter.planning import policies
from wiserouter.planning.envelope import SKIP
from wiserouter.planning.policies import Choice

SMALL = paper_environment(5, 400, n_contexts=3, n_models=4)
STREAM = Stream.of(SMALL, 5)
BASELINES = ("random", "epsilon-greedy", "linucb", "oracle")


def trace(name, environment=SMALL, stream=STREAM, seed=5, **options):
    return play(environment, stream, open_method(name, environment), seed, **options)


def score(name, environment=SMALL, stream=STREAM, seed=5, **options):
    return score_of(name, seed, environment, stream, trace(name, environment, stream, seed, **options))


# environments


def test_the_papers_environment_has_its_stated_distribution():
    world = paper_environment(0, 1_500)
    assert world.reward.shape == world.cost_usd.shape == (11, 11)
    assert world.freq.sum() == pytest.approx(1.0)
    assert world.freq[0] / world.freq == pytest.approx(np.arange(1, 12))
    floor, ceiling = world.freq @ world.cost_usd.min(axis=1), world.freq @ world.cost_usd.max(axis=1)
    assert world.budget_usd == pytest.approx(1_500 * (floor + ceiling) / 2)
    assert (world.horizon, world.prices, world.sigma) == (1_500, None, 0.1)


def test_the_papers_means_are_uniform_and_each_seed_has_its_own():
    means = np.array([paper_environment(seed, 10)[1:3] for seed in range(100)])
    for table in np.moveaxis(means, 1, 0):
        assert table.mean() == pytest.approx(0.5, abs=0.01)
        assert table.std() == pytest.approx(12**-0.5, abs=0.01)
        assert len(np.unique(table)) == table.size
        assert np.corrcoef(table[:, 0, 0], table[:, 0, 1])[0, 1] == pytest.approx(0.0, abs=0.35)


def test_the_papers_budget_is_that_of_the_paper():
    budgets = [paper_environment(seed, 1_500).budget_usd for seed in range(50)]
    assert abs(762.58 - np.mean(budgets)) < 2 * np.std(budgets)


def test_the_routerbench_environment_has_its_stated_distribution():
    performance, usd = np.array(list(MODELS.values())).T
    worlds = [routerbench_like(seed, 1_000, 0.02) for seed in range(300)]
    freq = np.array([world.freq for world in worlds])
    assert freq.sum(axis=1) == pytest.approx(1.0)
    assert freq.var() == pytest.approx((1 / 16) * (15 / 16) / (3 * 16 + 1), rel=0.1)  # Dirichlet(3)
    shift = np.array([world.reward for world in worlds]) - performance
    inside = np.abs(np.array([world.reward for world in worlds]) - 0.5).max(axis=2) < 0.499  # contexts never clipped
    assert shift[inside].var(axis=1, ddof=1).mean() == pytest.approx(0.08**2, rel=0.1)
    ratio = np.log(np.array([world.cost_usd for world in worlds]) / usd)
    assert ratio.mean() == pytest.approx(0.0, abs=0.02)
    assert ratio.mean(axis=2).std() == pytest.approx(np.hypot(0.4, 0.1 / 10**0.5), rel=0.03)
    assert ratio.std(axis=2, ddof=1).mean() == pytest.approx(0.1, rel=0.05)
    for world in worlds[:5]:
        floor, ceiling = (world.freq @ edge for edge in (world.cost_usd.min(axis=1), world.cost_usd.max(axis=1)))
        assert world.budget_usd == pytest.approx(1_000 * (floor + 0.02 * (ceiling - floor)))
        assert 1_000 * np.array([price.output for price in world.prices]) == pytest.approx(usd)


def test_context_shifts_move_all_models_together():
    worlds = [routerbench_like(seed, 10) for seed in range(200)]
    middle = np.array([world.reward[:, list(MODELS).index("mistral-7b-chat")] for world in worlds])
    assert middle.mean() == pytest.approx(0.5, abs=0.01)
    assert middle.std() == pytest.approx(np.hypot(0.15, 0.08), rel=0.05)


@pytest.mark.parametrize("make", [paper_environment, routerbench_like])
def test_a_stream_has_the_moments_of_its_environment(make):
    world = make(3, 100_000)
    stream = Stream.of(world, 3)
    seen = np.bincount(stream.contexts, minlength=len(world.freq)) / 100_000
    assert seen == pytest.approx(world.freq, abs=0.006)
    assert stream.factor.mean() == pytest.approx(1.0, abs=0.01)
    assert np.log(stream.factor).std() == pytest.approx(world.sigma, rel=0.02)
    common = stream.contexts == seen.argmax()
    n = common.sum()
    reward, cost = stream.rewards(world)[common], stream.costs_usd(world)[common]
    assert reward.mean(axis=0) == pytest.approx(world.reward[seen.argmax()], abs=4 * (0.25 / n) ** 0.5)
    assert set(np.unique(reward)) <= {0.0, 1.0}
    assert cost.mean(axis=0) == pytest.approx(world.cost_usd[seen.argmax()], rel=4 * world.sigma * n**-0.5 + 1e-3)


def test_no_call_costs_more_than_its_worst_case():
    for make in (paper_environment, routerbench_like):
        world = make(1, 2_000)
        longest = Stream(np.arange(2_000) % len(world.freq), np.zeros(2_000), Stream.of(world, 1).factor)
        assert np.all(longest.costs_usd(world) <= world.worst_usd()[longest.contexts])
    sure = Environment(np.array([1.0]), np.array([[0.5]]), np.array([[2.0]]), 1.0, 1, None, 0.5)
    assert sure.worst_usd() == pytest.approx(2.0 * np.exp(0.5 * CAP_SIGMAS - 0.125))


def test_true_cost_is_price_times_whole_tokens():
    world = routerbench_like(0, 500)
    tokens = Stream.of(world, 0).costs_usd(world) / [price.output for price in world.prices]
    assert tokens == pytest.approx(np.rint(tokens), abs=1e-6)
    assert tokens.mean() == pytest.approx(1_000, rel=0.25)
    assert [model.price for model in world.models()] == list(world.prices)


def test_a_shorter_horizon_is_the_beginning_of_a_longer_one():
    short, long = (Stream.of(paper_environment(2, horizon), 2) for horizon in (50, 500))
    for a, b in zip(short, long, strict=True):
        assert np.array_equal(a, b[:50])
    assert not np.array_equal(short.luck, Stream.of(paper_environment(2, 50), 3).luck)


# the loop


class Recorder:
    """Always chooses one model, and records the calls."""

    name, plan = "recorder", None

    def __init__(self, model, expected_cost_usd=0.0, debit="actual"):
        self.choice, self.asked = Choice(model, 1.0, 0.0, expected_cost_usd, 0.0, debit), []

    def bind(self, freq, estimates, models=()):
        self.freq = freq

    def choose(self, context, funds, rng, allowed=None, shift=None):
        self.asked.append((context, funds))
        return self.choice

    def settings(self):
        return {}


def test_every_method_serves_the_same_requests():
    tables = []
    for model in (0, 1):
        recorder, seen = Recorder(model), Estimates(3, 4)
        play(SMALL._replace(budget_usd=1e9), STREAM, SimulatedMethod(recorder, seen), 5)
        assert [context for context, _ in recorder.asked] == STREAM.contexts.tolist()
        assert seen.calls[:, model].tolist() == np.bincount(STREAM.contexts, minlength=3).tolist()
        tables.append((seen.reward[:, model], seen.cost[:, model]))
    for model, (reward, cost) in enumerate(tables):
        by_context = [STREAM.contexts == j for j in range(3)]
        assert reward == pytest.approx([STREAM.rewards(SMALL)[at, model].sum() for at in by_context])
        assert cost == pytest.approx([STREAM.costs_usd(SMALL)[at, model].sum() for at in by_context])


def test_the_account_debits_by_the_accounting():
    costs, means = STREAM.costs_usd(SMALL)[:, 2], SMALL.cost_usd[STREAM.contexts, 2]
    for debit, accounting, debited in (
        ("actual", "actual", costs),
        ("actual", "paper", means),
        ("paper", "actual", np.full(400, 0.01)),
        ("paper", "paper", means),
    ):
        recorder = Recorder(2, 0.01, debit)
        rich = SMALL._replace(budget_usd=1e3)
        ran = play(rich, STREAM, SimulatedMethod(recorder, Estimates(3, 4)), 5, accounting=accounting)
        left = [funds.left_usd for _, funds in recorder.asked]
        assert left == pytest.approx(1e3 - np.concatenate([[0.0], debited.cumsum()[:-1]]))
        assert [funds.requests for _, funds in recorder.asked] == list(range(400, 0, -1))
        assert ran.spend_usd == pytest.approx(means if accounting == "paper" else costs)


def test_serving_stops_when_the_budget_is_used_up():
    poor = SMALL._replace(budget_usd=20.0)
    ran = play(poor, STREAM, SimulatedMethod(Recorder(0), Estimates(3, 4)), 5)
    n = int((ran.chosen != NOT_SERVED).sum())
    assert 0 < n < 400
    assert np.all(ran.chosen[n:] == NOT_SERVED)
    assert ran.spend_usd[: n - 1].sum() < 20.0 <= ran.spend_usd.sum()
    assert np.all(ran.spend_usd[n:] == 0.0)


def test_a_call_expected_to_exceed_the_rest_is_refused():
    ran = play(SMALL._replace(budget_usd=1.0), STREAM, SimulatedMethod(Recorder(0, 1.5), Estimates(3, 4)), 5)
    assert np.all(ran.chosen == NOT_SERVED)
    ran = play(SMALL._replace(budget_usd=1.0), STREAM, SimulatedMethod(Recorder(SKIP), Estimates(3, 4)), 5)
    assert np.all(ran.chosen == NOT_SERVED)
    assert ran.spend_usd.sum() == 0.0


def through_router(name, environment, stream, seed):
    method = open_method(name, environment)
    contexts = Contexts(np.eye(len(environment.freq)), environment.freq)
    router = WiseRouter(environment.models(), contexts, policy=method.policy, estimates=method.estimates, seed=seed)
    router.start(Budget(environment.budget_usd, environment.horizon))
    for t, context in enumerate(stream.contexts.tolist()):
        try:
            decision = router.decide(context=context)
        except BudgetError:
            yield NOT_SERVED
            continue
        model = router.pool.index(decision.model)
        router.charge(decision, float(stream.costs_usd(environment)[t, model]))
        router.reward(decision, float(stream.rewards(environment)[t, model]))
        yield model


@pytest.mark.parametrize("name", [*BASELINES, "epsilon-first-48", "epsilon-first-known-24"])
def test_the_loop_decides_as_the_router_does(name):
    for share in (0.7, 1.0):
        world = SMALL._replace(budget_usd=share * SMALL.budget_usd)
        assert trace(name, world).chosen.tolist() == list(through_router(name, world, STREAM, 5))


@pytest.mark.parametrize("make", [paper_environment, routerbench_like])
def test_a_hard_limit_is_never_exceeded(make):
    for seed in range(3):
        world = make(seed, 200)
        stream = Stream.of(world, seed)
        for name in ("random", "oracle", "epsilon-first-100"):
            ran = play_hard(world, stream, open_method(name, world), seed)
            assert ran.spend_usd.sum() <= world.budget_usd
            assert (ran.chosen != NOT_SERVED).mean() > 0.03


# methods


def test_the_oracle_earns_what_its_plan_says_and_no_more():
    ratios = np.array([s.reward_ratio for s in simulate(Study(methods=("oracle",)), [1_500], range(12))])
    assert ratios.mean() == pytest.approx(1.0, abs=0.01)
    assert ratios.max() < 1.05


def test_nothing_beats_the_oracle():
    scores = simulate(Study(methods=(*BASELINES, "epsilon-first-121")), [1_500], range(5))
    best = {s.seed: s.reward_ratio for s in scores if s.method == "oracle"}
    assert all(s.reward_ratio <= best[s.seed] + 1e-9 for s in scores)


def test_random_earns_its_closed_form():
    world = paper_environment(1, 20_000)._replace(budget_usd=1e6)
    ratio = score("random", world, Stream.of(world, 1), 1).reward_ratio
    best = world.freq @ world.reward.max(axis=1)
    assert ratio == pytest.approx(world.freq @ world.reward.mean(axis=1) / best, abs=0.01)


def walk(world, stream, seed, prefer):
    """Run a budget-aware bandit step by step; `prefer(scores, models, n, rng)` chooses a model."""
    rng = np.random.default_rng(seed)
    n, total = np.zeros(world.cost_usd.shape), np.zeros(world.cost_usd.shape)
    left = world.budget_usd
    for t, j in enumerate(stream.contexts):
        within = [k for k in range(world.cost_usd.shape[1]) if world.cost_usd[j, k] <= left / (world.horizon - t)]
        within = within or [int(world.cost_usd[j].argmin())]
        k = prefer(total[j], n[j], within, rng)
        yield k
        n[j, k] += 1
        total[j, k] += stream.luck[t] < world.reward[j, k]
        left -= world.cost_usd[j, k] * stream.factor[t]


def of_tied(score, within, rng):
    tied = [k for k in within if score[k] == max(score[m] for m in within)]
    return tied[rng.integers(len(tied))] if len(tied) > 1 else tied[0]


def linucb_by_matrices(total, n, within, rng):
    """Disjoint LinUCB, one-hot features: theta = A^-1 b, bound = theta x + alpha sqrt(x A^-1 x); alpha is 1."""
    bound = np.zeros(len(n))
    for k in range(len(n)):
        A, b, x = np.diag([1.0, 1.0 + n[k]]), np.array([0.0, total[k]]), np.array([0.0, 1.0])
        inverse = np.linalg.inv(A)
        bound[k] = (inverse @ b) @ x + np.sqrt(x @ inverse @ x)
    return of_tied(bound.round(12), within, rng)


def greedy(total, n, within, rng):
    if rng.random() < 0.1:
        return within[rng.integers(len(within))] if len(within) > 1 else within[0]
    return of_tied([s / c if c else 0.0 for s, c in zip(total, n, strict=True)], within, rng)


@pytest.mark.parametrize(("name", "prefer"), [("linucb", linucb_by_matrices), ("epsilon-greedy", greedy)])
@pytest.mark.parametrize("share", [0.6, 1.0])
def test_bandits_equal_their_textbook_form(name, prefer, share):
    world = SMALL._replace(budget_usd=share * SMALL.budget_usd)
    assert trace(name, world).chosen.tolist() == list(walk(world, STREAM, 5, prefer))


def algorithm_2(world, stream, seed, length, known=False):
    """The paper's Algorithm 2, line by line, with the two-point mix of the linear program."""
    rng, shape = np.random.default_rng(seed), world.cost_usd.shape
    N, u, c = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    b, tau, plan = world.budget_usd, world.horizon, None
    for t, j in enumerate(stream.contexts):
        if b <= 0:
            return
        if t < length:
            fewest = np.flatnonzero(N[j] == N[j].min())
            a = int(fewest[rng.integers(len(fewest))])
            y, s = float(stream.luck[t] < world.reward[j, a]), world.cost_usd[j, a] * stream.factor[t]
            b -= s
            N[j, a] += 1
            u[j, a] += (y - u[j, a]) / N[j, a]
            c[j, a] += (s - c[j, a]) / N[j, a]
        else:
            plan = plan or Plan(world.freq, u, world.cost_usd if known else c)
            a = plan.choose(int(j), max(b / tau, plan.floor_usd), rng)
            b -= plan.cost_usd[j, a]
        tau -= 1
        yield a


@pytest.mark.parametrize("length", [48, 120])
@pytest.mark.parametrize("known", [False, True])
def test_epsilon_first_is_algorithm_2(length, known):
    name = f"epsilon-first-{'known-' * known}{length}"
    literal = list(algorithm_2(SMALL, STREAM, 5, length, known))
    assert trace(name).chosen[: len(literal)].tolist() == literal
    assert len(literal) > 390


def test_all_methods_are_named_and_open():
    names = default_methods(SMALL.cost_usd.size)
    lengths = [f"epsilon-first-{known}{12 * n}" for known in ("", "known-") for n in (1, 2, 4, 8)]
    assert [name for name in names if name != "optimistic"] == [*lengths, *BASELINES]
    for name in names:
        assert open_method(name, SMALL).estimates.shape == (3, 4)


def test_a_policy_registered_later_is_found(monkeypatch):
    monkeypatch.setitem(policies._POLICIES, "optimistic", EpsilonFirst)
    assert isinstance(open_method("optimistic", SMALL).policy, EpsilonFirst)


def test_baselines_return_the_probability_of_their_draw():
    world, rng = SMALL._replace(budget_usd=1e9), np.random.default_rng(0)
    for name in ("random", "epsilon-greedy", "linucb"):
        policy, seen = open_method(name, world)
        seen.add_reward(0, 1, 1.0)
        policy.bind(world.freq, seen)
        drawn = [policy.choose(0, Funds(1e9, 10), rng) for _ in range(4_000)]
        for k in {choice.model for choice in drawn}:
            share = np.mean([choice.model == k for choice in drawn])
            assert share == pytest.approx(next(c.probability for c in drawn if c.model == k), abs=0.03)


# many seeds


def same(some, other):
    return all(np.array_equal(a, b) for x, y in zip(some, other, strict=True) for a, b in zip(x, y, strict=True))


def test_scores_depend_on_seeds_and_not_on_processes():
    study = Study("routerbench", methods=("random", "epsilon-first-160"))
    one, two = (simulate(study, [100, 200], range(3), jobs=jobs) for jobs in (1, 2))
    assert same(one, two)
    assert [(s.horizon, s.seed, s.method) for s in one[:3]] == [
        (100, 0, "random"),
        (100, 0, "epsilon-first-160"),
        (100, 1, "random"),
    ]
    assert not same(one, simulate(study, [100, 200], range(3, 6)))


def test_a_score_counts_expected_rewards():
    ran = trace("random")
    got = score("random")
    expected = SMALL.reward[STREAM.contexts, ran.chosen].cumsum()
    assert got.reward_by_step == pytest.approx(expected[got.steps - 1])
    assert got.oracle_reward == pytest.approx(400 * Plan(*SMALL[:3]).value(SMALL.budget_usd / 400))
    assert got.regret == pytest.approx(got.oracle_reward - expected[-1])
    assert got.amortized_regret[-1] == pytest.approx(got.regret / 400)
    assert got.spend_ratio == pytest.approx(ran.spend_usd.sum() / SMALL.budget_usd)
    assert (got.steps[-1], len(got.steps), got.served) == (400, 100, 1.0)


def made_up(method, horizon, regret, seed=0):
    steps = np.array([horizon])
    return RunScore(method, seed, horizon, 2.0 * horizon, 1.0, 1.0, steps, 2.0 * horizon - np.array([regret]), steps)


def test_the_slope_is_that_of_regret_per_request():
    scores = [made_up("root", T, T**0.5) for T in (100, 1_000, 10_000)]
    scores += [made_up("none", T, -1.0) for T in (100, 1_000)] + [made_up("once", 100, 1.0)]
    found = slopes(summarise(scores))
    assert found["root"] == pytest.approx(-0.5)
    assert (found["none"], found["once"]) == (None, None)


def test_summaries_group_by_horizon_and_method():
    scores = [made_up(m, T, 1.0 + seed, seed) for T in (10, 20) for seed in (0, 1) for m in ("b", "a")]
    summaries = summarise(scores)
    assert [(each.horizon, each.method) for each in summaries] == [(10, "b"), (10, "a"), (20, "b"), (20, "a")]
    assert summaries[0].mean("regret") == pytest.approx(1.5)
    assert summaries[0].standard_error("regret") == pytest.approx(0.5)


# the command


def wiserouter(*arguments):
    result = CliRunner().invoke(app, ["simulate", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_json_has_all_figures():
    figures = json.loads(wiserouter("--horizon", 200, "--horizon", 100, "--seeds", 2, "--first-seed", 4, "--json"))
    assert set(figures) == {"methods"}
    assert [each["method"] for each in figures["methods"]] == 2 * list(default_methods(121))
    assert [each["horizon"] for each in figures["methods"][:: len(default_methods(121))]] == [100, 200]
    for each in figures["methods"]:
        assert set(each) == {
            "method", "horizon", "seeds", "reward_ratio", "regret", "spend_ratio", "served", "reward_ratio_se",
            "regret_se", "spend_ratio_max", "budget_usd", "per_seed", "curves", "regret_slope",
        }  # fmt: skip
        assert each["per_seed"]["seed"] == [4, 5]
        assert np.mean(each["per_seed"]["reward_ratio"]) == pytest.approx(each["reward_ratio"])
        assert max(each["per_seed"]["spend_ratio"]) == each["spend_ratio_max"]
        assert each["curves"]["step"][-1] == each["horizon"]
        assert each["curves"]["amortized_regret"][-1] == pytest.approx(each["regret"] / each["horizon"])
        assert {len(curve) for curve in each["curves"].values()} == {100}


def test_one_seed_has_no_standard_error():
    [only] = json.loads(wiserouter("--horizon", 50, "--seeds", 1, "--methods", "linucb", "--json"))["methods"]
    assert (only["reward_ratio_se"], only["regret_slope"]) == (None, None)


def test_tables_and_a_picture(tmp_path):
    printed = wiserouter(
        "--environment", "routerbench", "--horizon", 80, "--horizon", 160, "--seeds", 2, "--fraction", 0.1,
        "--methods", "random, oracle", "--plot", tmp_path / "s.png",
    )  # fmt: skip
    assert "routerbench: 160 requests" in printed
    assert "Log-log slope" in printed
    assert (tmp_path / "s.png").stat().st_size > 10_000
    hard = wiserouter("--horizon", 60, "--seeds", 1, "--methods", "random", "--limit", "hard")
    assert "1 seed" in hard


def test_a_picture_without_matplotlib_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match="bench"):
        wiserouter("--horizon", 20, "--seeds", 1, "--methods", "random", "--plot", tmp_path / "s.png")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--environment", "moon"), "environment must be one of paper, routerbench, agents, chats, fleet, got 'moon'"),
        (("--limit", "soft"), "limit must be one of expected, hard, got 'soft'"),
        (("--accounting", "creative"), "accounting must be one of actual, paper, got 'creative'"),
        (("--limit", "hard", "--accounting", "paper"), "accounting must be 'actual' under a hard limit"),
        (("--methods", "thompson"), "method must be one of optimistic, .*, got 'thompson'"),
        (("--methods", "epsilon-first-many"), "got 'epsilon-first-many'"),
        (("--methods", "epsilon-first-0"), "length must be a whole number of at least 1, got 0"),
        (("--methods", ","), "methods must name at least one"),
        (("--horizon", 0), "horizon must be a whole number of at least 1, got 0"),
        (("--fraction", 1.5), r"fraction must lie in \[0, 1\], got 1.5"),
        (("--methods", "random", "--plot", "a.doc", "--seeds", 1, "--horizon", 20), r"must end in \.png"),
    ],
)
def test_mistakes_name_the_rule(arguments, says):
    with pytest.raises(InvalidInput, match=says):
        wiserouter(*arguments)
