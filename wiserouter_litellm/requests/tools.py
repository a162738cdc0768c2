"""The tools of a request: those that the caller runs are text, those that the provider runs have fees and turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

CLIENT_TOOLS = ("local_shell", "apply_patch", "computer", "bash", "text_editor", "memory")
"""The beginnings of the types of tools that the caller runs, and whose schema the provider knows."""

_KEYS = frozenset(
    {
        *("type", "function", "name", "description", "parameters", "input_schema", "strict", "format", "cache_control"),
        *("input_examples", "defer_loading", "allowed_callers", "eager_input_streaming", "max_characters", "custom"),
        *("display_width_px", "display_height_px", "display_number", "display_width", "display_height", "environment"),
        *("prompt_cache_breakpoint", "enable_zoom", "output_schema"),
    }
)

RUN_BY_LITELLM = "litellm_web_search"
"""The name of the tool that LiteLLM's web search interception runs itself."""


class BrokenRule(NamedTuple):
    """A rule that a parameter breaks, and the place within the parameter, such as "[0].type"."""

    at: str
    rule: str


def broken_tool_rule(tools: object) -> BrokenRule | None:
    """Return the rule that the first tool breaks which the provider might run; None if there is none.

    Examples
    --------
    >>> broken_tool_rule([{"type": "function", "function": {"name": "weather"}}]) is None
    True
    >>> broken_tool_rule([{"type": "web_search"}]).at
    '[0].type'
    """
    if not isinstance(tools, list | tuple):
        return BrokenRule("", f"must be a list, got {type(tools).__name__}")
    for i, tool in enumerate(tools):
        if (broken := _broken_rule(tool)) is not None:
            return BrokenRule(f"[{i}]{broken.at}", broken.rule)
    return None


def is_hosted(tool: object) -> bool:
    """Return True if the provider may run a tool."""
    return _broken_rule(tool) is not None


def is_search(tool: object) -> bool:
    """Return True if a tool is a search that the provider runs, or LiteLLM.

    Examples
    --------
    >>> [is_search({"type": type, "name": "web_search"}) for type in ("web_search_preview", "function")]
    [True, False]
    """
    return isinstance(tool, Mapping) and (_kind(tool).startswith("web_search") or _name(tool) == RUN_BY_LITELLM)


def n_known_schemas(tools: object) -> int:
    """Return the number of tools whose schema the provider adds itself."""
    if not isinstance(tools, list | tuple):
        return 0
    return sum(_kind(tool).startswith(CLIENT_TOOLS) for tool in tools if isinstance(tool, Mapping))


def _broken_rule(tool: object) -> BrokenRule | None:
    if not isinstance(tool, Mapping):
        return BrokenRule("", f"must be an object, got {type(tool).__name__}")
    kind = _kind(tool)
    if kind not in {"function", "custom"} and not kind.startswith(CLIENT_TOOLS):
        return BrokenRule(".type", f"{kind!r:.40} may be run by the provider, with fees and turns that nothing bounds")
    if _name(tool) == RUN_BY_LITELLM:
        return BrokenRule(".name", "is that of a tool that LiteLLM may run, with further calls that nothing bounds")
    other = next((str(key) for key in tool if key not in _KEYS), None)
    return None if other is None else BrokenRule(f".{other:.40}", "is not known to belong to a tool of the caller")


def _name(tool: Mapping[str, object]) -> object:
    function = tool.get("function")
    return function.get("name") if isinstance(function, Mapping) else tool.get("name")


def _kind(tool: Mapping[str, object]) -> str:
    return str(tool.get("type") or "function")
