"""Whether an engine has lost accounts, or has gone back to an older state of them, such as a snapshot.

Each exchange says which reply the worker has received before (`Acknowledge`). An engine that does not know the exchange
of that reply has lost what the worker has seen since the last one that it knows, and nothing else that it has seen.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from wiserouter.stores.engines.base import AccountState
from wiserouter.stores.shared.replica import LocalReplica

logger = logging.getLogger("wiserouter")

UNREAD = "|unread"
"""After the name of a restoration that this worker has sent, until it reads the name which the account has since."""


def name_of_opening(at_s: float, loss: str = "") -> str:
    """Return the name of the opening of an account, or of its restoration after a loss: the earliest opening holds."""
    return f"{at_s!r}|{loss}"


def opened_at_s(state: AccountState) -> float:
    """Return the time of the opening of an account, 0 where an earlier version has opened it."""
    at, separator, _ = state.restored.partition("|")
    return float(at) if separator else 0.0


def restored_at_s(state: AccountState) -> float:
    """Return the time of the last restoration of an account, 0 for none, or by an earlier version."""
    at, separator, _ = state.restored.partition("|")[2].partition(" ")
    return float(at) if separator else 0.0


def is_same_opening(known: AccountState, present: AccountState) -> bool:
    """Return True if an account was not begun again on purpose since it was last read."""
    return present.generation <= known.generation or 0.0 < opened_at_s(known) == opened_at_s(present)


def is_older(known: AccountState, present: AccountState) -> bool:
    """Return True if an account is as it was before it was last read; one that was opened or restored since is not."""
    if opened_at_s(present) != opened_at_s(known):
        return opened_at_s(present) < opened_at_s(known)
    return present.generation <= known.generation and restored_at_s(present) <= restored_at_s(known)


def is_opened_again(known: AccountState, present: AccountState | None) -> bool:
    """Return True if an account was lost, also where a worker that did not know it has opened it since."""
    if present is None:
        return True
    return present.generation <= known.generation and opened_at_s(present) > opened_at_s(known)


def is_restored(known: AccountState, present: AccountState, loss: str) -> bool:
    """Return True if another worker has restored an account since it was last read, and not after a given loss."""
    if present.restored.endswith(loss) or known.restored.endswith(loss + UNREAD):  # this worker has restored it, too
        return False
    same = is_same_opening(known, present) and opened_at_s(present) in {0.0, opened_at_s(known)}
    return same and present.restored != known.restored


class Loss(NamedTuple):
    """The accounts of a worker that an engine has lost.

    Attributes
    ----------
    lost, restored : list of str
        The scopes of those that are to be restored, and those that others have restored, where none is to be.
    replaced : set of str
        Those lost that the engine has in an older state.
    followed : set of str
        Those restored in which everything counts that this worker has seen.
    """

    lost: list[str]
    restored: list[str]
    replaced: Set[str] = frozenset()
    followed: Set[str] = frozenset()


def noticed(replica: LocalReplica, read: Iterable[str], present: Mapping[str, AccountState], loss: str) -> Loss:
    """Return the known accounts that were lost, or that another worker has restored."""
    known = {scope: replica.views[scope].state for scope in read if scope in replica.views}
    lost = [scope for scope, state in known.items() if is_opened_again(state, present.get(scope))]
    restored = [one for one, state in known.items() if not lost and is_restored(state, present[one], loss)]
    return Loss(lost, restored, followed={one for one in restored if present[one].generation > known[one].generation})


def gone_back(replica: LocalReplica, present: Mapping[str, AccountState], known_s: float) -> Loss:
    """Return the accounts of which an engine that has gone back does not know what this worker has seen.

    Parameters
    ----------
    replica : LocalReplica
        The accounts.
    present : mapping of str to AccountState
        Those that the engine has now.
    known_s : float, seconds since 1970
        The time of the last exchange of this worker that the engine knows (`Acknowledge`).
    """
    seen = {scope: view.state for scope, view in replica.views.items() if view.received_s > known_s}
    if known_s == 0.0 and all(present.get(one) == state for one, state in seen.items()):  # it alone was forgotten
        return Loss([], [])
    there = {scope: present[scope] for scope in seen if scope in present}
    older = {one for one, now in there.items() if is_older(seen[one], now)}
    others = {one for one, now in there.items() if one not in older and not is_same_opening(seen[one], now)}
    return Loss([scope for scope in seen if scope not in others], [], replaced=older)


def generation_after(known: AccountState, present: AccountState, *, replaced: bool) -> int:
    """Return the generation of an account after it was restored."""
    if replaced:
        return max(known.generation, present.generation) + 1
    is_same = opened_at_s(known) == opened_at_s(present) > 0.0
    return max(known.generation, present.generation) if is_same else known.generation


def log_loss(store: str, loss: Loss) -> None:
    """Log that accounts were lost."""
    if loss.lost:
        logger.error("%s has lost the budget of scope %r: restored as it was last seen", store, loss.lost[0])
    elif loss.restored:
        logger.warning("%s lost its data, and another worker has restored it", store)
