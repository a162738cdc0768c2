"""WISERouter for LangChain; needs the extra `langchain`."""

from __future__ import annotations

from importlib.util import find_spec

from wiserouter.errors import MissingExtra

if find_spec("langchain_core") is None:
    raise MissingExtra("wiserouter_langchain", "LangChain", "langchain")

__all__: list[str] = []
