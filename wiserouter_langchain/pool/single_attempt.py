"""A copy of a chat model whose client sends each request once.

A client that repeats a request may be billed for each copy, and reports one. Under a hard budget the router repeats
calls itself, each with a reservation of its own.
"""

from __future__ import annotations

from copy import copy
from types import ModuleType
from typing import Any, TypeGuard

from langchain_core.language_models import BaseChatModel

_LITELLM = {"max_retries": 0, "num_retries": 0}
"""The arguments by which LiteLLM sends a request once: its clients and its router have retries of their own."""

_LITELLM_ROUTER = {**_LITELLM, "disable_fallbacks": True}
"""The same for a `litellm.Router`, which would send a request that failed to the next of its model groups."""


def single_attempt(model: BaseChatModel) -> BaseChatModel:
    """Return a copy of a chat model whose client sends each request once, and whose fields no one else can change.

    Notes
    -----
    Besides the field `max_retries`, the clients of the OpenAI and Anthropic SDKs hold the number of retries, and so do
    the resources made from them; these are found by their methods, wherever the model keeps them. The clients of boto3,
    as of Bedrock's models, and of OpenRouter have their retries in parts of their own.
    """
    has_field = "max_retries" in type(model).model_fields
    once = model.model_copy(update={"max_retries": 0} if has_field else None)
    for name, value in model.__dict__.items():
        if (replaced := _once(value)) is not None:
            once.__dict__[name] = replaced
    if isinstance(client := model.__dict__.get("client"), ModuleType) and client.__name__ == "litellm":
        arguments = _LITELLM_ROUTER if "router" in type(model).model_fields else _LITELLM
        once.__dict__["model_kwargs"] = {**model.__dict__["model_kwargs"], **arguments}
    return once


def _once(value: Any) -> Any:
    """Return a client, a resource of one, or its parameters without retries; None for any other value."""
    if isinstance(value, dict) and "max_retries" in value:
        return {**value, "max_retries": 0}
    if _is_client(value):
        return value.with_options(max_retries=0)
    if hasattr(getattr(value, "_endpoint", None), "_event_emitter"):
        return _boto_once(value)
    if hasattr(getattr(value, "sdk_configuration", None), "retry_config"):
        return _openrouter_once(value)
    owner: Any = getattr(value, "_client", None)
    return type(value)(owner.with_options(max_retries=0)) if _is_client(owner) else None


def _is_client(value: Any) -> TypeGuard[Any]:
    return callable(getattr(value, "with_options", None)) and isinstance(getattr(value, "max_retries", None), int)


def _boto_once(client: Any) -> Any:
    """Return a client of boto3 as it is, but for its endpoint, which asks no handler whether to repeat a request."""
    once, endpoint = object.__new__(type(client)), copy(client._endpoint)  # the client itself cannot be copied
    endpoint._event_emitter = _NoRetries(endpoint._event_emitter)
    once.__dict__.update(client.__dict__, _endpoint=endpoint)
    return once


class _NoRetries:
    """The events of a client of boto3, without those that ask whether to repeat a request."""

    def __init__(self, events: Any) -> None:
        self._events = events

    def emit(self, event_name: str, **kwargs: Any) -> Any:
        """Emit an event, and return the responses to it."""
        return [] if event_name.startswith("needs-retry.") else self._events.emit(event_name, **kwargs)


def _openrouter_once(client: Any) -> Any:
    """Return a client of OpenRouter whose parts, which it makes as they are asked for, do not repeat a request."""
    once, settings = copy(client), copy(client.sdk_configuration)
    settings.retry_config = None
    for part in client._sub_sdk_map:
        once.__dict__.pop(part, None)
    once.sdk_configuration = settings
    return once
