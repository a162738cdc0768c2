"""The operations that are queued on the router and replayed on the chosen model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.utils.function_calling import convert_to_openai_tool

OPERATIONS = "__wise_operations"
"""Keyword argument that holds the queued operations, `bind_tools` and `with_structured_output`."""

Operation = tuple[str, tuple[Any, ...], dict[str, Any]]
"""The name of a method, its arguments and its keyword arguments."""


class ShownTools(Sequence[Any]):
    """The tools of a queued operation as a binding shows them, in the format of OpenAI; no model receives them.

    LangGraph reads them there, so that it does not bind its own tools over those of the caller and their settings.

    Examples
    --------
    >>> def look(path: str) -> str:
    ...     "Look at a file."
    >>> [tool["function"]["name"] for tool in ShownTools([look])]
    ['look']
    """

    def __init__(self, tools: Sequence[Any]) -> None:
        self._tools = tools

    def __len__(self) -> int:
        return len(self._tools)

    def __getitem__(self, index: Any) -> Any:
        tool = self._tools[index]
        return tool if isinstance(tool, Mapping | list) else convert_to_openai_tool(tool)


def sent_arguments(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call without the tools that a binding only shows."""
    return {name: value for name, value in kwargs.items() if not isinstance(value, ShownTools)}
