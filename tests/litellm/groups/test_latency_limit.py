"""A limit on latency: a `litellm.Router` with the routing hook, the times that it measures, and a provider that waits.

Time is virtual: the provider's waits of 0.2 to 0.8 s are all that passes, on any machine.
"""

import asyncio

import litellm
import numpy as np
import pytest

from support.groups import HI
from support.providers import chat, deployment
from support.virtual_time import run_in_virtual_time
from wiserouter import Budget, Contexts, Estimates, Limit, Limits, Model, Offline, WiseRouter
from wiserouter.planning.limited_plan import Constraint, limited_plan
from wiserouter_litellm import attach

WAIT_S = {"small": 0.2, "middle": 0.5, "large": 0.8}
REWARD = {"small": 0.3, "middle": 0.7, "large": 0.9}
LIMIT_S, AT_A_TIME, CALLS = 0.6, 20, 1_500


class Provider(litellm.CustomLLM):
    """Answers after the time of its model, give or take 30 %."""

    def __init__(self):
        super().__init__()
        self.rng = np.random.default_rng(0)

    async def acompletion(self, model, *_, **__):
        await asyncio.sleep(WAIT_S[model] * self.rng.uniform(0.7, 1.3))
        return litellm.ModelResponse(**chat(model))


def waiting(name):
    """Return a deployment of the provider."""
    row = deployment(name)
    row["litellm_params"] |= {"model": f"waiting/{name}"}
    del row["litellm_params"]["api_base"]
    return row


def learned():
    """Return a router that knows the rewards, and the waits of the provider as priors."""
    estimates = Estimates(1, len(WAIT_S))
    estimates.add_table(np.zeros(50, dtype=int), [[*REWARD.values()]] * 50, [[1e-4] * len(WAIT_S)] * 50)
    models = [Model(name, resources={"latency_s": wait_s}) for name, wait_s in WAIT_S.items()]
    return WiseRouter(models, Contexts.single(), estimates=estimates, policy=Offline(), seed=0, watch=None)


def best_reward(mean_s, mean_limit_s):
    """Return the optimum of the linear program at these mean latencies."""
    limit = Constraint("latency_s", np.array([mean_s]), mean_limit_s)
    return limited_plan(np.ones(1), np.array([[*REWARD.values()]]), [limit]).value


async def served(llms, calls):
    """Serve so many calls, 20 at a time."""
    left = iter(range(calls))

    async def caller():
        for _ in left:
            await llms.acompletion(model="wise", messages=HI)

    await asyncio.gather(*[caller() for _ in range(AT_A_TIME)])


@pytest.mark.slow
@pytest.mark.parametrize("start", ["warm", "cold"])
def test_measured_calls_keep_to_a_limit_at_the_best_quality(start, settled, monkeypatch):
    run_in_virtual_time(keep_to_a_limit(start, settled, monkeypatch))


async def keep_to_a_limit(start, settled, monkeypatch):
    monkeypatch.setattr(litellm, "custom_provider_map", [{"provider": "waiting", "custom_handler": Provider()}])
    router, llms = learned(), litellm.Router(model_list=[waiting(name) for name in WAIT_S], num_retries=0)
    attach(llms, "wise", router=router, budget=Budget(100.0, 10_000))
    if start == "warm":
        await served(llms, 2 * AT_A_TIME)
        await settled(lambda: router.status().charged == 2 * AT_A_TIME)
    calls, charge = [], router.charge

    def noted(*arguments, resources, **more):
        calls.append((more["model"], resources["latency_s"]))
        return charge(*arguments, resources=resources, **more)

    monkeypatch.setattr(router, "charge", noted)
    router.set_limits(Limits({"latency_s": Limit(mean=LIMIT_S)}))
    await served(llms, CALLS)
    await settled(lambda: len(calls) == CALLS)
    used_s = np.array([latency_s for _, latency_s in calls])
    of_model = {name: [s for model, s in calls if model == name] for name in WAIT_S}
    mean_s = [np.mean(of_model[name]) if of_model[name] else WAIT_S[name] for name in WAIT_S]
    quality = np.mean([REWARD[name] for name, _ in calls]) / best_reward(mean_s, LIMIT_S)
    means = ", ".join(f"{n:,}: {used_s[:n].mean() / LIMIT_S:.4f}" for n in (100, 300, CALLS))
    waits = ", ".join(f"{name} {s:.3f} s ({len(of_model[name])})" for name, s in zip(WAIT_S, mean_s, strict=True))
    print(f"\n{start}: mean over the limit after {means}; quality over the optimum {quality:.4f}; {waits}")
    assert used_s.mean() / LIMIT_S == pytest.approx(1.0, abs=0.02)
    assert quality >= 0.99
