"""`RunnableWiseRouter`: a chat model that delegates every call to the chat model that the budget is best spent on.

Each of invoke, ainvoke, stream and astream opens one chain run, decides, calls the chosen model below it and settles
what an observer saw there; batches, event streams and `transform` follow from these four. The model keeps its own
cache, callbacks and tool format. The router never generates itself, so that no door can bill a call twice.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, closing
from functools import partial
from typing import Any

from langchain_core.callbacks import AsyncCallbackManager, CallbackManager
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult, LLMResult, RunInfo
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config, patch_config
from langchain_core.runnables.config import set_config_context
from langchain_core.runnables.utils import ConfigurableFieldSpec, coro_with_context
from pydantic import Field, PrivateAttr

from wiserouter import Budget, Explanation, Price, WiseRouter
from wiserouter.errors import InvalidInput, StoreError, UnknownModel
from wiserouter.integration.context_lookup import ContextAssignment, ContextLookup
from wiserouter.stores.offload import offload
from wiserouter_langchain.candidates import begin_call
from wiserouter_langchain.decision_index import DecisionIndex
from wiserouter_langchain.decision_lookup import credit, explained
from wiserouter_langchain.pool_member import PoolMember, common_profile
from wiserouter_langchain.request import Ask, ask_of
from wiserouter_langchain.routed_call import OPERATIONS, RECORD, RoutedCall
from wiserouter_langchain.setup import open_router, pool_members
from wiserouter_langchain.structured_output import StructuredWiseRouter
from wiserouter_langchain.usage_observer import UsageObserver

logger = logging.getLogger("wiserouter.langchain")

End = Callable[[RoutedCall], object]

SHORT = 4_000
"""Characters; the tokens of a shorter text are counted in well under a millisecond."""

FORCED = "wise_model"
"""Name of the configurable that forces a model."""

SCOPE = "wiserouter_scope"
"""Name of the configurable, or key of the metadata, that says whose budget pays."""


class RunnableWiseRouter(BaseChatModel):
    """A chat model that sends each input to the chat model that the budget is best spent on.

    Parameters
    ----------
    models : dict of str to BaseChatModel
        The pool; names match those of `router`.
    router : WiseRouter, optional
        Fitted on history. By default one that knows the models' prices and learns the rest.
    budget : Budget, optional
        Started on the router; needed where that has none yet.
    scopes : dict of str to Budget, optional
        Budgets of teams and the like within it, each with its own account and shadow price; what is learned is shared.
    prices : dict of str to Price, optional
        Prices of your own, by name; they come before the router's, and those before the catalogue's.
    cap_output_tokens : int, optional
        The limit of the output where neither call nor model sets one; also passed to the model.
    encoder_timeout_s : float, default 1
        How long a question waits for its embedding before it is routed without a context.
    history_size : int, default 10,000
        Decisions that feedback finds by run or message.

    Raises
    ------
    InvalidInput
        If a model is no chat model, a name is not the router's, there is no budget, or a field is set that a delegating
        model cannot honour (`cache`, `rate_limiter`, `disable_streaming`): set it on the models.
    UnknownPrice
        If nothing says what a model costs, or nothing bounds it and the budget is hard.

    Notes
    -----
    Force a model with `config={"configurable": {"wise_model": "name"}}`, and let a scope pay with
    `{"configurable": {"wiserouter_scope": "team-a"}}`, the same key of `metadata`, or `paid_by`. `with_retry` never
    retries a stream; let the models' own clients retry. Temperature, stop words and the like are the models' own.

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

    models: dict[str, BaseChatModel]
    router: WiseRouter | None = Field(default=None, exclude=True)
    budget: Budget | None = Field(default=None, exclude=True)
    scopes: dict[str, Budget] = Field(default_factory=dict, exclude=True)
    prices: dict[str, Price] = Field(default_factory=dict, exclude=True)
    cap_output_tokens: int | None = None
    encoder_timeout_s: float = 1.0
    history_size: int = 10_000

    _arms: dict[str, PoolMember] = PrivateAttr(default_factory=dict)
    _core: WiseRouter = PrivateAttr()
    _lookup: ContextLookup = PrivateAttr()
    _index: DecisionIndex = PrivateAttr()
    _told: set[str] = PrivateAttr(default_factory=set)
    _preferred: str | None = PrivateAttr(default=None)
    _payer: str | None = PrivateAttr(default=None)

    def __init__(self, **fields: Any) -> None:
        """Look up prices and limits, and take on the budget."""  # not in a validator, which would wrap our errors
        super().__init__(**fields)
        for name in ("cache", "rate_limiter", "disable_streaming"):
            if getattr(self, name):
                raise InvalidInput(f"{name} must be set on the models, not on the router, which never generates itself")
        self._arms = pool_members(self.models, self.router, self.prices, self.output_version)
        self._core = open_router(self._arms, self.router, self.budget, self.cap_output_tokens, self.scopes)
        core = self._core
        self._lookup = ContextLookup(
            core.contexts, core.encoder, self.encoder_timeout_s, keeps_embedding=core.needs_embedding
        )
        self._index = DecisionIndex(self.history_size)

    @property
    def core(self) -> WiseRouter:
        """The router that decides, and keeps budget and estimates."""
        return self._core

    # identity

    @property
    def _llm_type(self) -> str:
        return "wise-router"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        params = super()._get_ls_params(stop=stop, **kwargs)
        params["ls_provider"] = "wiserouter"
        params.setdefault("ls_model_name", "wiserouter")
        return params

    def _resolve_model_profile(self) -> Any:
        return common_profile(list(self.models.values()))

    @property
    def config_specs(self) -> list[ConfigurableFieldSpec]:
        """What `config["configurable"]` may hold."""
        about = f"Force one of {', '.join(self.models)}"
        return [
            ConfigurableFieldSpec(id=FORCED, annotation=str | None, name="Model", description=about, default=None),
            ConfigurableFieldSpec(
                id=SCOPE, annotation=str | None, name="Scope", description="Whose budget pays", default=None
            ),
        ]

    def get_num_tokens(self, text: str) -> int:
        """Count tokens as the first model does."""
        return self._first.get_num_tokens(text)

    def get_num_tokens_from_messages(self, messages: list[BaseMessage], tools: Sequence[Any] | None = None) -> int:
        """Count tokens as the first model does."""
        return self._first.get_num_tokens_from_messages(messages, tools)

    def get_token_ids(self, text: str) -> list[int]:
        """Tokenize as the first model does."""
        return self._first.get_token_ids(text)

    @property
    def _first(self) -> BaseChatModel:
        return next(iter(self.models.values()))

    def preferring(self, name: str) -> RunnableWiseRouter:
        """Return this router, with one model taken wherever it can take the call and the budget pays for it."""
        if name not in self._arms:
            raise UnknownModel(name, self._arms)
        twin = self.model_copy()
        twin._preferred = name
        return twin

    def paid_by(self, scope: str) -> RunnableWiseRouter:
        """Return this router, with all calls paid by one scope, whatever their configuration says."""
        twin = self.model_copy()
        twin._payer = scope
        return twin

    # the four doors

    def invoke(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the answer of the chosen model."""
        config, messages = ensure_config(config), self._messages(input)
        run = self._begin(config, messages)
        turn: RoutedCall | None = None
        try:
            turn = self._begin_call(messages, config, kwargs)
            target, rest = turn.target(_with(kwargs, stop), self.cap_output_tokens)
            child = self._child(turn, config, run)
            with set_config_context(child) as context:
                output = turn.marked(context.run(target.invoke, messages, child, **rest))
        except BaseException as error:
            self._end(turn)
            run.on_chain_error(error)
            raise
        self._end(turn)
        run.on_chain_end({"output": output, RECORD: turn.record})
        return output

    async def ainvoke(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the answer of the chosen model."""
        config, messages = ensure_config(config), self._messages(input)
        run = await self._manager(AsyncCallbackManager, config).on_chain_start(
            None, {"messages": messages}, **self._named(config)
        )
        turn: RoutedCall | None = None
        try:
            turn = await self._abegin_call(messages, config, kwargs)
            target, rest = turn.target(_with(kwargs, stop), self.cap_output_tokens)
            child = self._child(turn, config, run)
            with set_config_context(child) as context:
                answer = context.run(target.ainvoke, messages, child, **rest)
                output = turn.marked(await coro_with_context(answer, context))
        except BaseException as error:
            await self._aend(turn)
            await run.on_chain_error(error)
            raise
        await self._aend(turn)
        await run.on_chain_end({"output": output, RECORD: turn.record})
        return output

    def stream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Yield what the chosen model streams; the first chunk carries the record."""
        config, messages = ensure_config(config), self._messages(input)
        run = self._begin(config, messages)
        turn: RoutedCall | None = None
        last: Any = None
        try:
            turn = self._begin_call(messages, config, kwargs)
            target, rest = turn.target(_with(kwargs, stop), self.cap_output_tokens)
            chunks: Any = target.stream(messages, self._child(turn, config, run), **rest)
            with closing(chunks):  # a stream that is given up ends the model's run, and is billed, now
                for chunk in chunks:
                    last = turn.marked(chunk) if last is None else chunk
                    yield last
        except BaseException as error:
            self._end(turn)
            run.on_chain_error(error)
            raise
        self._end(turn)
        run.on_chain_end({"output": turn.whole(last), RECORD: turn.record})

    async def astream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """Yield what the chosen model streams; the first chunk carries the record."""
        config, messages = ensure_config(config), self._messages(input)
        run = await self._manager(AsyncCallbackManager, config).on_chain_start(
            None, {"messages": messages}, **self._named(config)
        )
        turn: RoutedCall | None = None
        last: Any = None
        try:
            turn = await self._abegin_call(messages, config, kwargs)
            target, rest = turn.target(_with(kwargs, stop), self.cap_output_tokens)
            chunks: Any = target.astream(messages, self._child(turn, config, run), **rest)
            async with aclosing(chunks):
                async for chunk in chunks:
                    last = turn.marked(chunk) if last is None else chunk
                    yield last
        except BaseException as error:
            await self._aend(turn)
            await run.on_chain_error(error)
            raise
        await self._aend(turn)
        await run.on_chain_end({"output": turn.whole(last), RECORD: turn.record})

    # event streams of version 3: the chosen model's own, whose end the observer tells

    def stream_events(
        self, input: Any, config: RunnableConfig | None = None, *, version: Any = "v2", **kwargs: Any
    ) -> Any:
        """Return the events of a call; in version 3 the chosen model's own stream."""
        if version != "v3":
            return super().stream_events(input, config, version=version, **kwargs)
        config, messages = ensure_config(config), self._messages(input)
        run = self._begin(config, messages)
        turn: RoutedCall | None = None
        try:
            turn = self._begin_call(messages, config, kwargs)
            target, rest, child = self._v3(turn, config, kwargs, run, run, self._end)
            return target.stream_events(messages, child, version="v3", **rest)
        except BaseException as error:
            self._end(turn)
            run.on_chain_error(error)
            raise

    def astream_events(
        self, input: Any, config: RunnableConfig | None = None, *, version: Any = "v2", **kwargs: Any
    ) -> Any:
        """Return the events of a call; in version 3 a coroutine of the chosen model's own stream."""
        if version != "v3":
            return super().astream_events(input, config, version=version, **kwargs)
        return self._astream_v3(input, config, **kwargs)

    async def _astream_v3(self, input: Any, config: RunnableConfig | None, **kwargs: Any) -> Any:
        config, messages = ensure_config(config), self._messages(input)
        run = await self._manager(AsyncCallbackManager, config).on_chain_start(
            None, {"messages": messages}, **self._named(config)
        )
        turn: RoutedCall | None = None
        try:
            turn = await self._abegin_call(messages, config, kwargs)
            end = self._soon(asyncio.get_running_loop())
            target, rest, child = self._v3(turn, config, kwargs, run, run.get_sync(), end)
            return await target.astream_events(messages, child, version="v3", **rest)
        except BaseException as error:
            await self._aend(turn)
            await run.on_chain_error(error)
            raise

    def _v3(
        self, turn: RoutedCall, config: RunnableConfig, kwargs: Any, run: Any, sync_run: Any, end: End
    ) -> tuple[Any, Any, Any]:
        def done(error: BaseException | None) -> None:
            end(turn)
            if error is None:
                sync_run.on_chain_end({RECORD: turn.record})
            else:
                sync_run.on_chain_error(error)

        turn.observer = UsageObserver(done)
        target, rest = turn.target(kwargs, self.cap_output_tokens)
        return target, rest, self._child(turn, config, run)

    # doors that would bypass routing

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
        configs = _configs(len(messages), callbacks, tags, metadata, run_name, run_id)
        answers = [self.invoke(one, config, stop=stop, **kwargs) for one, config in zip(messages, configs, strict=True)]
        return _result(answers, configs)

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
        """Route each conversation through `ainvoke`, at the same time."""
        configs = _configs(len(messages), callbacks, tags, metadata, run_name, run_id)
        calls = [self.ainvoke(one, config, stop=stop, **kwargs) for one, config in zip(messages, configs, strict=True)]
        return _result(await asyncio.gather(*calls), configs)

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError(
            "RunnableWiseRouter delegates and never generates itself: use invoke, stream or batch"
        )

    # declared operations are queued, and replayed on the model that is chosen

    # RunnableWithFallbacks reads these return annotations at run time to know what it may bind on each model
    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: Any = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the router with tools, bound in the format of whichever model answers."""
        chosen = {} if tool_choice is None else {"tool_choice": tool_choice}
        operation = ("bind_tools", (list(tools),), {**kwargs, **chosen})
        return self.bind(**{OPERATIONS: (operation,)})

    def with_structured_output(
        self, schema: Any, *, include_raw: bool = False, **kwargs: Any
    ) -> Runnable[LanguageModelInput, Any]:
        """Return a runnable that answers in a schema, by the method of whichever model answers."""
        operation = ("with_structured_output", (schema,), {"include_raw": include_raw, **kwargs})
        return StructuredWiseRouter(self, (operation,))

    # feedback

    def feedback(self, target: Any, score: float, *, key: str = "user_score", comment: str | None = None) -> int:
        """Take a score of an answer.

        Parameters
        ----------
        target : AIMessage, str or UUID
            The answer; or a decision id; or the id of the router's run, the model's run or the run right above.
        score : float
            In [0, 1].
        key : str, default "user_score"
            Name of the score, as in LangSmith. It is not stored: the latest score counts, whatever its key.
        comment : str, optional
            Kept in the journal, if there is one.

        Returns
        -------
        int
            Decisions that it was credited to; 0 where none is known.

        Raises
        ------
        InvalidInput
            If the score is outside [0, 1].
        """
        return credit(self._core, self._index, target, score, comment)

    async def afeedback(self, target: Any, score: float, *, key: str = "user_score", comment: str | None = None) -> int:
        """Do what `feedback` does, off the event loop where the store is waited for."""
        step = partial(self.feedback, target, score, key=key, comment=comment)
        return await offload(step) if self._core.waits() else step()

    def explain(self, target: Any) -> Explanation:
        """Return why the model of an answer was chosen.

        Parameters
        ----------
        target : AIMessage, str or UUID
            As in `feedback`; of several decisions the latest.

        Raises
        ------
        UnknownDecision
            If none is known.
        """
        return explained(self._core, self._index, target)

    async def aexplain(self, target: Any) -> Explanation:
        """Do what `explain` does, off the event loop where the store is waited for."""
        step = partial(self.explain, target)
        return await offload(step) if self._core.waits() else step()

    def note_run(self, decision_id: str, run_id: uuid.UUID) -> None:
        """Let feedback for a run find a decision."""
        self._index.add(decision_id, [run_id])

    # inside

    def _messages(self, input: LanguageModelInput) -> list[BaseMessage]:
        return self._convert_input(input).to_messages()

    def _manager(self, kind: Any, config: RunnableConfig) -> Any:
        return kind.configure(
            config.get("callbacks"),
            self.callbacks,
            self.verbose,
            config.get("tags"),
            self.tags,
            config.get("metadata"),
            self.metadata,
        )

    def _begin(self, config: RunnableConfig, messages: list[BaseMessage]) -> Any:
        manager = self._manager(CallbackManager, config)
        return manager.on_chain_start(None, {"messages": messages}, **self._named(config))

    def _named(self, config: RunnableConfig) -> dict[str, Any]:
        return {"name": config.get("run_name") or self.get_name(), "run_id": config.pop("run_id", None)}

    def _begin_call(self, messages: list[BaseMessage], config: RunnableConfig, kwargs: Any) -> RoutedCall:
        ask = ask_of(messages, kwargs, kwargs.get(OPERATIONS, ()))
        return self._decided(ask, self._lookup.look_up(ask.question), config)

    async def _abegin_call(self, messages: list[BaseMessage], config: RunnableConfig, kwargs: Any) -> RoutedCall:
        ask = ask_of(messages, kwargs, kwargs.get(OPERATIONS, ()))
        placed = await self._lookup.alook_up(ask.question)
        decide = partial(self._decided, ask, placed, config)
        if len(ask.counted) < SHORT and not self._core.waits(self._scope(config)):
            return decide()
        return await offload(decide, self._end)

    def _decided(self, ask: Ask, placed: ContextAssignment, config: RunnableConfig) -> RoutedCall:
        forced, cap = (config.get("configurable") or {}).get(FORCED), self.cap_output_tokens
        return begin_call(self._core, self._arms, ask, placed, forced, self._preferred, cap, self._scope(config))

    def _scope(self, config: RunnableConfig) -> str:
        """Return whose budget pays: as the program has bound it, else as the configuration says."""
        told = (config.get("configurable") or {}).get(SCOPE) or (config.get("metadata") or {}).get(SCOPE)
        return self._payer or (str(told) if told else "default")

    def _child(self, turn: RoutedCall, config: RunnableConfig, run: Any) -> RunnableConfig:
        """Return the configuration of the model's call: below our run, observed, with the record in its metadata."""
        decision_id = turn.decision.id
        self._index.add(decision_id, _ids(run))
        turn.observer.on_start = lambda run_id: self._index.add(decision_id, [run_id])
        callbacks = run.get_child()
        callbacks.add_handler(turn.observer, inherit=True)
        child = patch_config(config, callbacks=callbacks)
        child["metadata"] = {**(child.get("metadata") or {}), RECORD: turn.record}
        return child

    def _end(self, turn: RoutedCall | None) -> None:
        """Settle a call."""
        if turn is None:
            return
        try:
            estimated = turn.settle()
            for name in self._index.shared_names(turn.decision.id) if self._core.durable else ():
                self._core.alias(name, turn.decision)
        except StoreError as error:  # the answer is there, and what this worker decided is settled later
            logger.warning("%s: feedback may not find a call of %s", error, turn.arm.name)
            return
        if estimated and turn.arm.name not in self._told:
            self._told.add(turn.arm.name)
            logger.warning(
                "%s answered without usage, so its tokens are estimated: for streams of OpenAI-like models pass "
                "model.model_copy(update={'stream_usage': True})",
                turn.arm.name,
            )

    async def _aend(self, turn: RoutedCall | None) -> None:
        """Settle a call, off the event loop where the store is waited for."""
        if turn is not None and self._core.waits():
            await offload(partial(self._end, turn))
        else:
            self._end(turn)

    def _soon(self, loop: asyncio.AbstractEventLoop) -> End:
        """Return what settles a call from the event loop, which cannot wait for it."""
        if not self._core.waits():
            return self._end
        return lambda turn: loop.run_in_executor(None, self._end, turn)


def _with(kwargs: dict[str, Any], stop: list[str] | None) -> dict[str, Any]:
    return kwargs if stop is None else {**kwargs, "stop": stop}


def _ids(run: Any) -> list[uuid.UUID]:
    return [run.run_id, *([run.parent_run_id] if run.parent_run_id else [])]


def _configs(
    n: int,
    callbacks: Any,
    tags: list[str] | None,
    metadata: dict[str, Any] | None,
    run_name: str | None,
    run_id: uuid.UUID | None,
) -> list[RunnableConfig]:
    given = {"callbacks": callbacks, "tags": tags, "metadata": metadata, "run_name": run_name}
    known = {key: value for key, value in given.items() if value is not None}
    ids = [run_id or uuid.uuid4(), *(uuid.uuid4() for _ in range(n - 1))]
    return [RunnableConfig(**known, run_id=each) for each in ids[:n]]  # type: ignore[typeddict-item]


def _result(answers: Sequence[Any], configs: Sequence[RunnableConfig]) -> LLMResult:
    runs = [RunInfo(run_id=config["run_id"]) for config in configs]  # type: ignore[arg-type]
    return LLMResult(generations=[[ChatGeneration(message=each)] for each in answers], llm_output={}, run=runs)
