"""The read-only JSON routes of the page; the proxy lets administrators ask them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query

from wiserouter import WiseRouter
from wiserouter.errors import NotStarted, StoreError
from wiserouter.integration import BudgetPaused
from wiserouter_litellm.groups.group import Group
from wiserouter_litellm.groups.scopes import OWN
from wiserouter_litellm.operating.group_names import groups_named
from wiserouter_litellm.operating.page.history import SpendHistory, keep_reading
from wiserouter_litellm.operating.page.kinds import kinds_of
from wiserouter_litellm.operating.page.latest import MOST, DecisionsOfRouters
from wiserouter_litellm.operating.page.shadow import ShadowReports
from wiserouter_litellm.operating.page.spend import MAX_DAYS, spend_by_kind
from wiserouter_litellm.operating.route_guard import RETRY_AFTER_S, GuardedRoute

Name = Annotated[str, Query(max_length=512)]


class OperatorPage:
    """What a worker notes for the page, and the routes that show it.

    Parameters
    ----------
    groups : callable returning mapping of str to Group
        The groups of the current configuration.
    """

    def __init__(self, groups: Callable[[], Mapping[str, Group]]) -> None:
        self._groups = groups
        self._history, self._decisions, self._shadow = SpendHistory(), DecisionsOfRouters(), ShadowReports()
        keep_reading(self._history, groups)

    def watch(self, groups: Iterable[Group]) -> None:
        """Keep the latest decisions of groups from now on."""
        self._decisions.watch(groups)

    def routes(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(route_class=GuardedRoute)
        router.add_api_route("/history", self.history, methods=["GET"])
        router.add_api_route("/kinds", self.kinds, methods=["GET"])
        router.add_api_route("/spend", self.spend, methods=["GET"])
        router.add_api_route("/decisions", self.decisions, methods=["GET"])
        router.add_api_route("/shadow", self.shadow, methods=["GET"])
        return router

    def history(self, group: Name, scope: Name = OWN) -> dict[str, Any]:
        """Return the spending of the budgets of a scope, as this worker has read it, and the reason of a pause."""
        own, found = self._found(group)
        windows = self._history.windows(own, found, scope)
        return {"group": group, "scope": scope, **_pause_of(found.router, scope), "windows": windows}

    def kinds(self, group: Name, scope: Name = OWN) -> dict[str, Any]:
        """Return the kinds of questions, the models that each goes to, and the estimates behind that."""
        _, found = self._found(group)
        with _http_errors():
            return {"group": group, "scope": scope, **kinds_of(found.router, scope)}

    def spend(
        self, group: Name, scope: Name | None = None, days: Annotated[int, Query(ge=1, le=MAX_DAYS)] = 30
    ) -> dict[str, Any]:
        """Return the spend on each kind of question by day, of all scopes or of one."""
        _, found = self._found(group)
        with _http_errors():
            return {"group": group, "scope": scope, "days": spend_by_kind(found.router, days, scope)}

    def decisions(self, group: Name, most: Annotated[int, Query(ge=1, le=MOST)] = 50) -> dict[str, Any]:
        """Return the latest decisions of this worker, the last one first."""
        return {"group": group, "decisions": self._decisions.rows(self._found(group)[1].router, most)}

    def shadow(self, group: Name) -> dict[str, Any]:
        """Return the report on a group in shadow mode, by its journal, or why there is none."""
        _, found = self._found(group)
        mode = found.router.shadow
        if mode is None:
            return {"group": group, "share": None}
        return {"group": group, "share": mode.share, **self._shadow.of(found.router)}

    def _found(self, name: str) -> tuple[str, Group]:
        """Return the own name and the group of a name, which may be that of a budget that several groups share."""
        return next(iter(groups_named(self._groups(), name).items()))


@contextmanager
def _http_errors() -> Iterator[None]:
    """Translate errors into HTTP statuses."""
    try:
        yield
    except NotStarted as error:
        raise HTTPException(404, f"scope {error.scope!r} has no budget") from None
    except StoreError as error:
        text = "the store of budgets and decisions cannot be reached; the log of the proxy says why"
        raise HTTPException(503, text, {"retry-after": str(RETRY_AFTER_S)}) from error


def _pause_of(router: WiseRouter, scope: str) -> dict[str, Any]:
    """Return the order by which calls of a scope are refused: its words, the scope that is stopped, if for good."""
    try:
        router.snapshot(scope)
    except BudgetPaused as error:
        return {"paused": str(error), "stopped_scope": error.scope, "ended": error.pause.ended}
    except (NotStarted, StoreError):
        pass
    return {"paused": None, "stopped_scope": None, "ended": False}
