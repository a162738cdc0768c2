"""OpenAI's chat messages as other providers need them: system texts apart, and parts of text or images."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from wiserouter.errors import InvalidInput
from wiserouter.pricing.arms import OUTPUT_LIMITS

_DATA = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+);base64,(?P<data>.+)", re.DOTALL)
_SYSTEM = ("system", "developer")
_TURNS = ("user", "assistant")


class Image(NamedTuple):
    """An image of a message: its address, or its media type and its bytes in base64."""

    url: str
    media_type: str = ""
    data: str = ""


def split_messages(body: Mapping[str, Any], provider: str) -> tuple[str, list[tuple[str, list[str | Image]]]]:
    """Return the system text, and role and parts of each turn.

    Raises
    ------
    InvalidInput
        If a message has another role, or a part that is neither text nor an image.
    """
    system: list[str] = []
    turns: list[tuple[str, list[str | Image]]] = []
    for message in body["messages"]:
        role, parts = message.get("role"), _parts(message.get("content"), provider)
        if role in _SYSTEM:
            system += [part for part in parts if isinstance(part, str)]
        elif role in _TURNS and parts and not message.get("tool_calls"):
            turns.append((role, parts))
        else:
            raise _unsent(f"a message of role {role!r} with tools or without content", provider)
    return "\n\n".join(system), turns


def chosen_parameters(body: Mapping[str, Any], known: Mapping[str, str], provider: str) -> dict[str, Any]:
    """Return the parameters of a call under a provider's names; raise `InvalidInput` for one that it does not have."""
    given = {name: value for name, value in body.items() if name != "messages" and value is not None}
    if given.get("n") == 1:
        del given["n"]
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise _unsent(f"the parameter {unknown[0]!r}", provider)
    if isinstance(given.get("stop"), str):
        given["stop"] = [given["stop"]]
    return {known[name]: value for name, value in given.items()}


def output_names(name: str, names: Collection[str] = OUTPUT_LIMITS) -> dict[str, str]:
    """Return the name of a provider's limit of the output under each of OpenAI's."""
    return dict.fromkeys(names, name)


def _parts(content: Any, provider: str) -> list[str | Image]:
    if isinstance(content, str):
        return [content]
    return [_part(part, provider) for part in content or ()]


def _part(part: Any, provider: str) -> str | Image:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "text":
        return str(part["text"])
    if kind == "image_url":
        url = str(part["image_url"]["url"])
        data = _DATA.fullmatch(url)
        return Image("", data["type"], data["data"]) if data else Image(url)
    raise _unsent(f"a part of type {kind!r}", provider)


def _unsent(what: str, provider: str) -> InvalidInput:
    return InvalidInput(
        f"{what} cannot be written for {provider}'s batches: leave it out, or leave out its models with --models"
    )


Converter = Callable[[str, str, Mapping[str, Any], int], dict[str, Any]]
"""Makes the line of a request from its custom id, its model, its body and the limit where it sets none."""
