"""Metrics of routers for Prometheus: decisions, refusals, charges and scores as counters, budgets read at each scrape.

Names and units follow Prometheus: base units, `_total` for what only grows. No label takes a value that a client
chooses, but for the scopes of budgets, of which a bounded number is shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from wiserouter.budgets.pauses import BudgetPaused
from wiserouter.errors import (
    BudgetExhausted,
    HorizonExhausted,
    MissingExtra,
    RunBudgetExhausted,
    StoreError,
    WiseRouterError,
)
from wiserouter.operating.account_gauges import MAX_SCOPES, AccountGauges, WatchedRouter
from wiserouter.operating.worker_counters import NAMES, WorkerCounters
from wiserouter.validation import check_count

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Histogram

    from wiserouter.planning.trace import DecisionTrace
    from wiserouter.router import WiseRouter
    from wiserouter.routing.observer import Line
    from wiserouter.types import Decision

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0, 10.0)
_SCORES = (0.0, 0.25, 0.5, 0.75, 1.0)

REASONS = ("budget", "held", "paused", "horizon", "run", "store", "request")
"""The words of `reason_of`."""


class Metrics:
    """The metrics of one process, in a registry of prometheus-client.

    Parameters
    ----------
    registry : CollectorRegistry, optional
        Where they are registered; by default the registry that `start_http_server` and most frameworks show.
    max_scopes : int, default 1,000
        Scopes of one router that are shown by name, those that have spent most; the sum of the others is `(other)`.

    Raises
    ------
    MissingExtra
        If prometheus-client is not installed.
    ValueError
        If the registry has these metrics already.

    Examples
    --------
    >>> from prometheus_client import CollectorRegistry
    >>> from wiserouter import Budget, Model, Price, WiseRouter
    >>> router = WiseRouter([Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))], seed=0)
    >>> router.start(Budget(amount_usd=1.0, horizon=1_000))
    >>> registry = CollectorRegistry()
    >>> watched = Metrics(registry).watch(router, "support")
    >>> with watched.deciding():
    ...     decision = router.decide("What is the capital of France?")
    >>> router.charge(decision, 0.25)
    >>> registry.get_sample_value("wiserouter_charged_usd_total", {"group": "support", "model": "small"})
    0.25
    """

    def __init__(self, registry: CollectorRegistry | None = None, *, max_scopes: int = MAX_SCOPES) -> None:
        try:
            from prometheus_client import REGISTRY, Counter, Histogram
        except ImportError:
            raise MissingExtra("metrics", "prometheus-client", "metrics") from None
        check_count("max_scopes", max_scopes, least=1)
        registry = REGISTRY if registry is None else registry
        self.gauges = AccountGauges(max_scopes)
        registry.register(self.gauges)  # before the counters, which each scrape of the gauges brings up to date

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"wiserouter_{name}", what, ["group", *labels], registry=registry)

        def histogram(name: str, what: str, bounds: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"wiserouter_{name}", what, ["group", *labels], registry=registry, buckets=bounds)

        self.decisions = counter("decisions", "Decisions, by the rule that made them.", "model", "rule")
        self.refusals = counter("refusals", "Requests that were refused.", "reason")
        self.calls = counter("calls", "Calls by their outcome: charged, released or presumed.", "outcome")
        self.charged_usd = counter("charged_usd", "Cost of the charged calls, in USD.", "model")
        self.rewards = histogram("rewards", "Scores, by the kind of their source.", _SCORES, "source")
        self.gauges.counters = WorkerCounters({name: counter(name, *terms) for name, terms in NAMES.items()})
        self.decide_seconds = histogram("decide_seconds", "Time to decide, with encoding and reservation.", _SECONDS)

    def watch(
        self,
        router: WiseRouter,
        group: str = "default",
        *,
        scopes: Callable[[], Iterable[str]] = lambda: ("default",),
        faults: Callable[[], Mapping[str, float]] = dict,
    ) -> RouterMetrics:
        """Count what a router does from now on, and show its budgets.

        Parameters
        ----------
        router : WiseRouter
            The router.
        group : str, default "default"
            Its name in the metrics.
        scopes : callable returning iterable of str, optional
            The scopes whose budgets run; "default" alone by default.
        faults : callable returning mapping of str to float, optional
            Counts of what went wrong, by kind.

        Returns
        -------
        RouterMetrics
            Counts refusals and measures decisions, which no router reports.
        """
        self.gauges.watch(WatchedRouter(group, router, scopes, faults))
        counted = RouterMetrics(self, group)
        router.report_to(counted)
        return counted


class RouterMetrics:
    """Counts the events of one router; looks each label up once.

    Parameters
    ----------
    metrics : Metrics
        The metrics of the process.
    group : str
        The name of the router in them.
    """

    def __init__(self, metrics: Metrics, group: str) -> None:
        self._metrics, self._group = metrics, group
        self._seconds = metrics.decide_seconds.labels(group)
        for reason in REASONS:  # a series that begins at its first refusal hides that one from `rate`
            metrics.refusals.labels(group, reason)
        self._decisions: dict[tuple[str, str], Any] = {}
        self._charged_usd: dict[str, Any] = {}
        self._outcomes = {
            name: metrics.calls.labels(group, outcome)
            for name, outcome in (("charge", "charged"), ("release", "released"), ("presume", "presumed"))
        }

    def decision(self, decision: Decision, trace: DecisionTrace | None) -> None:
        """Count a decision."""
        key = decision.model, "" if trace is None else trace.choice.rule
        known = self._decisions.get(key)
        if known is None:
            known = self._decisions[key] = self._metrics.decisions.labels(self._group, *key)
        known.inc()

    def event(self, name: str, decision_id: str, at_s: float, **figures: Any) -> None:
        """Count the outcome of a call, or a score."""
        outcome = self._outcomes.get(name)
        if outcome is not None:
            outcome.inc()
        if name == "charge":
            self._charged(figures["model"]).inc(max(figures["cost_usd"], 0.0))
        elif name == "reward":
            kind = str(figures.get("source", "human")).partition(":")[0]
            self._metrics.rewards.labels(self._group, kind).observe(figures["reward"])

    def note(self, line: Line) -> None:
        """Do nothing: other events are not counted."""

    def refused(self, error: Exception) -> None:
        """Count a refusal of the router; other errors are none."""
        if isinstance(error, WiseRouterError):
            self._metrics.refusals.labels(self._group, reason_of(error)).inc()

    def measured(self, took_s: float) -> None:
        """Count a decision that took so many seconds."""
        self._seconds.observe(took_s)

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """Measure a decision, and count its refusal: `with watched.deciding(): router.decide(...)`."""
        start_s = time.perf_counter()
        try:
            yield
        except WiseRouterError as error:
            self.refused(error)
            raise
        finally:
            self.measured(time.perf_counter() - start_s)

    def _charged(self, model: str) -> Counter:
        known = self._charged_usd.get(model)
        if known is None:
            known = self._charged_usd[model] = self._metrics.charged_usd.labels(self._group, model)
        return known


def reason_of(error: WiseRouterError) -> str:
    """Return why a request was refused, as one word.

    Examples
    --------
    >>> reason_of(HorizonExhausted(100, 0.5))
    'horizon'
    """
    if isinstance(error, HorizonExhausted):
        return "horizon"
    if isinstance(error, RunBudgetExhausted):
        return "run"
    if isinstance(error, BudgetPaused):
        return "paused"
    if isinstance(error, BudgetExhausted):
        return "held" if error.is_only_held else "budget"
    return "store" if isinstance(error, StoreError) else "request"
