"""Calls for which LiteLLM selects no deployment, such as a fallback to the id of one: they are reserved on their way.

LiteLLM asks no callback to filter the deployments of such a call. It offers the call once more before it is sent, with
all parameters of the deployment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from wiserouter_litellm.deployments.registry import Deployment
from wiserouter_litellm.groups.fallbacks import passes_uncounted
from wiserouter_litellm.groups.group import DECISION_KEY
from wiserouter_litellm.requests.parameters import CHAT, MESSAGES, RESPONSES, SENT_REFUSED


class DirectCall(NamedTuple):
    """A call for which LiteLLM selects no deployment: its surface, and the parameters that are its request's own."""

    surface: str
    given: frozenset[str]


def unreserved(kwargs: Mapping[str, Any], metadata: Mapping[str, Any], owner: str) -> Deployment | None:
    """Return the deployment of a call that no selection has reserved or let pass; None where there was a selection.

    Parameters
    ----------
    kwargs : mapping
        The arguments of the call as it is sent, those of its deployment included.
    metadata : mapping
        LiteLLM's own metadata of the request.
    owner : str
        The recorder whose selections count.
    """
    info = kwargs.get("model_info")
    if not isinstance(info, Mapping) or not info.get("id") or "deployment_model_name" not in metadata:
        return None  # LiteLLM's router has not sent it
    if DECISION_KEY in info or DECISION_KEY in (metadata.get("model_info") or {}):
        return None
    deployment = {"model_name": metadata["deployment_model_name"], "litellm_params": kwargs, "model_info": info}
    return None if passes_uncounted(metadata, kwargs, owner, deployment) else deployment


def with_selected(kwargs: Mapping[str, Any], metadata: dict[str, Any], selected: Deployment) -> dict[str, Any]:
    """Return the arguments of a call with the mark of its decision, and the limit of the output that was bounded."""
    metadata["model_info"] = selected["model_info"]
    added = {name: value for name, value in selected["litellm_params"].items() if name not in {*kwargs, "order"}}
    return {**kwargs, **added, "model_info": selected["model_info"]}


def direct_call(call_type: object, kwargs: Mapping[str, Any]) -> DirectCall:
    """Return the surface of a call by LiteLLM's name for it, and the names of the parameters that the request gave."""
    name = str(getattr(call_type, "value", call_type))
    surface = RESPONSES if "responses" in name else MESSAGES if "messages" in name else CHAT
    request = kwargs.get("proxy_server_request")
    body = request.get("body") if isinstance(request, Mapping) else None
    given = frozenset(body if isinstance(body, Mapping) else SENT_REFUSED)
    return DirectCall(surface, given - {"prompt"} if "text_completion" in name else given)


def messages_of(kwargs: Mapping[str, Any]) -> object:
    """Return the messages of a call as LiteLLM passes them to a selection; None where it has an input instead.

    Examples
    --------
    >>> messages_of({"prompt": "hello"})
    [{'role': 'user', 'content': 'hello'}]
    >>> messages_of({"prompt": None, "input": "hello"})  # of the responses API, where a prompt is a stored one
    """
    if "prompt" in kwargs and kwargs.keys().isdisjoint(("messages", "input")):
        return [{"role": "user", "content": kwargs["prompt"]}]
    return kwargs.get("messages")
