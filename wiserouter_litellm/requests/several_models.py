"""Requests to several models at once, `model: "wise,small"`: refused where one of them is ours.

LiteLLM sends such a request to all of its models, with `fastest_response` too, and every provider bills. But the calls
share the object that logs them, so that only one of them is ever reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litellm.exceptions import BadRequestError


def refuse_several(groups: Mapping[str, Any], model: object) -> None:
    """Refuse the `model` of a request if it names several, and one of our groups among them.

    Raises
    ------
    litellm.BadRequestError
        Naming the parameter.

    Examples
    --------
    >>> refuse_several({"wise": None}, "wise"), refuse_several({"wise": None}, "one,two")
    (None, None)
    """
    if not isinstance(model, str) or "," not in model or model in groups:
        return
    group = next((name for part in model.split(",") if (name := part.strip()) in groups), None)
    if group is not None and not groups[group].observes:
        raise _refused(group, model)


def refuse_as_one_of_several(group: str, kwargs: Mapping[str, Any], model: str) -> None:
    """Refuse a call for `group` that LiteLLM makes for a request to several models, by whatever names.

    Raises
    ------
    litellm.BadRequestError
        Naming the parameter.
    """
    body = (kwargs.get("proxy_server_request") or {}).get("body") or {}
    asked = body.get("model") if isinstance(body, Mapping) else None
    if isinstance(asked, str) and "," in asked and asked not in {group, model}:
        raise _refused(group, asked)


def _refused(group: str, model: str) -> BadRequestError:
    return BadRequestError(
        f"group {group!r}: model must name one model, got {model!r:.80}: each of several models is billed, and LiteLLM "
        f"reports one of them; send one request for each",
        model=group,
        llm_provider="wiserouter",
    )
