"""The scores of imported calls: those that mean a call, its trace or its session, as rewards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from wiserouter.errors import InvalidInput
from wiserouter.fitting.imports.calls import ImportedCall, ImportedScore, Recorded, first_filled, text_of
from wiserouter.fitting.log.scores import UNIT, Scale, reward_of

_TARGETS = (
    *("call_id", "litellm_call_id", "request_id", "decision_id", "run_id", "observation_id", "span_id", "trace_id"),
    *("session_id", "conversation", "id"),
)
_VALUES = ("reward", "score", "value", "rating", "thumbs", "label")


class Scores:
    """The latest score of each target, by the name of its metric.

    Parameters
    ----------
    name : str or None
        The metric to take; by default the only one that there is.
    scale : Scale
        The worst and the best score.

    Attributes
    ----------
    refused : int
        Number of scores that are none of this scale.
    unread : int
        Number of records in files of scores that hold none.
    """

    def __init__(self, name: str | None = None, scale: Scale = UNIT) -> None:
        self._name, self._scale = name, scale
        self._latest: dict[str, dict[str, _Dated]] = {}
        self._counts: Counter[str] = Counter()
        self.refused = self.unread = 0

    def add(self, scores: Iterable[ImportedScore]) -> None:
        """Take scores; a later one of the same target and metric replaces an earlier one.

        Of two scores of which one has no time, that which is given last is the later one.
        """
        for score in scores:
            if self._name not in {None, score.name}:
                continue
            reward = reward_of(score.value, self._scale)
            if reward is None:
                self.refused += 1
                continue
            self._counts[score.name] += 1
            latest = self._latest.setdefault(score.name, {})
            before = latest.get(score.target)
            if before is None or _is_later(score.at_s, before.at_s):
                latest[score.target] = _Dated(reward, score.at_s)

    def reward_of(self, call: ImportedCall) -> float | None:
        """Return the reward of a call: by its own id, else by that of its closest step, its trace or its session."""
        latest = next(iter(self._latest.values()), {})
        return next((latest[one].reward for one in call.ids if one in latest), None)

    def check(self) -> None:
        """Raise `InvalidInput` where there are several metrics and none was named, or the named one is not there."""
        if self._name is None and len(self._counts) > 1:
            named = ", ".join(f"{name} ({n:,})" for name, n in self._counts.most_common(10))
            raise InvalidInput(f"a reward must be of one metric, got scores of {named}: say which, with --score NAME")
        if self._name is not None and not self._counts and not self.refused:
            rule = f"a score must be named {self._name!r}, got none: leave out --score to see the names"
            raise InvalidInput(rule, value=self._name)


class _Dated(NamedTuple):
    reward: float
    at_s: float | None


def _is_later(at_s: float | None, before_s: float | None) -> bool:
    return at_s is None or before_s is None or at_s >= before_s


def with_values(record: Recorded) -> Recorded:
    """Return a record whose fields of an id or a score are filled, which shows whether it could hold a score."""
    fields = (*_TARGETS, *_VALUES)
    empty = (name for name, value in record.items() if value is None and name.rpartition(".")[2] in fields)
    return {**record, **dict.fromkeys(empty, "1")}


def plain_scores(record: Recorded) -> list[ImportedScore]:
    """Return the score of a row of a plain table: an id of a call, and a score.

    Examples
    --------
    >>> plain_scores({"call_id": "a", "rating": 4})
    [ImportedScore(target='a', name='rating', value=4, at_s=None)]
    """
    target = text_of(first_filled(record, *_TARGETS))
    name = next((name for name in _VALUES if record.get(name) is not None), None)
    return [ImportedScore(target, name, record[name])] if target and name is not None else []
