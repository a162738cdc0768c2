"""The id and the scope of a decision that a caller gives as such, or by its id."""

from __future__ import annotations

from wiserouter.errors import InvalidInput
from wiserouter.types import Decision


def id_of(decision: Decision | str) -> str:
    """Return the id; raise `InvalidInput` if it is neither a decision nor an id."""
    if isinstance(decision, str):
        return decision
    if isinstance(decision, Decision):
        return decision.id
    raise InvalidInput(f"decision must be a Decision or its id, got {decision!r}", value=decision)


def scope_of(decision: Decision | str) -> str:
    """Return the scope; "" where only the id is known."""
    return "" if isinstance(decision, str) else decision.scope
