"""Several targets on one log, evaluated by several workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from wiserouter.evaluation.errors import ThinOverlap
from wiserouter.evaluation.off_policy.evaluate import Evaluation, OutcomeName, evaluate
from wiserouter.evaluation.off_policy.logged_decisions import Decisions
from wiserouter.parallel import Shared, run_in_order
from wiserouter.types import FloatArray

Result = Evaluation | ThinOverlap | None
"""The figures; the refusal where the log has too few of a target's choices; None where no decision has the outcome."""


def evaluate_each(
    decisions: Decisions,
    targets: Sequence[FloatArray],
    outcomes: Sequence[OutcomeName] = ("reward", "cost_usd"),
    *,
    n_jobs: int | None = None,
) -> Iterator[dict[OutcomeName, Result]]:
    """Yield the results of each target, in their order.

    Parameters
    ----------
    decisions : Decisions
        The logged decisions.
    targets : sequence of ndarray of shape (n, K + 1)
        As in `evaluate`.
    outcomes : sequence of {"reward", "cost_usd"}
        The outcomes to estimate.
    n_jobs : int, optional
        Number of workers, or -1 for all, on any backend of joblib; it changes no figure.

    Raises
    ------
    InvalidInput
        If the shape of a target is wrong.
    """
    task = partial(_evaluated, Shared(decisions), tuple(outcomes))
    yield from run_in_order(task, targets, n_jobs=n_jobs)


def _evaluated(
    decisions: Shared[Decisions], outcomes: Sequence[OutcomeName], target: FloatArray
) -> dict[OutcomeName, Result]:
    return {outcome: _one(decisions.value, target, outcome) for outcome in outcomes}


def _one(decisions: Decisions, target: FloatArray, outcome: OutcomeName) -> Result:
    if not decisions.has_outcome(outcome):
        return None
    try:
        return evaluate(decisions, target, outcome)
    except ThinOverlap as refusal:
        return refusal
