"""The id and the scope of a decision that a caller gives as such, or by its id."""

from __future__ import annotations

from wiserouter.types import Decision


def id_of(decision: Decision | str) -> str:
    """Return the id."""
    return decision if isinstance(decision, str) else decision.id


def scope_of(decision: Decision | str) -> str:
    """Return the scope; "" where only the id is known."""
    return "" if isinstance(decision, str) else decision.scope
