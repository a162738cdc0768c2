"""Several targets on one log, evaluated by several workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from wiserouter.evaluation.errors import ThinOverlap
from wiserouter.evaluation.off_policy.evaluate import Evaluation, OutcomeName, evaluate
from wiserouter.evaluation.off_policy.logged_decisions import Decisions
from wiserouter.parallel.shared import Shared
from wiserouter.parallel.tasks import run_in_order
from wiserouter.types import FloatArray

Result = Evaluation | ThinOverlap | None
"""The figures; the refusal where the log has too few of a target's choices; None where no decision has the outcome."""


def evaluate_each(
    decisions: Decisions,
    targets: Sequence[FloatArray],
    *,
    n_jobs: int | None = None,
) -> Iterator[dict[OutcomeName, Result]]:
    """Yield the rewards and the costs of each target, in their order.

    Parameters
    ----------
    decisions : Decisions
        The logged decisions.
    targets : sequence of ndarray of shape (n, K + 1)
        As in `evaluate`.
    n_jobs : int, optional
        Number of workers, or -1 for all, on any backend of joblib; it changes no figure.

    Raises
    ------
    InvalidInput
        If the shape of a target is wrong.
    """
    yield from run_in_order(partial(_evaluated, Shared(decisions)), targets, n_jobs=n_jobs)


def _evaluated(decisions: Shared[Decisions], target: FloatArray) -> dict[OutcomeName, Result]:
    return {"reward": _one(decisions.value, target, "reward"), "cost_usd": _one(decisions.value, target, "cost_usd")}


def _one(decisions: Decisions, target: FloatArray, outcome: OutcomeName) -> Result:
    if not decisions.has_outcome(outcome):
        return None
    try:
        return evaluate(decisions, target, outcome)
    except ThinOverlap as refusal:
        return refusal
