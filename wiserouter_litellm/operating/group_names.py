"""Groups by the names that requests give: their own, or that of a budget that several share."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import HTTPException

from wiserouter_litellm.groups.group import Group


def groups_named(groups: Mapping[str, Group], name: str) -> dict[str, Group]:
    """Return the group of a name, or all that share the budget of that name.

    Raises
    ------
    HTTPException
        404 if there is none.
    """
    found = {own: group for own, group in groups.items() if name in (own, group.shared_budget)}
    if not found:
        budgets = [group.shared_budget for group in groups.values() if group.shared_budget]
        known = ", ".join(dict.fromkeys([*groups, *budgets]))
        raise HTTPException(404, f"group must be one of {known}, got {name!r:.200}")
    return found
