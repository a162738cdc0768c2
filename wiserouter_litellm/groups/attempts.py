"""The attempts in flight in this process: what each is for, whether it was sent, and whether anything will report it.

LiteLLM reports no end of a call that is cancelled, nor of a stream whose reader leaves. But it carries the mark of a
decision as long as it may report one: in the arguments of the call, and in the object that logs it. So an attempt
whose mark is collected as garbage has ended unreported.
"""

from __future__ import annotations

import asyncio
import math
import sys
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from wiserouter import Decision
from wiserouter.integration import refuses_request
from wiserouter_litellm.groups.outcome import Outcome, outcome_of
from wiserouter_litellm.requests.origin import metadata_of

if TYPE_CHECKING:
    from wiserouter.integration import Bill
    from wiserouter_litellm.groups.group import Group

GRACE_S = 1.0
"""The time that an event of the call has to arrive after the mark is gone: LiteLLM logs in the background."""


class Mark(dict[str, Any]):
    """A decision, as a deployment's copy carries it to the log events of its call; unlike a dict it can be watched."""


class MarkWatch(weakref.ref[Mark]):
    """A weak reference to the mark of an attempt; its callback learns which attempt and which event loop it was."""

    __slots__ = ("decision_id", "loop")

    decision_id: str
    loop: asyncio.AbstractEventLoop | None


@dataclass(eq=False, slots=True)
class OpenAttempt:
    """One attempt of a call.

    Attributes
    ----------
    group : Group
        The group that decided it.
    decision : Decision
        The decision.
    worst_usd : mapping of str to float, USD, or None
        The most that it can cost with each model; None under an expected limit.
    sent : bool
        Whether LiteLLM was about to send it.
    may_change : bool
        Whether other callbacks may change or stop it after it was bounded.
    translated : bool
        Whether LiteLLM has shown it before, so that it may name its model by another route now.
    sends : str or None
        The model that is called, as LiteLLM names it, where that may change.
    unshown : mapping of str to object
        What it is sent with, of what LiteLLM does not show to all hooks.
    log : weak reference or None
        LiteLLM's log of the call.
    started : object
        When LiteLLM had called a provider for the request before.
    answered : bool
        Whether its whole answer came.
    answer : object
        That answer, unless it was streamed.
    followed : bool
        Whether LiteLLM made a further call before it reported the answer of this one, whose answer it then reports.
    bill : Bill or None
        What it cost, where its answer came.
    replayed : bool
        Whether LiteLLM's cache answers it, so that no provider bills it.
    earlier : int or None
        The `id` of the error that was being handled when it began.
    watch : MarkWatch or None
        Reports that its mark is gone, as long as the attempt is in flight.
    """

    group: Group
    decision: Decision
    worst_usd: Mapping[str, float] | None = None
    sent: bool = False
    may_change: bool = False
    translated: bool = False
    sends: str | None = None
    unshown: Mapping[str, Any] = field(default_factory=dict)
    log: weakref.ref[Any] | None = None
    started: object = None
    answered: bool = False
    answer: object = None
    followed: bool = False
    bill: Bill | None = None
    replayed: bool = False
    earlier: int | None = None
    watch: MarkWatch | None = None

    def watch_call(self, kwargs: Mapping[str, Any]) -> None:
        """Note what is called with these arguments, before other callbacks may change or stop it."""
        self.sends = metadata_of(kwargs).get("deployment") or kwargs.get("model")
        log = kwargs.get("litellm_logging_obj")
        self.log = None if log is None else weakref.ref(log)
        self.started = self._started()

    def with_unshown(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments of a call of `/v1/messages`, also where LiteLLM does not show all of them."""
        complete = {**self.unshown, **kwargs}
        self.unshown = {name: complete[name] for name in ("max_tokens", "system") if name in complete}
        return complete

    def is_still_of(self, model: object) -> bool:
        """Return True if this is the model that was chosen: LiteLLM translates `openai/responses/o3` to `openai/o3`."""
        sends, called = self.sends, str(model)
        return sends in {None, called} or (self.translated and _without_route(called) == _without_route(str(sends)))

    def is_called_with(self, kwargs: Mapping[str, Any], info: Mapping[str, Any]) -> bool:
        """Return True if these are its arguments, or have lost its mark and have its log.

        Those of a call that a callback makes meanwhile may have the same metadata, but another log.
        """
        has_log = self.log is not None and self.log() is kwargs.get("litellm_logging_obj")
        return info is kwargs.get("model_info") or has_log

    @property
    def has_called(self) -> bool:
        """Whether its provider was called, as LiteLLM's log says, so that one more call is not the same."""
        return self.answered or self._started() != self.started

    @property
    def was_sent(self) -> bool:
        """Whether it was sent: where another callback let the last look miss it, LiteLLM's log says so."""
        return self.sent or self.has_called

    def _started(self) -> object:
        """Return when LiteLLM last called a provider for this request; None where it has not."""
        return started_by(None if self.log is None else self.log())

    def outcome(self, error: BaseException | None) -> Outcome:
        """Return the outcome of the attempt, which ended with this error as far as anyone knows."""
        return outcome_of(error, earlier=self.earlier) if self.was_sent and not self.replayed else "unbilled"

    def settle(self, error: BaseException | None) -> None:
        """Charge it where it was answered, release it where its error proves it unbilled, and presume it otherwise."""
        failed, id_ = self.blames_model(error), self.decision.id
        if self.bill is not None:
            self.group.settle(id_, self.bill)
        elif self.outcome(error) == "unbilled":
            self.group.release(id_, failed=failed)
        else:
            self.group.presume(id_, failed=failed)

    def blames_model(self, error: BaseException | None) -> bool:
        """Return True if a failure is that of the model, so that its conversation must go on with another one.

        A client that left, a request that was refused, and one of several deployments prove nothing against it.
        """
        is_failure = self.was_sent and isinstance(error, Exception) and not refuses_request(error)
        return is_failure and self.group.registry.n_deployments(self.decision.model) < 2

    def error_that_followed(self) -> BaseException | None:
        """Return the error that is being handled now, unless it is older than the attempt."""
        id_, error = handled_error()
        return None if id_ == self.earlier else error


class OpenAttempts(dict[str, OpenAttempt]):
    """All attempts in flight, by the ids of their decisions.

    Parameters
    ----------
    end : callable
        Called with each attempt that ended unreported, on the event loop on which it began; a synchronous one is left
        to the expiry of its reservation.
    """

    def __init__(self, end: Callable[[OpenAttempt], None]) -> None:
        super().__init__()
        self._end = end

    def begin(self, group: Group, decision: Decision, worst_usd: Mapping[str, float] | None, mark: Mark) -> None:
        """Note an attempt, and watch its mark."""
        watch = MarkWatch(mark, self._mark_gone)
        watch.decision_id, watch.loop = decision.id, _running_loop()
        self[decision.id] = OpenAttempt(group, decision, worst_usd, earlier=handled_error()[0], watch=watch)

    def while_open(self, attempt: OpenAttempt | None) -> Callable[[], bool] | None:
        """Return a function that says whether an attempt is in flight; None where its limit is not hard.

        One whose answer came with a bill is not, although LiteLLM has yet to report it.
        """
        if attempt is None or attempt.worst_usd is None:
            return None
        return lambda: attempt.bill is None and self.get(attempt.decision.id) is attempt

    def replace(self, attempt: OpenAttempt, decision: Decision) -> None:
        """Note that another decision stands for an attempt."""
        self.pop(attempt.decision.id, None)
        attempt.decision = decision
        if attempt.watch is not None:
            attempt.watch.decision_id = decision.id
        self[decision.id] = attempt

    def end_soon(self, decision_id: str) -> None:
        """End an attempt that may still be reported, unless it is settled within the time of grace."""
        if attempt := self.get(decision_id):
            asyncio.get_running_loop().call_later(GRACE_S, self._end_unreported, attempt)

    def _mark_gone(self, watch: weakref.ref[Mark]) -> None:
        """End an attempt that nothing will report, unless it is settled; runs anywhere in any thread, takes no lock."""
        attempt = self.get(watch.decision_id) if isinstance(watch, MarkWatch) else None
        if attempt is None or not isinstance(watch, MarkWatch):
            return
        loop = watch.loop
        if loop is None or loop.is_closed():
            self.pop(attempt.decision.id, None)
        else:
            loop.call_soon_threadsafe(loop.call_later, GRACE_S, self._end_unreported, attempt)

    def _end_unreported(self, attempt: OpenAttempt) -> None:
        if self.pop(attempt.decision.id, None) is not None:
            self._end(attempt)


def is_covered(decision: Decision, model: str, worst_usd: Mapping[str, float]) -> bool:
    """Return True if the reservation of a decision bears the worst case of a model."""
    return model == decision.model or worst_usd.get(model, math.inf) <= decision.reserved_usd


def started_by(log: object) -> object:
    """Return when a provider was last called, as LiteLLM's log of a call says; None where none was."""
    return getattr(log, "model_call_details", {}).get("api_call_start_time")


def _without_route(model: str) -> str:
    """Return the last part of a model's name."""
    return model.rpartition("/")[2]


def handled_error() -> tuple[int | None, BaseException | None]:
    """Return the error that is being handled, and its `id`: LiteLLM repeats a call while it handles its failure."""
    error = sys.exc_info()[1]
    return (None, None) if error is None else (id(error), error)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
