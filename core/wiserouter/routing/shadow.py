"""Shadow mode: the router decides and records, and the calls go where they went without it.

What its choices would have cost is booked on accounts of their own, one for each scope, so that the plan reads the
budget as if it acted, and no call is refused or holds back real money. The calls that it acts on, a share of all, are
paid from the same share of the budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from secrets import token_bytes
from typing import Any

from wiserouter.budgets.budget import Budget
from wiserouter.errors import InvalidInput
from wiserouter.types import Decision

_PREFIX = "shadow:"
_HASH_BYTES = 8
_HASHES = 2.0 ** (8 * _HASH_BYTES)
_LOSSLESS = "surrogatepass"
_UNIT_SALT = token_bytes(16)


@dataclass(frozen=True, slots=True)
class Shadow:
    """The share of the calls on which the router acts; of the others it only records what it would have done.

    Parameters
    ----------
    share : float, default 0
        From 0, where it acts on none, to 1, where it acts on all. Calls with equal draw keys are on one side.
    salt : str, default ""
        Another salt draws other calls.

    Raises
    ------
    InvalidInput
        If the share is not in [0, 1].

    Examples
    --------
    >>> Shadow(share=0.1).acts("thread-1") == Shadow(share=0.1).acts("thread-1"), Shadow().acts("thread-1")
    (True, False)
    """

    share: float = 0.0
    salt: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.share, int | float) or not 0.0 <= self.share <= 1.0:
            raise InvalidInput(f"share must be between 0 and 1, got {self.share!r}", value=self.share)

    def acts(self, key: str) -> bool:
        """Return True if the router acts on the calls of a key."""
        salt = blake2b(self.salt.encode("utf-8", _LOSSLESS)).digest()
        hashed = blake2b(key.encode("utf-8", _LOSSLESS), digest_size=_HASH_BYTES, key=salt)
        return int.from_bytes(hashed.digest()) / _HASHES < self.share

    def sides(self, scope: str) -> tuple[tuple[str, float], ...]:
        """Return the two scopes of a scope, with the part of its budget that each has; one without calls has all."""
        return (scope, self.share or 1.0), (observed_scope(scope), 1.0 - self.share or 1.0)

    def acted(self, budget: Budget) -> Budget:
        """Return the budget of the calls that it acts on; where it acts on none, all of it, of which nothing is spent.

        Examples
        --------
        >>> Shadow(share=0.1).acted(Budget(500.0, 10_000)).amount_usd
        50.0
        """
        return budget if self.share in (0.0, 1.0) else _part(budget, self.share)

    def observed(self, budget: Budget) -> Budget:
        """Return the account on which the other calls are booked as if it acted; it refuses none of them.

        Where it acts on all, these are calls that the budget has refused.
        """
        return _never_refusing(_part(budget, 1.0 - self.share or 1.0))


def observed_scope(scope: str) -> str:
    """Return the scope on which the calls of a scope are booked that are only observed."""
    return _PREFIX + scope


def acted_scope(scope: str) -> str:
    """Return the scope whose calls a scope books, whichever of the two it is."""
    return scope.removeprefix(_PREFIX)


def is_observed(scope: str) -> bool:
    """Return True if a scope is that of calls that are only observed."""
    return scope.startswith(_PREFIX)


def part_of(horizon: int | None, share: float) -> int | None:
    """Return the part of a number of requests, of at least 1; a number that is none is left to its check."""
    return horizon if horizon is None or horizon < 1 or share == 1.0 else max(1, round(horizon * share))


def unit_of(key: str) -> str:
    """Return the name under which the journal knows the calls of a key: a hash whose salt is never written."""
    return blake2b(key.encode("utf-8", _LOSSLESS), digest_size=_HASH_BYTES, key=_UNIT_SALT).hexdigest()


def shadow_line(
    decision: Decision, share: float, incumbent: str | None, call_id: str | None, key: str | None
) -> Mapping[str, Any]:
    """Return the line of the journal that says on which side of shadow mode a decision is, and with which others."""
    return {
        "event": "shadow",
        "id": decision.id,
        "at": decision.decided_at,
        "acts": not is_observed(decision.scope),
        "share": share,
        "incumbent": incumbent,
        "would_be": decision.model,
        "call_id": call_id,
        "unit": unit_of(key) if key else None,
    }


def _part(budget: Budget, share: float) -> Budget:
    within = None if budget.within is None else _part(budget.within, share)
    amount_usd, horizon = budget.amount_usd * share, part_of(budget.horizon, share)
    return replace(budget, amount_usd=amount_usd, horizon=horizon, within=within)


def _never_refusing(budget: Budget) -> Budget:
    within = None if budget.within is None else _never_refusing(budget.within)
    return replace(budget, limit="expected", on_exhausted="cheapest", within=within)
