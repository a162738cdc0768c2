"""The half of the router that follows an answer: feedback on the decision behind it, and its explanation."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

from wiserouter import Explanation, WiseRouter
from wiserouter.integration import offload
from wiserouter_langchain.call_scope import RoutingChatModel
from wiserouter_langchain.decision_lookup import credit, explained


class RatedChatModel(RoutingChatModel):
    """A chat model that delegates its calls, and takes scores for its answers."""

    @property
    def core(self) -> WiseRouter:
        """The router that decides and keeps the budget and the estimates."""
        return self._environment.core

    def feedback(self, target: Any, score: float, *, key: str = "user_score", comment: str | None = None) -> int:
        """Credit a score to the decision behind an answer, or to the decisions of a run.

        Parameters
        ----------
        target : AIMessage, str or UUID
            The answer, a decision id, or the id of the router's run, of the model's run or of the run directly above.
        score : float
            The score, in [0, 1].
        key : str, default "user_score"
            Name of the score, as in LangSmith. It is not stored: the latest score counts, whatever its key.
        comment : str, optional
            Kept in the journal, if there is one.

        Returns
        -------
        int
            The number of decisions that the score reached; 0 where none is known.

        Raises
        ------
        InvalidInput
            If the score is outside [0, 1].
        """
        return credit(self.core, self._environment.index, target, score, comment)

    async def afeedback(self, target: Any, score: float, *, key: str = "user_score", comment: str | None = None) -> int:
        """Do what `feedback` does, in a thread where it may wait for the store."""
        step = partial(self.feedback, target, score, key=key, comment=comment)
        return await offload(step) if self.core.waits() else step()

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

    def note_run(self, decision_id: str, run_id: uuid.UUID) -> None:
        """Let feedback on a run find a decision."""
        self._environment.index.add(decision_id, run_id)
