"""The settings of a call under a hard budget: limits are read, checked and taken out, to be set on the chosen model.

A hard budget bounds a call by the limits that the provider receives. So a limit that was bounded is the limit that is
sent, under the one name that the chosen model gives it, and a setting that may change the price is refused: everything
but the names listed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool
from pydantic import BaseModel

from wiserouter.errors import InvalidInput
from wiserouter_langchain.billing.prompt_caches import CACHES, LONG_CACHE, is_long, long_cache
from wiserouter_langchain.requests.operations import OPERATIONS, Operation

OUTPUT_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict", "max_tokens_to_sample")
"""The names of the limit of one answer; a model's own field is the first of them that it has."""

ANSWERS = ("n", "best_of", "candidate_count", "num_return_sequences")
"""The names of the number of answers that are billed."""

MAX_OUTPUT_TOKENS = 10**9
"""A larger limit bounds nothing."""

MAX_ANSWERS = 1_024

_HARMLESS_AND_UNREAD = frozenset(
    {
        *("temperature", "top_p", "top_k", "top_a", "min_p", "typical_p", "seed", "random_seed", "logit_bias"),
        *("frequency_penalty", "presence_penalty", "repetition_penalty", "repeat_penalty", "logprobs", "top_logprobs"),
        *("stop", "stop_sequences", "stop_token_ids", "parallel_tool_calls", "response_mime_type", "strict", "method"),
        *("include_raw", "ls_structured_output_format", "reasoning", "reasoning_effort", "thinking", "verbosity"),
        *("effort", "user", "metadata", "safety_identifier", "safety_settings", "prompt_cache_key"),
        *("prompt_cache_retention", "prompt_cache_options", "cache_control", "timeout", "request_timeout", "stream"),
        *("stream_usage", "stream_options"),
    }
)

HARMLESS = _HARMLESS_AND_UNREAD | {
    *("tools", "tool_choice", "functions", "function_call", "response_format", "response_schema", "output_format"),
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar", "chat_template_kwargs"),
}
"""The settings that do not raise what a call can cost within its limits; a text in them is counted as input."""

ARM_PARAMETERS = frozenset(
    {
        *OUTPUT_LIMITS,
        *("reasoning_effort", "reasoning", "thinking", "thinking_budget", "effort", "verbosity", "temperature"),
        *("top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty", "service_tier"),
    }
)
"""The settings that make a model an arm where they are bound: one model with one of several settings."""

UNREAD = (
    _HARMLESS_AND_UNREAD
    | ARM_PARAMETERS
    | {
        *ANSWERS,
        *("model", "model_name", "organization", "base_url", "default_query", "extra_query", "betas", "include"),
        *("disabled_params", "client_options", "client_args", OPERATIONS),
    }
)
"""The settings whose texts no model reads; those of all others are counted as input."""

UNREAD_ENDS = ("_url", "api_base", "_headers", "_proxy", "_organization", "_version", "_region", "_project")
"""The ends of the names of further ones: where and as whom a client calls."""

BODIES = ("extra_body", "model_kwargs")
"""The settings that hold further settings."""

_PLAIN_TOOLS = frozenset({"function", "custom", "object"})
"""The types of tools that the caller runs: any other is run, and billed, by the provider."""

_TOOL_NAMES = frozenset(
    {"name", "function", "title", "properties", "toolSpec", "function_declarations", "functionDeclarations"}
)
"""The keys by which a dictionary describes a function of the caller."""

_GOOGLE_TOOLS = frozenset(
    {
        *("retrieval", "computeruse", "filesearch", "googlesearch", "googlemaps", "codeexecution", "urlcontext"),
        *("enterprisewebsearch", "googlesearchretrieval", "parallelaisearch", "exaaisearch", "mcpservers"),
    }
)
"""The keys, without their underscores, by which Google's API is asked to run a tool, beside functions of the caller."""

_PLAIN_VALUES = frozenset({"auto", "default", "flex", "global", "on_demand", "standard", "standard_only", "text"})
_PRICED_FIELDS = (
    *("service_tier", "speed", "inference_geo", "mcp_servers", "audio", "modalities", "web_search_options"),
    *("use_previous_response_id", "container", "context_management", "cached_content", "response_modalities"),
    *("plugins", "search_parameters", "performance_config", "guardrail_config", "guardrails"),
)
"""Fields of chat models that may change the price of a call, or add to its input."""


class CallLimits(NamedTuple):
    """The limits of a call; None where nothing sets one.

    Attributes
    ----------
    output_tokens : int or None
        Of one answer.
    answers : int or None
        Their number.
    """

    output_tokens: int | None = None
    answers: int | None = None


NO_LIMITS = CallLimits()


def requested_limits(kwargs: Mapping[str, Any]) -> CallLimits:
    """Return the limits of a call as far as they can be read; what is no whole number is left to the provider.

    Examples
    --------
    >>> requested_limits({"max_tokens": "60", "n": None})
    CallLimits(output_tokens=60, answers=None)
    """
    given = dict(_pairs(kwargs))
    outputs = [limit for name in OUTPUT_LIMITS if (limit := _whole(given.get(name)))]
    answers = [count for name in ANSWERS if (count := _whole(given.get(name)))]
    return CallLimits(max(outputs, default=None), max(answers, default=None))


def bounded_limits(kwargs: Mapping[str, Any], messages: Iterable[BaseMessage] = ()) -> CallLimits:
    """Return the limits of a call under a hard budget.

    Parameters
    ----------
    kwargs : mapping
        The caller's keyword arguments, and the queued operations.
    messages : iterable of BaseMessage
        The conversation, whose blocks may ask for a cache as well.

    Raises
    ------
    InvalidInput
        If a limit is no whole number in its range, or a setting may change the cost; it names the setting.

    Examples
    --------
    >>> bounded_limits({"max_tokens": "60", "temperature": 0.5})
    CallLimits(output_tokens=60, answers=None)
    """
    outputs: list[int] = []
    answers: list[int] = []
    for name, value in _pairs(kwargs):
        if name in OUTPUT_LIMITS:
            outputs += _checked(name, value, MAX_OUTPUT_TOKENS)
        elif name in ANSWERS:
            answers += _checked(name, value, MAX_ANSWERS)
        elif reason := costly(name, value):
            raise _refused(name, reason)
    for operation, args, _ in kwargs.get(OPERATIONS, ()):
        if operation == "bind_tools" and (reason := costly("tools", args[0])):
            raise _refused("tools", reason)
    if cache := next(filter(None, (long_cache(message.content) for message in messages)), None):
        raise _refused(cache, LONG_CACHE)
    return CallLimits(min(outputs, default=None), max(answers, default=None))


def rewritten(kwargs: Mapping[str, Any], output_tokens: int | None, answers: int | None) -> dict[str, Any]:
    """Return keyword arguments whose limits are replaced by the bounded ones.

    Parameters
    ----------
    kwargs : mapping
        The caller's keyword arguments, and the queued operations.
    output_tokens, answers : int or None
        The limits; where one is None, its names are taken out, since the model has a field for it.

    Examples
    --------
    >>> rewritten({"max_tokens": "60", "n": "2", "stop": ["."]}, 60, None)
    {'max_tokens': 60, 'stop': ['.']}
    """
    bounded = dict.fromkeys(OUTPUT_LIMITS, output_tokens) | dict.fromkeys(ANSWERS, answers)
    written = _written(kwargs, bounded)
    if OPERATIONS in written:
        written[OPERATIONS] = tuple(
            (name, args, _written(keywords, bounded)) for name, args, keywords in written[OPERATIONS]
        )
    return written


def costly(name: str, value: object) -> str | None:
    """Return the reason why a setting may change the cost of a call; None where it does not."""
    if name in BODIES and isinstance(value, Mapping):
        reasons = (costly(str(key), inner) for key, inner in value.items())
        return next(filter(None, reasons), None)
    if name in {"tools", "functions"}:
        return _costly_tools(value)
    if name in CACHES and is_long(value):
        return LONG_CACHE
    if name == "reasoning" and _mode(value) not in (None, "standard"):
        return f"must have the mode 'standard', got {_mode(value)!r:.60}: others have a price of their own"
    if value is None or name in HARMLESS:
        return None
    return "may change the cost: set it on the model"


def own_limits(fields: Mapping[str, Any], limit_field: str | None) -> CallLimits:
    """Return the limits that a chat model is set to.

    Parameters
    ----------
    fields : mapping
        The fields of the chat model.
    limit_field : str or None
        The one that limits its output.
    """
    answers = (count for name in ANSWERS if (count := _whole(fields.get(name))))
    return CallLimits(_whole(fields[limit_field]) if limit_field else None, max(answers, default=None))


def fixed_limits(fields: Mapping[str, Any], limit_field: str | None) -> CallLimits:
    """Return the limits of a chat model that no call can lower: those within its bodies, and other names of its limit.

    Examples
    --------
    >>> fixed_limits({"max_tokens": 5, "model_kwargs": {"max_completion_tokens": 60}}, "max_tokens")
    CallLimits(output_tokens=60, answers=None)
    """
    bodies = [body for name in BODIES if isinstance(body := fields.get(name), Mapping)]
    names = {name: fields[name] for name in OUTPUT_LIMITS if name in fields and name != limit_field}
    inner = [requested_limits(body) for body in (*bodies, names)]
    outputs = (limits.output_tokens for limits in inner if limits.output_tokens is not None)
    answers = (limits.answers for limits in inner if limits.answers is not None)
    return CallLimits(max(outputs, default=None), max(answers, default=None))


def costly_field(fields: Mapping[str, Any]) -> str | None:
    """Return the setting of a chat model that a hard budget cannot bound, with the reason; None where there is none.

    Parameters
    ----------
    fields : mapping
        The fields of the chat model.
    """
    for name in _PRICED_FIELDS:
        if (value := fields.get(name)) and not _is_plain(value):
            return f"{name} may change the cost"
    for name in ("reasoning", "prompt_cache_options"):
        if reason := costly(name, fields.get(name)):
            return f"{name} {reason}"
    return _costly_body(fields)


def _costly_body(fields: Mapping[str, Any]) -> str | None:
    """Return the setting in a body of a chat model that a hard budget cannot bound; None where there is none."""
    for name in BODIES:
        body = fields.get(name)
        for key, value in body.items() if isinstance(body, Mapping) else ():
            if key in (*OUTPUT_LIMITS, *ANSWERS):
                if _whole(value) is None:
                    return f"{name}.{key} must be a whole number of at least 1, got {value!r:.60}"
            elif not (key in _PRICED_FIELDS and _is_plain(value)) and costly(str(key), value):
                return f"{name}.{key} may change the cost"
    return None


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        is_no_guardrail = "guardrailIdentifier" in value and not any(value.values())
        return is_no_guardrail or (value.keys() == {"edits"} and all(map(_clears, value["edits"] or ())))
    values = value if isinstance(value, list | tuple) else [value]
    return all(isinstance(each, str) and each.lower() in _PLAIN_VALUES for each in values)


def _clears(edit: object) -> bool:
    """Return True if an edit of the context leaves parts of the prompt out; a compaction is a call of its own."""
    return isinstance(edit, Mapping) and str(edit.get("type")).startswith("clear_")


def _pairs(kwargs: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Yield the settings of a call, those of its queued operations and of their bodies included."""
    operations: Sequence[Operation] = kwargs.get(OPERATIONS, ())
    for keywords in (kwargs, *(keywords for _, _, keywords in operations)):
        for name, value in keywords.items():
            if name in BODIES and isinstance(value, Mapping):
                yield from ((str(key), inner) for key, inner in value.items())
            elif name != OPERATIONS:
                yield name, value


def _written(kwargs: Mapping[str, Any], bounded: Mapping[str, int | None]) -> dict[str, Any]:
    written: dict[str, Any] = {}
    for name, value in kwargs.items():
        if name in BODIES and isinstance(value, Mapping):
            written[name] = _written(value, bounded)
        elif name not in bounded:
            written[name] = value
        elif value is not None and bounded[name] is not None:
            written[name] = bounded[name]
    return written


def _checked(name: str, value: object, most: int) -> list[int]:
    """Return a limit as a whole number; nothing for None."""
    if value is None:
        return []
    number = _whole(value)
    if number is None or number > most:
        raise _refused(name, f"must be a whole number from 1 to {most:,}, got {value!r:.60}")
    return [number]


def _whole(value: object) -> int | None:
    """Return a whole number of at least 1, also if it is written as text or as a float; None for anything else."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < 20 else None
    if isinstance(value, float):
        value = int(value) if value.is_integer() else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None


def provider_tools(kwargs: Mapping[str, Any]) -> list[str]:
    """Return the types of the tools of a call that the provider runs, and bills beside the tokens.

    Examples
    --------
    >>> provider_tools({"tools": [{"type": "web_search"}]})
    ['web_search']
    """
    operations: Sequence[Operation] = kwargs.get(OPERATIONS, ())
    given = [value for name, value in _pairs(kwargs) if name == "tools"]
    given += [args[0] for operation, args, _ in operations if operation == "bind_tools"]
    kinds = (_providers(_as_sent(tool)) for tools in given for tool in _listed(tools))
    return [kind for kind in kinds if kind is not None]


def _costly_tools(tools: object) -> str | None:
    """Return the reason why tools may change the cost: the provider runs a tool that is no function of the caller."""
    for tool in map(_as_sent, _listed(tools)):
        if cache := long_cache(tool):
            return f"have a {cache} that {LONG_CACHE}"
        if (kind := _providers(tool)) is not None:
            return f"of type {kind!r:.60} are run and billed by the provider"
    return None


def _providers(tool: object) -> str | None:
    """Return the type of a tool, as it is sent, that the provider runs; None for a function of the caller."""
    if not isinstance(tool, Mapping):
        return None if tool is None or callable(tool) or isinstance(tool, BaseTool) else type(tool).__name__
    asked = (str(name) for name, value in tool.items() if value is not None)
    google = next((name for name in asked if name.replace("_", "").lower() in _GOOGLE_TOOLS), None)
    if google is not None:
        return google
    kind = tool.get("type", "function")
    if (kind in _PLAIN_TOOLS and _TOOL_NAMES & tool.keys()) or (tool and tool.keys() <= set(CACHES)):
        return None
    return str(kind if "type" in tool else next(iter(tool), ""))


def _listed(tools: object) -> Sequence[object]:
    return tools if isinstance(tools, Sequence) and not isinstance(tools, str) else [tools]


def _as_sent(tool: object) -> object:
    """Return a tool with the extras that are sent beside it, or the provider's tool that it stands for."""
    if isinstance(tool, BaseModel) and not isinstance(tool, BaseTool):
        return tool.model_dump(exclude_none=True)
    extras = getattr(tool, "extras", None)
    return extras.get("provider_tool_definition", {"name": "", **extras}) if isinstance(extras, Mapping) else tool


def _mode(reasoning: object) -> object:
    return reasoning.get("mode") if isinstance(reasoning, Mapping) else None


def _refused(name: str, reason: str) -> InvalidInput:
    return InvalidInput(f"{name} {reason}; the budget is hard, so a call is bounded before it is sent", value=name)
