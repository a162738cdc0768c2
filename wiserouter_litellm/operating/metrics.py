"""The metrics of a proxy worker: on LiteLLM's own `/metrics` where that is on, and on `/wiserouter/metrics`.

The counters of several workers are added up where PROMETHEUS_MULTIPROC_DIR is set; budgets are read from the store.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

from wiserouter.errors import MissingExtra
from wiserouter.integration import Metrics
from wiserouter_litellm.errors import SettingsError
from wiserouter_litellm.groups.group import Group
from wiserouter_litellm.settings.proxy_settings import ROOT

PREFIX = "wiserouter_"
"""The beginning of the names of our metrics."""

FAULTS = (
    "accounting",
    "batches",
    "duplicate_events",
    "encoder",
    "estimated_costs",
    "lost_decisions",
    "moved_continuations",
    "moved_pins",
    "outside_calls",
    "refused_fallbacks",
    "selection",
    "shadow",
    "signals",
    "store",
    "uncounted_calls",
    "understated_costs",
    "unpriced_calls",
)
"""The kinds of faults, shown from the start: a rate does not see the first fault of a series that begins with it."""


def watch_groups(groups: Mapping[str, Group], *, on: bool | None) -> None:
    """Count what groups do from now on; by default where prometheus-client is installed.

    Raises
    ------
    SettingsError
        If metrics are on, and prometheus-client is not installed.
    """
    installed = find_spec("prometheus_client") is not None
    if on and not installed:
        raise SettingsError(f"{ROOT}.metrics", "needs prometheus-client: pip install 'wiserouter[metrics]'")
    if on is False or not installed:
        return
    for name, members in by_account(groups.values()).items():
        first = members[0]
        watched = _metrics().watch(first.router, name, scopes=partial(_scopes, first), faults=partial(_faults, members))
        for group in members:
            group.metrics = watched


def exposition() -> tuple[bytes, str]:
    """Return our metrics as text for Prometheus, and its type; raise `MissingExtra` without its client."""
    if find_spec("prometheus_client") is None:
        raise MissingExtra("metrics", "prometheus-client", "metrics")
    from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
    from prometheus_client.multiprocess import MultiProcessCollector

    registry: Any = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        registry.register(_metrics().gauges)  # first: they bring the counters of this worker up to date
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(_Ours(registry)), CONTENT_TYPE_LATEST


class _Ours:
    """The part of a registry that has our prefix."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Any]:
        """Return our families."""
        return (family for family in self._registry.collect() if family.name.startswith(PREFIX))


@cache
def _metrics() -> Metrics:
    """Return the metrics of this process, which outlast a change of its configuration."""
    return Metrics()


def by_account(groups: Iterable[Group]) -> dict[str, list[Group]]:
    """Return the groups by the name of their budget."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.shared_budget or group.name, []).append(group)
    return found


def _scopes(group: Group) -> tuple[str, ...]:
    judge = group.router.judge
    judging = () if judge is None or judge.settings.budget_usd is None else (judge.settings.source,)
    return ("default", *group.scope_resolver.opened, *judging)


def _faults(groups: Iterable[Group]) -> dict[str, float]:
    """Return the faults of groups under one budget, by kind."""
    sums = dict.fromkeys(FAULTS, 0.0)
    for group in groups:
        for kind, count in {**group.faults, "encoder": group.lookup.failures}.items():
            sums[kind] = sums.get(kind, 0.0) + count
    return sums
