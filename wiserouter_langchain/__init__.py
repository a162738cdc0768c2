"""WISERouter for LangChain: a chat model that chooses a chat model under a budget; it needs the extra `langchain`."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from wiserouter.errors import MissingExtra

if find_spec("langchain_core") is None:
    raise MissingExtra("wiserouter_langchain", "langchain-core", "langchain")

if TYPE_CHECKING:
    from wiserouter_langchain.decisions.feedback import WiseFeedbackHandler as WiseFeedbackHandler
    from wiserouter_langchain.decisions.feedback import pull_langsmith as pull_langsmith
    from wiserouter_langchain.decisions.feedback import track_decisions as track_decisions
    from wiserouter_langchain.encoder import EmbeddingsEncoder as EmbeddingsEncoder
    from wiserouter_langchain.middleware import WiseRouterMiddleware as WiseRouterMiddleware
    from wiserouter_langchain.runnable import RunnableWiseRouter as RunnableWiseRouter

_HOMES = {
    "EmbeddingsEncoder": "encoder",
    "RunnableWiseRouter": "runnable",
    "WiseFeedbackHandler": "decisions.feedback",
    "WiseRouterMiddleware": "middleware",
    "pull_langsmith": "decisions.feedback",
    "track_decisions": "decisions.feedback",
}

_NEEDS_AGENTS = {"WiseRouterMiddleware"}

if not TYPE_CHECKING:  # a type checker takes the names that it finds above: of a computed list it would read none
    __all__ = [name for name in _HOMES if name not in _NEEDS_AGENTS or find_spec("langchain") is not None]


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
