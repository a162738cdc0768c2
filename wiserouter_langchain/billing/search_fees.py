"""Web searches that a provider runs, and bills beside the tokens: which models make them, and those of an answer."""

from __future__ import annotations

import re
from collections.abc import Mapping

from langchain_core.messages import BaseMessage

_ALWAYS_SEARCHES = re.compile(r"\bsearch-(preview|api)\b|\bdeep-research|\bsonar\b|:online$|(^|/)preset/")
"""OpenAI's search models, Perplexity's models and agents, deep research, OpenRouter's models with a search."""

_HIDES_SEARCHES = re.compile(r"\bsonar\b")
"""Perplexity's models, whose answers hold no calls of a search."""

_CALLS = frozenset({"web_search_call", "server_tool_use", "server_tool_call", "server_tool_call_chunk"})
"""The types of content blocks that show the call of a tool which the provider runs."""

SEARCH = "web_search"
"""The name of the tool, with which its types begin as well."""


def always_searches(model: str) -> bool:
    """Return True if a model searches the web with each call, whether or not the call asks for that.

    Examples
    --------
    >>> [always_searches(model) for model in ("gpt-4o-search-preview", "openai/gpt-4o:online", "gpt-4o")]
    [True, True, False]
    """
    return _ALWAYS_SEARCHES.search(model) is not None


def hides_searches(model: str) -> bool:
    """Return True if the answers of a model do not show how often it has searched."""
    return _HIDES_SEARCHES.search(model) is not None


def n_searches(message: BaseMessage) -> int:
    """Return the number of web searches behind an answer: what its usage states, else those that its content shows.

    Examples
    --------
    >>> from langchain_core.messages import AIMessage
    >>> n_searches(AIMessage([{"type": "server_tool_use", "name": "web_search"}, {"type": "text", "text": "hi"}]))
    1
    """
    usage = message.response_metadata.get("usage")
    stated = usage.get("server_tool_use") if isinstance(usage, Mapping) else None
    n_stated = stated.get("web_search_requests") if isinstance(stated, Mapping) else None
    if isinstance(n_stated, int):
        return max(n_stated, 0)
    shown = [*_listed(message.content), *_listed(message.additional_kwargs.get("tool_outputs"))]
    return sum(_is_search(block) for block in shown)


def _is_search(block: object) -> bool:
    """Return True if a content block is a search; OpenAI's tool opens pages as well, without a fee."""
    if not isinstance(block, Mapping) or block.get("type") not in _CALLS:
        return False
    action = block.get("action")
    searches = not isinstance(action, Mapping) or action.get("type") in ("search", None)
    return searches and block.get("name", SEARCH) == SEARCH


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []
