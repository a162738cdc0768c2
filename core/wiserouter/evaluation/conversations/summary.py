"""The summary of a simulation: each policy at each budget, over all seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wiserouter.evaluation.conversations.equal_spend import quality_at
from wiserouter.evaluation.conversations.experiment import ConversationScore
from wiserouter.types import FloatArray


class PolicySummary(NamedTuple):
    """One policy over all seeds; arrays of shape (n_seeds, n_budgets).

    Attributes
    ----------
    policy : str
        Its name.
    budget_usd : ndarray
        The budgets per conversation.
    quality, at_budget : ndarray
        Quality as measured, and at a spend that equals the budget.
    spend_ratio, waste : ndarray
        Spend over budget, and waste over spend.
    switches : ndarray
        Changes of the model per conversation.
    """

    policy: str
    budget_usd: FloatArray
    quality: FloatArray
    at_budget: FloatArray
    spend_ratio: FloatArray
    waste: FloatArray
    switches: FloatArray

    def gain_over(self, other: PolicySummary) -> tuple[FloatArray, float, float | None]:
        """Return the gain at equal spend per budget, its mean, and the standard error of that over the seeds."""
        gain = self.at_budget - other.at_budget
        return gain.mean(axis=0), float(gain.mean()), _standard_error(gain.mean(axis=1))

    def as_dict(self) -> dict[str, Any]:
        """Return the means over the seeds, for JSON, with the figures of each seed."""
        figures = self._asdict()
        del figures["policy"]
        return {
            "policy": self.policy,
            "seeds": len(self.quality),
            **{name: values.mean(axis=0).tolist() for name, values in figures.items()},
            "at_budget_se": [_standard_error(column) for column in self.at_budget.T],
            "per_seed": {name: values.tolist() for name, values in figures.items()},
        }


def summarise_policies(scores: Sequence[ConversationScore]) -> list[PolicySummary]:
    """Return one summary per policy, in the order of the scores."""
    seeds = list(dict.fromkeys(one.seed for one in scores))
    by_key = {(one.policy, one.seed, one.fraction): one for one in scores}
    fractions = list(dict.fromkeys(one.fraction for one in scores))
    policies = dict.fromkeys(one.policy for one in scores)
    return [_summary(p, [[by_key[p, seed, fraction] for fraction in fractions] for seed in seeds]) for p in policies]


def reference_of(summaries: Sequence[PolicySummary]) -> PolicySummary:
    """Return the policy that the others are compared with: `call`, or the first where that did not run."""
    return next((one for one in summaries if one.policy == "call"), summaries[0])


def _summary(policy: str, rows: list[list[ConversationScore]]) -> PolicySummary:
    at_budget = [
        quality_at(
            [one.budget_usd for one in row],
            [one.usd_per_conversation for one in row],
            [one.served.quality for one in row],
        )
        for row in rows
    ]
    return PolicySummary(
        policy,
        np.array([[one.budget_usd for one in row] for row in rows]),
        np.array([[one.served.quality for one in row] for row in rows]),
        np.array(at_budget),
        np.array([[one.spend_ratio for one in row] for row in rows]),
        np.array([[one.waste for one in row] for row in rows]),
        np.array([[one.served.switches / one.n_conversations for one in row] for row in rows]),
    )


def _standard_error(values: FloatArray) -> float | None:
    n = len(values)
    return None if n == 1 else float(np.std(values, ddof=1) / np.sqrt(n))
