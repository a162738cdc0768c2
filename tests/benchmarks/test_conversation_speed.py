"""Speed of the calls of conversations and runs, as ratios to single calls in one run: `uv run poe bench`."""

import time

import numpy as np
import pytest

from wiserouter import Budget, Contexts, Conversations, Estimates, Model, Price, Usage, WiseRouter, open_encoder
from wiserouter.evaluation.datasets.synthetic import make_table

N_CONTEXTS, N_MODELS, CALLS_PER_RUN, RUNS = 16, 5, 10, 280
USAGE = Usage(2_000, 300, cache_read_tokens=1_500)
TARGETS = {
    ("run", "context"): 4.0,
    ("conversation", "context"): 7.0,
    ("run", "text"): 1.5,
    ("conversation", "text"): 1.5,
}
"""The most that a call may take, in single calls, by unit and by what is given. Where the context is given, a single
call does little else than draw a model, while a turn prices every model; with text, both encode it."""


def router(unit, encoder, contexts):
    rng = np.random.default_rng(0)
    estimates = Estimates(N_CONTEXTS, N_MODELS)
    shape = (200, N_MODELS)
    estimates.add_table(rng.integers(0, N_CONTEXTS, 200), rng.random(shape), rng.lognormal(-6.0, 1.0, shape))
    models = [Model(f"m{k}", Price(1e-6 * (k + 1), 4e-6 * (k + 1), cache_read=1e-7 * (k + 1))) for k in range(N_MODELS)]
    conversations = None if unit is None else Conversations(unit=unit)
    made = WiseRouter(
        models, contexts, encoder=encoder, estimates=estimates, conversations=conversations, seed=0, watch=None
    )
    made.start(Budget(1e5, 10_000_000))
    return made


def decide_us(serving, unit, asked, run):
    """Return the times of the decisions of one conversation after its first call, each charged."""
    times = []
    for call in range(CALLS_PER_RUN):
        query = asked[(run * CALLS_PER_RUN + call) % len(asked)]
        more = {} if unit is None else {"conversation": f"c{run}"}
        start = time.perf_counter_ns()
        decision = serving.decide(**query, **more)
        took = time.perf_counter_ns() - start
        serving.charge(decision, usage=USAGE)
        if call:
            times.append(took / 1e3)
    return times


@pytest.mark.parametrize("given", ["context", "text"])
def test_decide_in_a_conversation(given):
    prompts = [prompt * 20 for prompt in make_table(500, np.random.default_rng(0)).prompts]
    encoder = open_encoder("tfidf").fit(prompts)
    contexts = Contexts.fit(np.array([encoder.encode(prompt) for prompt in prompts]), N_CONTEXTS)
    texts = [{"text": prompt[:1_000]} for prompt in prompts]
    asked = texts if given == "text" else [{"context": j % N_CONTEXTS} for j in range(64)]
    routers = {unit: router(unit, encoder, contexts) for unit in (None, "run", "conversation")}
    found = {unit: [] for unit in routers}
    for run in range(RUNS):  # in turn, so that noise affects them alike
        for unit, serving in routers.items():
            found[unit] += decide_us(serving, unit, asked, run)
    p50 = {unit: float(np.median(times)) for unit, times in found.items()}
    missed = []
    for unit in ("run", "conversation"):
        ratio, target = p50[unit] / p50[None], TARGETS[unit, given]
        name = f"decide in a {unit}, {given} given"
        note = f"{ratio:.2f}x the {p50[None]:.1f} us of a single call, target <= {target:g}x"
        print(f"\n{name:<58} {p50[unit]:>10.1f} us   {note}", end="")
        missed += [name] if ratio > target else []
    assert not missed
