"""Serve with a share of exploration, then estimate the outcome of other budgets and pools from the journal."""

from pathlib import Path

import numpy as np

from wiserouter import Budget, ExploreShare, RoutingLog, WiseRouter
from wiserouter.errors import ThinOverlap
from wiserouter.evaluation.datasets.synthetic import make_table
from wiserouter.evaluation.off_policy import always, at_plan, evaluate, read_decisions
from wiserouter.routing.journal_reader import JournalReader

path = Path("decisions.jsonl")
if path.exists():  # a journal is continued, and the truth is that of this run alone
    raise SystemExit(f"{path} is there: move or delete it, or run this in another folder")
rng = np.random.default_rng(0)
table = make_table(4_000, rng)  # synthetic and dense: the truth is known
past, now = table.rows(np.arange(1_000)), table.rows(np.arange(1_000, 4_000))
scored = RoutingLog.from_arrays(past.prompts, past.reward, past.cost_usd, past.models)
router = WiseRouter.fit(scored, n_contexts=6, seed=0)
router.explore = ExploreShare(0.2)  # 100 x models / share decisions suffice for any target: 2,000 here
fitted, names = router.plan, router.pool.names

journal = router.journal_to(path)
router.start(Budget(amount_usd=6.0, horizon=3_200))
for i, prompt in enumerate(now.prompts):
    decision = router.decide(prompt)
    model = names.index(decision.model)
    router.charge(decision, float(now.cost_usd[i, model]))
    if rng.random() < 0.7:  # feedback on some answers only
        router.reward(decision, float(now.reward[i, model]))
journal.close()

log = read_decisions(JournalReader(path))
targets = {f"{rate} USD per query": at_plan(log, fitted, names, rate) for rate in (0.001, 0.003, 0.004)}
targets |= {"no nano": at_plan(log, fitted, names, 0.002, without=["nano"]), "mini alone": always(log, "mini")}
for name, target in targets.items():
    try:
        reward, cost = evaluate(log, target).dr, evaluate(log, target, "cost_usd").dr
    except ThinOverlap as refusal:
        print(f"{name:>20}: refused, {refusal.left_out:.0%} left out, worth {refusal.effective:.0f} decisions")
        continue
    truth = [(target[:, :-1] * what).sum(axis=1).mean() for what in (now.reward, now.cost_usd)]
    print(
        f"{name:>20}: reward {reward.mean:.4f} [{reward.low:.4f}, {reward.high:.4f}], truth {truth[0]:.4f};"
        f" USD {cost.mean:.6f} [{cost.low:.6f}, {cost.high:.6f}], truth {truth[1]:.6f}"
    )
    assert abs(reward.mean - truth[0]) < 4 * reward.se
