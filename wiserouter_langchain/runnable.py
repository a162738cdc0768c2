"""`RunnableWiseRouter`: a chat model that delegates every call to a chat model that it chooses under a budget.

Each of invoke, ainvoke, stream and astream opens one chain run, decides, calls the chosen model below that run and
settles the usage that an observer saw there; batches, event streams and `transform` use these four. The chosen model
keeps its own cache, callbacks and tool format. The router never generates itself, so that no method bills a call twice.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatResult, LLMResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import set_config_context
from langchain_core.runnables.utils import coro_with_context
from pydantic import Field

from wiserouter import Budget, Price, WiseRouter
from wiserouter.errors import InvalidInput, UnknownModel
from wiserouter.integration import ContextLookup, Unit, admission_queue, check_value, load_tokenizer
from wiserouter_langchain.calls.call_environment import CallEnvironment
from wiserouter_langchain.calls.call_scope import arouted, routed
from wiserouter_langchain.calls.counted_admission import CountedAdmission
from wiserouter_langchain.calls.event_streams import astream_events_v3, stream_events_v3
from wiserouter_langchain.calls.generate import ainvoke_each, configs_of, invoke_each
from wiserouter_langchain.calls.model_streams import aclosed_at_end, closed_at_end
from wiserouter_langchain.calls.pooled_chat_model import PooledChatModel
from wiserouter_langchain.calls.rests import Rests
from wiserouter_langchain.decisions.conversation_call import NamedRun
from wiserouter_langchain.decisions.decision_index import DecisionIndex
from wiserouter_langchain.decisions.judge import start_judge
from wiserouter_langchain.decisions.shadow import shadow_setting
from wiserouter_langchain.pool.wrapped_models import all_unwrapped
from wiserouter_langchain.requests.operations import OPERATIONS, ShownTools
from wiserouter_langchain.setup import add_member, open_conversations, open_router, pool_members, start_tracing
from wiserouter_langchain.structured_output import StructuredWiseRouter


class RunnableWiseRouter(PooledChatModel):
    """A chat model that chooses a chat model for each input under a budget.

    Parameters
    ----------
    models : dict of str to BaseChatModel, or to a list of arms such as `llm.bind(reasoning_effort="low")`
        The pool; the names are those of `router`. `bind`, `with_config` and `with_retry` may be around a model.
    router : WiseRouter, optional
        Fitted on history. By default one that knows the models' prices and learns the rest.
    budget : Budget, optional
        Started on the router; needed where none runs yet. One that runs goes on, with the amount and horizon given now.
    scopes : dict of str to Budget, optional
        Budgets within it, of teams for example, each with its own account and shadow price; estimates are shared.
    prices : dict of str to Price, optional
        Your own prices by model. They come before the router's prices, which come before the catalogue's.
    cap_output_tokens : int, optional
        The limit of the output where neither call nor model sets one; also passed to the model.
    max_wait_s : float, default 10
        How long a call waits while the rest of the budget is only held by calls in flight; 0 refuses it at once.
    max_attempts, failover, rest_s : int, default 3, bool, default True, and float, default 5
        The most models that may try one call: where one fails before any part of its answer arrives, the next best one
        that the budget pays for is tried, and the first rests for `rest_s` seconds. `failover=False` is one attempt.
    draw_by : {"request", "question", "context"}, default "request"
        Where the plan mixes models: what calls that get the same one share, besides context the hour.
    unit, run_budget_usd, run_limit, conversation_ttl_s : optional
        As in `Conversations`; by default as `router` does.
    judge, judge_share, judge_budget_usd, judge_terms : optional
        A chat model or function that scores a share of the answers, and the terms of `WiseRouter.judge_with`.
    encoder_timeout_s : float, default 1
        The time in which a question must be embedded; else it is routed without a context.
    mode, share, incumbent : {"route", "shadow"}, float, and str
        In shadow mode the router decides and records, and `incumbent`, by default the first model, is called as without
        it. It acts on a share of the conversations (0 by default), within the same share of the budget.
    signals, otel_decisions : list of str, and bool, default False
        Names of rules that score an answer 0 where it has certainly failed; and whether each decision is a span.
    history_size : int, default 10,000
        The number of decisions that feedback can find by run or message.

    Raises
    ------
    InvalidInput
        If a model is not a chat model, there is no budget, settings contradict each other, or a field is set that a
        delegating model cannot honour (`cache`, `rate_limiter`, `disable_streaming`): set it on the models.
    UnknownModel
        If the router has no model of some name.
    UnknownPrice
        If a model has no price, or if the budget is hard and nothing bounds the cost of a call.

    Notes
    -----
    Force a model with `config={"configurable": {"wise_model": "name"}}`. Let a scope pay with
    `{"configurable": {"wiserouter_scope": "team-a"}}`, the same key of `metadata`, or `paid_by`; `wiserouter_value` or
    `worth` states a call's value. `with_retry` never retries a stream: let the models' own clients retry, and set
    temperature and the like there.

    Examples
    --------
    >>> from langchain_core.language_models import FakeListChatModel
    >>> small, large = FakeListChatModel(responses=["4"]), FakeListChatModel(responses=["four"])
    >>> prices = {"small": Price(1e-7, 4e-7), "large": Price(3e-6, 1.5e-5)}
    >>> llm = RunnableWiseRouter(
    ...     models={"small": small, "large": large}, prices=prices, budget=Budget(amount_usd=1.0, horizon=100))
    >>> answer = llm.invoke("what is 2 + 2?")
    >>> answer.response_metadata["wise_router"]["model"] in {"small", "large"}
    True
    >>> llm.feedback(answer, 1.0)
    1
    """

    router: WiseRouter | None = Field(default=None, exclude=True)
    budget: Budget | None = Field(default=None, exclude=True)
    scopes: dict[str, Budget] = Field(default_factory=dict, exclude=True)
    prices: dict[str, Price] = Field(default_factory=dict, exclude=True)
    unit: Unit | None = None
    run_budget_usd: float | None = None
    run_limit: Literal["hard", "expected"] | None = None
    conversation_ttl_s: float | None = None
    failover: bool = True

    def __init__(self, **fields: Any) -> None:
        """Look up prices and limits, and start the budget."""  # not in a validator, which would wrap our errors
        fields["models"], wrappings = all_unwrapped(fields.get("models"), fields.get("router"))
        super().__init__(**fields)
        for name in ("cache", "rate_limiter", "disable_streaming"):
            if getattr(self, name):
                raise InvalidInput(f"{name} must be set on the models, not on the router, which never generates itself")
        if self.max_attempts < 1:
            raise InvalidInput(f"max_attempts must be at least 1, got {self.max_attempts}", value=self.max_attempts)
        self.max_attempts = self.max_attempts if self.failover else 1
        load_tokenizer()
        members = pool_members(self.models, self.router, self.prices, self.output_version, wrappings)
        shadow = shadow_setting(self.mode, self.share, self.incumbent, members)
        core = open_router(members, self.router, self.budget, self.cap_output_tokens, self.scopes, shadow, self.signals)
        self.unit = open_conversations(
            core,
            members,
            self.cap_output_tokens,
            self.unit,
            run_budget_usd=self.run_budget_usd,
            run_limit=self.run_limit,
            ttl_s=self.conversation_ttl_s,
        )
        start_tracing(core, on=self.otel_decisions)
        start_judge(core, self.judge, self.judge_share, self.judge_budget_usd, self.judge_terms)
        self._environment = CallEnvironment(
            core,
            members,
            ContextLookup(core, self.encoder_timeout_s),
            DecisionIndex(self.history_size),
            CountedAdmission(core, admission_queue(core)),
            durable=core.durable,
            rests=Rests(self.rest_s),
            unit=self.unit,
        )

    def add_model(
        self,
        name: str,
        model: BaseChatModel,
        *,
        price: Price | None = None,
        reward: float | None = None,
        cost_usd: float | None = None,
    ) -> None:
        """Add a chat model to the pool of a running router; nothing is refitted.

        Parameters
        ----------
        name : str
            Its name, which must be new.
        model : BaseChatModel
            The chat model.
        price : Price, optional
            Your own price; by default that of the catalogue.
        reward, cost_usd : float, optional
            Your prior, as in `WiseRouter.add_model`.

        Raises
        ------
        InvalidInput, UnknownPrice
            If the name is taken, it is no chat model, it has no price, or a hard budget cannot bound its calls.
            Nothing is changed.
        """
        add_member(self.core, self._environment.members, name, model, price, self.cap_output_tokens, reward, cost_usd)
        self.models[name] = self._environment.members[name].model

    def preferring(self, name: str) -> RunnableWiseRouter:
        """Return this router with a model that takes each call that it can take and the budget pays for."""
        if name not in self.models:
            raise UnknownModel(name, self.models)
        return self._with_environment(preferred=name)

    def paid_by(self, scope: str) -> RunnableWiseRouter:
        """Return this router with all calls paid by one scope, whatever their configuration says."""
        return self._with_environment(payer=scope)

    def worth(self, value: float) -> RunnableWiseRouter:
        """Return this router with one value for all calls; raises `InvalidInput` for one that `decide` refuses."""
        return self._with_environment(value=check_value(value))

    def deciding_by(self, unit: Unit) -> RunnableWiseRouter:
        """Return this router with another unit, on the same budget; raises `InvalidInput` where it cannot have that."""
        if unit != "call":
            open_conversations(self.core, self._environment.members, self.cap_output_tokens, unit)
        copy = self._with_environment(unit=unit)
        copy.unit = unit
        return copy

    def in_run(self, run: str, *, parent: str = "") -> RunnableWiseRouter:
        """Return this router with all calls in one run, unless their configuration names another one.

        Parameters
        ----------
        run : str
            The id of the run.
        parent : str, optional
            The id of the run whose budget pays for this one as well.

        Raises
        ------
        InvalidInput
            If the unit of the router is not "run".
        """
        if self.unit != "run":
            raise InvalidInput(f"in_run needs unit='run', got unit={self.unit!r}", value=self.unit)
        return self._with_environment(named_run=NamedRun(run, parent))

    def _with_environment(self, **changes: Any) -> RunnableWiseRouter:
        copy = self.model_copy()
        copy._environment = replace(self._environment, **changes)
        return copy

    # calls

    def invoke(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the answer of the chosen model."""
        with routed(self, input, config, _with_stop(kwargs, stop)) as scope:
            while True:
                call = scope.call
                try:
                    with set_config_context(call.config) as context:
                        answer = context.run(call.runnable.invoke, call.messages, call.config, **call.kwargs)
                    call.output = call.with_record(answer)
                    return call.output
                except Exception as error:  # the scope raises it again where no other model may answer
                    scope.fail_over(error)

    async def ainvoke(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the answer of the chosen model."""
        async with arouted(self, input, config, _with_stop(kwargs, stop)) as scope:
            while True:
                call = scope.call
                try:
                    with set_config_context(call.config) as context:
                        answer = context.run(call.runnable.ainvoke, call.messages, call.config, **call.kwargs)
                        call.output = call.with_record(await coro_with_context(answer, context))
                    return call.output
                except Exception as error:  # the scope raises it again where no other model may answer
                    await scope.fail_over(error)

    def stream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Yield the chunks of the chosen model; the first one carries the record."""
        with routed(self, input, config, _with_stop(kwargs, stop)) as scope:
            while True:
                call = scope.call
                try:
                    chunks = call.runnable.stream(call.messages, call.config, **call.kwargs)
                    with closed_at_end(chunks):  # closed early, it ends the model's run, and is billed, at once
                        for chunk in chunks:
                            call.output = call.with_record(chunk) if call.output is None else chunk
                            yield call.output
                    call.output = call.streamed()
                    return
                except Exception as error:  # raised again after the first chunk
                    scope.fail_over(error)

    async def astream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """Yield the chunks of the chosen model; the first one carries the record."""
        async with arouted(self, input, config, _with_stop(kwargs, stop)) as scope:
            while True:
                call = scope.call
                try:
                    chunks = call.runnable.astream(call.messages, call.config, **call.kwargs)
                    async with aclosed_at_end(chunks):
                        async for chunk in chunks:
                            call.output = call.with_record(chunk) if call.output is None else chunk
                            yield call.output
                    call.output = call.streamed()
                    return
                except Exception as error:  # raised again after the first chunk
                    await scope.fail_over(error)

    def stream_events(
        self, input: Any, config: RunnableConfig | None = None, *, version: Any = "v2", **kwargs: Any
    ) -> Any:
        """Return the events of a call; in version 3 the chosen model's own stream."""
        if version == "v3":
            return stream_events_v3(self, input, config, kwargs)
        return super().stream_events(input, config, version=version, **kwargs)

    def astream_events(
        self, input: Any, config: RunnableConfig | None = None, *, version: Any = "v2", **kwargs: Any
    ) -> Any:
        """Return the events of a call; in version 3 a coroutine of the chosen model's own stream."""
        if version == "v3":
            return astream_events_v3(self, input, config, kwargs)
        return super().astream_events(input, config, version=version, **kwargs)

    # methods that would bypass routing

    def generate(
        self,
        messages: list[list[BaseMessage]],
        stop: list[str] | None = None,
        callbacks: Any = None,
        *,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        run_name: str | None = None,
        run_id: uuid.UUID | None = None,
        **kwargs: Any,
    ) -> LLMResult:
        """Route each conversation through `invoke`."""
        settings = {"callbacks": callbacks, "tags": tags, "metadata": metadata, "run_name": run_name}
        return invoke_each(self, messages, configs_of(len(messages), run_id, **settings), stop=stop, **kwargs)

    async def agenerate(
        self,
        messages: list[list[BaseMessage]],
        stop: list[str] | None = None,
        callbacks: Any = None,
        *,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        run_name: str | None = None,
        run_id: uuid.UUID | None = None,
        **kwargs: Any,
    ) -> LLMResult:
        """Route all conversations through `ainvoke`, at the same time."""
        settings = {"callbacks": callbacks, "tags": tags, "metadata": metadata, "run_name": run_name}
        return await ainvoke_each(self, messages, configs_of(len(messages), run_id, **settings), stop=stop, **kwargs)

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError(
            "RunnableWiseRouter delegates and never generates itself: use invoke, stream or batch"
        )

    # operations that are queued, and replayed on the chosen model

    # RunnableWithFallbacks reads these return annotations at run time to find what it may bind on each model
    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: Any = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the router with tools, which the chosen model binds in its own format."""
        choice = {} if tool_choice is None else {"tool_choice": tool_choice}
        operation = ("bind_tools", (listed := list(tools),), {**kwargs, **choice})
        return self.bind(tools=ShownTools(listed), **{OPERATIONS: (operation,)})

    def with_structured_output(
        self, schema: Any, *, include_raw: bool = False, **kwargs: Any
    ) -> Runnable[LanguageModelInput, Any]:
        """Return a runnable that answers in a schema, by the chosen model's own method."""
        raw = {"include_raw": True} if include_raw else {}  # not every model's own method has the parameter
        operation = ("with_structured_output", (schema,), {**raw, **kwargs})
        return StructuredWiseRouter(self, (operation,))


def _with_stop(kwargs: dict[str, Any], stop: list[str] | None) -> dict[str, Any]:
    return kwargs if stop is None else {**kwargs, "stop": stop}
