"""The estimates that a method starts from."""

from __future__ import annotations

from wiserouter.evaluation.baselines.base import Training
from wiserouter.learning.estimates import Estimates


def dense(training: Training) -> Estimates:
    """Return the estimates from a dense history."""
    estimates = blank(training)
    estimates.add_table(training.context_ids, *training.table())
    return estimates


def blank(training: Training) -> Estimates:
    """Return estimates without observations."""
    return Estimates(training.contexts.n_contexts, training.n_models)
