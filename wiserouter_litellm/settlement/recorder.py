"""The recorder of calls: it notes decisions, settles the calls that LiteLLM reports and takes users' scores.

A decision travels in the `model_info` of the deployment's copy, one per attempt, so that the log event of a retry or a
fallback cannot be mistaken for that of another attempt. A failed attempt is released only where its error proves that
nothing was billed; every other end that is not a bill is presumed to have cost what was held back.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from litellm.integrations.custom_logger import CustomLogger

from wiserouter import Decision, WiseRouter
from wiserouter.errors import StoreError, UnknownDecision
from wiserouter.integration import offload
from wiserouter_litellm.billing.bill import is_part, is_understated
from wiserouter_litellm.billing.counted_streams import may_be_counted
from wiserouter_litellm.billing.unfinished_streams import note_unfinished_streams
from wiserouter_litellm.conversations.continuations import keys_of_answer
from wiserouter_litellm.conversations.feedback_keys import id_of_call, keys_to_try
from wiserouter_litellm.conversations.request_conversation import SESSION_KEYS, TURN_KEY, names_of_answer
from wiserouter_litellm.groups.as_sent import refuse_as_sent
from wiserouter_litellm.groups.attempts import OpenAttempt, OpenAttempts, is_covered, started_by
from wiserouter_litellm.groups.group import DECISION_KEY, Group
from wiserouter_litellm.groups.last_look import decided_again, follows, give_back, look_at
from wiserouter_litellm.groups.signals import read_answer_signals
from wiserouter_litellm.groups.single_send import send_once
from wiserouter_litellm.requests.json_objects import MAPPING
from wiserouter_litellm.requests.origin import TRACE_KEY, metadata_of
from wiserouter_litellm.settlement.blocked_answers import note_answer
from wiserouter_litellm.settlement.call_times import times_of
from wiserouter_litellm.settlement.events import about_to_be_sent, answering, attempted, info_of
from wiserouter_litellm.settlement.judge import offer_answer
from wiserouter_litellm.settlement.other_surfaces import RecentIds, charge_unrouted, note_failed, unrouted_mark
from wiserouter_litellm.settlement.own_answers import is_of_earlier_call, read_event, unredacted
from wiserouter_litellm.settlement.sessions import end_session, rate_session
from wiserouter_litellm.settlement.unpaid_costs import UnpaidCosts

REQUEST_NOTE_KEY = "wiserouter"
"""Key of the request's metadata under which the latest decision is recorded, for headers and retries."""

Undo = Callable[[Any], object] | None


class Marked(NamedTuple):
    """The decision that a log event belongs to, and the mark that says so."""

    group: Group
    decision_id: str
    mark: Mapping[str, Any]


class Recorder(CustomLogger):
    """Settles the calls of some groups, whichever object selected their deployments.

    Parameters
    ----------
    groups : mapping of str to Group
        The groups by name.
    """

    def __init__(self, groups: Mapping[str, Group]) -> None:
        super().__init__()
        self.groups = dict(groups)
        self.owner = uuid.uuid4().hex
        self.registered: CustomLogger = self  # the callback by which LiteLLM reaches it
        self.attempts = OpenAttempts(self._end)
        self._unrouted_ids, self.unpaid = RecentIds(), UnpaidCosts()
        self._note_failed = partial(note_failed, self.groups, self.owner, self._unrouted_ids)
        self._ending: set[asyncio.Task[None]] = set()
        note_unfinished_streams()

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Note that an attempt is sent, to the deployment that LiteLLM's later filters left.

        Raises
        ------
        BudgetRefused, BudgetUncertain
            If a hard budget does not bear the worst case of that deployment.
        """
        await self.aconfirm(kwargs.get("model_info"), kwargs)
        return None

    async def async_post_call_failure_deployment_hook(
        self, request_data: Mapping[str, Any], exception: Exception, call_type: Any, fallback_depth: int | None = None
    ) -> None:
        """Settle a failed attempt by its own error; LiteLLM awaits this before it tries again."""
        attempt = self._attempt_of(info := about_to_be_sent(request_data))
        if attempt is not None and attempt.is_called_with(request_data, info):
            await self._aend(attempt.decision.id, exception)
        self._note_failed(info, exception, started_by(request_data.get("litellm_logging_obj")))

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: Any
    ) -> None:
        """Keep an answer and its bill, for the case that LiteLLM does not report it, or shows it redacted."""
        attempt = self._attempt_of(request_data.get("model_info"))
        if attempt is not None:
            note_answer(attempt, request_data, response)

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Charge the call."""
        if marked := self.decision_of(model_info := answering(kwargs)):
            if is_of_earlier_call(self.attempts.get(marked.decision_id), kwargs):
                return
            if marked.group.router.judge is not None:
                offer_answer(marked.group.router.judge, self.attempts.get(marked.decision_id), kwargs, response_obj)
            charge = partial(self._charge, marked, model_info, kwargs, response_obj)
            counts = is_part(kwargs) or may_be_counted(kwargs, response_obj)
            await _off_the_loop(marked.group, charge, takes_long=counts)
        elif mark := self._unrouted(kwargs):
            group = self.groups[mark["group"]]
            await _off_the_loop(group, partial(charge_unrouted, group, mark, kwargs, response_obj, self.unpaid))

    async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Presume the cost of an attempt that failed while it was answered, such as a stream that broke off."""
        if marked := self.decision_of(attempted(kwargs)):
            await self._aend(marked.decision_id, None)
        self._note_failed(attempted(kwargs), kwargs.get("exception"), kwargs.get("api_call_start_time"))

    def log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Charge the call, where it was a synchronous one."""
        if marked := self.decision_of(model_info := answering(kwargs)):
            if marked.group.router.judge is not None:
                offer_answer(marked.group.router.judge, self.attempts.get(marked.decision_id), kwargs, response_obj)
            self._charge(marked, model_info, kwargs, response_obj)
        elif mark := self._unrouted(kwargs):
            charge_unrouted(self.groups[mark["group"]], mark, kwargs, response_obj, self.unpaid)

    def log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Settle a failed attempt by its error, where it was a synchronous one."""
        marked = self.decision_of(attempted(kwargs))
        if marked and (attempt := self.attempts.pop(marked.decision_id, None)):
            attempt.settle(kwargs.get("exception"))
        self._note_failed(attempted(kwargs), kwargs.get("exception"), kwargs.get("api_call_start_time"))

    def settle_earlier(self, kwargs: Mapping[str, Any]) -> None:
        """Settle the attempt that this one follows, of whatever group, if no hook and no event has."""
        note = self._earlier(kwargs)
        if note is not None and (attempt := self.attempts.pop(note["decision"], None)):
            attempt.settle(attempt.error_that_followed())

    async def asettle_earlier(self, kwargs: Mapping[str, Any]) -> None:
        """Do what `settle_earlier` does, off the event loop where the store is waited for."""
        note = self._earlier(kwargs)
        if note is not None and (attempt := self.attempts.get(note["decision"])):
            await self._aend(note["decision"], attempt.error_that_followed())

    async def asettle_noted(self, note: Mapping[str, Any], error: Exception) -> None:
        """Settle the attempt of a note, whose request ended with this error, if no hook and no event has."""
        await self._aend(note["decision"], error)

    async def aconfirm(self, model_info: object, kwargs: Mapping[str, Any]) -> None:
        """Do what `confirm` does, off the event loop where the store is waited for."""
        attempt = self._attempt_of(model_info)
        send_once(self.attempts.while_open(attempt))
        refuse_as_sent(attempt, kwargs)
        if attempt is None or attempt.sent:
            return
        is_last = not (attempt.may_change and follows(self.registered))
        attempt.watch_call(kwargs)
        if self._moved_to(attempt, model_info) is not None:
            await _off_the_loop(attempt.group, partial(self.confirm, model_info, kwargs, is_last=is_last))
        else:
            attempt.sent = is_last

    async def alook_again(self, kwargs: Mapping[str, Any], call_type: Any) -> None:
        """Reserve a call again that another callback has made more expensive; note that it is sent.

        Raises
        ------
        BudgetRefused, BudgetUncertain, litellm.BadRequestError
            If a hard budget does not bear the call as it has become.
        """
        attempt = self._attempt_of(info := about_to_be_sent(kwargs))
        if attempt is None or not (attempt.log is None or attempt.is_called_with(kwargs, info)):
            return
        attempt.translated = attempt.sent  # LiteLLM shows such a call again: it is released if it is refused now
        attempt.sent = False
        if attempt.worst_usd is not None:
            look, takes_long = look_at(attempt, info_of(attempt.group, info), kwargs, call_type)
            undo = partial(give_back, attempt.group)
            if (decision := await _off_the_loop(attempt.group, look, undo, takes_long=takes_long)) is not None:
                self._replace(attempt, decision, info, kwargs)
        attempt.sent = True

    def confirm(self, model_info: object, kwargs: Mapping[str, Any], *, is_last: bool = True) -> None:
        """Note that an attempt is sent to a deployment; where its reservation does not bear that one, decide again.

        Parameters
        ----------
        model_info : mapping
            That of the deployment, with the mark.
        kwargs : mapping
            The request's keyword arguments.
        is_last : bool, default True
            Whether no callback may still stop it.

        Raises
        ------
        BudgetRefused, BudgetUncertain
            If a hard budget does not bear the worst case of the deployment.
        """
        attempt = self._attempt_of(model_info)
        if attempt is None or attempt.sent or not isinstance(model_info, MAPPING):
            return
        worst_usd, model = attempt.worst_usd, self._moved_to(attempt, model_info)
        if worst_usd is not None and model is not None:
            decision = decided_again(attempt.group, attempt.decision, model, worst_usd)
            self._replace(attempt, decision, model_info, kwargs)
        attempt.sent = is_last

    def _replace(
        self, attempt: OpenAttempt, decision: Decision, model_info: Mapping[str, Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Let another decision stand for an attempt, in its mark and in the note of its request."""
        earlier_id = attempt.decision.id
        self.attempts.replace(attempt, decision)
        mark, note = model_info[DECISION_KEY], self.note_of(kwargs)
        mark["id"] = decision.id
        attempt.group.alias([*mark["keys"], *mark.get(SESSION_KEYS, ())], decision.id)
        if isinstance(note, dict) and note["decision"] == earlier_id:
            note |= {"decision": decision.id, "ask_feedback": decision.ask_feedback}

    def feedback(
        self,
        call: object,
        score: float,
        *,
        source: str = "human",
        weight: float = 1.0,
        comment: str | None = None,
        caller: str | None = None,
        any_caller: bool = False,
        tenant: str = "",
    ) -> bool:
        """Take a user's score of an answer, or of a run.

        Parameters
        ----------
        call : str or response
            The call id (`x-litellm-call-id`), the decision id (`x-wiserouter-decision`), the response id, or the
            answer itself; the id of a session rates its run, or the latest call of its conversation.
        score : float
            In [0, 1].
        source, weight : str, default "human", and float, default 1
            As in `WiseRouter.reward`.
        comment : str, optional
            Kept in the journal, where there is one.
        caller : str, optional
            The hash of the key that asks; only the key that made a call may rate it.
        any_caller : bool, default False
            Whether the caller may rate the calls of every key, as administrators may.
        tenant : str, optional
            The caller as conversations know it (`tenant_of`).

        Returns
        -------
        bool
            Whether it replaced an earlier score of this source.

        Raises
        ------
        UnknownCall
            If there is no such call of this caller.
        AlreadySettled
            If the call failed.
        InvalidInput
            If the score is outside [0, 1].
        StoreUnavailable
            If the store that may know the call cannot be reached.
        """
        id_ = id_of_call(call)
        unavailable: StoreError | None = None
        key, *others = keys_to_try(id_, caller, any_caller=any_caller)
        for group in self.groups.values():
            try:
                decision_id = group.router.decision(key, *others).id if others else key
                return group.router.reward(decision_id, score, source=source, weight=weight, comment=comment)
            except UnknownDecision:
                continue
            except StoreError as error:
                unavailable = error
        if unavailable is not None:
            raise unavailable
        rate = partial(WiseRouter.reward, reward=score, source=source, weight=weight, comment=comment)
        return rate_session(self.groups.values(), id_, tenant, rate)

    def end(self, call: object, *, caller: str | None = None, any_caller: bool = False, tenant: str = "") -> None:
        """End the run of a session, or of a call; parameters and errors as in `feedback`."""
        end_session(self.groups.values(), id_of_call(call), caller, tenant, any_caller=any_caller)

    async def afeedback(self, call: object, score: float, **terms: Any) -> bool:
        """Do what `feedback` does, off the event loop where a store is waited for."""
        step = partial(self.feedback, call, score, **terms)
        return await offload(step) if any(group.router.waits() for group in self.groups.values()) else step()

    def decision_of(self, model_info: object) -> Marked | None:
        """Return the decision that a deployment's `model_info` carries, if this recorder owns it."""
        mark = self._mark_of(model_info)
        return None if mark is None else Marked(self.groups[mark["group"]], mark["id"], mark)

    def note_of(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the note of a request's latest decision, if this recorder owns it."""
        note = metadata_of(kwargs).get(REQUEST_NOTE_KEY)
        return note if isinstance(note, MAPPING) and note.get("owner") == self.owner else None

    def _earlier(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if metadata_of(kwargs).get("is_silent_experiment"):  # it runs beside the call whose note it copied
            return None
        note = self.note_of(kwargs)
        return note if note is not None and note["trace"] == kwargs.get(TRACE_KEY) else None

    def _mark_of(self, model_info: object) -> Mapping[str, Any] | None:
        """Return the mark that a deployment's `model_info` carries, if this recorder owns it."""
        mark = model_info.get(DECISION_KEY) if isinstance(model_info, MAPPING) else None
        return mark if isinstance(mark, MAPPING) and mark.get("owner") == self.owner else None

    def _attempt_of(self, model_info: object) -> OpenAttempt | None:
        """Return the attempt in flight that a deployment's `model_info` carries."""
        mark = self._mark_of(model_info)
        return None if mark is None else self.attempts.get(mark["id"])

    def _moved_to(self, attempt: OpenAttempt, model_info: object) -> str | None:
        """Return the model of a deployment whose worst case an attempt does not bear; None where any may answer."""
        worst_usd = attempt.worst_usd
        if worst_usd is None or not isinstance(model_info, MAPPING):
            return None
        info = info_of(attempt.group, model_info)
        return None if info is None or is_covered(attempt.decision, info.model, worst_usd) else info.model

    async def _aend(self, decision_id: str, error: BaseException | None) -> None:
        """Settle an attempt that ended without an answer, off the event loop where the store is waited for."""
        if attempt := self.attempts.pop(decision_id, None):
            await _off_the_loop(attempt.group, partial(attempt.settle, error))

    def _end(self, attempt: OpenAttempt) -> None:
        """Settle an attempt that ended unreported; runs on an event loop."""
        task = asyncio.ensure_future(_off_the_loop(attempt.group, partial(attempt.settle, None)))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _unrouted(self, kwargs: Mapping[str, Any]) -> Mapping[str, str] | None:
        """Return the mark of a call that was not routed and is not charged yet."""
        mark = unrouted_mark(answering(kwargs), self.owner)
        return mark if mark is not None and self._unrouted_ids.is_new(mark["id"]) else None

    def _charge(
        self, marked: Marked, model_info: Mapping[str, Any], kwargs: Mapping[str, Any], response: object
    ) -> None:
        """Charge a call; where its cost cannot be known, presume it."""
        group, decision_id, mark = marked
        attempt = self.attempts.pop(decision_id, None)
        hard = group.hard if attempt is None else attempt.worst_usd is not None
        if (info := info_of(group, model_info)) is None:
            group.fault("lost_decisions", "a deployment answered that is unknown: the cost of its call is presumed")
            group.presume(decision_id)
            return
        try:
            bill, abandoned, is_own = read_event(attempt, kwargs, response, info, hard=hard)
        except Exception as error:  # an answer that cannot be read was paid for all the same
            group.fault("accounting", "the bill of a call cannot be read: its cost is presumed", error=error)
            bill, abandoned, is_own = None, False, True
        if bill is None or (hard and (bill.estimated or abandoned)):
            group.presume(decision_id)  # the provider may have billed more than was delivered, or than can be counted
        else:
            times = times_of(kwargs) if group.router.has_limits else None
            group.settle(decision_id, bill._replace(learn=False) if abandoned else bill, times)
        if bill is not None and not bill.learn:
            group.alias(mark["keys"], "")  # an answer of LiteLLM's cache cannot be rated
        else:
            response = unredacted(attempt, kwargs, response)
            keys = keys_of_answer(response, mark, str(model_info.get("id")), info)
            group.alias(keys + names_of_answer(mark[TURN_KEY], response) if TURN_KEY in mark else keys, decision_id)
            if group.signals is not None and not abandoned:
                read_answer_signals(group, group.signals, mark, kwargs, response)
        if bill is not None and bill.estimated and not abandoned:
            group.fault(
                "estimated_costs",
                f"{bill.model} answered without a usage block, so its tokens were estimated; for streams pass "
                f"stream_options={{'include_usage': True}}",
            )
        if bill is not None and is_own and not abandoned and is_understated(kwargs, bill, info):
            group.fault(
                "understated_costs",
                f"LiteLLM reports {kwargs.get('response_cost')!r:.30} USD for a call of {bill.model} that costs "
                f"{bill.cost_usd:.6g} USD at the prices of its deployment: these are charged",
            )


async def _off_the_loop(group: Group, step: Callable[[], Any], undo: Undo = None, *, takes_long: bool = False) -> Any:
    """Settle or release, off the event loop where the store is waited for or the step itself takes long."""
    if takes_long or (group.durable and group.router.waits()):
        return await offload(step, undo)
    return step()
