"""The parameters that deployments add to requests, and those that their providers do not know."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import litellm

from wiserouter_litellm.requests.limits import ALL_ANSWERS, ALL_LIMITS, CHAT_LIMITS, whole_number
from wiserouter_litellm.requests.parameter_checks import tier_of
from wiserouter_litellm.requests.parameters import broken_default, is_passed_on
from wiserouter_litellm.requests.request import added_tokens
from wiserouter_litellm.requests.surcharges import provider_of

_COMPLETIONS = "text-completion-openai"
_OWN_COMPLETIONS = re.compile("ft:(babbage|davinci)-002")


class Defaults(NamedTuple):
    """The parameters that a deployment's own `litellm_params` add to requests that leave them out.

    Attributes
    ----------
    output_tokens : int or None
        The limit of one answer.
    answers : int
        The number of answers.
    tier : str
        The service tier; "" for the standard one.
    unbounded : str or None
        A parameter whose cost nothing bounds.
    input_tokens : int
        The most tokens that its tools and other texts add to the input.
    passed_on_tokens : int
        Those of them that are of parameters which LiteLLM does not know.
    splits : bool
        Whether LiteLLM makes a prompt of each message, which has an answer of its own.
    alternates : bool
        Whether LiteLLM puts short messages between those of one role (`ensure_alternating_roles`).
    """

    output_tokens: int | None = None
    answers: int = 1
    tier: str = ""
    unbounded: str | None = None
    input_tokens: int = 0
    passed_on_tokens: int = 0
    splits: bool = False
    alternates: bool = False


def defaults_of(params: Mapping[str, Any], unbounded: str | None = None, encoding_of: str | None = None) -> Defaults:
    """Return the parameters that a deployment's `litellm_params` add to requests.

    A limit below 1 is none: some servers read -1 as no limit. Where they hold a parameter whose cost nothing bounds, it
    comes before the one that is known already. Their texts are counted by the encoding of a model, where one is given.

    Examples
    --------
    >>> defaults_of({"model": "openai/small", "max_tokens": 500, "extra_body": {"n": 4}}).unbounded
    'extra_body.n'
    """
    limits = [limit for name in ALL_LIMITS if (limit := whole_number(params.get(name)) or 0) > 0]
    answers = [number for name in ALL_ANSWERS if (number := whole_number(params.get(name)) or 0) > 0]
    return Defaults(
        max(limits, default=None),
        max(answers, default=1),
        tier_of(params.get("service_tier")),
        broken_default(params) or unbounded,
        added_tokens(params, encoding_of),
        added_tokens({name: value for name, value in params.items() if is_passed_on(name)}, encoding_of),
        provider_of(params) == _COMPLETIONS or _OWN_COMPLETIONS.search(str(params.get("model"))) is not None,
        bool(params.get("ensure_alternating_roles")),
    )


def changes_cost(name: str, value: object) -> bool:
    """Return True if a parameter that is added to a call changes what it can cost.

    Examples
    --------
    >>> [changes_cost(name, value) for name, value in {"max_tokens": 900, "timeout": 30, "tools": [{}]}.items()]
    [True, False, True]
    """
    is_limit = name in ALL_LIMITS or name in ALL_ANSWERS or (name == "service_tier" and tier_of(value) != "")
    given = {name: value}
    return value is not None and (is_limit or broken_default(given) is not None or added_tokens(given) > 0)


def unknown_limits(params: Mapping[str, Any]) -> frozenset[str]:
    """Return the limits of a chat that the provider of a deployment does not get, by LiteLLM's own list.

    Examples
    --------
    >>> sorted(unknown_limits({"model": "replicate/some/model"}))
    ['max_completion_tokens']
    """
    return frozenset(name for name in CHAT_LIMITS if is_unsent(name, params))


def is_unsent(name: str, params: Mapping[str, Any]) -> bool:
    """Return True if LiteLLM drops or refuses a parameter for a deployment with these `litellm_params`.

    Examples
    --------
    >>> [is_unsent("reasoning_effort", {"model": model}) for model in ("replicate/some/model", "openai/o3")]
    [True, False]
    """
    known = _known_parameters(params)
    return known is not None and name not in known and name not in (params.get("allowed_openai_params") or ())


def _known_parameters(params: Mapping[str, Any]) -> Sequence[str] | None:
    """Return the parameters that LiteLLM lists for the provider of a deployment; None where it lists none."""
    model, provider = str(params.get("model")), params.get("custom_llm_provider")
    try:
        return litellm.get_supported_openai_params(model, custom_llm_provider=provider)
    except Exception:  # a provider that LiteLLM does not know: it sends all parameters as they are
        return None
