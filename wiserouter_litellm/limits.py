"""The limits of a request under a hard budget: read, checked, and written back into the request as whole numbers.

A hard budget bounds the cost of a call by the limits that the provider receives. So the limits that were read are the
limits that are sent: text such as "4096" becomes a number, and null is taken out, so that `cap_output_tokens` applies.
A parameter that cannot be bounded, or that lets LiteLLM or the provider drop or replace a limit, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from litellm.exceptions import BadRequestError

OUTPUT_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""The names of the limit of one answer."""

ANSWERS = ("n", "best_of")
"""The names of the number of answers that are billed."""

MAX_OUTPUT_TOKENS = 10**9
"""A larger limit bounds nothing."""

MAX_ANSWERS = 1_024

REPLACEMENTS = frozenset(
    {
        *("candidate_count", "candidateCount", "num_return_sequences", "num_generations", "use_beam_search"),
        *("max_new_tokens", "max_tokens_to_sample", "maxOutputTokens", "num_predict", "min_tokens"),
        *("generationConfig", "generation_config", "inferenceConfig", "inference_config", "text_generation_config"),
    }
)
"""Providers' own names of limits: LiteLLM forwards them as they are, next to or in place of the bounded ones."""

EXTRA_BODY = frozenset(
    {
        *("chat_template_kwargs", "guided_choice", "guided_grammar", "guided_json", "guided_regex", "metadata"),
        *("min_p", "repetition_penalty", "seed", "stop_token_ids", "top_a", "top_k", "typical_p", "user"),
    }
)
"""The keys of `extra_body` that do not change what a call can cost."""


def write_limits(group: str, kwargs: dict[str, Any]) -> None:
    """Replace the limits of a request by whole numbers, in place.

    Parameters
    ----------
    group : str
        The model group, for the error.
    kwargs : dict
        The request's keyword arguments, as LiteLLM sends them on.

    Raises
    ------
    litellm.BadRequestError
        If a limit is no whole number in its range, or a parameter may remove or replace a limit. It names the
        parameter; nothing is changed.

    Examples
    --------
    >>> request = {"max_tokens": "60", "n": None}
    >>> write_limits("wise", request)
    >>> request
    {'max_tokens': 60}
    """
    written = {name: _limit(group, name, kwargs[name], MAX_OUTPUT_TOKENS) for name in OUTPUT_LIMITS if name in kwargs}
    written |= {name: _limit(group, name, kwargs[name], MAX_ANSWERS) for name in ANSWERS if name in kwargs}
    for name in REPLACEMENTS & kwargs.keys():
        raise _refused(group, name, "is a provider's own limit, which is not bounded: use max_tokens and n")
    _check_dropped(group, kwargs)
    _check_extra_body(group, kwargs.get("extra_body"))
    for name, limit in written.items():
        if limit is None:
            del kwargs[name]
        else:
            kwargs[name] = limit


def drop_null_limits(kwargs: dict[str, Any]) -> None:
    """Remove limits that are null from a request, in place: LiteLLM would let them replace `cap_output_tokens`."""
    for name in (*OUTPUT_LIMITS, *ANSWERS):
        if name in kwargs and kwargs[name] is None:
            del kwargs[name]


def n_prompts(messages: object) -> int:
    """Return the number of prompts of a text completion; 1 for a chat.

    Examples
    --------
    >>> n_prompts([{"role": "user", "content": ["one", "two"]}]), n_prompts([{"role": "user", "content": [15496, 0]}])
    (2, 1)
    """
    if not isinstance(messages, Sequence) or len(messages) != 1 or not isinstance(messages[0], Mapping):
        return 1
    content = messages[0].get("content")
    if not isinstance(content, Sequence) or isinstance(content, str):
        return 1
    return max(1, sum(isinstance(part, str | list | tuple) for part in content))


def _limit(group: str, name: str, value: object, most: int) -> int | None:
    """Return a limit as a whole number; None for null."""
    if value is None:
        return None
    number = _number(value)
    if number is None or not 1 <= number <= most:
        raise _refused(group, name, f"must be a whole number from 1 to {most:,}, got {value!r:.60}")
    return number


def _number(value: object) -> int | None:
    """Return a whole number, also if it is written as text or as a float; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) else None


def _check_dropped(group: str, kwargs: Mapping[str, Any]) -> None:
    """Refuse a request that asks LiteLLM to drop a limit on the way to the provider."""
    dropped = kwargs.get("additional_drop_params")
    names = [dropped] if isinstance(dropped, str) else dropped if isinstance(dropped, Sequence) else ()
    for name in names:
        if str(name).partition(".")[0].partition("[")[0] in {*OUTPUT_LIMITS, *ANSWERS, "extra_body"}:
            raise _refused(group, "additional_drop_params", f"must not name {str(name)!r:.60}, which bounds the cost")
    if kwargs.get("drop_params"):
        raise _refused(group, "drop_params", "may drop the limit of the output: leave it out")


def _check_extra_body(group: str, body: object) -> None:
    """Refuse an `extra_body` that could replace a limit: providers receive it over the bounded parameters."""
    if body is None:
        return
    if not isinstance(body, Mapping):
        raise _refused(group, "extra_body", f"must be an object, got {type(body).__name__}")
    for name in body:
        if name not in EXTRA_BODY:
            raise _refused(group, f"extra_body.{name!s:.40}", "may change the cost: pass it as a parameter of the call")


def _refused(group: str, name: str, rule: str) -> BadRequestError:
    return BadRequestError(
        f"group {group!r}: {name} {rule}; the budget is hard, so a call is bounded before it is sent",
        model=group,
        llm_provider="wiserouter",
    )
