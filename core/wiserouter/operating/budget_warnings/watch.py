"""The watch over budgets: a thread of its own reads those that are spent from, and claims and sends what is due."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from wiserouter.budgets.nested import Account, own_ledgers
from wiserouter.errors import NotStarted, StoreError
from wiserouter.operating.budget_warnings.delivery import Delivery, Send
from wiserouter.operating.budget_warnings.notice import Notice
from wiserouter.operating.budget_warnings.rules import RecentSpend, WarningRules, due
from wiserouter.stores.ids import fresh_id

if TYPE_CHECKING:
    from wiserouter.planning.trace import DecisionTrace
    from wiserouter.router import WiseRouter
    from wiserouter.routing.observer import Line
    from wiserouter.types import Decision

logger = logging.getLogger("wiserouter")

MAX_SCOPES = 10_000
"""Scopes of one router that are watched beside "default"; beyond that, the one that came first is left out."""

MAX_SETTLED = 100_000
"""Most claims that a worker remembers, so that it asks the store once for each."""


class BudgetWarnings:
    """Warns of budgets that are nearly spent, end early, or are spent too fast.

    Each warning is sent once for each threshold, window and amount, by one of all workers of the store. No request
    waits: a thread of its own reads the budgets every `every_s`, and each receiver has its own thread and queue.

    Parameters
    ----------
    receivers : sequence of callable
        Each takes a `Notice`, such as `Webhook(url, secret)`.
    rules : WarningRules, optional
        When to warn; by default at 50, 80 and 95 % of the amount, and where the forecast says that it ends early.
    every_s : float, default 10
        How often budgets are read.
    clock : callable returning float, optional
        Seconds since 1970.

    Examples
    --------
    >>> from wiserouter import Budget, Model, Price, WiseRouter
    >>> router = WiseRouter([Model("small", Price(1e-7, 4e-7))], seed=0)
    >>> router.start(Budget(amount_usd=1.0, horizon=1_000))
    >>> warnings = BudgetWarnings([lambda notice: print(notice.text)])
    >>> warnings.watch(router, "support")
    >>> router.charge(router.decide("What is the capital of France?"), cost_usd=0.85)
    >>> warnings.check(), warnings.close()
    The budget of support, scope default (never), has reached 80%: $0.85 of $1.00 spent.
    (None, None)
    """

    def __init__(
        self,
        receivers: Sequence[Send],
        rules: WarningRules | None = None,
        *,
        every_s: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.rules = WarningRules() if rules is None else rules
        self.deliveries = [Delivery(send) for send in receivers]
        self._every_s, self._clock, self._by = every_s, clock, fresh_id()
        self._watched: dict[str, Watched] = {}
        self._settled: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._checking, self._closing = Lock(), Event()
        self._thread: Thread | None = None

    def watch(self, router: WiseRouter, group: str = "default") -> None:
        """Watch the budgets of a router from now on: that of the scope "default", and those that calls are decided in.

        Parameters
        ----------
        router : WiseRouter
            The router.
        group : str, default "default"
            Its name in the warnings.
        """
        scopes = ActiveScopes(self._start)
        self._watched[group] = Watched(group, router, scopes, {})
        router.report_to(scopes)
        self._start()

    def check(self) -> None:
        """Read the budgets, and send what is due; the thread does this every `every_s`."""
        with self._checking:
            for watched in list(self._watched.values()):
                try:
                    self._check(watched)
                except StoreError as error:
                    logger.debug("the budgets of %r are not read for warnings: %s", watched.group, error)

    def close(self) -> None:
        """End the watch, and deliver what waits."""
        self._closing.set()
        for delivery in self.deliveries:
            delivery.close()

    def _check(self, watched: Watched) -> None:
        now_s = self._clock()
        accounts: list[tuple[str, Account]] = []
        for scope in watched.scopes.names():
            with suppress(NotStarted):
                accounts.append((scope, watched.router.account(scope)))
        for scope, ledgers in own_ledgers(accounts).items():
            for at, ledger in enumerate(ledgers):
                past = watched.recent.setdefault((scope, at), RecentSpend())
                found = due(self.rules, ledger, past, now_s, watched.group, scope)
                for _, ones in groupby(found, key=lambda one: one.kind):
                    self._send_first(watched.router, list(ones))
        for key in [key for key in watched.recent if key[0] not in watched.scopes]:
            del watched.recent[key]

    def _send_first(self, router: WiseRouter, notices: Sequence[Notice]) -> None:
        """Send the most severe of several warnings of one kind; the others are no news once it is sent."""
        first, *others = notices
        if self._claims(router, first):
            for delivery in self.deliveries:
                delivery.put(first)
        for notice in others:
            self._claims(router, notice)

    def _claims(self, router: WiseRouter, notice: Notice) -> bool:
        """Return True if this worker is to send a warning; it asks the store once."""
        key = (notice.group, notice.name)
        if self._settled.get(key) == notice.began_at:
            return False
        won = router.claim(notice.name, notice.began_at, self._by)
        self._settled[key] = notice.began_at
        self._settled.move_to_end(key)
        if len(self._settled) > MAX_SETTLED:
            self._settled.popitem(last=False)
        return won

    def _start(self) -> None:
        """Start the thread, also after a fork."""
        if self._closing.is_set() or (self._thread is not None and self._thread.is_alive()):
            return
        self._by = fresh_id()
        self._thread = Thread(target=self._run, name="wiserouter-budgets", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.wait(self._every_s):
            try:
                self.check()
            except Exception:
                logger.exception("budgets are not read for warnings")


class ActiveScopes:
    """The scopes in which a router has decided, noted as an observer.

    Parameters
    ----------
    start : callable
        Called with each decision in a new scope.
    """

    def __init__(self, start: Callable[[], None]) -> None:
        self._start = start
        self._names: dict[str, None] = {}

    def decision(self, decision: Decision, trace: DecisionTrace | None) -> None:
        """Note the scope of a decision."""
        if decision.scope not in self._names:
            self._names[decision.scope] = None
            if len(self._names) > MAX_SCOPES:
                del self._names[next(iter(self._names))]
            self._start()

    def event(self, name: str, decision_id: str, at_s: float, **figures: Any) -> None:
        """Do nothing: the budgets are read from the store."""

    def note(self, line: Line) -> None:
        """Do nothing."""

    def names(self) -> list[str]:
        """Return the scopes."""
        return list({"default": None} | self._names)

    def __contains__(self, scope: str) -> bool:
        return scope == "default" or scope in self._names


class Watched(NamedTuple):
    """A router whose budgets are watched, and the last hour of each."""

    group: str
    router: WiseRouter
    scopes: ActiveScopes
    recent: dict[tuple[str, int], RecentSpend]
