"""The scores of one call by their source, and the evidence that follows from all of them.

A call may be scored by people, by rules and by judges. Each source has one score, its latest. The evidence is that of
the most reliable kind: a person's score replaces a rule's, and a rule's replaces a judge's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from wiserouter.errors import InvalidInput, StoreDamaged
from wiserouter.validation import check_reward

HUMAN, RULE, JUDGE = "human", "rule", "judge"
"""The kinds of sources, the most reliable first; a rule and a judge also have a name, as in `judge:gpt-mini`."""

_KINDS = (HUMAN, RULE, JUDGE)
_SOURCE = re.compile(r"human|(?:rule|judge):[\w.+@/-]{1,100}", re.ASCII)


class SourceScore(NamedTuple):
    """The score that one source gave a call.

    Attributes
    ----------
    reward : float
        The score as it was given, in [0, 1].
    weight : float
        Number of observations that it counts as.
    counted : float
        The score as it was learned: that of a judge is corrected by its agreement with people.
    """

    reward: float
    weight: float
    counted: float


Scores = Mapping[str, SourceScore]
"""The scores of one call by source."""


def check_source(source: str) -> str:
    """Return a source if it is "human", "rule:<name>" or "judge:<name>", else raise `InvalidInput`."""
    if source is HUMAN:  # as by default
        return source
    if isinstance(source, str) and is_source(source):
        return source
    raise InvalidInput(
        f"source must be 'human', 'rule:<name>' or 'judge:<name>', got {source!r}: a name has at most 100 letters, "
        f"digits and any of _ . + @ / -",
        value=source,
    )


def is_source(text: str) -> bool:
    """Return True if a text names a source."""
    return _SOURCE.fullmatch(text) is not None


def check_weight(weight: float) -> float:
    """Return a weight if it lies in [0, 1], else raise `InvalidInput`."""
    if type(weight) is float and 0.0 <= weight <= 1.0:
        return weight
    if isinstance(weight, int | float | np.number) and 0.0 <= weight <= 1.0:
        return float(weight)
    raise InvalidInput(f"weight must lie in [0, 1], got {weight!r}: a score counts for one observation at most")


def kind_of(source: str) -> str:
    """Return the kind of a source: "human", "rule" or "judge"."""
    return source.partition(":")[0]


def full_score(score: SourceScore | float) -> SourceScore:
    """Return a score; a number alone counts in full, as it is."""
    return score if isinstance(score, SourceScore) else SourceScore(score, 1.0, score)


def with_score(scores: Scores, source: str, score: SourceScore) -> dict[str, SourceScore]:
    """Return the scores of a call after a source has given one, in place of its earlier one."""
    return {**scores, source: score}


def with_event(scores: Scores, event: Mapping[str, Any]) -> dict[str, SourceScore]:
    """Return the scores of a call after a score that a line of a journal tells of.

    Examples
    --------
    >>> with_event({}, {"event": "reward", "id": "a", "reward": 1.0})
    {'human': SourceScore(reward=1.0, weight=1.0, counted=1.0)}
    """
    reward, weight, counted = event["reward"], event.get("weight"), event.get("counted")
    score = SourceScore(reward, 1.0 if weight is None else weight, reward if counted is None else counted)
    return with_score(scores, event.get("source") or HUMAN, score)


def evidence(scores: Scores) -> SourceScore | None:
    """Return the score that is learned: the heaviest of the most reliable kind; None where none has a weight.

    Examples
    --------
    >>> judged = {"judge:mini": SourceScore(0.2, 0.5, 0.3)}
    >>> evidence(judged).counted
    0.3
    >>> evidence(with_score(judged, "human", SourceScore(1.0, 1.0, 1.0))).counted
    1.0
    """
    if not scores:
        return None
    if len(scores) == 1:  # as almost always
        (only,) = scores.values()
        return only if only.weight else None
    return _ranked_evidence(scores)


def change_of_evidence(
    before: Scores, source: str, score: SourceScore
) -> tuple[SourceScore | None, SourceScore | None]:
    """Return the score that was learned before a source gave one, and the score that is learned now."""
    if not before:  # as almost always
        return None, score if score.weight else None
    return evidence(before), evidence(with_score(before, source, score))


def _ranked_evidence(scores: Scores) -> SourceScore | None:
    """Return the score that is learned, of any number of scores."""
    ranked = [(_KINDS.index(kind_of(name)), -score.weight, name) for name, score in scores.items() if score.weight]
    return scores[min(ranked)[-1]] if ranked else None


def text_of_score(score: SourceScore) -> str:
    """Return a score as text, for an engine; one that counts in full as its number alone."""
    plain = score.weight == 1.0 and score.counted == score.reward
    return repr(score.reward) if plain else " ".join(map(repr, score))


def scores_of_texts(texts: Mapping[str, str], store: str) -> dict[str, SourceScore]:
    """Return the scores of which an engine keeps the texts by source; raises `StoreDamaged`."""
    try:
        return {check_source(source): _score_of_text(text) for source, text in texts.items()}
    except (InvalidInput, ValueError, TypeError) as error:
        raise StoreDamaged(f"{store} holds a score that cannot be read: {error}", store=store) from error


def _score_of_text(text: str) -> SourceScore:
    numbers = [float(number) for number in text.split(" ")]
    if len(numbers) == 1:
        return SourceScore(check_reward(numbers[0]), 1.0, numbers[0])
    reward, weight, counted = numbers
    if not math.isfinite(counted):
        raise ValueError(f"a score must be finite, got {counted}")
    return SourceScore(check_reward(reward), check_weight(weight), counted)
