"""The most that each request of a batch can cost with each model, for a hard budget.

Each byte of what is billed as input counts as a token, and the output counts at its limit. What nothing here bounds is
refused: media, tools that the provider runs, and parameters that are not known to be free.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wiserouter.errors import InvalidInput
from wiserouter.integration.batches.requests import BatchRequest
from wiserouter.integration.call import FRAME_TOKENS, TOOLS_TOKENS
from wiserouter.pricing.arms import OUTPUT_LIMITS
from wiserouter.pricing.pool import Model
from wiserouter.pricing.prices import Price, highest_prices
from wiserouter.types import FloatArray

COUNTED = ("messages", "tools", "response_format")
"""The parameters that are billed as input."""

FREE = frozenset(
    {
        *("temperature", "top_p", "top_k", "seed", "stop", "presence_penalty", "frequency_penalty", "logit_bias"),
        *("logprobs", "top_logprobs", "user", "metadata", "safety_identifier", "store", "prompt_cache_key"),
        *("tool_choice", "parallel_tool_calls", "reasoning_effort", "verbosity", "thinking"),
    }
)
"""The parameters that cost nothing; reasoning counts against the limit of the output."""

_OF_MESSAGE = frozenset(("role", "content", "name", "refusal", "tool_calls", "tool_call_id"))


def with_limit(request: BatchRequest, max_tokens: int) -> BatchRequest:
    """Return a request whose output is limited: by its own limit, or by `max_tokens` where it has none.

    Examples
    --------
    >>> with_limit(BatchRequest("a", {"messages": []}), 100).body
    {'messages': [], 'max_completion_tokens': 100}
    """
    if any(request.body.get(name) is not None for name in OUTPUT_LIMITS):
        return request
    return BatchRequest(request.id, {**request.body, "max_completion_tokens": max_tokens})


def worst_cases_usd(
    requests: Sequence[BatchRequest], models: Sequence[Model], prices: Mapping[str, Price]
) -> FloatArray:
    """Return the most that each request can cost with each model, in USD; infinite with models that have no price.

    Parameters
    ----------
    requests : sequence of BatchRequest
        Requests whose output is limited.
    models : sequence of Model
        The pool; the parameters of an arm come before those of a request.
    prices : mapping of str to Price
        Prices in the batch.

    Raises
    ------
    InvalidInput
        If nothing bounds the cost of a request, or of an arm.

    Examples
    --------
    >>> request = BatchRequest("a", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 10})
    >>> worst_cases_usd([request], [Model("m"), Model("other")], {"m": Price(1e-6, 2e-6)}).round(6).tolist()
    [[8.5e-05, inf]]
    """
    inputs, choices, limits = np.empty((3, len(requests)))
    for at, request in enumerate(requests):
        try:
            inputs[at] = _input_tokens(request.body)
            choices[at], limits[at] = _choices(request.body), _limit(request.body)
        except InvalidInput as error:
            raise InvalidInput(f"request {request.id!r:.80}: {error}", value=error.value) from error
    found = np.full((len(requests), len(models)), np.inf)
    for k, model in enumerate(models):
        if model.name not in prices:
            continue
        input_usd, output_usd = highest_prices(prices[model.name])
        found[:, k] = inputs * input_usd + choices * np.maximum(limits, _limit_of_arm(model)) * output_usd
    return found


def _limit_of_arm(model: Model) -> int:
    """Return the limit of the output that an arm sets, perhaps by another name than a request does; 0 for none."""
    params = model.params
    _check_names({name: value for name, value in params.items() if name not in OUTPUT_LIMITS}, f"of {model.name!r}")
    return _limit(params) if any(params.get(name) is not None for name in OUTPUT_LIMITS) else 0


def _input_tokens(body: Mapping[str, Any]) -> int:
    """Return an upper bound of the tokens that are billed as input."""
    _check_names({name: value for name, value in body.items() if name not in (*COUNTED, *OUTPUT_LIMITS, "n")}, "")
    for message in body["messages"]:
        _check_message(message)
    tools = body.get("tools") or ()
    for tool in tools:
        kind = tool.get("type") if isinstance(tool, Mapping) else None
        if kind != "function":
            raise _unbounded(f"a tool of type {kind!r}")
    billed = {name: body[name] for name in COUNTED if body.get(name) is not None}
    n_bytes = len(json.dumps(billed, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    return n_bytes + FRAME_TOKENS * (len(body["messages"]) + 1) + (TOOLS_TOKENS if tools else 0)


def _check_message(message: Mapping[str, Any]) -> None:
    unknown = sorted(name for name, value in message.items() if name not in _OF_MESSAGE and value is not None)
    if unknown:
        raise _unbounded(f"{unknown[0]!r} of a message")
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind not in ("text", "refusal"):
            raise _unbounded(f"a part of type {kind!r}")


def _check_names(params: Mapping[str, Any], of: str) -> None:
    unknown = sorted(name for name, value in params.items() if name not in FREE and value is not None)
    if unknown:
        raise _unbounded(f"the parameter {unknown[0]!r} {of}".strip())


def _choices(body: Mapping[str, Any]) -> int:
    n = body.get("n")
    return 1 if n is None else _count(n, "n")


def _limit(params: Mapping[str, Any]) -> int:
    """Return the largest of the limits of the output."""
    return max(_count(params[name], name) for name in OUTPUT_LIMITS if params.get(name) is not None)


def _count(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInput(f"{name} must be a whole number of at least 1, got {value!r}", value=value)
    return value


def _unbounded(what: str) -> InvalidInput:
    return InvalidInput(f"nothing bounds what {what} costs: leave it out, or leave out --hard", value=what)
