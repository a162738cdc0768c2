"""Start from a price list alone: learn the models' strengths while serving, from the same budget."""

import numpy as np

from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter.evaluation.datasets.synthetic import KINDS, PRICES, simulated_models

rng = np.random.default_rng(0)
models = simulated_models(rng)
pool = [Model(name, price, max_output_tokens=4_096) for name, price in PRICES.items()]
router = WiseRouter(pool, seed=0)  # without history the policy is Optimistic()

router.start(Budget(amount_usd=3.0, horizon=2_000, on_exhausted="cheapest"))  # the last few go to the cheapest
rewards = []
for t, kind in enumerate(rng.choice(list(KINDS), size=2_000, p=[kind.share for kind in KINDS.values()])):
    decision = router.decide()  # one context: no prompt, no embedding needed
    reward, usage = models.call(decision.model, kind, input_tokens=80)
    router.charge(decision, usage=usage)  # tokens become USD by the model's price
    router.reward(decision, reward)
    rewards.append(reward)
    if t == 1_000:  # a price changes: the plan follows at once, and keeps its observations
        router.update_model(Model("max", Price(input=3e-6, output=1.5e-5), max_output_tokens=4_096))

status = router.status()
print(f"first 200: {np.mean(rewards[:200]):.2f} correct, last 1,000: {np.mean(rewards[1_000:]):.2f} correct")
print(f"spent {status.spent_usd:.3f} of {status.amount_usd:.2f} USD; plan: {status.mix}")
assert status.spent_usd <= status.amount_usd * 1.02
