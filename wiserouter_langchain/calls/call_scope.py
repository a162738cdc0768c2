"""The scope of one call, sync and async: it opens the chain run, decides, settles the cost and ends the run.

Whatever ends the block ends the call: an answer, an error, a cancelled task, or a stream that is closed early.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, Self

from langchain_core.callbacks import (
    AsyncCallbackManager,
    AsyncCallbackManagerForChainRun,
    BaseCallbackManager,
    CallbackManager,
    CallbackManagerForChainRun,
    Callbacks,
)
from langchain_core.language_models import LanguageModelInput
from langchain_core.runnables import RunnableConfig, ensure_config

from wiserouter.errors import AlreadySettled, StoreError, UnknownDecision, WiseRouterError
from wiserouter.integration import SHORT_TEXT_CHARS, ContextAssignment, Unit, offload, refuses_request, share_key
from wiserouter_langchain.calls.call_environment import RoutingChatModel, forced_model, payer_of, stated_value
from wiserouter_langchain.calls.dropped_streams import end_generator
from wiserouter_langchain.calls.run_at_work import within_run
from wiserouter_langchain.decisions.candidates import CallTerms, begin_call, needed_usd
from wiserouter_langchain.decisions.conversation_call import CallConversation, conversation_of_call
from wiserouter_langchain.decisions.conversation_ids import stated_ids, turns_of
from wiserouter_langchain.decisions.routed_call import RECORD, RoutedCall
from wiserouter_langchain.decisions.shadow import begin_in_shadow
from wiserouter_langchain.decisions.signals import asker_of, read_call, read_history
from wiserouter_langchain.requests.operations import sent_arguments
from wiserouter_langchain.requests.request import request_of

logger = logging.getLogger("wiserouter.langchain")

AdmissionTerms = tuple[str, Callable[[bool], RoutedCall], Callable[[], float], float]
"""Scope, attempt, least worst case and longest wait, as `AdmissionQueue.admit` takes them."""


def routed(
    llm: RoutingChatModel, input: LanguageModelInput, config: RunnableConfig | None, kwargs: dict[str, Any]
) -> CallScope:
    """Return the context manager of one call; it yields itself, and `call` is the attempt that is under way.

    Parameters
    ----------
    llm : RoutingChatModel
        The router.
    input : LanguageModelInput
        The prompt.
    config : RunnableConfig or None
        The caller's configuration.
    kwargs : dict
        The caller's keyword arguments, and the queued operations.
    """
    return CallScope(llm, input, config, kwargs)


def arouted(
    llm: RoutingChatModel, input: LanguageModelInput, config: RunnableConfig | None, kwargs: dict[str, Any]
) -> AsyncCallScope:
    """Return the asynchronous context manager of one call; the parameters are those of `routed`."""
    return AsyncCallScope(llm, input, config, kwargs)


class _Scope:
    """The part that the sync and the async scope share.

    Attributes
    ----------
    call : RoutedCall
        The attempt that is under way; there is none before the scope is entered.
    """

    call: RoutedCall
    _has_decided = False
    _raised: BaseException | None = None
    _run: Any

    def __init__(
        self, llm: RoutingChatModel, input: LanguageModelInput, config: RunnableConfig | None, kwargs: dict[str, Any]
    ) -> None:
        self._llm, self._environment = llm, within_run(llm._environment)
        self._config, self._kwargs = ensure_config(config), sent_arguments(kwargs)
        self._forced = forced_model(self._config)
        self._messages = llm._convert_input(input).to_messages()
        self._ends_with_stream = False
        environment = self._environment
        self._payer = payer_of(environment, self._config)
        self._value = environment.value if environment.value is not None else stated_value(self._config)
        self._is_placed = environment.lookup.needs_question
        reads_question = self._is_placed or llm.draw_by == "question" or environment.unit != "call"
        self._request = request_of(self._messages, self._kwargs, reads_question=reads_question)
        self._assignment = ContextAssignment(0)
        self._failed: list[str] = []
        self._first_error: BaseException | None = None
        self._conversation: CallConversation | None = None

    def _manager(self, kind: Any) -> Any:
        """Return the callback manager of the chain run; what is set on the router also holds for the model's run."""
        llm, config = self._llm, self._config
        callbacks = _inherited(config.get("callbacks"), llm.callbacks)
        metadata = config.get("metadata")
        manager = kind.configure(callbacks, None, llm.verbose, config.get("tags"), None, metadata)
        manager.add_tags(llm.tags or [])
        manager.add_metadata(llm.metadata or {})
        return manager

    def _run_names(self) -> dict[str, Any]:
        return {
            "name": self._config.get("run_name") or self._llm.get_name(),
            "run_id": self._config.pop("run_id", None),
        }

    def _call_terms(self) -> CallTerms:
        return CallTerms(
            kwargs=self._kwargs,
            messages=self._messages,
            forced=self._forced,
            preferred=self._environment.preferred,
            cap_output_tokens=self._llm.cap_output_tokens,
            scope=self._payer,
            failed=self._failed,
            resting=self._environment.rests.resting() if self._environment.rests.any else (),
            draw_key=self._draw_key(),
            conversation=self._conversation,
            value=self._value,
        )

    def _draw_key(self) -> str | None:
        draw_by = self._llm.draw_by
        return None if draw_by == "request" else self._request.draw_key(draw_by, context=self._assignment.context)

    def _decided(self, may_wait: bool) -> RoutedCall:
        """Decide, and return the call."""
        core, members = self._environment.core, self._environment.members
        if self._environment.unit != "call" and self._conversation is None:
            self._conversation = self._found_conversation(self._environment.unit)
        if self._llm.signals and core.signals is not None:
            read_history(core, core.signals, self._messages, asker_of(self._config, self._payer))
        asked = (core, members, self._request, self._assignment, self._call_terms())
        if self._llm.mode == "shadow":
            return begin_in_shadow(*asked, self._incumbent(), self._share_key)
        return begin_call(*asked, may_wait=may_wait)

    def _incumbent(self) -> str:
        """Return the model that takes the call without the router."""
        return self._llm.incumbent or next(iter(self._environment.members))

    def _share_key(self) -> str:
        """Return the key by which the call is on one side of shadow mode with the others of its conversation."""
        stated = stated_ids(self._config, self._messages, program=self._environment.named_run.id)
        return share_key(stated, turns_of(self._messages), self._payer)

    def _found_conversation(self, unit: Unit) -> CallConversation:
        """Return the conversation that the call belongs to."""
        environment = self._environment
        return conversation_of_call(
            environment.core,
            unit,
            self._config,
            self._messages,
            self._payer,
            self._run,
            environment.named_run,
            informative=self._request.informative,
        )

    def _needed_usd(self) -> float:
        """Return the least worst case of the call under a hard limit."""
        return needed_usd(self._environment.core, self._environment.members, self._request, self._call_terms())

    def _terms(self) -> AdmissionTerms:
        """Return the arguments with which the queue admits the call."""
        return self._payer, self._decided, self._needed_usd, self._llm.max_wait_s

    def _may_fail_over(self, error: BaseException) -> bool:
        """Record an error, and return True if another model may still answer: no part of an answer has arrived."""
        call = self.call
        if self._first_error is None:
            self._first_error = error
        if call.error is None or call.output is not None or call.decision.would_be:
            return False
        model = call.decision.model
        self._failed.append(model)
        if not (refuses_request(call.error) or call.observer.runs[-1].unsent):
            self._environment.rests.begin(model)
        return len(self._failed) < self._llm.max_attempts and len(self._failed) < len(self._environment.members)

    def _raise_first(self, error: BaseException) -> NoReturn:
        """Raise the error of the first attempt, with a note of those that followed."""
        first = self._first_error or error
        if self._failed[1:]:
            first.add_note(f"then failed as well: {', '.join(self._failed[1:])}")
        raise first

    def _begin(self, call: RoutedCall, run: Any) -> None:
        """Begin an attempt: enter it in the index, and prepare the arguments of its model."""
        self.call, self._has_decided = call, True
        enter = partial(self._environment.index.add, call.decision.id)
        enter(run.run_id, *([run.parent_run_id] if run.parent_run_id else []))
        call.observer.on_start = enter
        cap = None if call.decision.would_be else self._llm.cap_output_tokens
        callbacks = run.get_child()
        call.prepare(self._messages, self._kwargs, self._config, callbacks, cap, self._failed)

    def _outputs(self) -> dict[str, Any]:
        """Return the outputs of the chain run."""
        return {"output": self.call.output, RECORD: self.call.record} if self._has_decided else {}

    def _settle(self, call: RoutedCall) -> None:
        """Settle a call, and let other workers find it."""
        model = call.decision.model
        if self._raised is not None:
            call.observer.take_back_start(self._raised)
        try:
            remark, error = call.settle()
            if error is not None:
                self._environment.index.forget(call.decision.id)
            else:
                self._name(call)
                if self._llm.signals and (signals := self._environment.core.signals) is not None:
                    asker = asker_of(self._config, self._payer)
                    read_call(self._environment.core, signals, call, self._messages, asker, self._raised)
        except StoreError as error:  # the answer is there; what this worker decided is settled later
            logger.warning("%s: feedback may not find a call of %s", error, model)
            return
        except (UnknownDecision, AlreadySettled) as error:  # the store forgot the decision: the answer is still there
            logger.warning("%s: a call of %s could not be settled", error, model)
            return
        if remark and (model, remark) not in self._environment.remarked:
            self._environment.remarked.add((model, remark))
            logger.warning("%s %s", model, remark.value)

    def _name(self, call: RoutedCall) -> None:
        """Let other workers, and the calls that follow in its conversation, find a call."""
        environment, conversation = self._environment, self._conversation
        names = environment.index.shared_names(call.decision.id) if environment.durable else []
        if conversation is not None:
            names += conversation.names(call.observer.answer)
        if names:
            environment.core.alias(names, call.decision)


class CallScope(_Scope):
    """The scope of a call in a thread that may wait."""

    _run: CallbackManagerForChainRun

    def __enter__(self) -> Self:
        """Open the chain run, and decide."""
        manager = self._manager(CallbackManager)
        self._run = manager.on_chain_start(None, {"messages": self._messages}, **self._run_names())
        try:
            if self._is_placed:
                self._assignment = self._environment.lookup.look_up(self._request.question)
            self._begin(self._environment.queue.admit(*self._terms()), self._run)
            return self
        except BaseException as error:
            self._end(error)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Settle the call, and end its run."""
        if isinstance(error, GeneratorExit):
            end_generator(partial(self._end, error))
        elif error is not None or not self._ends_with_stream:
            self._end(error)

    def fail_over(self, error: Exception) -> None:
        """Settle an attempt that failed, and let the next best model try; raise the first error where none may."""
        next_call: RoutedCall | None = None
        if self._may_fail_over(error):
            self._settle(self.call)
            try:
                next_call = self._environment.queue.admit(*self._terms())
            except WiseRouterError as refusal:  # no other model can take the call, or no budget pays for it
                error.add_note(f"no other model may try: {refusal}")
        if next_call is None:
            self._raise_first(error)
        self._begin(next_call, self._run)

    def end_with_stream(self) -> RoutedCall:
        """Let the observer end the call, which is returned: the caller reads the model's own stream after the block."""
        self._ends_with_stream = True
        self.call.observer.on_end = partial(self._stream_ended, self.call)
        return self.call

    def end_dropped_stream(self) -> None:
        """End the call of a stream that was dropped, unless its end has done so."""
        if not self.call.observer.has_ended:
            self._stream_ended(self.call, GeneratorExit())

    def _stream_ended(self, call: RoutedCall, error: BaseException | None) -> None:
        self._settle(call)
        _end_run(self._run, error, {RECORD: call.record})

    def _end(self, error: BaseException | None) -> None:
        self._raised = error
        if self._has_decided:
            self._settle(self.call)
        _end_run(self._run, error, self._outputs())


class AsyncCallScope(_Scope):
    """The scope of a call on the event loop: a step that may wait for the store runs in a thread."""

    _run: AsyncCallbackManagerForChainRun

    async def __aenter__(self) -> Self:
        """Open the chain run, and decide."""
        manager = self._manager(AsyncCallbackManager)
        self._run = await manager.on_chain_start(None, {"messages": self._messages}, **self._run_names())
        try:
            if self._is_placed:
                self._assignment = await self._environment.lookup.alook_up(self._request.question)
            self._begin(await self._adecided(), self._run)
            return self
        except BaseException as error:
            await self._aend(error)
            raise

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Settle the call, and end its run."""
        if error is not None or not self._ends_with_stream:
            await self._aend(error)

    async def fail_over(self, error: Exception) -> None:
        """Settle an attempt that failed, and let the next best model try; raise the first error where none may."""
        next_call: RoutedCall | None = None
        if self._may_fail_over(error):
            await self._asettle(self.call)
            try:
                next_call = await self._adecided()
            except WiseRouterError as refusal:  # no other model can take the call, or no budget pays for it
                error.add_note(f"no other model may try: {refusal}")
        if next_call is None:
            self._raise_first(error)
        self._begin(next_call, self._run)

    def end_with_stream(self) -> RoutedCall:
        """Let the observer end the call, which is returned: the caller reads the model's own stream after the block."""
        self._ends_with_stream = True
        self.call.observer.on_end = partial(self._stream_ended, self.call, asyncio.get_running_loop())
        return self.call

    def end_dropped_stream(self) -> None:
        """End the call of a stream that was dropped, unless its end has done so; in a thread that may wait."""
        if not self.call.observer.has_ended:
            self._settle(self.call)
            _end_run(self._run.get_sync(), GeneratorExit(), {})

    def _stream_ended(self, call: RoutedCall, loop: asyncio.AbstractEventLoop, error: BaseException | None) -> None:
        if self._is_quick():
            self._settle(call)
        else:
            loop.run_in_executor(None, self._settle, call)
        _end_run(self._run.get_sync(), error, {RECORD: call.record})

    async def _adecided(self) -> RoutedCall:
        undo = None if self._is_quick(self._payer) else self._settle
        return await self._environment.queue.aadmit(*self._terms(), undo)

    async def _aend(self, error: BaseException | None) -> None:
        self._raised = error
        if self._has_decided:
            await self._asettle(self.call)
        await _end_run(self._run, error, self._outputs())

    async def _asettle(self, call: RoutedCall) -> None:
        if self._is_quick():
            self._settle(call)
        else:
            await offload(partial(self._settle, call))

    def _is_quick(self, *scopes: str) -> bool:
        """Return True if a step need not leave the event loop: its text is short, and no store has to be waited for."""
        return len(self._request.counted) < SHORT_TEXT_CHARS and not self._environment.core.waits(*scopes)


def _inherited(stated: Callbacks, own: Callbacks) -> BaseCallbackManager:
    """Return the callbacks of a call with the router's own, so that LangChain adds no tracer beside one of them."""
    handlers = [] if isinstance(stated, BaseCallbackManager) else list(stated or ())
    manager = stated.copy() if isinstance(stated, BaseCallbackManager) else BaseCallbackManager(handlers, handlers[:])
    for handler in own.handlers if isinstance(own, BaseCallbackManager) else own or ():
        manager.add_handler(handler)
    return manager


def _end_run(run: Any, error: BaseException | None, outputs: dict[str, Any]) -> Any:
    """End a chain run; where it is asynchronous, return the awaitable that ends it."""
    return run.on_chain_end(outputs) if error is None else run.on_chain_error(error)
