"""The result of a judge: a score, or the better of two answers, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from wiserouter.errors import WiseRouterError
from wiserouter.validation import check_amount


class NoVerdict(WiseRouterError):
    """A judge gave no score that can be read.

    Attributes
    ----------
    cost_usd : float, USD, or None
        The cost of the judgement; None where it is unknown.
    """

    def __init__(self, message: str, cost_usd: float | None = None) -> None:
        super().__init__(message)
        self.cost_usd = cost_usd


class UnbilledFailure(Exception):
    """A judge did not answer, and that cost nothing; another attempt may succeed."""

    cost_usd = 0.0


class Verdict(NamedTuple):
    """A score in [0, 1], and the cost of the judgement in USD, None where it is unknown.

    Of two answers the score is that of the first: 1 where it is better, 0 where the second is, 0.5 for a tie.
    """

    score: float
    cost_usd: float | None = None


FIRST, SECOND, TIE = "first", "second", "tie"
_PREFERENCES = {FIRST: 1.0, SECOND: 0.0, TIE: 0.5}


def read_verdict(result: Any) -> Verdict:
    """Return the verdict that a judge's result states.

    Parameters
    ----------
    result : Verdict, float, bool, str or mapping
        A score; of two answers also "first", "second" or "tie"; or a mapping with `score` and perhaps `cost_usd`, such
        as the evaluators of openevals return. Of a list, the only item.

    Raises
    ------
    NoVerdict
        If there is no score in [0, 1] in it.

    Examples
    --------
    >>> read_verdict({"key": "correctness", "score": True, "comment": "It is."})
    Verdict(score=1.0, cost_usd=None)
    """
    if isinstance(result, list | tuple) and not isinstance(result, Verdict) and len(result) == 1:
        result = result[0]
    score, cost = result, None
    if isinstance(result, Verdict):
        score, cost = result
    elif isinstance(result, Mapping):
        score, cost = result.get("score"), result.get("cost_usd")
    cost_usd = None if cost is None else check_amount("cost_usd", cost)
    if isinstance(score, str) and score in _PREFERENCES:
        return Verdict(_PREFERENCES[score], cost_usd)
    if isinstance(score, bool | int | float | np.number | np.bool_) and 0.0 <= score <= 1.0:
        return Verdict(float(score), cost_usd)
    raise NoVerdict(f"a judge must give a score in [0, 1], got {type(score).__name__}", cost_usd)
