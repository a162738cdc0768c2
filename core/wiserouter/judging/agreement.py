r"""How far a judge agrees with people, and the correction that follows.

Where people have scored a judged call, its pair of scores counts. Over the pairs, a judge's score is taken to be

    judge = a + b person + c x_k + noise

where `x_k` in [-1/2, 1/2] is the place of the model between the cheapest and the most expensive one, by the logarithm
of the price. `c` is the judge's bias: below 0, it prefers cheap models. A score is learned as

    (judge - a - c x_k) / b

whose mean over the calls of a model is that of the people's scores. The three are drawn to a judge that agrees (a = 0,
b = 1, c = 0) by a normal prior, so that few pairs change little (Bayesian linear regression with known noise).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wiserouter.errors import InvalidInput
from wiserouter.learning.random_effects import SLOPE
from wiserouter.learning.source_scores import check_source
from wiserouter.types import FloatArray

PRIOR_MEAN = (0.0, 1.0, 0.0)
PRIOR_SPREAD = (0.1, 0.15, 0.15)
"""Standard deviations of a, b and c over judges."""

FALL_SPREAD = 0.6
"""Standard deviation of the bias where a judge's scores fall as prices rise and people have not said why."""

BIAS_Z = 2.3
"""Standard errors by which a bias must lie below 0 to be reported."""

HARMLESS_BIAS = 0.05
"""A smaller bias does no harm that is worth a warning."""

LEAST_SLOPE = 0.4
"""A smaller b is a judge that knows nothing; its scores are not stretched further."""

NOISE, NOISE_PAIRS = 0.16, 10.0
"""Variance of a judge's scores around the line before any pair, and the number of pairs that this counts as."""

FIELDS = ("pairs", "judge", "person", "judge_sq", "person_sq", "product", "distance", "judged", "all", "all_sq")
"""Sums over the pairs of a judge and a model, and over all of the judge's scores of that model: their number, sum and
sum of squares."""

SAME_PLACE = 1e-9
"""Sum of squared distances of places, or variance of scores, that is 0 but for rounding."""

_PAIR_FIELDS = FIELDS.index("judged")


class Correction(NamedTuple):
    """The line of a judge, with the standard error of its bias."""

    offset: float = 0.0
    slope: float = 1.0
    bias: float = 0.0
    bias_se: float = math.inf

    def applied(self, score: float, place: float) -> float:
        """Return a score as it is learned, for a model at a place between the cheapest and the most expensive one."""
        return (score - self.offset - self.bias * place) / max(self.slope, LEAST_SLOPE)


@dataclass(frozen=True, slots=True)
class ModelAgreement:
    """The agreement of a judge with people on one model: pairs, 1 - mean distance, mean of judge less person."""

    pairs: int
    agreement: float
    difference: float


class Agreement:
    """The pairs of scores of one judge and people, as sums by the name of the model.

    Examples
    --------
    >>> agreement = Agreement()
    >>> agreement.add("small", judge=1.0, person=1.0)
    >>> agreement.add("small", judge=0.0, person=1.0)
    >>> agreement.of_models()["small"]
    ModelAgreement(pairs=2, agreement=0.5, difference=-0.5)
    """

    def __init__(self, sums: Mapping[str, Sequence[float]] | None = None) -> None:
        self._sums = {name: np.array(each, dtype=np.float64) for name, each in (sums or {}).items()}

    def add(self, model: str, judge: float, person: float, count: int = 1) -> None:
        """Count a pair, or take one back with `count=-1`."""
        figures = (1.0, judge, person, judge * judge, person * person, judge * person, abs(judge - person))
        self._change(model, slice(None, _PAIR_FIELDS), count, figures)

    def add_judged(self, model: str, judge: float, count: int = 1) -> None:
        """Count a score of the judge, paired or not, or take one back with `count=-1`."""
        self._change(model, slice(_PAIR_FIELDS, None), count, (1.0, judge, judge * judge))

    def _change(self, model: str, fields: slice, count: int, figures: tuple[float, ...]) -> None:
        self._sums.setdefault(model, np.zeros(len(FIELDS)))[fields] += count * np.array(figures)

    @property
    def judged(self) -> int:
        """Number of scores of the judge."""
        return round(sum(float(each[_PAIR_FIELDS]) for each in self._sums.values()))

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return round(sum(float(each[0]) for each in self._sums.values()))

    @property
    def share(self) -> float | None:
        """1 less the mean distance of the two scores; None without a pair."""
        return 1.0 - sum(float(each[6]) for each in self._sums.values()) / self.pairs if self.pairs else None

    @property
    def only_score(self) -> float | None:
        """The score that the judge gave each of its calls, of two models or more; None for other scores."""
        of_all = [each[_PAIR_FIELDS:] for each in self._sums.values() if each[_PAIR_FIELDS] >= 1.0]
        if len(of_all) < 2:
            return None
        n, total, squares = np.sum(of_all, axis=0)
        return float(total / n) if squares / n - (total / n) ** 2 <= SAME_PLACE else None

    def of_models(self) -> dict[str, ModelAgreement]:
        """Return the agreement on each model that has a pair."""
        return {
            name: ModelAgreement(round(n), float(1.0 - distance / n), float((judge - person) / n))
            for name, (n, judge, person, _, _, _, distance, *_) in self._sums.items()
            if n >= 1
        }

    def sums(self) -> dict[str, list[float]]:
        """Return the sums by model, each in the order of `FIELDS`."""
        return {name: each.tolist() for name, each in self._sums.items()}

    def correction(self, places: Mapping[str, float]) -> Correction:
        """Return the line of the judge.

        Parameters
        ----------
        places : mapping of str to float
            The place of each model between the cheapest and the most expensive one, in [-1/2, 1/2].
        """
        if not self.pairs:
            return Correction()
        moments, target, squares = self._moments(places)
        mean, precision = np.array(PRIOR_MEAN), np.diag([1.0 / sd**2 for sd in PRIOR_SPREAD])
        line, noise = mean, NOISE
        for _ in range(3):  # the noise follows from the line, which hardly depends on it
            line = np.linalg.solve(precision + moments / noise, precision @ mean + target / noise)
            left = max(squares - 2.0 * line @ target + line @ moments @ line, 0.0)
            noise = (NOISE_PAIRS * NOISE + left) / (NOISE_PAIRS + self.pairs)
        error = math.sqrt(np.linalg.inv(precision + moments / noise)[2, 2])
        offset, slope, bias = line.tolist()
        return Correction(offset, slope, bias, error)

    def cautious_correction(self, places: Mapping[str, float], rise: float = 0.0) -> Correction:
        """Return the line of the judge, where scores that fall as prices rise count as bias until people say otherwise.

        That expensive models are better is expected before any score. A slope of the judge's scores below its bias by
        the pairs therefore moves the bias toward it, in proportion to the variances of the two (a Kalman update on one
        side): nearly in full where people have scored nothing, and not at all where they have scored many of the calls.
        Scores that fall by more than chance say nothing of prices: they are corrected to the rise that is expected.

        Parameters
        ----------
        places : mapping of str to float
            The place of each model between the cheapest and the most expensive one, in [-1/2, 1/2].
        rise : float, default 0
            Reward by which the most expensive model is expected to be better than the cheapest one (`rise_of`).
        """
        found, (slope, error) = self.correction(places), self.price_slope(places)
        unbiased = found.slope * rise if is_below(slope, error) else 0.0
        # the precision of the pairs alone, without that of judges in general, which are rarely biased
        of_pairs = max(1.0 / found.bias_se**2 - 1.0 / PRIOR_SPREAD[2] ** 2, 0.0)
        variance = 1.0 / (1.0 / FALL_SPREAD**2 + of_pairs)
        further = min(slope - unbiased - found.bias, 0.0) * variance / (variance + error**2)
        return found._replace(bias=found.bias + further)

    def price_slope(self, places: Mapping[str, float]) -> tuple[float, float]:
        """Return the rise of the judge's scores from the cheapest to the most expensive model, and its standard error.

        The slope of the least-squares line of all its scores over the places of their models; with an infinite error
        where the models of one place alone were judged.
        """
        x = np.array([places.get(name, 0.0) for name in self._sums])
        n, total, squares = np.array([each[_PAIR_FIELDS:] for each in self._sums.values()]).reshape(-1, 3).T
        if n.sum() <= 2.0:
            return 0.0, math.inf
        middle, level = n @ x / n.sum(), total.sum() / n.sum()
        spread = float(n @ (x - middle) ** 2)
        if spread <= SAME_PLACE:
            return 0.0, math.inf
        slope = float((x - middle) @ total) / spread
        left = float(squares.sum()) - n.sum() * level**2 - slope**2 * spread
        noise = (NOISE_PAIRS * NOISE + max(left, 0.0)) / (NOISE_PAIRS + n.sum())
        return slope, math.sqrt(noise / spread)

    def _moments(self, places: Mapping[str, float]) -> tuple[FloatArray, FloatArray, float]:
        """Return X'X, X'y and y'y of the regression of the judge's scores on 1, the person's and the place."""
        moments, target, squares = np.zeros((3, 3)), np.zeros(3), 0.0
        for name, (n, judge, person, judge_sq, person_sq, product, *_) in self._sums.items():
            x = places.get(name, 0.0)
            moments += [[n, person, n * x], [person, person_sq, person * x], [n * x, person * x, n * x * x]]
            target += [judge, product, judge * x]
            squares += judge_sq
        return moments, target, squares


def is_below(bias: float, error: float) -> bool:
    """Return True if a bias lies below 0 by more than chance, and does harm."""
    return bias < -HARMLESS_BIAS and bias < -BIAS_Z * error


def checked_sums(sums: object) -> dict[str, dict[str, list[float]]]:
    """Return sums by source and model as they were saved; raise `InvalidInput` if they are none."""
    if not isinstance(sums, dict):
        raise InvalidInput(f"agreements must be sums by source and model, got {type(sums).__name__}")
    for source, of_models in sums.items():
        check_source(source)
        rows = of_models.values() if isinstance(of_models, dict) else [None]
        if not all(isinstance(row, list) and len(row) == len(FIELDS) and all(map(_is_sum, row)) for row in rows):
            raise InvalidInput(f"the agreements of {source} must be {len(FIELDS)} finite sums for each model")
    return sums


def _is_sum(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def places_of(costs_usd: Mapping[str, float]) -> dict[str, float]:
    """Return the place of each model between the cheapest (-1/2) and the most expensive one (1/2), by log price.

    Examples
    --------
    >>> places_of({"small": 0.01, "medium": 0.1, "large": 1.0})
    {'small': -0.5, 'medium': 0.0, 'large': 0.5}
    """
    logs = _log_prices(costs_usd)
    low, high = min(logs.values(), default=0.0), max(logs.values(), default=0.0)
    return {name: (log - low) / (high - low) - 0.5 if high > low else 0.0 for name, log in logs.items()}


def rise_of(costs_usd: Mapping[str, float]) -> float:
    """Return the reward by which the most expensive model is expected to be better than the cheapest one.

    Examples
    --------
    >>> round(rise_of({"small": 0.01, "medium": 0.1, "large": 1.0}), 3)
    0.184
    """
    logs = _log_prices(costs_usd).values()
    return SLOPE * (max(logs, default=0.0) - min(logs, default=0.0))


def _log_prices(costs_usd: Mapping[str, float]) -> dict[str, float]:
    return {name: math.log(usd) for name, usd in costs_usd.items() if usd > 0.0 and math.isfinite(usd)}
