"""Sums that observations can add up to: where more was taken back than is left of it, what is missing is 0."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from wiserouter.types import FloatArray

TOTALS = {
    "calls": ("cost", "cost_sq"),
    "labels": ("reward", "reward_sq"),
    "scored": ("delay_s",),
    "invoked": (),
    "met": (),
    "metered": ("input_tokens", "output_tokens"),
}
"""The sums of each count: a count of 0 leaves nothing of them."""


def possible_sums(
    sums: Mapping[str, FloatArray], former: Mapping[str, FloatArray], reward: FloatArray | float = 0.0
) -> dict[str, FloatArray]:
    """Return the closest counts and sums that are at least 0 and whose mean rewards are possible.

    Parameters
    ----------
    sums : mapping of str to ndarray
        Counts, each with its sums.
    former : mapping of str to ndarray
        The same before the last change: a mean that lay beyond [0, 1], as less a predicted deviation, may do so still.
    reward : float or ndarray, default 0
        A reward that is among the new ones, or the mean of these.

    Examples
    --------
    >>> before = {name: np.array([0.5]) for name in ("labels", "reward", "reward_sq")}
    >>> after = {"labels": np.array([0.5]), "reward": np.array([-0.4]), "reward_sq": np.array([-0.4])}
    >>> possible_sums(after, before)
    {'labels': array([0.5]), 'reward': array([0.]), 'reward_sq': array([0.])}
    """
    found = {}
    for count, totals in TOTALS.items():
        if count not in sums:
            continue
        n = found[count] = np.maximum(sums[count], 0.0)
        for name in totals:
            total = sums[name]
            if name in ("cost", "reward"):
                mean = means_of(former[name], former[count])
                total = np.maximum(total, n * np.minimum(mean, np.minimum(reward, 0.0)))
                if name == "reward":
                    total = np.minimum(total, n * np.maximum(mean, np.maximum(reward, 1.0)))
            else:
                total = np.maximum(total, 0.0)
            found[name] = np.where(n > 0.0, total, 0.0)
    return found


def are_possible(sums: Mapping[str, float]) -> bool:
    """Return True if the sums of one cell are certainly possible as they are, as `possible_sums` would leave them.

    Examples
    --------
    >>> are_possible({"labels": 2.0, "reward": 1.5, "reward_sq": 1.2}), are_possible({"labels": 0.0, "reward": 0.1})
    (True, False)
    """
    labels, scored = sums.get("labels", 1.0), sums.get("scored", 1.0)
    return min(sums.values()) >= 0.0 < min(labels, scored) and sums.get("reward", 0.0) <= labels


def means_of(total: FloatArray, count: FloatArray) -> FloatArray:
    """Return the means of sums; 0 where there is no observation."""
    means: FloatArray = np.where(count > 0.0, total, 0.0) / np.where(count > 0.0, count, 1.0)
    return means
