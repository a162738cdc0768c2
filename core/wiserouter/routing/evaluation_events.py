"""Scores as OpenTelemetry events `gen_ai.evaluation.result`, where the API of OpenTelemetry is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wiserouter.errors import InvalidInput
from wiserouter.learning.source_scores import HUMAN

if TYPE_CHECKING:
    from opentelemetry._logs import Logger

    from wiserouter.planning.trace import DecisionTrace
    from wiserouter.routing.observer import Line
    from wiserouter.types import Decision

NAME = "gen_ai.evaluation.result"

_NS = 1e9


class EvaluationEvents:
    """Emits an event for each score, beside the journal; of other events it takes no notice.

    Parameters
    ----------
    logger : opentelemetry Logger, optional
        By default that of the program's logger provider, which exports nothing unless one is set.

    Raises
    ------
    InvalidInput
        If opentelemetry-api is not installed.
    """

    def __init__(self, logger: Logger | None = None) -> None:
        try:
            from opentelemetry._logs import LogRecord, get_logger
        except ImportError as error:
            raise InvalidInput("events of evaluations need OpenTelemetry: pip install opentelemetry-api") from error
        self._record, self._logger = LogRecord, logger or get_logger("wiserouter")

    def decision(self, decision: Decision, trace: DecisionTrace | None) -> None:
        """Do nothing."""

    def note(self, line: Line) -> None:
        """Do nothing."""

    def event(self, name: str, decision_id: str, at_s: float, **figures: Any) -> None:
        """Emit the score of a decision; its comment, which may quote a prompt, is left out."""
        if name != "reward":
            return
        attributes = {
            "gen_ai.evaluation.name": figures.get("source", HUMAN),
            "gen_ai.evaluation.score.value": figures["reward"],
            "wiserouter.decision.id": decision_id,
        }
        self._logger.emit(self._record(timestamp=int(at_s * _NS), event_name=NAME, attributes=attributes))
