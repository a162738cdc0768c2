"""What shows only when a call is sent: that it is a compaction, a search of one of its tools, or has no deployment.

A hard budget refuses all three. LiteLLM selects a deployment for a compaction as for a response, and no limit of the
output bounds what it writes. On `/v1/messages`, LiteLLM takes a tool named web_search for a search that the provider
runs, where it translates the call for a provider with another interface. A pass-through call for which a selection was
refused, LiteLLM sends with the credentials of the environment, where it knows a model of the group's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litellm.exceptions import BadRequestError

from wiserouter_litellm.errors import uncountable
from wiserouter_litellm.groups.attempts import OpenAttempt
from wiserouter_litellm.groups.group import Group
from wiserouter_litellm.requests.tools import is_search

_COMPACTIONS = frozenset({"acompact_responses", "compact_responses"})


def refuse_as_sent(attempt: OpenAttempt | None, kwargs: Mapping[str, Any]) -> None:
    """Refuse a compaction, and a search that the request has not asked for, under a hard limit.

    Parameters
    ----------
    attempt : OpenAttempt or None
        The attempt that is about to be sent.
    kwargs : mapping
        The arguments of its call as LiteLLM has translated it, with the object that logs it.

    Raises
    ------
    litellm.BadRequestError
        If it is one of both, and its limit is hard.
    """
    if attempt is None or attempt.worst_usd is None:
        return
    if getattr(kwargs.get("litellm_logging_obj"), "call_type", None) in _COMPACTIONS:
        raise uncountable(attempt.group.name)
    if attempt.sent and _searches(kwargs):  # LiteLLM shows it once more after it has translated it
        attempt.sent = False  # so that it is released
        raise BadRequestError(
            f"group {attempt.group.name!r}: LiteLLM sends a tool of the name 'web_search' to this provider as a search "
            "that the provider or LiteLLM runs, with fees and turns that nothing bounds, and the budget is hard: give "
            "the tool another name",
            model=attempt.group.name,
            llm_provider="wiserouter",
        )


def refuse_unselected(groups: Mapping[str, Group], kwargs: Mapping[str, Any], call_type: object) -> None:
    """Refuse a pass-through call to a group with a hard limit that LiteLLM sends without a deployment.

    Raises
    ------
    litellm.BadRequestError
        If it is one.
    """
    group = groups.get(str(kwargs.get("model")))
    if group is None or not group.hard or group.observes or "model_info" in kwargs:
        return
    if getattr(call_type, "value", call_type) == "allm_passthrough_route":
        raise uncountable(group.name)


def _searches(kwargs: Mapping[str, Any]) -> bool:
    return kwargs.get("web_search_options") is not None or any(is_search(tool) for tool in kwargs.get("tools") or ())
