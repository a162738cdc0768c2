"""Use your own embedding model: any callable from a list of texts to an array, or existing embeddings."""

from itertools import pairwise

import numpy as np

from wiserouter import Budget, RoutingLog, WiseRouter
from wiserouter.evaluation.datasets.synthetic import make_table


def embed(texts: list[str]) -> np.ndarray:
    """Stand in for an embedding service: counts of letter pairs."""
    pairs = [np.bincount([(ord(a) * 31 + ord(b)) % 64 for a, b in pairwise(text)], minlength=64) for text in texts]
    return np.array(pairs, dtype=np.float32)


past = make_table(600, np.random.default_rng(0))
log = RoutingLog.from_arrays(past.prompts, past.reward, past.cost_usd, past.models)
router = WiseRouter.fit(log, encoder=embed, n_contexts=8, seed=0)
router.start(Budget(amount_usd=0.10, horizon=100))

text = "refactor the typescript class behind the login page"
by_text = router.decide(text)
by_embedding = router.decide(embedding=embed([text])[0])  # skips the encoder: embeddings computed elsewhere
print(f"context {by_text.context}: {by_text.model}, expected reward {by_text.expected_reward:.2f}")
assert by_text.context == by_embedding.context
