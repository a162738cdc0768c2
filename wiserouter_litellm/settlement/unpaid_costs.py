"""Costs of answered calls that no budget has taken yet, because its store does not answer: paid when it does.

The store itself keeps what belongs to a decision, or to a budget that the worker knows. This is for the rest: a call
that passed without a decision, for a scope whose budget this worker has not opened yet.
"""

from __future__ import annotations

from collections import deque
from threading import Lock, Timer
from typing import NamedTuple

from wiserouter.errors import StoreError, WiseRouterError
from wiserouter_litellm.errors import ScopeRefused
from wiserouter_litellm.groups.group import Group
from wiserouter_litellm.groups.scopes import OWN

RETRY_S = 1.0


class UnpaidCost(NamedTuple):
    """The cost of a call, and the group and the scope that owe it."""

    group: Group
    scope: str
    cost_usd: float


class UnpaidCosts:
    """Pays for calls that have no decision, in the order of their answers.

    Parameters
    ----------
    retry_s : float, default 1
        Pause between two attempts to pay while a store does not answer.
    """

    def __init__(self, retry_s: float = RETRY_S) -> None:
        self._retry_s = retry_s
        self._waiting: deque[UnpaidCost] = deque()
        self._lock = Lock()

    def __len__(self) -> int:
        """Return the number of costs that are not paid yet."""
        return len(self._waiting)

    def pay(self, group: Group, cost_usd: float, scope: str) -> None:
        """Pay a cost now, or later where a store does not answer; one that no budget takes is reported."""
        with self._lock:
            self._waiting.append(UnpaidCost(group, scope, cost_usd))
            if len(self._waiting) > 1:  # an attempt is under way, or planned
                return
        self._pay_all()

    def _pay_all(self) -> None:
        """Pay the costs in order; plan another attempt where one cannot be paid."""
        while True:
            unpaid = self._waiting[0]
            try:
                _pay(unpaid)
            except StoreError as error:
                unpaid.group.fault("store", "calls without a decision are charged later", error=error)
                timer = Timer(self._retry_s, self._pay_all)
                timer.daemon = True
                timer.start()
                return
            with self._lock:
                self._waiting.popleft()
                if not self._waiting:
                    return


def _pay(unpaid: UnpaidCost) -> None:
    group, scope, cost_usd = unpaid
    try:
        if scope != OWN:
            group.scope_resolver.open(scope)
        group.router.spend(cost_usd, scope=scope, billed=True)
    except StoreError:
        raise
    except (WiseRouterError, ScopeRefused) as error:  # no cost may keep the others from being paid
        group.fault("uncounted_calls", f"{cost_usd:.6g} USD of a call that is not routed are not counted", error=error)
