"""The half of the router that follows an answer: feedback on the decision behind it, and its explanation."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

from wiserouter import Explanation, WiseRouter
from wiserouter.integration import offload
from wiserouter_langchain.calls.call_environment import RoutingChatModel
from wiserouter_langchain.decisions.decision_lookup import credit, explained


class RatedChatModel(RoutingChatModel):
    """A chat model that delegates its calls, and takes scores for its answers."""

    @property
    def core(self) -> WiseRouter:
        """The router that decides and keeps the budget and the estimates."""
        return self._environment.core

    def feedback(
        self,
        target: Any,
        score: float,
        *,
        key: str = "user_score",
        comment: str | None = None,
        source: str = "human",
        weight: float = 1.0,
    ) -> int:
        """Credit a score to the decision behind an answer, or to the decisions of a run.

        Parameters
        ----------
        target : AIMessage, str or UUID
            The answer, a decision id, or the id of the router's run, of the model's run or of the run directly above;
            or the id of an agent's run or of a thread, where these are the unit of decision.
        score : float
            The score, in [0, 1].
        key : str, default "user_score"
            Name of the score, as in LangSmith. It is not stored: the latest score of a source counts, whatever its key.
        comment : str, optional
            Kept in the journal, if there is one.
        source, weight : str, default "human", and float, default 1
            As in `WiseRouter.reward`.

        Returns
        -------
        int
            The number of decisions that the score reached; all calls of an agent's run are one.

        Raises
        ------
        UnknownDecision
            If it reached none: the target is unknown or forgotten, or its calls have failed.
        InvalidInput
            If the score is outside [0, 1].
        """
        index, scope = self._environment.index, self._scope
        return credit(self.core, index, target, score, scope, comment=comment, source=source, weight=weight)

    async def afeedback(
        self,
        target: Any,
        score: float,
        *,
        key: str = "user_score",
        comment: str | None = None,
        source: str = "human",
        weight: float = 1.0,
    ) -> int:
        """Do what `feedback` does, in a thread where it may wait for the store."""
        step = partial(self.feedback, target, score, key=key, comment=comment, source=source, weight=weight)
        return await offload(step) if self.core.waits() else step()

    def end_run(self, run: str) -> None:
        """End a run or conversation by its id: the rest of its committed amount is free, and its cost is learned.

        One that no one ends is over after its time to live. An unknown one is over already: nothing happens.
        """
        self.core.end(run, scope=self._scope)

    async def aend_run(self, run: str) -> None:
        """Do what `end_run` does, in a thread where it may wait for the store."""
        step = partial(self.end_run, run)
        await offload(step) if self.core.waits() else step()

    def explain(self, target: Any) -> Explanation:
        """Return the explanation of the decision behind an answer.

        Parameters
        ----------
        target : AIMessage, str or UUID
            As in `feedback`; of several decisions, the latest is explained.

        Raises
        ------
        UnknownDecision
            If no decision is known.
        """
        return explained(self.core, self._environment.index, target)

    async def aexplain(self, target: Any) -> Explanation:
        """Do what `explain` does, in a thread where it may wait for the store."""
        step = partial(self.explain, target)
        return await offload(step) if self.core.waits() else step()

    @property
    def _scope(self) -> str:
        """The scope whose runs and threads are meant by their ids."""
        return self._environment.payer or "default"

    def note_run(self, decision_id: str, run_id: uuid.UUID) -> None:
        """Let feedback on a run find a decision."""
        self._environment.index.add(decision_id, run_id)
