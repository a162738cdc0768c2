"""`WiseRouterMiddleware` for `create_agent`: it knows where a run begins, which a chat model cannot see.

A router given as `create_agent(model=router)` decides at every model call. The middleware keeps one model through a
run, for the provider's prompt cache and for a history in one model's format, and writes its name to the agent's state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import Any, Literal, NotRequired

from wiserouter.errors import InvalidInput, MissingExtra

if find_spec("langchain") is None:
    raise MissingExtra("WiseRouterMiddleware", "langchain", "langchain-agents")

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel

from wiserouter_langchain.routed_call import RECORD
from wiserouter_langchain.runnable import RunnableWiseRouter


class WiseState(AgentState[Any]):
    """The agent's state; `wise_model` is the model of the current run."""

    wise_model: NotRequired[str | None]


class WiseRouterMiddleware(AgentMiddleware[Any, Any, Any]):
    """A middleware that routes the model calls of an agent.

    Parameters
    ----------
    router : RunnableWiseRouter
        The router.
    per : {"run", "call"}, default "run"
        Decide once per run and keep that model as long as the budget pays for it, or decide at every call.
    scope : callable of (Runtime) -> str or None, optional
        Returns the scope that pays from the runtime of the run: `lambda runtime: runtime.context["team"]`. None leaves
        the choice to the configuration.

    Raises
    ------
    InvalidInput
        If `per` is neither.
    """

    state_schema = WiseState

    def __init__(
        self,
        router: RunnableWiseRouter,
        *,
        per: Literal["run", "call"] = "run",
        scope: Callable[[Any], str | None] | None = None,
    ) -> None:
        super().__init__()
        if per not in {"run", "call"}:
            raise InvalidInput(f"per must be 'run' or 'call', got {per!r}", value=per)
        self._router, self._per, self._scope = router, per, scope

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        """Begin a run with no model chosen."""
        return {"wise_model": None}

    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Write the model that answered to the state."""
        records = (getattr(message, "response_metadata", {}).get(RECORD) for message in reversed(state["messages"]))
        record = next(filter(None, records), None)
        return None if record is None else {"wise_model": record["model"]}

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> Any:
        """Pass the call to the router, or to the model of this run."""
        return handler(request.override(model=self._model(request)))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> Any:
        """Pass the call to the router, or to the model of this run."""
        return await handler(request.override(model=self._model(request)))

    def _model(self, request: ModelRequest[Any]) -> BaseChatModel:
        name = request.state.get("wise_model") if self._per == "run" else None
        scope = None if self._scope is None else self._scope(request.runtime)
        router = self._router if scope is None else self._router.paid_by(scope)
        return router if name is None else router.preferring(str(name))
