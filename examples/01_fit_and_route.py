"""Learn from a log of past calls, then route a workload under one budget."""

import numpy as np

from wiserouter import Budget, RoutingLog, WiseRouter
from wiserouter.evaluation.datasets.synthetic import make_table

rng = np.random.default_rng(0)
past, live = make_table(1_000, rng), make_table(500, rng)  # stand-ins for your log and your traffic

log = RoutingLog.from_arrays(past.prompts, past.reward, past.cost_usd, past.models)  # or RoutingLog.read("log.parquet")
router = WiseRouter.fit(log, n_contexts=12, seed=0)

router.start(Budget(amount_usd=0.70, horizon=len(live.prompts), on_exhausted="cheapest"))
for prompt, rewards, costs in zip(live.prompts, live.reward, live.cost_usd, strict=True):
    decision = router.decide(prompt)
    k = live.models.index(decision.model)  # call the model here: its answer has a cost ...
    router.charge(decision, float(costs[k]))
    router.reward(decision, float(rewards[k]))  # ... and perhaps, later, a score

status = router.status()
print(f"spent {status.spent_usd:.4f} of {status.amount_usd:.4f} USD on {status.charged} calls")
assert status.spent_usd <= status.amount_usd * 1.02
