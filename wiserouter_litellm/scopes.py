"""Whose budget pays for a request: by what the proxy knows of its key, and by what a client says only where allowed.

The budgets of a group are scopes of its router: each has its own account and shadow price, what is learned is shared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import chain
from threading import Lock
from typing import Any, Literal, Protocol

from wiserouter import Budget, WiseRouter
from wiserouter_litellm.errors import ScopeRefused

OWN = "default"
"""The scope of the group's own budget."""

SCOPE = "wiserouter_scope"
"""Key of the metadata by which a program names the scope of a call; a client of the proxy cannot."""

LONGEST = 256  # characters of an id

Others = Budget | Literal["shared", "refuse"]


class ScopeResolver(Protocol):
    """Says whose budget pays.

    Attributes
    ----------
    opened : tuple of str
        CallerScopes beside the group's own whose budget runs, as far as this process knows.
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
        """Start the budget of a scope that was not met before; may wait for the store."""
        ...


class GroupScope:
    """The group's own budget pays for all."""

    opened: tuple[str, ...] = ()
    hard = False

    def scope_of(self, metadata: Mapping[str, Any]) -> str:
        """Return the group's own scope."""
        return OWN

    def open(self, scope: str) -> None:
        """Do nothing: it runs."""


class ScopeFromMetadata(GroupScope):
    """The scope that the program names in the metadata of its call pays; the program has started it."""

    def scope_of(self, metadata: Mapping[str, Any]) -> str:
        """Return the scope that the metadata names, or the group's own."""
        return str(metadata.get(SCOPE) or OWN)


class CallerScopes:
    """Budgets by team, organization, user, key, tag or a field of metadata, as the proxy knows them of the key.

    Parameters
    ----------
    group : str
        What errors call the group.
    router : WiseRouter
        Keeps the budgets; the group's own runs.
    by : str
        "team", "organization", "user", "key", "tag" or "metadata.<field>".
    budgets : mapping of str to Budget
        By id.
    others : Budget, "shared" or "refuse"
        Who is not named: each has this budget, or the group's own pays, or nobody.
    within_group : bool
        Whether the group's own budget must bear each call as well.
    from_request : bool
        Whether a client may name one of `budgets` where its key names none.
    max_others : int
        So many budgets of others are opened.
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
        self._others_opened = 0
        self._opened: dict[str, None] = {}
        self._lock = Lock()
        for id_ in self._budgets:
            self.open(self._name(id_))

    @property
    def opened(self) -> tuple[str, ...]:
        """CallerScopes whose budget runs."""
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
        known = [*_of_key(metadata, self._by)]
        said = _of_client(metadata, self._by) if self._from_request and not known else ()
        named = next((id_ for id_ in chain(known, said) if id_ in self._budgets), None)
        if named is not None:
            return self._name(named)
        if self._others == "shared":
            return OWN
        other = known[0] if known else ""  # all callers without one are one of the others
        if self._others == "refuse" or len(other) > LONGEST:
            raise ScopeRefused(self._group, self._by, other)
        return self._name(other)

    def open(self, scope: str) -> None:
        """Start the budget of a scope that was not met before, or take part in the one that runs.

        Raises
        ------
        ScopeRefused
            If as many budgets of others are open as may be.
        StoreUnavailable
            If the store cannot be reached.
        """
        if scope == OWN or scope in self._opened:
            return
        with self._lock:
            id_ = scope.removeprefix(self._name(""))
            budget = self._budgets.get(id_, self._others)
            other = id_ not in self._budgets
            if scope in self._opened:
                return
            if not isinstance(budget, Budget) or (other and self._others_opened >= self._max_others):
                raise ScopeRefused(self._group, self._by, id_, most=self._max_others)
            self._router.start(budget, scope=scope, parent=self._parent)
            self._others_opened += other
            self._opened[scope] = None

    def _name(self, id_: str) -> str:
        return f"{self._by}:{id_}"


def _of_key(metadata: Mapping[str, Any], by: str) -> Iterator[str]:
    """Yield what the proxy knows of the caller: the object that its authentication made, which no client can send."""
    auth = metadata.get("user_api_key_auth")
    if isinstance(auth, Mapping | str):  # a client's own words
        return
    kind, _, field = by.partition(".")
    if kind == "metadata" or by == "tag":
        told = [getattr(auth, "metadata", None), getattr(auth, "team_metadata", None)]
        for one in told:
            yield from _values(one, field or "tags")
        return
    id_ = getattr(auth, {"team": "team_id", "organization": "org_id", "user": "user_id", "key": "api_key"}[by], None)
    if id_:
        yield _hashed(str(id_)) if by == "key" else str(id_)


def _of_client(metadata: Mapping[str, Any], by: str) -> Iterator[str]:
    """Yield what the client says of itself."""
    field = by.partition(".")[2] or "tags"
    yield from _values(metadata, field)
    yield from _values(metadata.get("requester_metadata"), field)


def _values(source: object, field: str) -> Iterator[str]:
    value = source.get(field) if isinstance(source, Mapping) else None
    for one in value if isinstance(value, list | tuple) else [value]:
        if isinstance(one, str | int) and one != "":
            yield str(one)


def _hashed(key: str) -> str:
    """Return the hash of a key, as LiteLLM writes it; where authentication is custom it may be the key itself."""
    return key if re.fullmatch("[0-9a-f]{64}", key) else sha256(key.encode()).hexdigest()
