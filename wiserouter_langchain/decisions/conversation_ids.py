"""The ids of conversations in LangChain: the thread of a configuration, the tracked run, the answers in a history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any
from uuid import UUID

from langchain_core.messages import AIMessage, BaseMessage

from wiserouter.integration import StatedIds
from wiserouter_langchain.decisions.routed_call import recorded_decision
from wiserouter_langchain.requests.request import role_of

RUN, PARENT = "wiserouter_run", "wiserouter_parent"
"""Names of the configurables, or keys of the metadata, that name the run, and the run that this one works for."""

THREADS = ("thread_id", "session_id", "conversation_id")
"""The same for a thread, as LangGraph and LangSmith have them."""

MOST_ANSWERS = 4
"""The most answers of a history by which its conversation is looked for: the latest ones."""

_MODEL = "assistant"


def stated_ids(
    config: Mapping[str, Any], messages: Sequence[BaseMessage], tracked: str = "", program: str = ""
) -> StatedIds:
    """Return the ids that a call states.

    Parameters
    ----------
    config : mapping
        Its configuration.
    messages : sequence of BaseMessage
        The conversation.
    tracked : str, optional
        The id of its root run, where `track_decisions` knows it.
    program : str, optional
        The id of the run that the program has set, which counts unless the configuration names a run.

    Examples
    --------
    >>> stated_ids({"configurable": {"thread_id": 7}}, []).conversation
    '7'
    """
    threads = chain.from_iterable(_named(config, name) for name in THREADS)
    ids = [stated_run(config), program, *threads, tracked]
    return StatedIds(
        conversation=next(filter(None, ids), ""),
        answers=list(_answers(messages))[:MOST_ANSWERS],
        parent=next(filter(None, _named(config, PARENT)), ""),
    )


def stated_run(config: Mapping[str, Any]) -> str:
    """Return the id of the run that a configuration names; "" where it names none.

    Examples
    --------
    >>> stated_run({"metadata": {"wiserouter_run": "fix-1234"}})
    'fix-1234'
    """
    return next(filter(None, _named(config, RUN)), "")


def turns_of(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """Return messages as a chain of hashes reads them.

    Examples
    --------
    >>> from langchain_core.messages import AIMessage
    >>> turns_of([AIMessage("hi")])
    [{'role': 'assistant', 'content': 'hi', 'tool_calls': [], 'tool_call_id': None}]
    """
    return [
        {
            "role": _role(message),
            "content": message.content,
            "tool_calls": getattr(message, "tool_calls", None) or [],
            "tool_call_id": getattr(message, "tool_call_id", None),
        }
        for message in messages
    ]


def _named(config: Mapping[str, Any], name: str) -> list[str]:
    """Return the ids under a name, of the configurables and then of the metadata."""
    places = [place for part in ("configurable", "metadata") if isinstance(place := config.get(part), Mapping)]
    return [_text(place.get(name)) for place in places]


def _answers(messages: Sequence[BaseMessage]) -> Iterator[str]:
    """Yield the decisions behind the answers of a history, the latest first."""
    for message in reversed(messages):
        if isinstance(message, AIMessage) and (decision_id := recorded_decision(message)):
            yield decision_id


def _role(message: BaseMessage) -> str:
    return _MODEL if isinstance(message, AIMessage) else str(role_of(message))


def _text(value: object) -> str:
    return str(value) if isinstance(value, str | int | UUID) and not isinstance(value, bool) else ""
