"""Refusal of messages and prompts of which LiteLLM can make no request: the failure would be presumed to cost money.

Only what no provider takes is refused; whatever LiteLLM may send is left to the provider.
"""

from __future__ import annotations

from collections.abc import Sequence

from litellm.exceptions import BadRequestError

from wiserouter_litellm.requests.json_objects import SEQUENCE


def refuse_malformed(group: str, messages: object, *, is_prompt: bool) -> None:
    """Refuse messages that are no objects, contents that are numbers, and prompts without text.

    Parameters
    ----------
    group : str
        The model group, for the error.
    messages : list or None
        As LiteLLM passes them: the prompt of a text completion is the content of one message.
    is_prompt : bool
        Whether it is that of a text completion.

    Raises
    ------
    litellm.BadRequestError
        Naming the message.

    Examples
    --------
    >>> refuse_malformed("wise", [{"role": "assistant", "content": None, "tool_calls": []}], is_prompt=False)
    >>> refuse_malformed("wise", [1], is_prompt=False)
    Traceback (most recent call last):
        ...
    litellm.exceptions.BadRequestError: litellm.BadRequestError: group 'wise': messages[0] must be an object, got int
    """
    if not isinstance(messages, SEQUENCE) or isinstance(messages, str | bytes):
        return
    rule = _prompt_rule(messages) if is_prompt else next(filter(None, map(_rule, range(len(messages)), messages)), None)
    if rule is not None:
        raise BadRequestError(f"group {group!r}: {rule}", model=group, llm_provider="wiserouter")


def _rule(i: int, message: object) -> str | None:
    """Return the rule that a message breaks; None if it breaks none."""
    if isinstance(message, str | int | float | list | None):
        return f"messages[{i}] must be an object, got {_kind(message)}"
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, int | float):
        return f"messages[{i}].content must be text, a list of parts or null, got {_kind(content)}"
    return None


def _kind(value: object) -> str:
    """Return the type of a value, which is shown in place of the value: it may be a part of a prompt."""
    return "null" if value is None else type(value).__name__


def _prompt_rule(messages: Sequence[object]) -> str | None:
    content = messages[0].get("content") if len(messages) == 1 and isinstance(messages[0], dict) else ""
    is_text_or_tokens = isinstance(content, str) or (isinstance(content, SEQUENCE) and len(content) > 0)
    return None if is_text_or_tokens else f"prompt must be text, or a list of texts or tokens, got {_kind(content)}"
