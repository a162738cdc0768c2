"""The read-only JSON routes of the page; the proxy lets administrators ask them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query

from wiserouter_litellm.group import Group
from wiserouter_litellm.page.history import SpendHistory
from wiserouter_litellm.route_guard import GuardedRoute
from wiserouter_litellm.scopes import OWN

Name = Annotated[str, Query(max_length=512)]


def page_data(groups: Callable[[], Mapping[str, Group]], history: SpendHistory) -> APIRouter:
    """Return the routes over the groups of the current configuration."""
    router = APIRouter(route_class=GuardedRoute)

    def found(name: str) -> Group:
        known = groups()
        if name not in known:
            raise HTTPException(404, f"group must be one of {', '.join(known)}, got {name!r}")
        return known[name]

    @router.get("/history")
    def spend_history(group: Name, scope: Name = OWN) -> dict[str, Any]:
        """Return the spending of the budgets of a scope, as far as this worker has read it."""
        return {"group": group, "scope": scope, "windows": history.windows(group, found(group), scope)}

    return router
