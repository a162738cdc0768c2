"""Scores as people keep them: numbers of any range, booleans, thumbs and verdicts, as rewards in [0, 1]."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, Self

from wiserouter.errors import InvalidInput
from wiserouter.validation import check_finite

_GOOD = (
    *("true", "yes", "y", "up", "thumbs up", "thumbs_up", "thumbsup", "thumb_up", "👍", "like", "liked"),
    *("good", "positive", "pos", "pass", "passed", "correct", "right", "success", "resolved", "accepted", "helpful"),
)
_BAD = (
    *("false", "no", "n", "down", "thumbs down", "thumbs_down", "thumbsdown", "thumb_down", "👎", "dislike"),
    *("disliked", "bad", "negative", "neg", "fail", "failed", "incorrect", "wrong", "failure", "unresolved"),
    *("rejected", "unhelpful"),
)

WORDS: dict[str, float] = {**dict.fromkeys(_GOOD, 1.0), **dict.fromkeys(_BAD, 0.0)}
"""Verdicts in lower case, and their rewards."""

_SCALE = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*(?:\.\.|:|,|to)\s*(-?\d+(?:\.\d+)?)\s*")


class Scale(NamedTuple):
    """The worst and the best score of a scale, such as 1 and 5; the best may be the smaller number.

    Examples
    --------
    >>> Scale.parse("1..5")
    Scale(worst=1.0, best=5.0)
    >>> Scale(1, 5).reward(4)
    0.75
    """

    worst: float = 0.0
    best: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the scale that a text such as "1..5" names.

        Raises
        ------
        InvalidInput
            If it names none.
        """
        found = _SCALE.fullmatch(text)
        if found is None:
            raise InvalidInput(f"a scale must read worst..best, such as 1..5 or -1..1, got {text!r}", value=text)
        return cls(float(found[1]), float(found[2])).checked()

    @classmethod
    def of(cls, ends: Iterable[float]) -> Self:
        """Return the scale of two ends, the worst and the best; raise `InvalidInput` if there are no such ends."""
        each = tuple(ends) if isinstance(ends, Iterable) and not isinstance(ends, str) else ()
        if len(each) != 2:
            rule = "a scale must be the worst and the best score, such as (1, 5)"
            raise InvalidInput(f"{rule}, got {ends!r}", value=ends)
        return cls(*each).checked()

    def checked(self) -> Self:
        """Return the scale; raise `InvalidInput` if it has no two different, finite ends."""
        for end in self:
            check_finite("an end of a scale", end)
        if self.worst == self.best:
            raise InvalidInput(f"a scale must have two different ends, got {self.worst:g} twice", value=self.worst)
        return self

    @property
    def low(self) -> float:
        """The smaller end."""
        return min(self)

    @property
    def high(self) -> float:
        """The larger end."""
        return max(self)

    def reward(self, score: float) -> float:
        """Return the reward in [0, 1] of a score on this scale."""
        return (score - self.worst) / (self.best - self.worst)


UNIT = Scale(0.0, 1.0)
"""The scale of rewards."""


def reward_of(value: object, scale: Scale = UNIT) -> float | None:
    """Return the reward of one score, or None where it is no score of this scale.

    Parameters
    ----------
    value : object
        A number of the scale; a boolean; or a text that holds one of these or a verdict of `WORDS`.
    scale : Scale, default 0 to 1
        Worst and best score; verdicts and booleans do not depend on it.

    Examples
    --------
    >>> [reward_of(value, Scale(1, 5)) for value in (5, "1", True, "thumbs down", 7, None)]
    [1.0, 0.0, 1.0, 0.0, None, None]
    """
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        word = value.strip().lower()
        if word in WORDS and not _is_number(word):
            return WORDS[word]
        value = float(word) if _is_number(word) else None
    if not isinstance(value, int | float) or not scale.low <= value <= scale.high:
        return None
    return scale.reward(float(value))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
