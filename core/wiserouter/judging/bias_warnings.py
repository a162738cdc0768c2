r"""Tests of a judge for a bias toward cheap models, and for scores that are all the same.

Two tests, each repeated as scores come in, and each one-sided at `BIAS_Z` standard errors:

- *Of the pairs*: where people rate models alike, the judge rates expensive ones lower. It needs people's scores, and
  says that the judge is biased.
- *Of the prices*: over all its scores, the judge rates expensive models lower than cheap ones. It needs no people, and
  has far more scores. Expensive models may in fact be worse here, which the warning says; where people's scores show
  that, it is not given.

Each of the two is repeated after 5 % more scores: at an interval that grows in proportion, few tests are made in all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from wiserouter.judging.agreement import BIAS_Z, PRIOR_SPREAD, Agreement, is_below

FEWEST_PAIRS = 12
"""Pairs before the first test of them."""

FEWEST_JUDGED = 100
"""Scores before the first test against the prices."""


class PairBias(NamedTuple):
    """The bias that the pairs alone show, and its standard error."""

    bias: float
    error: float


def bias_of_pairs(agreement: Agreement, places: Mapping[str, float]) -> PairBias | None:
    """Return the bias without the prior's pull to 0; None where there are too few pairs, or of one price alone."""
    if agreement.pairs < FEWEST_PAIRS:
        return None
    found = agreement.correction(places)
    weight = 1.0 - (found.bias_se / PRIOR_SPREAD[2]) ** 2
    return PairBias(found.bias / weight, found.bias_se / math.sqrt(weight)) if weight > 0.0 else None


def bias_warning(source: str, agreement: Agreement, places: Mapping[str, float]) -> str | None:
    """Return a line on a judge that prefers cheap models where people do not; None where the pairs do not show that."""
    found = bias_of_pairs(agreement, places)
    if found is None or not is_below(found.bias, found.error):
        return None
    return (
        f"{source} rates the most expensive model {-found.bias:.2f} lower than the cheapest one where people rate them "
        f"alike (s.e. {found.error:.2f}, {agreement.pairs:,} calls scored by both): its scores are corrected by a part "
        f"of that; a better judge, or more scores by people, would help"
    )


def same_score_warning(source: str, agreement: Agreement) -> str | None:
    """Return a line on a judge that gave all calls of several models one score; None where there are few of them."""
    only = agreement.only_score if agreement.judged >= FEWEST_JUDGED else None
    if only is None:
        return None
    return (
        f"{source} gave each of {agreement.judged:,} calls the score {only:.2f}, which shows no difference between "
        f"models: where some of these answers are worse than others, a stricter judge, or scores by people, would help"
    )


def price_warning(source: str, agreement: Agreement, places: Mapping[str, float]) -> str | None:
    """Return a line on a judge whose scores fall as prices rise; None where they do not, or people's fall, too."""
    if agreement.judged < FEWEST_JUDGED:
        return None
    slope, error = agreement.price_slope(places)
    if not is_below(slope, error):
        return None
    pairs = bias_of_pairs(agreement, places)
    if pairs is not None and pairs.bias - BIAS_Z * pairs.error > slope:
        return None
    return (
        f"{source} rates the most expensive model {-slope:.2f} lower than the cheapest one (s.e. {error:.2f}, "
        f"{agreement.judged:,} calls): either it is worth less here, or the judge prefers cheap models; until people "
        f"have scored some judged calls of both, prices decide between them"
    )
