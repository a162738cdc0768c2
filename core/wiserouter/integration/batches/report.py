"""The bill of a batch: requests, costs and quality by model, what failed and why, and what is left."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from wiserouter.integration.batches.folder import BatchFolder


@dataclass
class ModelBill:
    """The bill of one model.

    Attributes
    ----------
    requests, charged, failed, open : int
        Requests that it was given, and of these that were charged, that failed, and that have no result yet.
    cost_usd, expected_usd : float, USD
        The cost of those that were charged, and what it was expected to be.
    scores : int
        Requests with a score.
    reward : float
        Sum of the scores.
    """

    requests: int = 0
    charged: int = 0
    failed: int = 0
    open: int = 0
    cost_usd: float = 0.0
    expected_usd: float = 0.0
    scores: int = 0
    reward: float = 0.0


@dataclass
class BatchReport:
    """The bill of a batch.

    Attributes
    ----------
    models : dict of str to ModelBill
        The bill of each model.
    rounds : int
        The number of rounds.
    requests, answered : int
        Requests of the batch, and those with an answer.
    errors : dict of str to int
        Number of failures by reason.
    budget_usd, spent_usd, open_usd, left_usd : float, USD
        The budget, what is spent, what requests without a result are expected to cost, and the rest.
    """

    models: dict[str, ModelBill]
    rounds: int
    requests: int
    answered: int
    errors: dict[str, int] = field(default_factory=dict)
    budget_usd: float = 0.0
    spent_usd: float = 0.0
    open_usd: float = 0.0
    left_usd: float = 0.0


def report_of(folder: BatchFolder) -> BatchReport:
    """Return the bill of a batch as it stands."""
    models, answered, sent = dict[str, ModelBill](), set[int](), folder.sent()
    errors, reasons = folder.errors(), Counter[str]()
    with folder.opened() as (router, store):
        ledger = router.account().each[0]
        for one in sent:
            record, bill = store.find(one.decision.id), models.setdefault(one.decision.model, ModelBill())
            bill.requests += 1
            if record.state == "released":
                outcome, error = errors.get(one.decision.id, ("", ""))
                bill.failed += 1
                reasons[error or outcome] += 1
            bill.open += record.state == "in flight"
            if record.state in ("charged", "presumed"):
                answered.add(one.request)
                bill.charged += 1
                bill.cost_usd += record.cost_usd or 0.0
                bill.expected_usd += one.decision.expected_cost_usd
            if record.reward is not None:
                bill.scores += 1
                bill.reward += record.reward
        left_usd = ledger.plannable_usd
        budget_usd, spent_usd, open_usd = ledger.budget.amount_usd, ledger.spent_usd, ledger.expected_usd
    requests = len({one.request for one in sent})
    return BatchReport(
        models, folder.rounds, requests, len(answered), dict(reasons), budget_usd, spent_usd, open_usd, left_usd
    )
