"""The methods of `WiseRouter` for certain failures: which rules are on, and the scores that they give."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from wiserouter.errors import AlreadySettled, UnknownDecision
from wiserouter.routing.decision_ids import id_of
from wiserouter.routing.shadow_methods import RouterShadow
from wiserouter.routing.signals import Answer, Signals
from wiserouter.types import Decision

OF_RUNS = frozenset({"loop_exhausted"})
"""The rules that say a run has failed; the others say it of one call, of which a run may have many."""


class RouterSignals(RouterShadow):
    """The methods that score answers which have certainly failed."""

    _signals: Signals | None = None

    @property
    def signals(self) -> Signals | None:
        """The rules that score an answer 0 where it has certainly failed; None for none.

        Set it to names of rules: `router.signals = ["truncated", "invalid_tool_call"]`.
        """
        return self._signals

    @signals.setter
    def signals(self, rules: Iterable[str] | Signals | None) -> None:
        if rules is not None and not isinstance(rules, Signals):
            rules = Signals(rules, time.monotonic)
        self._signals = rules

    def check_answer(self, decision: Decision | str, answer: Answer) -> tuple[str, ...]:
        """Score an answer 0 where a rule says that it has failed, and return the rules that do.

        Parameters
        ----------
        decision : Decision or str
            The decision, or its id; charged before.
        answer : Answer
            What is known of the answer.

        Returns
        -------
        tuple of str
            The names of the rules, the first of which has scored. No rule gives a good score.

        Examples
        --------
        >>> from wiserouter import Answer, Budget, Model, Price, WiseRouter
        >>> router = WiseRouter([Model("small", Price(1e-7, 4e-7))], seed=0)
        >>> router.signals = ["truncated"]
        >>> router.start(Budget(amount_usd=1.0, horizon=1_000))
        >>> decision = router.decide("What is the capital of France?")
        >>> router.charge(decision, cost_usd=0.0001)
        >>> router.check_answer(decision, Answer("The capital of", finish_reason="length"))
        ('truncated',)
        """
        failures = () if self._signals is None else self._signals.failures(answer)
        return failures if failures and self.fail(decision, failures[0]) else ()

    def emit_evaluations(self, logger: Any = None) -> None:
        """Emit each score from now on as an event `gen_ai.evaluation.result` of OpenTelemetry.

        Parameters
        ----------
        logger : opentelemetry Logger, optional
            By default that of the program's logger provider.

        Raises
        ------
        InvalidInput
            If opentelemetry-api is not installed.
        """
        from wiserouter.routing.evaluation_events import EvaluationEvents  # few programs emit events

        self.report_to(EvaluationEvents(logger))

    def fail(self, decision: Decision | str, rule: str) -> bool:
        """Score a decision 0 by a rule; False where it has no score: it is unknown, failed, or a call of a run."""
        id_ = id_of(decision)
        try:
            if self._calls is not None and rule not in OF_RUNS and self.decision(id_).run_id:
                return False
            self.reward(id_, 0.0, source=f"rule:{rule}")
        except (AlreadySettled, UnknownDecision):
            return False
        return True
