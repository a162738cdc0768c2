"""A limit on the mean latency of calls that run at the same time, by a simulated clock: no sleeping, no real time.

The provider takes 20 or 200 ms. A call reports when it ends, so that the fast ones of those that were begun together
report first.
"""

import heapq

import numpy as np
import pytest

from support.groups import fitted
from wiserouter import Budget, Contexts, Limit, Limits, Model, Offline, WiseRouter

SLEEP_S = {"small": 0.02, "large": 0.2}
LIMIT_S = 0.1


def mean_s(at_a_time: int, seed: int, n: int = 1_000, prior: float = 1.0, cold_s: float = 0.0) -> float:
    """Serve calls, so many at a time, and return their mean latency; the first ones may take longer."""
    models = [Model(name, resources={"latency_s": prior * s}) for name, s in SLEEP_S.items()]
    router = WiseRouter(models, Contexts.single(), estimates=fitted().estimates, policy=Offline(), seed=seed)
    router.start(Budget(100.0, 10_000))
    router.set_limits(Limits({"latency_s": Limit(mean=LIMIT_S)}))
    rng, running, begun, used, now_s = np.random.default_rng(seed), [], 0, 0.0, 0.0
    while begun < n or running:
        while begun < n and len(running) < at_a_time:
            decision = router.decide("hi")
            taken_s = SLEEP_S[decision.model] + 0.004 + rng.exponential(0.002) + (cold_s if begun < at_a_time else 0.0)
            heapq.heappush(running, (now_s + taken_s, begun, decision, taken_s))
            begun += 1
        now_s, _, decision, taken_s = heapq.heappop(running)
        router.charge(decision, 0.001, resources={"latency_s": taken_s})
        used += taken_s
    return used / n


CASES = [pytest.param(50, 1.0), *[pytest.param(n, 1.0, marks=pytest.mark.slow) for n in (1, 5, 20)]]
CASES += [pytest.param(n, 0.5, marks=pytest.mark.slow) for n in (1, 5, 20, 50)]


@pytest.mark.parametrize(("at_a_time", "prior"), CASES)
def test_the_mean_of_a_thousand_calls_is_within_two_percent_of_the_limit(at_a_time, prior):
    means = [mean_s(at_a_time, seed, prior=prior) / LIMIT_S for seed in range(4)]
    print(
        f"\n{at_a_time:>3} at a time, priors {prior} of the truth: {', '.join(f'{mean:.4f}' for mean in means)}", end=""
    )
    assert means == pytest.approx([1.0] * 4, abs=0.02)
    assert np.mean(means) == pytest.approx(1.0, abs=0.01)


COLD = [(20, 0.5, 1.0), (20, 1.0, 1.0), (50, 0.5, 1.0), (20, 1.0, 0.5), (50, 0.5, 0.5)]


@pytest.mark.parametrize(
    ("at_a_time", "cold_s", "prior"), [COLD[0], *[pytest.param(*one, marks=pytest.mark.slow) for one in COLD[1:]]]
)
def test_a_cold_start_of_many_calls_is_made_up_for(at_a_time, cold_s, prior):
    """The first calls take 5 to 10 times the limit longer, and are up to a fifth of all use."""
    means = [mean_s(at_a_time, seed, prior=prior, cold_s=cold_s) / LIMIT_S for seed in range(4)]
    print(
        f"\n{at_a_time:>3} at a time, the first {cold_s} s slower, priors {prior} of the truth: "
        f"{', '.join(f'{mean:.4f}' for mean in means)}",
        end="",
    )
    assert means == pytest.approx([1.0] * 4, abs=0.02)
    assert np.mean(means) == pytest.approx(1.0, abs=0.01)


def test_an_excess_that_is_longer_than_the_window_is_not_forgiven():
    assert mean_s(50, 0, n=2_000, cold_s=1.0) / LIMIT_S == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("seed", [pytest.param(0), *[pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3)]])
def test_a_cold_start_does_not_keep_the_fast_model_out(seed):
    assert mean_s(5, seed, cold_s=1.0) / LIMIT_S == pytest.approx(1.0, abs=0.03)
