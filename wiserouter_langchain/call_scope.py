"""The scope of one call, sync and async: it opens the chain run, decides, settles the cost and ends the run.

Whatever ends the block ends the call: an answer, an error, a cancelled task, or a stream that is closed early.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManager,
    AsyncCallbackManagerForChainRun,
    CallbackManager,
    CallbackManagerForChainRun,
)
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.runnables import RunnableConfig, ensure_config
from pydantic import PrivateAttr

from wiserouter import WiseRouter
from wiserouter.errors import StoreError
from wiserouter.integration import (
    MAX_WAIT_S,
    SHORT_TEXT_CHARS,
    AdmissionQueue,
    CallRequest,
    ContextAssignment,
    ContextLookup,
    offload,
)
from wiserouter_langchain.candidates import begin_call, needed_usd
from wiserouter_langchain.decision_index import DecisionIndex
from wiserouter_langchain.pool_member import PoolMember
from wiserouter_langchain.request import request_of
from wiserouter_langchain.routed_call import OPERATIONS, RECORD, RoutedCall

logger = logging.getLogger("wiserouter.langchain")

AdmissionTerms = tuple[str, Callable[[bool], RoutedCall], Callable[[], float], float]
"""Scope, attempt, least worst case and longest wait, as `AdmissionQueue.admit` takes them."""

FORCED = "wise_model"
"""Name of the configurable that forces a model."""

SCOPE = "wiserouter_scope"
"""Name of the configurable, or key of the metadata, that names the scope whose budget pays."""


@dataclass(frozen=True, slots=True)
class CallEnvironment:
    """The objects that all calls of a router share, and its settings.

    Attributes
    ----------
    core : WiseRouter
        Decides, and keeps the budget.
    members : mapping of str to PoolMember
        The pool.
    lookup : ContextLookup
        Finds the context of a question.
    index : DecisionIndex
        Finds decisions by run.
    preferred : str or None
        The model that takes each call that it can take and the budget pays for.
    payer : str or None
        The scope that pays, whatever the configuration says.
    queue : AdmissionQueue
        The calls that wait while the rest of the budget is only held by calls in flight.
    durable : bool
        Whether other workers can find decisions in the store.
    without_usage : set of str
        The models that have answered without usage; each is logged once.
    """

    core: WiseRouter
    members: Mapping[str, PoolMember]
    lookup: ContextLookup
    index: DecisionIndex
    queue: AdmissionQueue
    preferred: str | None = None
    payer: str | None = None
    durable: bool = False
    without_usage: set[str] = field(default_factory=set)


class RoutingChatModel(BaseChatModel):
    """A chat model that delegates its calls; the part of it that a scope needs."""

    cap_output_tokens: int | None = None
    max_wait_s: float = MAX_WAIT_S

    _environment: CallEnvironment = PrivateAttr()


def routed(
    llm: RoutingChatModel, input: LanguageModelInput, config: RunnableConfig | None, kwargs: dict[str, Any]
) -> CallScope:
    """Return the context manager of one call; it yields the `RoutedCall`.

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
    """The part that the sync and the async scope share."""

    def __init__(
        self, llm: RoutingChatModel, input: LanguageModelInput, config: RunnableConfig | None, kwargs: dict[str, Any]
    ) -> None:
        self._llm, self._environment = llm, llm._environment
        self._config, self._kwargs = ensure_config(config), kwargs
        self._messages = llm._convert_input(input).to_messages()
        self._call: RoutedCall | None = None
        self._ends_with_stream = False

    def _manager(self, kind: Any) -> Any:
        """Return the callback manager of the chain run."""
        llm, config = self._llm, self._config
        return kind.configure(
            config.get("callbacks"),
            llm.callbacks,
            llm.verbose,
            config.get("tags"),
            llm.tags,
            config.get("metadata"),
            llm.metadata,
        )

    def _run_names(self) -> dict[str, Any]:
        return {
            "name": self._config.get("run_name") or self._llm.get_name(),
            "run_id": self._config.pop("run_id", None),
        }

    def _request(self) -> CallRequest:
        return request_of(self._messages, self._kwargs, self._kwargs.get(OPERATIONS, ()))

    def _decided(self, request: CallRequest, assignment: ContextAssignment, may_wait: bool) -> RoutedCall:
        """Decide, and return the call."""
        environment = self._environment
        return begin_call(
            environment.core,
            environment.members,
            request,
            assignment,
            self._configurable().get(FORCED),
            environment.preferred,
            self._llm.cap_output_tokens,
            self._payer(),
            may_wait=may_wait,
        )

    def _needed_usd(self, request: CallRequest) -> float:
        """Return the least worst case of the call under a hard limit."""
        core, members, forced = self._environment.core, self._environment.members, self._configurable().get(FORCED)
        return needed_usd(core, members, request, forced, self._llm.cap_output_tokens, self._payer())

    def _terms(self, request: CallRequest, assignment: ContextAssignment) -> AdmissionTerms:
        """Return the arguments with which the queue admits the call."""
        attempt = partial(self._decided, request, assignment)
        return self._payer(), attempt, partial(self._needed_usd, request), self._llm.max_wait_s

    def _payer(self) -> str:
        """Return the scope that pays: the one that the program has set, else the one of the configuration."""
        if self._environment.payer:
            return self._environment.payer
        named = self._configurable().get(SCOPE) or (self._config.get("metadata") or {}).get(SCOPE)
        return str(named) if named else "default"

    def _configurable(self) -> Mapping[str, Any]:
        return self._config.get("configurable") or {}

    def _ready(self, call: RoutedCall, run: Any) -> RoutedCall:
        """Enter the call in the index, and prepare what its model is called with."""
        enter = partial(self._environment.index.add, call.decision.id)
        enter(run.run_id, *([run.parent_run_id] if run.parent_run_id else []))
        call.observer.on_start = enter
        call.prepare(self._messages, self._kwargs, self._config, run.get_child(), self._llm.cap_output_tokens)
        return call

    def _outputs(self) -> dict[str, Any]:
        """Return the outputs of the chain run."""
        return {} if self._call is None else {"output": self._call.output, RECORD: self._call.record}

    def _settle(self, call: RoutedCall) -> None:
        """Settle a call, and let other workers find it."""
        core, model = self._environment.core, call.decision.model
        try:
            estimated = call.settle()
            if self._environment.durable:
                for name in self._environment.index.shared_names(call.decision.id):
                    core.alias(name, call.decision)
        except StoreError as error:  # the answer is there; what this worker decided is settled later
            logger.warning("%s: feedback may not find a call of %s", error, model)
            return
        if estimated and model not in self._environment.without_usage:
            self._environment.without_usage.add(model)
            logger.warning(
                "%s answered without usage, so its tokens are estimated: for streams of OpenAI-like models pass "
                "model.model_copy(update={'stream_usage': True})",
                model,
            )


class CallScope(_Scope):
    """The scope of a call in a thread that may wait."""

    _run: CallbackManagerForChainRun

    def __enter__(self) -> RoutedCall:
        """Open the chain run, and decide."""
        manager = self._manager(CallbackManager)
        self._run = manager.on_chain_start(None, {"messages": self._messages}, **self._run_names())
        try:
            request = self._request()
            assignment = self._environment.lookup.look_up(request.question)
            self._call = self._environment.queue.admit(*self._terms(request, assignment))
            return self._ready(self._call, self._run)
        except BaseException as error:
            self._end(error)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Settle the call, and end its run."""
        if error is not None or not self._ends_with_stream:
            self._end(error)

    def end_with_stream(self, call: RoutedCall) -> None:
        """Let the observer end the call: the caller reads the model's own stream after the block."""
        self._ends_with_stream = True
        call.observer.on_end = partial(self._stream_ended, call)

    def _stream_ended(self, call: RoutedCall, error: BaseException | None) -> None:
        self._settle(call)
        _end_run(self._run, error, {RECORD: call.record})

    def _end(self, error: BaseException | None) -> None:
        if self._call is not None:
            self._settle(self._call)
        _end_run(self._run, error, self._outputs())


class AsyncCallScope(_Scope):
    """The scope of a call on the event loop: a step that may wait for the store runs in a thread."""

    _run: AsyncCallbackManagerForChainRun

    async def __aenter__(self) -> RoutedCall:
        """Open the chain run, and decide."""
        manager = self._manager(AsyncCallbackManager)
        self._run = await manager.on_chain_start(None, {"messages": self._messages}, **self._run_names())
        try:
            self._call = await self._adecided()
            return self._ready(self._call, self._run)
        except BaseException as error:
            await self._aend(error)
            raise

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Settle the call, and end its run."""
        if error is not None or not self._ends_with_stream:
            await self._aend(error)

    def end_with_stream(self, call: RoutedCall) -> None:
        """Let the observer end the call: the caller reads the model's own stream after the block."""
        self._ends_with_stream = True
        call.observer.on_end = partial(self._stream_ended, call, asyncio.get_running_loop())

    def _stream_ended(self, call: RoutedCall, loop: asyncio.AbstractEventLoop, error: BaseException | None) -> None:
        if self._environment.core.waits():
            loop.run_in_executor(None, self._settle, call)
        else:
            self._settle(call)
        _end_run(self._run.get_sync(), error, {RECORD: call.record})

    async def _adecided(self) -> RoutedCall:
        request = self._request()
        assignment = await self._environment.lookup.alook_up(request.question)
        is_quick = len(request.counted) < SHORT_TEXT_CHARS and not self._environment.core.waits(self._payer())
        undo = None if is_quick else self._settle
        return await self._environment.queue.aadmit(*self._terms(request, assignment), undo)

    async def _aend(self, error: BaseException | None) -> None:
        if self._call is not None:
            if self._environment.core.waits():
                await offload(partial(self._settle, self._call))
            else:
                self._settle(self._call)
        await _end_run(self._run, error, self._outputs())


def _end_run(run: Any, error: BaseException | None, outputs: dict[str, Any]) -> Any:
    """End a chain run; where it is asynchronous, return the awaitable that ends it."""
    return run.on_chain_end(outputs) if error is None else run.on_chain_error(error)
