"""What speaks against the scores that a router has learned from, for the status and for explanations."""

from __future__ import annotations

from wiserouter.routing.learner import Learner

FEWEST_FAILURES = 20.0
"""Scores, all of them 0, from which on a status says so."""


def score_warnings(learner: Learner) -> tuple[str, ...]:
    """Return the warnings on judges, and that on scores of failures alone."""
    estimates = learner.estimates
    return (*learner.agreements.lines(), *_only_failures(float(estimates.labels.sum()), float(estimates.reward.sum())))


def _only_failures(scores: float, total: float) -> tuple[str, ...]:
    """Return a line where all scores are 0; none where they are few.

    Examples
    --------
    >>> [len(_only_failures(*figures)) for figures in ((19.0, 0.0), (20.0, 0.0), (20.0, 0.5))]
    [0, 1, 0]
    """
    if scores < FEWEST_FAILURES or total > 0.0:
        return ()
    return (
        f"all {scores:,.0f} scores are 0, as where failures alone are scored: silence is no score, so a model that "
        f"seldom fails looks as bad as one that always does; let people or a judge score a share of the other answers",
    )
