"""Feedback on root runs: the callback that finds their decisions, and the import of scores from LangSmith.

A router sees its own run and the one directly above. The root run of an agent or graph is further up:
`WiseFeedbackHandler`, among the callbacks of the whole run, records which decisions belong to which root.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from threading import Lock
from typing import Any, Protocol
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook

from wiserouter.errors import UnknownDecision
from wiserouter_langchain.decisions.routed_call import RECORD
from wiserouter_langchain.decisions.signals import LOOP_ERRORS

RUNS_PER_QUERY = 100
"""The most runs in one query to LangSmith: they are in its address, of which servers take some 8,000 characters."""


class TakesFeedback(Protocol):
    """A router that takes scores, and remembers the runs behind its decisions."""

    def feedback(
        self,
        target: Any,
        score: float,
        *,
        key: str = "user_score",
        comment: str | None = None,
        source: str = "human",
    ) -> int:
        """Credit a score, and return the number of decisions that it reached."""
        ...

    def note_run(self, decision_id: str, run_id: UUID) -> None:
        """Let feedback on a run find a decision."""
        ...


class WiseFeedbackHandler(BaseCallbackHandler):
    """A callback that records which decisions belong to which root run; pass it to a chain, agent or graph.

    Parameters
    ----------
    router : RunnableWiseRouter
        The router that makes the decisions.
    max_runs : int, default 10,000
        Runs kept, and decisions of one run; the oldest are dropped first.
    """

    run_inline = True  # no thread hop per event on the asynchronous path

    def __init__(self, router: TakesFeedback, max_runs: int = 10_000) -> None:
        self._router, self._max_runs = router, max_runs
        self._roots: OrderedDict[UUID, UUID] = OrderedDict()
        self._decisions: OrderedDict[UUID, OrderedDict[str, None]] = OrderedDict()
        self._lock = Lock()

    @property
    def decisions(self) -> dict[UUID, list[str]]:
        """Decision ids by root run; all calls of an agent's run have one."""
        with self._lock:
            return {root: list(ids) for root, ids in self._decisions.items()}

    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **_: Any
    ) -> None:
        """Record the run."""
        self.root_of(run_id, parent_run_id)

    def on_tool_start(
        self, serialized: Any, input_str: str, *, run_id: UUID, parent_run_id: UUID | None = None, **_: Any
    ) -> None:
        """Record the run."""
        self.root_of(run_id, parent_run_id)

    def on_chain_error(
        self, error: BaseException, *, run_id: UUID, parent_run_id: UUID | None = None, **_: Any
    ) -> None:
        """Score the decisions of a root run 0 where it ended at the limit of its steps, if the rule is on."""
        rules = getattr(self._router, "signals", ())
        is_loop = parent_run_id is None and type(error).__name__ in LOOP_ERRORS
        if not is_loop or not {"all", "loop_exhausted"} & set(rules):
            return
        for each in self._of_root(run_id):
            score = partial(self._fail, each)
            try:
                asyncio.get_running_loop().run_in_executor(None, score)  # the store may have to be waited for
            except RuntimeError:
                score()

    def _fail(self, decision_id: str) -> None:
        with suppress(UnknownDecision):
            self._router.feedback(decision_id, 0.0, source="rule:loop_exhausted")

    def on_chat_model_start(
        self,
        serialized: Any,
        messages: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Record the run, and the decision in its metadata."""
        root = self.root_of(run_id, parent_run_id)
        record = (metadata or {}).get(RECORD)
        if record:
            with self._lock:
                ids = self._decisions.setdefault(root, OrderedDict())
                ids[record.get("run_id") or record["decision_id"]] = None
                _trim(ids, self._max_runs)
                _trim(self._decisions, self._max_runs)
            self._router.note_run(record["decision_id"], root)

    def feedback(
        self, root_run_id: UUID | str, score: float, *, key: str = "user_score", comment: str | None = None
    ) -> int:
        """Credit a score to every decision of a root run, and return their number.

        Where the store is shared, another worker may have served the run.

        Raises
        ------
        UnknownDecision
            If it reached none.
        """
        ids = self._of_root(root_run_id) or [str(root_run_id)]
        reached = 0
        for each in ids:
            with suppress(UnknownDecision):
                reached += self._router.feedback(each, score, key=key, comment=comment)
        if not reached:
            raise UnknownDecision(str(root_run_id), "pass the id of a root run that this handler has seen")
        return reached

    def _of_root(self, root_run_id: UUID | str) -> list[str]:
        """Return the decisions of a root run; none where the id is not one that LangChain gives to runs."""
        try:
            root = UUID(str(root_run_id))
        except ValueError:
            return []
        with self._lock:
            return list(self._decisions.get(root, ()))

    def root_of(self, run_id: UUID, parent: UUID | None = None) -> UUID:
        """Record a run, and return the root run above it; without `parent`, that of a run recorded before."""
        with self._lock:
            root = self._roots.get(run_id, run_id) if parent is None else self._roots.get(parent, parent)
            self._roots[run_id] = root
            _trim(self._roots, self._max_runs)
        return root


_tracked: ContextVar[WiseFeedbackHandler | None] = ContextVar("wiserouter_tracked", default=None)
register_configure_hook(_tracked, inheritable=True)  # once: a hook stays for the life of the process


@contextmanager
def track_decisions(router: TakesFeedback) -> Iterator[WiseFeedbackHandler]:
    """Learn the decisions of every run in a block, with no callback handed through.

    Parameters
    ----------
    router : RunnableWiseRouter
        The router that makes the decisions.

    Yields
    ------
    WiseFeedbackHandler
        Takes feedback by root run.
    """
    handler = WiseFeedbackHandler(router)
    token = _tracked.set(handler)
    try:
        yield handler
    finally:
        _tracked.reset(token)


def pull_langsmith(
    client: Any, handler: WiseFeedbackHandler, *, key: str = "user_score", run_ids: Iterable[UUID] | None = None
) -> int:
    """Credit the feedback that LangSmith holds on runs, and return the number of decisions that it reached.

    Parameters
    ----------
    client : langsmith.Client
        Its `list_feedback` is called.
    handler : WiseFeedbackHandler
        Knows which decisions belong to which run.
    key : str, default "user_score"
        The feedback key to read.
    run_ids : iterable of UUID, optional
        The root runs; by default all that the handler knows.

    Notes
    -----
    Feedback without a score, with a score outside [0, 1], or on runs that the router does not know, is skipped.
    """
    roots = list(handler.decisions if run_ids is None else run_ids)
    if not roots:
        return 0
    pages = (roots[start : start + RUNS_PER_QUERY] for start in range(0, len(roots), RUNS_PER_QUERY))
    scores = [one for page in pages for one in client.list_feedback(run_ids=page, feedback_key=[key])]
    usable = [one for one in scores if one.score is not None and 0 <= float(one.score) <= 1]
    reached = 0
    for one in usable:
        with suppress(UnknownDecision):
            reached += handler.feedback(one.run_id, float(one.score), key=key, comment=one.comment)
    return reached


def _trim(kept: OrderedDict[Any, Any], most: int) -> None:
    while len(kept) > most:
        kept.popitem(last=False)
