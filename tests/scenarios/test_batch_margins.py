"""The margin of a batch, from the log to the bill: 400 truths, each with a log of its own.

WISEROUTER_TRUTHS=1000 runs those of decision 92; -s prints the shares.
"""

import os

import numpy as np
import pytest

from wiserouter import Contexts, Estimates, Model, WiseRouter
from wiserouter.testing import TableEncoder

N_CONTEXTS, N_MODELS, QUERIES = 5, 4, 1_000
TRUTHS = int(os.environ.get("WISEROUTER_TRUTHS", "400"))
CONFIDENCES = (0.8, 0.9, 0.95, 0.99)
NAMES = [f"context {j}" for j in range(N_CONTEXTS)]


def within_budget(seed: int, calls: int) -> list[bool]:
    """Return for each confidence whether the true total stays within the budget; costs deviate by their own mean."""
    rng = np.random.default_rng(seed)
    shape = N_CONTEXTS, N_MODELS
    mean = 1e-3 * rng.uniform(0.5, 2.0, N_MODELS) * [1, 2, 5, 12] * rng.uniform(0.5, 1.5, (N_CONTEXTS, 1))
    quality = np.clip(rng.normal([0.3, 0.5, 0.65, 0.8], 0.1, shape), 0.02, 0.98)
    context, estimates = np.repeat(np.arange(N_CONTEXTS), calls), Estimates(*shape)
    rewards = (rng.random((len(context), N_MODELS)) < quality[context]).astype(float)
    estimates.add_table(context, rewards, rng.exponential(mean[context]))
    encoder = TableEncoder({name: np.eye(N_CONTEXTS)[j].tolist() for j, name in enumerate(NAMES)})
    contexts = Contexts(np.eye(N_CONTEXTS), np.full(N_CONTEXTS, 1 / N_CONTEXTS))
    models = [Model(f"m{k}") for k in range(N_MODELS)]
    router = WiseRouter(models, contexts, encoder=encoder, estimates=estimates, seed=0, watch=None)
    at = rng.integers(0, N_CONTEXTS, QUERIES)
    budget = 2.0 * estimates.means().cost_usd[at].min(axis=1).sum()
    return [
        rng.exponential(mean[at, [int(name[1:]) for name in models]]).sum() <= budget
        for models in (router.allocate([NAMES[j] for j in at], budget, confidence=one).models for one in CONFIDENCES)
    ]


@pytest.mark.slow
def test_of_truths_with_logs_of_their_own_the_stated_share_stays_within_the_budget():
    kept = np.mean([within_budget(seed, calls=100) for seed in range(TRUTHS)], axis=0)
    print("\n" + ", ".join(f"{one:g}: {share:.3f}" for one, share in zip(CONFIDENCES, kept, strict=True)), end="")
    assert (kept >= CONFIDENCES).all()
