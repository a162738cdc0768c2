"""The summary of one method over all seeds: means, standard errors, curves, and the slope of its regret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from wiserouter.evaluation.simulation.score import RunScore
from wiserouter.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class MethodSummary:
    """The scores of one method at one horizon."""

    scores: Sequence[RunScore]

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.scores[0].method

    @property
    def horizon(self) -> int:
        """Number of requests."""
        return self.scores[0].horizon

    @property
    def steps(self) -> IntArray:
        """The checkpoints of the curves."""
        return self.scores[0].steps

    @property
    def amortized_regret(self) -> FloatArray:
        """Mean regret per request so far, at each checkpoint."""
        return _mean([each.amortized_regret for each in self.scores])

    @property
    def spend_usd(self) -> FloatArray:
        """Mean spend so far, at each checkpoint."""
        return _mean([each.spend_by_step_usd for each in self.scores])

    @property
    def budget_usd(self) -> float:
        """Mean budget."""
        return float(np.mean([each.budget_usd for each in self.scores]))

    def of(self, figure: str) -> FloatArray:
        """Return one figure per seed: "reward_ratio", "regret", "spend_ratio" or "served"."""
        return np.array([getattr(each, figure) for each in self.scores])

    def mean(self, figure: str) -> float:
        """Return the mean of a figure."""
        return float(self.of(figure).mean())

    def standard_error(self, figure: str) -> float | None:
        """Return the standard error of that mean; None with one seed."""
        n = len(self.scores)
        return None if n == 1 else float(self.of(figure).std(ddof=1) / np.sqrt(n))

    def as_dict(self) -> dict[str, Any]:
        """Return all figures for JSON: means, standard errors, the figures of each seed and the curves."""
        figures = ("reward_ratio", "regret", "spend_ratio", "served")
        return {
            "method": self.method,
            "horizon": self.horizon,
            "seeds": len(self.scores),
            **{figure: self.mean(figure) for figure in figures},
            "reward_ratio_se": self.standard_error("reward_ratio"),
            "regret_se": self.standard_error("regret"),
            "spend_ratio_max": float(self.of("spend_ratio").max()),
            "budget_usd": self.budget_usd,
            "per_seed": {
                "seed": [each.seed for each in self.scores],
                **{figure: self.of(figure).tolist() for figure in figures},
            },
            "curves": {
                "step": self.steps.tolist(),
                "amortized_regret": self.amortized_regret.tolist(),
                "spend_usd": self.spend_usd.tolist(),
            },
        }


def summarise(scores: Sequence[RunScore]) -> list[MethodSummary]:
    """Return one summary per horizon and method, in the order of the scores."""
    order = {key: i for i, key in enumerate(dict.fromkeys(map(_key, scores)))}
    ordered = sorted(scores, key=lambda each: order[_key(each)])
    return [MethodSummary(list(group)) for _, group in groupby(ordered, key=_key)]


def slopes(summaries: Sequence[MethodSummary]) -> dict[str, float | None]:
    """Return by method the slope of log amortized regret over log horizon, or None without one.

    Regret that grows as the square root of T has slope -0.5, constant regret -1. A mean regret of at most 0 has no
    logarithm, and one horizon has no slope.
    """
    by_method: dict[str, list[MethodSummary]] = {}
    for each in summaries:
        by_method.setdefault(each.method, []).append(each)
    return {method: _slope(each) for method, each in by_method.items()}


def _slope(summaries: list[MethodSummary]) -> float | None:
    horizon = np.array([each.horizon for each in summaries], dtype=np.float64)
    regret = np.array([each.mean("regret") for each in summaries]) / horizon
    if len(set(horizon)) == 1 or regret.min() <= 0.0:
        return None
    return float(np.polyfit(np.log(horizon), np.log(regret), 1)[0])


def _key(score: RunScore) -> tuple[int, str]:
    return score.horizon, score.method


def _mean(curves: list[FloatArray]) -> FloatArray:
    mean: FloatArray = np.mean(curves, axis=0)
    return mean
