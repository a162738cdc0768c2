"""The Confidence Level Test and the lemma's exploration length, against loops written from the paper's page."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter import Budget, Contexts, EpsilonFirst, Model, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.sufficient_exploration import length_of_gaps, sufficient_length
from wiserouter.planning.policies.confidence_test import ordering_is_certain
from wiserouter.planning.policies.marginal_ratios import ratios_of


def algorithm_clt(u, c, n, delta, *, allow_skip):
    """Transcribe Algorithm CLT line by line; the null action is one more model, of radius 0."""
    H = math.log(2 / delta)
    r = [[math.sqrt(H / (2 * count)) for count in row] for row in n]
    u, c, r = ([[*row, 0.0] if allow_skip else list(row) for row in table] for table in (u, c, r))
    J, K = len(u), len(u[0])
    triples = [t for t in product(range(J), range(K), range(K)) if t[1] != t[2]]
    for (j1, k11, k12), (j2, k21, k22) in product(triples, triples):
        if not (c[j1][k11] > c[j1][k12] and c[j2][k21] > c[j2][k22]) or (j1, k11, k12) == (j2, k21, k22):
            continue
        u1, c1 = u[j1][k11] - u[j1][k12], c[j1][k11] - c[j1][k12]
        u2, c2 = u[j2][k21] - u[j2][k22], c[j2][k21] - c[j2][k22]
        du1 = dc1 = r[j1][k11] + r[j1][k12]
        du2 = dc2 = r[j2][k21] + r[j2][k22]
        Z = u1 * c2 - u2 * c1
        B = du2 * (abs(c1) + dc1) + dc1 + du1 * (abs(c2) + dc2) + dc2 + du1 * dc2 + du2 * dc1
        if abs(Z) < 2 * B:
            return False
    return True


@st.composite
def tables(draw, max_contexts=3, max_models=4):
    """Draw means of every kind, smooth and on a coarse grid, with costs up to 1."""
    shape = draw(st.integers(1, max_contexts)), draw(st.integers(1, max_models))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    reward, cost = rng.random(shape), rng.random(shape)
    if draw(st.booleans()):
        reward, cost = np.round(reward * 4) / 4, np.round(cost * 4) / 4
    cost[0, 0] = 1.0
    return reward, cost, rng


@settings(max_examples=400, deadline=None)
@given(tables(), st.floats(0.0, 12.0), st.floats(0.01, 0.99), st.booleans())
def test_the_test_equals_the_algorithm_as_printed(drawn, magnitude, delta, allow_skip):
    reward, cost, rng = drawn
    count = np.ceil(10**magnitude * rng.uniform(1, 30, size=reward.shape))
    expected = algorithm_clt(reward.tolist(), cost.tolist(), count.tolist(), delta, allow_skip=allow_skip)
    assert ordering_is_certain(reward, cost, count, delta, allow_skip=allow_skip) == expected
    assert ordering_is_certain(reward, 7.0 * cost, count, delta, cost_scale_usd=7.0, allow_skip=allow_skip) == expected


@pytest.mark.parametrize("seed", range(10))
def test_it_passes_at_the_same_count(seed):
    rng = np.random.default_rng(seed)
    reward, cost = rng.random((2, 3)), rng.random((2, 3))
    cost[0, 0] = 1.0
    spread = rng.integers(1, 50, size=(2, 3)).astype(float)

    def passes_at(certain):
        low, high = 0, 60
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if certain(spread * 2.0**middle) else (middle, high)
        return high

    printed = passes_at(lambda n: algorithm_clt(reward.tolist(), cost.tolist(), n.tolist(), 0.1, allow_skip=True))
    assert 5 < printed < 60
    assert passes_at(lambda n: ordering_is_certain(reward, cost, n, 0.1, allow_skip=True)) == printed


def all_pairs_apart(reward, cost, count, delta):
    """Test all pairs of ratios at once, without an early exit."""
    gain, spend, d = ratios_of(reward, cost, np.sqrt(np.log(2 / delta) / (2 * count)), allow_skip=False)
    z = gain[:, None] * spend - gain * spend[:, None]
    b = d[:, None] * (1 + spend) + d * (1 + spend[:, None]) + 4 * d[:, None] * d
    return bool(np.all((np.abs(z) >= 2 * b) | np.eye(len(gain), dtype=bool)))


def test_the_early_exits_do_not_change_the_answer():
    rng, answers = np.random.default_rng(3), []
    for magnitude in np.linspace(6, 20, 60):
        reward, cost = rng.random((6, 5)), rng.random((6, 5))
        cost[0, 0] = 1.0
        count = 10 ** (magnitude + rng.uniform(0, 4, size=(6, 5)))
        answers.append(all_pairs_apart(reward, cost, count, 0.1))
        assert ordering_is_certain(reward, cost, count, 0.1) == answers[-1]
    assert 5 < sum(answers) < 55


def test_a_failure_that_no_neighbours_show_is_found():
    # ratios 0, .1 and .3, spends .02, 1, .02: the first and third are the two closest ones
    reward = [[0.5, 0.5], [0.1, 0.0], [0.506, 0.5]]
    cost = [[0.02, 0.0], [1.0, 0.0], [0.02, 0.0]]
    count = np.array([[4e8, 4e8], [1e18, 1e18], [4e8, 4e8]])
    for two in (slice(0, 2), slice(1, 3)):
        assert ordering_is_certain(reward[two], cost[two], count[two], 0.1)
    assert not ordering_is_certain(reward, cost, count, 0.1)


def test_a_pair_never_seen_is_not_certain():
    reward, cost = [[0.0, 1.0], [1.0, 0.0]], [[0.01, 1.0], [0.01, 1.0]]
    count = np.full((2, 2), 1e6)
    assert ordering_is_certain(reward, cost, count, 0.1)
    count[1, 1] = 0.0
    assert not ordering_is_certain(reward, cost, count, 0.1)


def test_one_ratio_has_nothing_to_be_compared_with():
    assert ordering_is_certain([[0.2, 0.9]], [[1.0, 3.0]], [[1, 1]], 0.1)
    assert not ordering_is_certain([[0.2, 0.9]], [[1.0, 3.0]], [[1, 1]], 0.1, allow_skip=True)


def test_a_larger_scale_asks_for_more():
    reward, cost, count = [[0.0, 1.0], [1.0, 0.0]], [[0.01, 1.0], [0.01, 1.0]], np.full((2, 2), 1_000)
    assert ordering_is_certain(reward, cost, count, 0.1)
    assert ordering_is_certain(reward, cost, count, 0.1, cost_scale_usd=0.5)  # not below the largest mean
    assert not ordering_is_certain(reward, cost, count, 0.1, cost_scale_usd=100.0)


def test_ratios_too_large_for_a_float_are_compared():
    cost = [[1.0, 1e-320, 0.0], [1.0, 2e-320, 0.0]]
    assert not ordering_is_certain([[0.5, 0.9, 0.1], [0.6, 0.9, 0.1]], cost, np.full((2, 3), 1e9), 0.1)


def lemma_by_loops(u, c, freq, horizon, delta, *, allow_skip):
    """Transcribe the lemma: minima over all index tuples, equal ratios left out."""
    u, c = ([[*row, 0.0] if allow_skip else list(row) for row in table] for table in (u, c))
    J, K = len(u), len(u[0])
    pairs = [(j, a, b) for j in range(J) for a in range(K) for b in range(K) if a != b]
    cost_gap = min(abs(c[j][a] - c[j][b]) for j, a, b in pairs)
    xi = [(u[j][a] - u[j][b]) / (c[j][a] - c[j][b]) for j, a, b in pairs]
    ratio_gap = min(abs(x - y) for x in xi for y in xi if abs(x - y) > 1e-9 * max(abs(x), abs(y), 1e-3))
    L, k, rarest = cost_gap**2 * ratio_gap, K - allow_skip, min(freq)
    bound = k / ((1 - delta) * rarest)
    bound += math.log(horizon) * max(1 / delta**2, 128 * k / ((1 - delta) * rarest * L**2))
    return math.ceil(bound), cost_gap, ratio_gap


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 4), st.integers(2, 4), st.integers(0, 2**32 - 1), st.floats(0.05, 0.95), st.booleans(), st.booleans()
)
def test_the_sufficient_length_equals_the_lemma(n_contexts, n_models, seed, delta, allow_skip, coarse):
    rng = np.random.default_rng(seed)
    reward = rng.random((n_contexts, n_models))
    cost = np.array([rng.choice(np.arange(1, 9), n_models, replace=False) for _ in range(n_contexts)]) / 8
    cost[0, cost[0].argmax()] = 1.0
    reward = np.round(reward * 4) / 4 if coarse else reward
    freq = rng.dirichlet(np.full(n_contexts, 5.0))
    if np.ptp(ratios_of(reward, cost, cost, allow_skip=allow_skip).xi) < 1e-9:
        return
    found = sufficient_length(reward, cost, freq, 1_000, delta, allow_skip=allow_skip)
    length, cost_gap, ratio_gap = lemma_by_loops(
        reward.tolist(), cost.tolist(), freq.tolist(), 1_000, delta, allow_skip=allow_skip
    )
    assert (found.cost_gap, found.ratio_gap) == pytest.approx((cost_gap, ratio_gap), rel=1e-6)
    assert found.length == pytest.approx(length, rel=1e-5)
    scaled = sufficient_length(reward, 5 * cost, freq, 1_000, delta, cost_scale_usd=5.0, allow_skip=allow_skip)
    assert scaled.length == pytest.approx(length, rel=1e-5)


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-3, 1.0), st.floats(1e-3, 2.0), st.floats(0.01, 1.0), st.integers(1, 20), st.integers(2, 10**6))
def test_no_other_delta_is_shorter(cost_gap, ratio_gap, min_freq, n_models, horizon):
    gaps = {"min_freq": min_freq, "n_models": n_models, "horizon": horizon}
    best = length_of_gaps(cost_gap, ratio_gap, **gaps, delta=None)
    near = [best.delta * factor for factor in (0.9, 0.99, 1.01, 1.1)]
    for delta in [*near, *np.linspace(0.001, 0.999, 40)]:
        assert length_of_gaps(cost_gap, ratio_gap, **gaps, delta=delta).length >= best.length * (1 - 1e-9)


def explored(reward, cost, freq, length, rng):
    """Return the means after `length` requests in random contexts, models in turn, all outcomes 0 or 1."""
    count = rng.multinomial(length, freq)[:, None] // reward.shape[1]
    return rng.binomial(count, reward) / count, rng.binomial(count, cost) / count


def test_exploring_that_long_recovers_the_order():
    # the lemma leaves a wrong order in at most (4KJ + J) / T^2 = 18 of 10,000 runs
    horizon, freq, rng = 100, np.array([0.4, 0.6]), np.random.default_rng(0)
    reward, cost = np.array([[0.1, 0.9], [0.9, 0.1]]), np.array([[0.3, 0.7], [0.3, 0.7]])
    length = sufficient_length(reward, cost, freq, horizon, None, cost_scale_usd=1.0).length

    def order(u, c):
        u, c = np.pad(u, ((0, 0), (0, 1))), np.pad(c, ((0, 0), (0, 1)))
        first, second = [1, 0, 1], [0, 2, 2]  # large - small, small - null, large - null
        return np.argsort(((u[:, first] - u[:, second]) / (c[:, first] - c[:, second])).ravel()).tolist()

    def wrong(requests, runs=400):
        return sum(order(*explored(reward, cost, freq, requests, rng)) != order(reward, cost) for _ in range(runs))

    assert wrong(length) == 0
    assert wrong(length // 50_000) > 20


def test_contexts_that_never_occur_and_equal_ratios_need_no_order():
    one = sufficient_length([[0.2, 0.9]], [[0.5, 1.0]], [1.0], 100)
    assert sufficient_length([[0.2, 0.9], [0.3, 0.3]], [[0.5, 1.0], [1.0, 1.0]], [1.0, 0.0], 100) == one
    twice = sufficient_length([[0.2, 0.9]] * 2, [[0.5, 1.0]] * 2, [0.5, 0.5], 100)
    assert (twice.ratio_gap, twice.min_freq) == (one.ratio_gap, 0.5)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([[0.1, 0.2]], [[1.0, 1.0]], [1.0], 10), "two equal ones: no finite length"),
        (([[0.1, 0.2]], [[0.0, 1.0]], [1.0], 10), "the null action costs 0"),
        (([[0.5, 1.0]], [[0.5, 1.0]], [1.0], 10), "no order to learn"),
        (([[0.2, 0.9]], [[0.5, 1.0]], [1.0], 1), "horizon must be a whole number of at least 2, got 1"),
        (([[0.2, 0.9]], [[0.5, 1.0]], [1.0], 10, 1.0), "delta must lie between 0 and 1, both left out, got 1.0"),
    ],
)
def test_where_no_length_suffices(arguments, says):
    with pytest.raises(InvalidInput, match=says):
        sufficient_length(*arguments)


def test_gaps_out_of_range():
    gaps = {"min_freq": 0.1, "n_models": 3, "horizon": 100}
    with pytest.raises(InvalidInput, match="cost_gap must lie in"):
        length_of_gaps(0.0, 0.1, **gaps)
    with pytest.raises(InvalidInput, match=r"ratio_gap must lie in .* = 8"):
        length_of_gaps(0.5, 9.0, **gaps)
    with pytest.raises(InvalidInput, match="min_freq must lie in"):
        length_of_gaps(0.5, 0.1, **gaps | {"min_freq": 1.5})
    with pytest.raises(InvalidInput, match="at least two models"):
        sufficient_length([[0.5]], [[1.0]], [1.0], 10, allow_skip=False)


OPPOSITE = np.array([[0.0, 1.0], [1.0, 0.0]])  # ratios of about +1 and -1
COSTS = np.array([0.01, 1.0])


def router_of(policy):
    router = WiseRouter([Model("a"), Model("b")], Contexts(np.eye(2), [0.5, 0.5]), policy=policy, seed=0)
    router.start(Budget(1e6, 100_000))
    return router


def serve(router, requests, *, judged=True):
    """Serve the contexts in turn until the policy plans; return the number of requests decided before that."""
    for t in range(requests):
        decision = router.decide(context=t % 2)
        if router.plan is not None:
            router.release(decision)
            return t
        model = "ab".index(decision.model)
        router.charge(decision, COSTS[model])
        if judged:
            router.reward(decision, OPPOSITE[t % 2, model])
    return requests


def first_certain(delta):
    """Return the least number of requests, all pairs in turn, at which the printed algorithm passes."""
    costs = np.vstack([COSTS, COSTS]).tolist()
    n = next(n for n in range(1, 10_000) if algorithm_clt(OPPOSITE, costs, np.full((2, 2), n), delta, allow_skip=False))
    return 4 * n


@pytest.mark.parametrize("delta", [0.1, 0.5])
def test_exploration_ends_when_the_order_is_certain(delta):
    ended = serve(router_of(EpsilonFirst(confidence_delta=delta)), 2_000)
    assert first_certain(delta) <= ended <= 1.06 * first_certain(delta)


def test_exploration_ends_at_its_length_at_the_latest():
    least = first_certain(0.5)
    assert serve(router_of(EpsilonFirst(least // 2, confidence_delta=0.5)), 2_000) == least // 2
    assert serve(router_of(EpsilonFirst(10 * least, confidence_delta=0.5)), 2_000) <= 1.06 * least
    assert serve(router_of(EpsilonFirst(10 * least)), 2_000) == 2_000


def test_without_rewards_nothing_is_certain():
    assert serve(router_of(EpsilonFirst(confidence_delta=0.5)), 600, judged=False) == 600


def test_an_expensive_call_that_may_come_keeps_it_exploring():
    assert serve(router_of(EpsilonFirst(confidence_delta=0.5, cost_scale_usd=10.0)), 600) == 600


def test_two_models_in_one_context_end_at_four_each():
    router = WiseRouter([Model("a"), Model("b")], policy=EpsilonFirst(confidence_delta=0.1), seed=0)
    router.start(Budget(1e6, 1_000))
    while router.plan is None:
        decision = router.decide()
        router.charge(decision, 1.0 + (decision.model == "b"))
        router.reward(decision, 0.5)
    assert router.estimates.n_invoked == 9  # the ninth is planned


def test_the_test_is_not_made_at_every_request(monkeypatch):
    from wiserouter.planning.policies import epsilon_first

    made = []
    monkeypatch.setattr(epsilon_first, "ordering_is_certain", lambda *_, **__: made.append(1))
    serve(router_of(EpsilonFirst(confidence_delta=0.1)), 3_000)
    assert 50 < len(made) < 120  # log(6,000 / 32) / log(1.05) = 107


def test_a_saved_router_goes_on_as_it_was(tmp_path):
    router = router_of(EpsilonFirst(confidence_delta=0.5))
    ended = serve(router, 2_000)
    router.save(tmp_path / "x.wise")
    again = WiseRouter.load(tmp_path / "x.wise")
    assert again.policy.settings() == router.policy.settings()
    again.start(Budget(1e6, 1_000))
    again.decide(context=0)
    assert again.plan is not None
    assert again.estimates.n_invoked == ended + 1


def test_settings_are_checked():
    for delta in (0.0, 1.0, -0.1, float("nan"), "0.1"):
        with pytest.raises(InvalidInput, match="confidence_delta must lie between 0 and 1"):
            EpsilonFirst(confidence_delta=delta)
    with pytest.raises(InvalidInput, match="cost_scale_usd"):
        EpsilonFirst(cost_scale_usd=-1.0)
    with pytest.raises(InvalidInput, match="delta must lie between 0 and 1"):
        ordering_is_certain(OPPOSITE, OPPOSITE, OPPOSITE, 2.0)
