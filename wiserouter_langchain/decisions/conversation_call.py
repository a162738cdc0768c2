"""The conversation or run that one call belongs to, and the names by which the calls that follow it find that again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage

from wiserouter import NO_CONTEXT, WiseRouter
from wiserouter.errors import UnknownDecision
from wiserouter.integration import ConversationId, Unit, conversation_of, name_of_answer
from wiserouter_langchain.decisions.conversation_ids import stated_ids, turns_of
from wiserouter_langchain.decisions.feedback import WiseFeedbackHandler


@dataclass(frozen=True, slots=True)
class NamedRun:
    """The run that a program sets for all calls of a router, whatever their configuration says of threads.

    Attributes
    ----------
    id : str
        "" leaves it to the configuration.
    parent : str
        The id of the run that it works for.
    """

    id: str = ""
    parent: str = ""


NO_RUN = NamedRun()


@dataclass(frozen=True, slots=True)
class CallConversation:
    """The conversation of one call.

    Attributes
    ----------
    id : ConversationId
        As the router takes it, with the hash of the messages where they identify it.
    parent : str or None
        The id of the run that it works for.
    keeps_context : bool
        Whether the call asks nothing, so that it goes on in the context of its conversation.
    """

    id: ConversationId
    parent: str | None = None
    keeps_context: bool = False

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `WiseRouter.decide` that name the conversation."""
        arguments: dict[str, Any] = {"conversation": self.id.id, "parent": self.parent}
        return {**arguments, "context": NO_CONTEXT, "embedding": None} if self.keeps_context else arguments

    def names(self, answer: BaseMessage | None) -> list[str]:
        """Return the names by which a call that repeats this one and its answer finds the conversation."""
        name = name_of_answer(self.id.request, turns_of([answer])) if self.id.request and answer is not None else None
        return [*self.id.names, *([name] if name else [])]


def conversation_of_call(
    router: WiseRouter,
    unit: Unit,
    config: Mapping[str, Any],
    messages: Sequence[BaseMessage],
    scope: str,
    run: Any,
    named: NamedRun,
    *,
    informative: bool,
) -> CallConversation:
    """Return the conversation of a call; may wait for the store.

    Parameters
    ----------
    router : WiseRouter
        Keeps the conversations.
    unit : {"conversation", "run"}
        The unit of decision.
    config : mapping
        The configuration of the call.
    messages : sequence of BaseMessage
        Its messages.
    scope : str
        The scope that pays: no call joins a conversation of another scope.
    run : run manager
        The chain run of the call; a handler among its callbacks may know the root run.
    named : NamedRun
        The run that the program has set.
    informative : bool
        Whether the call says what is asked for.
    """
    stated = stated_ids(config, messages, _tracked_root(run) if unit == "run" else "", named.id)

    def find(*names: str) -> str | None:
        with suppress(UnknownDecision):
            return router.decision(*names).conversation or None
        return None

    turns = () if stated.conversation else turns_of(messages)
    id_ = conversation_of(stated, turns, scope, find)
    keeps_context = not informative and router.conversation(id_.id, scope=scope) is not None
    return CallConversation(id_, stated.parent or named.parent or None, keeps_context)


def _tracked_root(run: Any) -> str:
    """Return the root run above a call, where a handler tracks it; "" for a call that is its own root."""
    if run.parent_run_id is None:
        return ""
    handlers = [handler for handler in run.handlers if isinstance(handler, WiseFeedbackHandler)]
    return str(handlers[0].root_of(run.parent_run_id)) if handlers else ""
