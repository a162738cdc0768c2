"""The scopes of requests: the budget that pays for each, by the caller's key, or by the client's word where allowed.

The budgets of a group are scopes of its router: each has its own account and shadow price; the estimates are shared.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from copy import copy
from hashlib import sha256
from itertools import chain
from threading import Lock
from typing import Any, Literal, Protocol

from wiserouter import Budget, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter_litellm.errors import ScopeRefused

logger = logging.getLogger("wiserouter.litellm")

OWN = "default"
"""The scope of the group's own budget."""

SCOPE = "wiserouter_scope"
"""Key of the metadata by which a program names the scope of a call; a client of the proxy cannot."""

MAX_ID_CHARS = 256

Others = Budget | Literal["shared", "refuse"]


class ScopeResolver(Protocol):
    """The rule that names the scope whose budget pays.

    Attributes
    ----------
    opened : tuple of str
        Scopes in addition to the group's own whose budget runs, as far as this process knows.
    hard : bool
        Whether any of their budgets must never be exceeded.
    """

    @property
    def opened(self) -> tuple[str, ...]: ...  # noqa: D102

    @property
    def hard(self) -> bool: ...  # noqa: D102

    def scope_of(self, metadata: Mapping[str, Any]) -> str:
        """Return the scope that pays for a request; raises `ScopeRefused` where there is none."""
        ...

    def open(self, scope: str) -> None:
        """Start the budget of a scope that is not open yet; may wait for the store."""
        ...


class GroupScope:
    """The group's own budget, which pays for every call."""

    opened: tuple[str, ...] = ()
    hard = False

    def scope_of(self, metadata: Mapping[str, Any]) -> str:
        """Return the group's own scope."""
        return OWN

    def open(self, scope: str) -> None:
        """Do nothing: the budget runs already."""


class ScopeFromMetadata(GroupScope):
    """The scope that the program names in the metadata of its call; the program has started its budget."""

    def scope_of(self, metadata: Mapping[str, Any]) -> str:
        """Return the scope that the metadata names, or the group's own."""
        return str(metadata.get(SCOPE) or OWN)


class CallerScopes:
    """Budgets by team, organization, user, key, tag or a field of metadata, as the proxy knows them for the key.

    Parameters
    ----------
    group : str
        The group's name in errors.
    router : WiseRouter
        Keeps the budgets; the group's own runs.
    by : str
        "team", "organization", "user", "key", "tag" or "metadata.<field>".
    budgets : mapping of str to Budget
        By id.
    others : Budget, "shared" or "refuse"
        The rule for callers who are not named: each has this budget, or the group's own pays, or they are refused.
    within_group : bool
        Whether the group's own budget must bear each call as well.
    from_request : bool
        Whether a client may name one of `budgets` where its key names none.
    max_others : int
        The most budgets of others that are opened.
    """

    def __init__(
        self,
        group: str,
        router: WiseRouter,
        by: str,
        budgets: Mapping[str, Budget],
        *,
        others: Others = "shared",
        within_group: bool = True,
        from_request: bool = False,
        max_others: int = 1_000,
    ) -> None:
        self._group, self._router, self._by, self._budgets = group, router, by, dict(budgets)
        self._others, self._parent, self._from_request = others, OWN if within_group else None, from_request
        self._max_others = max_others
        self._opened: dict[str, None] = {}
        self._lock = Lock()
        for id_ in self._budgets:
            self.open(self._scope(id_))

    def of_group(self, group: str) -> CallerScopes:
        """Return the same budgets for another group of the router; its name is in the refusals."""
        twin = copy(self)
        twin._group = group
        return twin

    @property
    def opened(self) -> tuple[str, ...]:
        """The scopes whose budget runs."""
        return tuple(self._opened)

    @property
    def hard(self) -> bool:
        """Whether any of the budgets must never be exceeded."""
        terms = [*self._budgets.values(), *([self._others] if isinstance(self._others, Budget) else [])]
        return any(budget.hard for budget in terms)

    def scope_of(self, metadata: Mapping[str, Any]) -> str:
        """Return the scope that pays for a request.

        Raises
        ------
        ScopeRefused
            If the caller is not named, and others are refused.
        """
        key_ids = [*ids_of_key(metadata, self._by)]
        client_ids = _client_ids(metadata, self._by) if self._from_request and not key_ids else ()
        named = next((id_ for id_ in chain(key_ids, client_ids) if id_ in self._budgets), None)
        if named is not None:
            return self._scope(named)
        if self._others == "shared":
            return OWN
        other = key_ids[0] if key_ids else ""  # all callers without an id share one budget
        if self._others == "refuse" or len(other) > MAX_ID_CHARS:
            raise ScopeRefused(self._group, self._by, other)
        return self._scope(other)

    def open(self, scope: str) -> None:
        """Start the budget of a scope that is not open yet, or join the one that another worker has started.

        A caller who is not named goes on with the budget that runs, also where that has other terms by now.

        Raises
        ------
        ScopeRefused
            If `max_others` budgets of others are open already.
        InvalidInput
            If the budget that runs has other terms, and its caller is named, or it should be hard or within the group's
            own, and is not.
        StoreUnavailable
            If the store cannot be reached.
        """
        if scope == OWN or scope in self._opened:
            return
        with self._lock:
            id_ = scope.removeprefix(self._scope(""))
            budget = self._budgets.get(id_, self._others)
            others_opened = len(self._opened) - len(self._budgets)  # those of named callers are opened first
            full = id_ not in self._budgets and others_opened >= self._max_others
            if scope in self._opened:
                return
            if not isinstance(budget, Budget) or full:
                raise ScopeRefused(self._group, self._by, id_, most=self._max_others)
            try:
                self._router.start(budget, scope=scope, parent=self._parent)
            except InvalidInput as error:
                is_freer = error.value == OWN or (budget.hard and not self._router.is_hard(scope))
                if id_ in self._budgets or is_freer:
                    raise
                logger.error("group %r: a budget goes on as it runs: %s", self._group, error)
            self._opened[scope] = None

    def _scope(self, id_: str) -> str:
        return f"{self._by}:{id_}"


def ids_of_key(metadata: Mapping[str, Any], by: str) -> Iterator[str]:
    """Yield the caller's ids from the object that the proxy's authentication made, which no client can send."""
    auth = metadata.get("user_api_key_auth")
    if isinstance(auth, Mapping | str):  # sent by a client
        return
    kind, _, field = by.partition(".")
    if kind == "metadata" or by == "tag":
        for source in (getattr(auth, "metadata", None), getattr(auth, "team_metadata", None)):
            yield from _values(source, field or "tags")
        return
    id_ = getattr(auth, {"team": "team_id", "organization": "org_id", "user": "user_id", "key": "api_key"}[by], None)
    if id_:
        yield hashed_key(str(id_)) if by == "key" else str(id_)


def _client_ids(metadata: Mapping[str, Any], by: str) -> Iterator[str]:
    """Yield the ids that the client sends."""
    field = by.partition(".")[2] or "tags"
    yield from _values(metadata, field)
    yield from _values(metadata.get("requester_metadata"), field)


def _values(source: object, field: str) -> Iterator[str]:
    value = source.get(field) if isinstance(source, Mapping) else None
    for one in value if isinstance(value, list | tuple) else [value]:
        if isinstance(one, str | int) and one != "":
            yield str(one)


def hashed_key(key: str) -> str:
    """Return the hash of a key as LiteLLM writes it; with custom authentication the id may be the key itself."""
    return key if re.fullmatch("[0-9a-f]{64}", key) else sha256(key.encode()).hexdigest()
