"""WISERouter for LangChain: a chat model that chooses a chat model under a budget; it needs the extra `langchain`."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from wiserouter.errors import MissingExtra

if find_spec("langchain_core") is None:
    raise MissingExtra("wiserouter_langchain", "langchain-core", "langchain")

if TYPE_CHECKING:
    from wiserouter_langchain.encoder import EmbeddingsEncoder
    from wiserouter_langchain.feedback import WiseFeedbackHandler, pull_langsmith, track_decisions
    from wiserouter_langchain.middleware import WiseRouterMiddleware
    from wiserouter_langchain.runnable import RunnableWiseRouter

_HOMES = {
    "EmbeddingsEncoder": "encoder",
    "RunnableWiseRouter": "runnable",
    "WiseFeedbackHandler": "feedback",
    "WiseRouterMiddleware": "middleware",
    "pull_langsmith": "feedback",
    "track_decisions": "feedback",
}

__all__ = [
    "EmbeddingsEncoder",
    "RunnableWiseRouter",
    "WiseFeedbackHandler",
    "WiseRouterMiddleware",
    "pull_langsmith",
    "track_decisions",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
