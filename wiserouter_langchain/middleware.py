"""`WiseRouterMiddleware` for `create_agent`: it knows where a run begins and ends, which a chat model cannot see.

With the unit "run", one invocation of the agent is one run: its model is chosen once, its calls share one budget, and
its end is reported. What a tool calls through the same router draws on the budget of the run: an agent with its own
middleware as a run that works for it, anything else as calls of the run.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Annotated, Any, NamedTuple, NotRequired
from uuid import uuid4

from wiserouter.errors import MissingExtra

if find_spec("langchain") is None:
    raise MissingExtra("WiseRouterMiddleware", "langchain", "langchain-agents")

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import ensure_config
from langgraph.types import Command

from wiserouter.integration import Unit
from wiserouter_langchain.calls.call_environment import payer_of
from wiserouter_langchain.calls.run_at_work import RunAtWork, run_at_work, tool_at_work, within_run
from wiserouter_langchain.decisions.conversation_ids import stated_run
from wiserouter_langchain.decisions.routed_call import RECORD
from wiserouter_langchain.runnable import RunnableWiseRouter

logger = logging.getLogger("wiserouter.langchain")


def _latest(_: str | None, value: str | None) -> str | None:
    """Return the value that was written last: agents that work as tools at the same time may each hand back theirs."""
    return value


class _Ending(NamedTuple):
    """A run that ends, and the router whose scope has paid for it."""

    router: RunnableWiseRouter
    run: str


def _leaves(result: Any) -> bool:
    """Return True if a tool hands over to another agent of the graph around its own, as those of a swarm do."""
    parts = result if isinstance(result, list) else [result]
    return any(isinstance(part, Command) and part.graph == Command.PARENT for part in parts)


class WiseState(AgentState[Any]):
    """The agent's state; `wise_run` is the id of the current run, and `wise_model` the model that answered last.

    The calls go by `wise_own_run`, which no agent that works as a tool gets or hands back.
    """

    wise_run: NotRequired[Annotated[str | None, _latest]]
    wise_model: NotRequired[Annotated[str | None, _latest]]
    wise_own_run: NotRequired[Annotated[str | None, PrivateStateAttr]]


class WiseRouterMiddleware(AgentMiddleware[Any, Any, Any]):
    """A middleware that routes the model calls of an agent.

    Parameters
    ----------
    router : RunnableWiseRouter
        The router.
    unit : {"run", "conversation", "call"}, optional
        Decide once for all calls of an invocation, at each turn of a thread with its warm caches in the price, or at
        every call alone. By default that of the router, or "run" where it decides each call alone.
    scope : callable of (Runtime) -> str or None, optional
        Returns the scope that pays from the runtime of the run: `lambda runtime: runtime.context["team"]`. None leaves
        the choice to the configuration.

    Raises
    ------
    InvalidInput
        If the unit is unknown, or the router has another one.

    Notes
    -----
    The router takes each call, whatever model the request names. So list middlewares that choose a model, such as
    `ModelFallbackMiddleware`, after this one: the model that they choose is called, and no budget of the router pays.
    """

    state_schema = WiseState

    def __init__(
        self,
        router: RunnableWiseRouter,
        *,
        unit: Unit | None = None,
        scope: Callable[[Any], str | None] | None = None,
    ) -> None:
        super().__init__()
        self._scope = scope
        self._named: BaseChatModel | None = None
        self._has_warned = False
        own = router.core.conversations
        self._router = router.deciding_by(unit or ("run" if own is None else own.unit))

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        """Begin a run with no model chosen: the one that the configuration names, or a new one."""
        run = stated_run(ensure_config()) or uuid4().hex
        return {"wise_run": run, "wise_own_run": run, "wise_model": None}

    def after_model(self, state: Any, runtime: Any) -> dict[str, Any]:
        """Write the run and the model that answered to the state: a sub-agent may have handed back its own."""
        records = (getattr(message, "response_metadata", {}).get(RECORD) for message in reversed(state["messages"]))
        record = next(filter(None, records), None)
        model = {} if record is None else {"wise_model": record["model"]}
        return {"wise_run": state.get("wise_own_run"), **model}

    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        """End the run, unless the configuration named it: then it may go on."""
        if ending := self._ending(state, runtime):
            ending.router.end_run(ending.run)
        return {"wise_run": state.get("wise_own_run")}

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> Any:
        """Pass the call to the router, as one of this run."""
        return handler(request.override(model=self._model(request)))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> Any:
        """Pass the call to the router, as one of this run."""
        return await handler(request.override(model=self._model(request)))

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Let the model calls of a tool draw on the budget of this run, and end it where the tool leaves the agent."""
        with self._at_work(request):
            result = handler(request)
        if _leaves(result) and (ending := self._ending(request.state, request.runtime)):
            ending.router.end_run(ending.run)
        return result

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Let the model calls of a tool draw on the budget of this run, and end it where the tool leaves the agent."""
        with self._at_work(request):
            result = await handler(request)
        if _leaves(result) and (ending := self._ending(request.state, request.runtime)):
            await ending.router.aend_run(ending.run)
        return result

    def _ending(self, state: Any, runtime: Any) -> _Ending | None:
        """Return the run that ends with the agent; None where the configuration named it: then it may go on."""
        run, config = state.get("wise_own_run"), ensure_config()
        if self._router.unit != "run" or not run or stated_run(config):
            return None
        router = self._paid(runtime)
        return _Ending(router.paid_by(payer_of(router._environment, config)), run)

    def _model(self, request: ModelRequest[Any]) -> BaseChatModel:
        self._warn_of_another(request.model)
        router, run = self._paid(request.runtime), request.state.get("wise_own_run")
        if router.unit != "run" or not isinstance(run, str):
            return router
        above = run_at_work(router.core)
        return router.in_run(run, parent="" if above is None or above.id == run else above.id)

    def _warn_of_another(self, model: BaseChatModel) -> None:
        """Say once that requests name several models: the router takes them all, also where a middleware chose one."""
        self._named = model if self._named is None else self._named
        if model is not self._named and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "a request names another model (%s), which is not called, for the router takes each call: list a "
                "middleware that chooses a model after WiseRouterMiddleware, or add its models to the router",
                type(model).__name__,
            )

    def _at_work(self, request: Any) -> AbstractContextManager[None]:
        """Return the block in which a tool works for the run of its agent."""
        run = request.state.get("wise_own_run")
        if self._router.unit != "run" or not isinstance(run, str):
            return nullcontext()
        router = self._paid(request.runtime)
        return tool_at_work(RunAtWork(router.core, run, router._environment.payer))

    def _paid(self, runtime: Any) -> RunnableWiseRouter:
        """Return the router with the scope that the program lets pay, or that of the run which it works for."""
        scope = None if self._scope is None else self._scope(runtime)
        payer = scope or within_run(self._router._environment).payer
        return self._router if payer is None else self._router.paid_by(payer)
