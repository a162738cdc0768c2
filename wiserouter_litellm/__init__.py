"""WISERouter for LiteLLM; needs the extra `litellm`."""

from __future__ import annotations

from importlib.util import find_spec

from wiserouter.errors import MissingExtra

if find_spec("litellm") is None:
    raise MissingExtra("wiserouter_litellm", "LiteLLM", "litellm")

__all__: list[str] = []
