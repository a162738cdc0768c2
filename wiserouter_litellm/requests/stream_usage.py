"""The usage of streams in the proxy: asked for, and hidden from clients that have not asked for it.

LiteLLM's proxy does so only where all deployments of a group are known to take the parameter, so not in a group of
models of OpenAI and Anthropic. Providers that do not take it never see it: LiteLLM leaves it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STRIPS_USAGE = "_litellm_strip_stream_usage"
"""Key of a request by which LiteLLM's proxy leaves the piece with the usage out of its answer."""


def ask_for_usage(data: dict[str, Any], general_settings: Mapping[str, Any]) -> None:
    """Let a streamed chat report its usage, in place, unless the operator has forbidden that.

    Parameters
    ----------
    data : dict
        The request, as the proxy hands it to its hooks.
    general_settings : mapping
        Those of the proxy.

    Examples
    --------
    >>> ask_for_usage(request := {"stream": True}, {})
    >>> request
    {'stream': True, 'stream_options': {'include_usage': True}, '_litellm_strip_stream_usage': True}
    """
    options = data.get("stream_options")
    options = options if isinstance(options, dict) else {}
    is_wanted = data.get("stream") is True and general_settings.get("always_include_stream_usage") is not False
    if is_wanted and options.get("include_usage") is not True:
        data |= {"stream_options": {**options, "include_usage": True}, STRIPS_USAGE: True}
