"""The budgets of routers as gauges, read at each scrape, so that all workers of a store report the same."""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from wiserouter.budgets.ledger import Ledger
from wiserouter.budgets.nested import Account, own_ledgers
from wiserouter.errors import NotStarted, StoreError

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily

    from wiserouter.operating.worker_counters import WorkerCounters
    from wiserouter.planning.plan import Plan
    from wiserouter.router import WiseRouter

logger = logging.getLogger("wiserouter")

MAX_SCOPES = 1_000
"""Scopes of one router that are shown by name."""

OTHER = "(other)"
"""The scope under which the sums of the others are shown."""

_AMOUNTS = {
    "amount": "Budget of the window, with what was carried over, in USD.",
    "spent": "Charges, in USD.",
    "presumed": "The part of the charges that is presumed, in USD.",
    "reserved": "Reservations of calls in flight, in USD.",
    "leased": "Leases of workers for calls to come, in USD.",
    "left": "What is left to reserve, in USD.",
}
_OF_WINDOW = {f"wiserouter_budget_{name}_usd": what for name, what in _AMOUNTS.items()} | {
    "wiserouter_requests_left": "Requests still to come, planned or forecast.",
    "wiserouter_requests_used": "Requests that were decided in the window.",
    "wiserouter_calls_in_flight": "Calls whose outcome is not known yet.",
}
_TIMES = {
    "wiserouter_budget_renewal_timestamp_seconds": "Time at which the budget renews.",
}
_OF_SCOPE = {
    "wiserouter_rate_usd": "Budget left per request left of the tightest budget, in USD.",
    "wiserouter_shadow_price": "Reward per USD at the margin, at that rate.",
    "wiserouter_renewal_timestamp_seconds": "Time at which the tightest budget renews.",
}
_OF_ROUTER = {
    "wiserouter_store_up": "1 if the store answered last time, else 0.",
    "wiserouter_store_age_seconds": "Age of the state of the budgets as this worker sees it.",
    "wiserouter_store_unsent_events": "Events that wait to be sent to the store.",
    "wiserouter_models": "Models of the pool.",
    "wiserouter_floor_usd": "Expected cost of a request where each goes to its cheapest model, in USD.",
    "wiserouter_judge_agreement": "1 less the mean distance of the judge's scores from people's.",
    "wiserouter_judge_waiting_calls": "Calls that wait for the judge of this worker.",
}

Sample = tuple[tuple[str, ...], float]
"""The values of the labels, and the figure."""

Figure = tuple[str, tuple[str, ...], float]
"""The name of the metric, the values of its labels, and the figure."""


class WatchedRouter(NamedTuple):
    """A router whose budgets are shown.

    Attributes
    ----------
    group : str
        Its name in the metrics.
    router : WiseRouter
        The router.
    scopes : callable returning iterable of str
        The scopes whose budgets run.
    faults : callable returning mapping of str to float
        Counts of what went wrong, by kind.
    """

    group: str
    router: WiseRouter
    scopes: Callable[[], Iterable[str]]
    faults: Callable[[], Mapping[str, float]]


class AccountGauges:
    """A collector of prometheus-client.

    Parameters
    ----------
    max_scopes : int
        Scopes of one router that are shown by name.

    Attributes
    ----------
    counters : WorkerCounters or None
        The counts of this process that are brought up to date at each scrape.
    """

    counters: WorkerCounters | None = None

    def __init__(self, max_scopes: int) -> None:
        self._max_scopes = max_scopes
        self._watched: dict[str, WatchedRouter] = {}

    def watch(self, watched: WatchedRouter) -> None:
        """Show a router from now on, in place of an earlier one of the same name."""
        self._watched[watched.group] = watched

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return nothing: registering reads no budget."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return the figures at this moment; a store that is away leaves its budgets out."""
        from prometheus_client.core import GaugeMetricFamily

        families = (
            (("group", "scope", "window"), _OF_WINDOW | _TIMES),
            (("group", "scope"), _OF_SCOPE),
            (("group",), _OF_ROUTER),
        )
        samples: dict[str, list[Sample]] = {name: [] for _, texts in families for name in texts}
        for watched in list(self._watched.values()):
            if self.counters is not None:
                self.counters.update(watched)
            for name, labels, value in self._read(watched):
                if math.isfinite(value):  # what is not known is left out
                    samples[name].append((labels, value))
        for labels, texts in families:
            for name, text in texts.items():
                family = GaugeMetricFamily(name, text, labels=labels)
                for values, value in samples[name]:
                    family.add_metric(values, value)
                yield family

    def _read(self, watched: WatchedRouter) -> Iterator[Figure]:
        """Return the figures of one router: of its store, and of those scopes that have spent most."""
        group, router = watched.group, watched.router
        plan = router.plan
        for name, value in _of_router(router, plan).items():
            yield name, (group,), value
        accounts = _accounts(watched)
        own = own_ledgers(accounts)
        accounts.sort(key=lambda one: -max([ledger.spent_usd for ledger in own[one[0]]], default=0.0))
        for scope, account in accounts[: self._max_scopes]:
            for ledger in own[scope]:
                for name, value in (_figures(ledger) | _times(ledger)).items():
                    yield name, (group, scope, _window(ledger)), value
            for name, value in _of_tightest(account.tightest, plan).items():
                yield name, (group, scope), value
        for window, sums in _summed(own[scope] for scope, _ in accounts[self._max_scopes :]).items():
            for name, value in sums.items():
                yield name, (group, OTHER, window), value


def _accounts(watched: WatchedRouter) -> list[tuple[str, Account]]:
    """Return the accounts of a router's scopes; those that cannot be read are left out."""
    found = []
    for scope in watched.scopes():
        try:
            found.append((scope, watched.router.account(scope)))
        except NotStarted:
            continue
        except StoreError as error:
            logger.warning("the budget of scope %r is not in the metrics: %s", scope, error)
    return found


def _summed(ledgers_of_scopes: Iterable[Sequence[Ledger]]) -> dict[str, Counter[str]]:
    """Return the sums of the figures of several scopes, by window."""
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for ledgers in ledgers_of_scopes:
        for ledger in ledgers:
            sums[_window(ledger)].update(_figures(ledger))
    return sums


def _window(ledger: Ledger) -> str:
    """Return the period after which a budget renews."""
    return ledger.budget.every or "never"


def _figures(ledger: Ledger) -> dict[str, float]:
    """Return the figures of one window of a budget, by metric."""
    return {
        "wiserouter_budget_amount_usd": ledger.budget.amount_usd + ledger.carried_usd,
        "wiserouter_budget_spent_usd": ledger.spent_usd,
        "wiserouter_budget_presumed_usd": ledger.presumed_usd,
        "wiserouter_budget_reserved_usd": ledger.reserved_usd,
        "wiserouter_budget_leased_usd": ledger.leased_usd,
        "wiserouter_budget_left_usd": ledger.left_usd,
        "wiserouter_requests_left": float(ledger.horizon_left),
        "wiserouter_requests_used": float(ledger.decided),
        "wiserouter_calls_in_flight": float(ledger.in_flight),
    }


def _times(ledger: Ledger) -> dict[str, float]:
    """Return when the window of a budget ends, by metric."""
    return {} if ledger.window is None else {"wiserouter_budget_renewal_timestamp_seconds": ledger.window.end_s}


def _of_router(router: WiseRouter, plan: Plan | None) -> dict[str, float]:
    """Return the figures of a router that no scope has for itself, by metric."""
    health, judge = router.health(), router.judge_figures()
    found = {
        "wiserouter_store_up": float(health.reachable),
        "wiserouter_store_age_seconds": health.staleness_s,
        "wiserouter_store_unsent_events": float(health.waiting),
        "wiserouter_models": float(len(router.pool.names)),
    }
    if plan is not None:
        found["wiserouter_floor_usd"] = plan.floor_usd
    if judge is not None:
        found["wiserouter_judge_waiting_calls"] = float(judge.waiting)
        if judge.agreement is not None:
            found["wiserouter_judge_agreement"] = judge.agreement
    return found


def _of_tightest(ledger: Ledger, plan: Plan | None) -> dict[str, float]:
    """Return the figures of the budget that sets the rate, by metric."""
    rate_usd, renews_at = ledger.rate_usd, ledger.renews_at
    found = {"wiserouter_rate_usd": rate_usd}
    if plan is not None:
        found["wiserouter_shadow_price"] = plan.shadow_price(max(rate_usd, plan.floor_usd))
    if renews_at is not None:
        found["wiserouter_renewal_timestamp_seconds"] = renews_at
    return found
