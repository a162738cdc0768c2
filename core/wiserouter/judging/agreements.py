"""What a router knows of its judges: the pairs of their scores and people's, corrections and warnings."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from wiserouter.judging.agreement import Agreement, Correction
from wiserouter.judging.bias_warnings import (
    FEWEST_JUDGED,
    FEWEST_PAIRS,
    bias_warning,
    price_warning,
    same_score_warning,
)
from wiserouter.learning.source_scores import HUMAN, JUDGE, Scores, SourceScore, kind_of

logger = logging.getLogger("wiserouter")


RECHECK_GROWTH = 1.05
"""A judge's line is computed again after each pair and after 5 % more scores, and tested after 5 % more of either."""

_NEVER = (-1, 0.0, Correction())


class Agreements:
    """The agreement of each judge with people, by source.

    Parameters
    ----------
    sums : mapping of str to mapping of str to sequence of float, optional
        Sums by source and model, as `sums` returns them.

    Attributes
    ----------
    warnings : dict of str to str
        The warning on each source whose scores seem biased toward cheap models, by people's scores or else by the
        prices; each is also logged, once.
    """

    def __init__(self, sums: Mapping[str, Mapping[str, Sequence[float]]] | None = None) -> None:
        self.of = {source: Agreement(each) for source, each in (sums or {}).items()}
        self.warnings: dict[str, str] = {}
        self._places: Mapping[str, float] = {}
        self._rise = 0.0
        self._corrections: dict[str, tuple[int, float, Correction]] = {}
        self._proven: set[str] = set()
        self._same: set[str] = set()
        self._due_pairs: dict[str, float] = {}
        self._due_judged: dict[str, float] = {}

    def place(self, places: Mapping[str, float], rise: float = 0.0) -> None:
        """Set the place of each model between the cheapest and the most expensive one, and how much better this is."""
        if (places, rise) != (self._places, self._rise):
            self._places, self._rise = places, rise
            self._corrections.clear()

    def corrected(self, source: str, model: str, reward: float) -> float:
        """Return a judge's score as it is learned."""
        agreement = self.of.get(source)
        if agreement is None:
            return reward
        pairs, due, line = self._corrections.get(source, _NEVER)
        if pairs != agreement.pairs or agreement.judged >= due:
            pairs, line = agreement.pairs, agreement.cautious_correction(self._places, self._rise)
            self._corrections[source] = pairs, agreement.judged * RECHECK_GROWTH + 1.0, line
        return line.applied(reward, self._places.get(model, 0.0))

    def note(self, model: str, before: Scores, source: str, score: SourceScore) -> None:
        """Count a judge's score and the pairs that a new score makes, in place of those that it replaces."""
        if kind_of(source) == JUDGE:
            self._note_judged(model, before.get(source), source, score)
        after = {**before, source: score}
        for judge in [source] if source != HUMAN else [name for name in before if kind_of(name) == JUDGE]:
            for scores, count in ((before, -1), (after, 1)):
                if HUMAN in scores and judge in scores and kind_of(judge) == JUDGE:
                    agreement = self.of.setdefault(judge, Agreement())
                    agreement.add(model, scores[judge].reward, scores[HUMAN].reward, count)
                    self._test_pairs(judge, agreement)

    def sums(self) -> dict[str, dict[str, list[float]]]:
        """Return the sums by source and model."""
        return {source: each.sums() for source, each in self.of.items()}

    def lines(self) -> tuple[str, ...]:
        """Return the warnings, and a line on each other judge whose scores are still all the same."""
        others = (name for name in self.of if name not in self.warnings)
        same = (same_score_warning(name, self.of[name]) for name in others)
        return (*self.warnings.values(), *(line for line in same if line is not None))

    def _note_judged(self, model: str, former: SourceScore | None, source: str, score: SourceScore) -> None:
        agreement = self.of.setdefault(source, Agreement())
        if former is not None:
            agreement.add_judged(model, former.reward, -1)
        agreement.add_judged(model, score.reward)
        if source not in self._proven and agreement.judged >= self._due_judged.get(source, FEWEST_JUDGED):
            self._due_judged[source] = agreement.judged * RECHECK_GROWTH
            self._warn(source, price_warning(source, agreement, self._places), first=source not in self.warnings)
            line = None if source in self.warnings else same_score_warning(source, agreement)
            if line is not None and source not in self._same:
                self._same.add(source)
                logger.warning("%s", line)

    def _test_pairs(self, source: str, agreement: Agreement) -> None:
        """Test the pairs where there are enough more; what they show replaces a warning by the prices."""
        if agreement.pairs < self._due_pairs.get(source, FEWEST_PAIRS):
            return
        self._due_pairs[source] = agreement.pairs * RECHECK_GROWTH
        line = bias_warning(source, agreement, self._places)
        self._warn(source, line, first=source not in self._proven)
        if line is not None:
            self._proven.add(source)

    def _warn(self, source: str, line: str | None, *, first: bool) -> None:
        """Keep a warning with its latest figures; log the first one of its kind."""
        if line is None:
            return
        self.warnings[source] = line
        if first:
            logger.warning("%s", line)
