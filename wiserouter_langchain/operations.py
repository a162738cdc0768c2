"""The operations that are queued on the router and replayed on the chosen model."""

from __future__ import annotations

from typing import Any

OPERATIONS = "__wise_operations"
"""Keyword argument that holds the queued operations, `bind_tools` and `with_structured_output`."""

Operation = tuple[str, tuple[Any, ...], dict[str, Any]]
"""The name of a method, its arguments and its keyword arguments."""
