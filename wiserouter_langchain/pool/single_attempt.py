"""A copy of a chat model whose client sends each request once.

A client that repeats a request may be billed for each copy, and reports one. Under a hard budget the router repeats
calls itself, each with a reservation of its own.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from langchain_core.language_models import BaseChatModel


def single_attempt(model: BaseChatModel) -> BaseChatModel:
    """Return a copy of a chat model whose client sends each request once, and whose fields no one else can change.

    Notes
    -----
    Besides the field `max_retries`, the clients of the OpenAI and Anthropic SDKs hold the number of retries, and so do
    the resources made from them; these are found by their methods, wherever the model keeps them.
    """
    if "max_retries" not in type(model).model_fields or model.__dict__.get("max_retries") == 0:
        return model.model_copy()
    copy = model.model_copy(update={"max_retries": 0})
    for name, value in model.__dict__.items():
        if (replaced := _once(value)) is not None:
            copy.__dict__[name] = replaced
    return copy


def _once(value: Any) -> Any:
    """Return a client, a resource of one, or its parameters without retries; None for any other value."""
    if isinstance(value, dict) and "max_retries" in value:
        return {**value, "max_retries": 0}
    if _is_client(value):
        return value.with_options(max_retries=0)
    owner: Any = getattr(value, "_client", None)
    return type(value)(owner.with_options(max_retries=0)) if _is_client(owner) else None


def _is_client(value: Any) -> TypeGuard[Any]:
    return callable(getattr(value, "with_options", None)) and isinstance(getattr(value, "max_retries", None), int)
