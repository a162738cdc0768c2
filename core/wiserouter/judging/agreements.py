"""What a router knows of its judges: the pairs of their scores and people's, corrections and warnings."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from wiserouter.judging.agreement import (
    FEWEST_PAIRS,
    RECHECK_GROWTH,
    Agreement,
    Correction,
    bias_warning,
)
from wiserouter.learning.source_scores import HUMAN, JUDGE, Scores, SourceScore, kind_of

logger = logging.getLogger("wiserouter")


class Agreements:
    """The agreement of each judge with people, by source.

    Parameters
    ----------
    sums : mapping of str to mapping of str to sequence of float, optional
        Sums by source and model, as `sums` returns them.

    Attributes
    ----------
    warnings : dict of str to str
        The warning on each source whose scores are biased toward cheap models; each is also logged, once.
    """

    def __init__(self, sums: Mapping[str, Mapping[str, Sequence[float]]] | None = None) -> None:
        self.of = {source: Agreement(each) for source, each in (sums or {}).items()}
        self.warnings: dict[str, str] = {}
        self._places: Mapping[str, float] = {}
        self._corrections: dict[str, tuple[int, Correction]] = {}
        self._due: dict[str, float] = {}

    def place(self, places: Mapping[str, float]) -> None:
        """Set the place of each model between the cheapest and the most expensive one."""
        if places != self._places:
            self._places = places
            self._corrections.clear()

    def corrected(self, source: str, model: str, reward: float) -> float:
        """Return a judge's score as it is learned."""
        agreement = self.of.get(source)
        if agreement is None or not agreement.pairs:
            return reward
        known = self._corrections.get(source)
        if known is None or known[0] != agreement.pairs:
            known = self._corrections[source] = agreement.pairs, agreement.correction(self._places)
        return known[1].applied(reward, self._places.get(model, 0.0))

    def note(self, model: str, before: Scores, source: str, score: SourceScore) -> None:
        """Count the pairs that a new score of a call makes, in place of those that it replaces."""
        after = {**before, source: score}
        for judge in [source] if source != HUMAN else [name for name in before if kind_of(name) == JUDGE]:
            for scores, count in ((before, -1), (after, 1)):
                if HUMAN in scores and judge in scores and kind_of(judge) == JUDGE:
                    agreement = self.of.setdefault(judge, Agreement())
                    agreement.add(model, scores[judge].reward, scores[HUMAN].reward, count)
                    self._test(judge, agreement)

    def sums(self) -> dict[str, dict[str, list[float]]]:
        """Return the sums by source and model."""
        return {source: each.sums() for source, each in self.of.items()}

    def _test(self, source: str, agreement: Agreement) -> None:
        """Test for a bias toward cheap models, where there are enough more pairs; warn once."""
        if agreement.pairs < self._due.get(source, FEWEST_PAIRS) or source in self.warnings:
            return
        self._due[source] = agreement.pairs * RECHECK_GROWTH
        line = bias_warning(source, agreement, self._places)
        if line is not None:
            self.warnings[source] = line
            logger.warning("%s", line)
