"""How feedback finds its decisions: by message, run or decision; by the root run of an agent; from LangSmith.

A router sees its own run and the one right above. The root of an agent or graph is further up: `WiseFeedbackHandler`,
among the callbacks of the whole run, learns which decisions belong to which root.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.tracers.context import register_configure_hook

from wiserouter import Explanation, WiseRouter
from wiserouter.errors import AlreadySettled, UnknownDecision
from wiserouter.validation import check_reward
from wiserouter_langchain.decision_index import DecisionIndex, name_of
from wiserouter_langchain.routed_call import RECORD

if TYPE_CHECKING:
    from wiserouter_langchain.runnable import RunnableWiseRouter

_RUN_PREFIXES = ("lc_run--", "run--", "run-")


def credit(router: WiseRouter, index: DecisionIndex, target: Any, score: float, key: str, comment: str | None) -> int:
    """Reward the decisions behind a message, run or decision, and return how many there were."""
    reward = check_reward(score)
    return sum(_rewarded(router, index, each, reward, key, comment) for each in _decisions(router, index, target))


def explained(router: WiseRouter, index: DecisionIndex, target: Any) -> Explanation:
    """Return why the latest decision behind a message, run or decision fell as it did; raises `UnknownDecision`."""
    found = _decisions(router, index, target)
    if not found:
        raise UnknownDecision(str(getattr(target, "id", target)))
    return router.explain(found[-1])


def _rewarded(
    router: WiseRouter, index: DecisionIndex, decision_id: str, reward: float, key: str, comment: str | None
) -> bool:
    try:
        router.reward(decision_id, reward)
    except (UnknownDecision, AlreadySettled):  # forgotten, or a call that failed
        return False
    index.score(decision_id, key, reward, comment)
    return True


def _decisions(router: WiseRouter, index: DecisionIndex, target: Any) -> list[str]:
    if not isinstance(target, BaseMessage):
        return _of_run(router, index, str(target)) or [str(target)]
    record = target.response_metadata.get(RECORD)
    if record:
        return [str(record["decision_id"])]
    return _of_run(router, index, _run_of(target.id or ""))


def _of_run(router: WiseRouter, index: DecisionIndex, name: str) -> list[str]:
    """Return the decisions behind a run of this worker, or of another one of its store."""
    found = index.decisions_of(name)
    if found or not router.durable:
        return found
    with suppress(UnknownDecision):
        while True:
            found.append(router.decision(name_of(name, len(found))).id)
    return found


def _run_of(message_id: str) -> str:
    """Return the run id in the id that LangChain gives a message whose provider gave none."""
    prefix = next((prefix for prefix in _RUN_PREFIXES if message_id.startswith(prefix)), "")
    return message_id[len(prefix) :][:36]


class WiseFeedbackHandler(BaseCallbackHandler):
    """Learns which decisions belong to which root run; put it among the callbacks of a chain, agent or graph.

    Parameters
    ----------
    router : RunnableWiseRouter
        Whose decisions these are.
    max_runs : int, default 10,000
        Runs that are kept.
    """

    run_inline = True  # no thread hop per event on the asynchronous path

    def __init__(self, router: RunnableWiseRouter, max_runs: int = 10_000) -> None:
        self._router, self._max_runs = router, max_runs
        self._roots: OrderedDict[UUID, UUID] = OrderedDict()
        self._decisions: OrderedDict[UUID, list[str]] = OrderedDict()
        self._lock = Lock()

    @property
    def decisions(self) -> dict[UUID, list[str]]:
        """Decision ids by root run."""
        with self._lock:
            return {root: list(ids) for root, ids in self._decisions.items()}

    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **_: Any
    ) -> None:
        """Note the run."""
        self._seen(run_id, parent_run_id)

    def on_tool_start(
        self, serialized: Any, input_str: str, *, run_id: UUID, parent_run_id: UUID | None = None, **_: Any
    ) -> None:
        """Note the run."""
        self._seen(run_id, parent_run_id)

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
        """Note the run, and the decision that it carries."""
        root = self._seen(run_id, parent_run_id)
        record = (metadata or {}).get(RECORD)
        if record:
            with self._lock:
                self._decisions.setdefault(root, []).append(record["decision_id"])
                _trim(self._decisions, self._max_runs)
            self._router.note_run(record["decision_id"], root)

    def feedback(
        self, root_run_id: UUID | str, score: float, *, key: str = "user_score", comment: str | None = None
    ) -> int:
        """Credit a score to every decision of a root run, and return how many there were.

        Where the store is shared, the run may have been another worker's.
        """
        ids = self.decisions.get(UUID(str(root_run_id))) or [str(root_run_id)]
        return sum(self._router.feedback(each, score, key=key, comment=comment) for each in dict.fromkeys(ids))

    def _seen(self, run_id: UUID, parent: UUID | None) -> UUID:
        with self._lock:
            root = run_id if parent is None else self._roots.get(parent, parent)
            self._roots[run_id] = root
            _trim(self._roots, self._max_runs)
        return root


_tracked: ContextVar[WiseFeedbackHandler | None] = ContextVar("wiserouter_tracked", default=None)
register_configure_hook(_tracked, inheritable=True)  # once: a hook stays for the life of the process


@contextmanager
def track_decisions(router: RunnableWiseRouter) -> Iterator[WiseFeedbackHandler]:
    """Learn the decisions of every run in a block, with no callback handed through.

    Parameters
    ----------
    router : RunnableWiseRouter
        Whose decisions these are.

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
    """Credit the feedback that LangSmith holds for runs, and return how many decisions it reached.

    Parameters
    ----------
    client : langsmith.Client
        Asked for `list_feedback`.
    handler : WiseFeedbackHandler
        Knows which decisions belong to which run.
    key : str, default "user_score"
        The feedback key to read.
    run_ids : iterable of UUID, optional
        The root runs; all that the handler knows by default.

    Notes
    -----
    Feedback without a score, or with one outside [0, 1], is left out.
    """
    asked = list(handler.decisions if run_ids is None else run_ids)
    if not asked:
        return 0
    told = client.list_feedback(run_ids=asked, feedback_key=[key])
    usable = [one for one in told if one.score is not None and 0 <= float(one.score) <= 1]
    return sum(handler.feedback(one.run_id, float(one.score), key=key, comment=one.comment) for one in usable)


def _trim(kept: OrderedDict[UUID, Any], most: int) -> None:
    while len(kept) > most:
        kept.popitem(last=False)
