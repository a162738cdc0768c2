"""Traffic on shared budgets, and the ledger of a provider that bills each call the moment it is sent."""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter.errors import AlreadySettled, BudgetError, StoreError
from wiserouter.stores.base import Store

WORST_USD = 1.0
"""The most that a call costs."""

MODELS = [Model("small", Price(0.0, 1e-3), max_cost_usd=WORST_USD)]


class ProviderLedger:
    """The account of a provider in a file, which survives the process that sent the call.

    Parameters
    ----------
    path : Path
        The file; one line per call.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def bill(self, cost_usd: float) -> None:
        """Bill one call."""
        os.write(self._file, f"{cost_usd!r}\n".encode())

    @property
    def costs_usd(self) -> list[float]:
        """The costs of all calls."""
        return [float(line) for line in self.path.read_text().splitlines()]

    @property
    def total_usd(self) -> float:
        """Their sum."""
        return math.fsum(self.costs_usd)


def router_on(store: str | Store, budget: Budget, **settings: object) -> WiseRouter:
    """Return a router of one model whose calls cost up to a dollar, with its budget started."""
    router = WiseRouter(MODELS, store=store, watch=None, **settings)  # type: ignore[arg-type]
    router.start(budget)
    return router


class Traffic:
    """Threads that send calls through routers until they are stopped or the budget is used up.

    Parameters
    ----------
    ledger : ProviderLedger
        Bills each call that is sent.
    call_s : float, seconds
        The longest time that a call is in flight.

    Attributes
    ----------
    sent, refused, closed : int
        Number of calls sent, refused by the budget, and refused because of the store.
    """

    def __init__(self, ledger: ProviderLedger, call_s: float = 0.02) -> None:
        self.ledger, self._call_s = ledger, call_s
        self.sent = self.refused = self.closed = 0
        self.uncounted: list[Exception] = []
        self._stopping = threading.Event()
        self._draining = threading.Event()
        self._threads: list[threading.Thread] = []

    def through(self, *routers: WiseRouter, threads: int = 2) -> Traffic:
        """Begin to send through each router, from several threads."""
        for router in routers:
            for _ in range(threads):
                seed = len(self._threads)
                thread = threading.Thread(target=self._run, args=(router, random.Random(seed)), daemon=True)
                self._threads.append(thread)
                thread.start()
        return self

    def stop(self) -> None:
        """Let the calls in flight end, and send no more."""
        self._stopping.set()
        self._join()

    def drain(self) -> None:
        """Send until the budget refuses."""
        self._draining.set()
        self._join()

    def abandon(self) -> None:
        """Send no more, whatever has happened."""
        self._stopping.set()

    def _join(self) -> None:
        for thread in self._threads:
            thread.join(60.0)
            assert not thread.is_alive(), "a call does not end"
        assert not self.uncounted, self.uncounted

    def _run(self, router: WiseRouter, rng: random.Random) -> None:
        while not self._stopping.is_set():
            try:
                decision = router.decide(context=0)
            except BudgetError:
                self.refused += 1
                if self._draining.is_set():
                    return
                time.sleep(0.02)
                continue
            except StoreError:
                self.closed += 1
                time.sleep(0.02)
                continue
            cost_usd = rng.uniform(0.2, 1.0) * WORST_USD
            self.ledger.bill(cost_usd)
            self.sent += 1
            time.sleep(rng.uniform(0.0, self._call_s))
            try:
                router.charge(decision, cost_usd)
            except (StoreError, AlreadySettled, BudgetError) as error:
                self.uncounted.append(error)


def settled(router: WiseRouter, holds: Callable[[], bool] = lambda: True, seconds: float = 30.0) -> None:
    """Wait until the store answers, has all events, and a condition holds."""
    ends_s = time.monotonic() + seconds
    while True:
        try:
            router._store.refresh()
            if router._store.health().waiting == 0 and holds():
                return
        except StoreError:
            pass
        if time.monotonic() > ends_s:
            raise TimeoutError(f"the store does not settle: {router._store.health()}")
        time.sleep(0.05)
