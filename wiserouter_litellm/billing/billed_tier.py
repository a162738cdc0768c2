"""The service tier by which a call is billed: the one that served it, which may not be the one that it asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wiserouter_litellm.requests.json_objects import field_of

_TIERS = {name: name for name in ("priority", "ultrafast", "balanced", "flex")} | {
    "fast": "priority",
    "default": "",
    "standard": "",
    "on_demand": "",  # this and the rest: traffic types of Gemini and Vertex AI
    "on_demand_priority": "priority",
    "on_demand_flex": "flex",
    "batch": "flex",
}
_TIERLESS_PROVIDER = "text-completion-openai"


def billed_tier(kwargs: Mapping[str, Any], response: object) -> str:
    """Return the tier that the answer says it was served by, else the one that was asked for; "" for the standard one.

    Parameters
    ----------
    kwargs : mapping
        The event, as loggers get it.
    response : object
        The answer; of a stream, all of it.

    Examples
    --------
    >>> asked = {"optional_params": {"service_tier": "fast"}}
    >>> billed_tier(asked, {}), billed_tier(asked, {"service_tier": "default"})
    ('priority', '')
    """
    asked = None if drops_tier(kwargs) else field_of(kwargs.get("optional_params"), "service_tier")
    served = (field_of(response, "service_tier"), field_of(field_of(response, "usage"), "service_tier"))
    hidden = field_of(getattr(response, "_hidden_params", None), "provider_specific_fields")
    named = (*served, field_of(hidden, "traffic_type"), asked)
    names = (name.lower() for name in named if isinstance(name, str))
    return next((_TIERS[name] for name in names if name in _TIERS), "")


def drops_tier(kwargs: Mapping[str, Any]) -> bool:
    """Return True if LiteLLM bills a tier that it has not sent: no text completion of OpenAI has any."""
    asks = bool(field_of(kwargs.get("optional_params"), "service_tier"))
    return asks and kwargs.get("custom_llm_provider") == _TIERLESS_PROVIDER
