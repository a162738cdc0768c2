"""A fleet: its workers, their traffic, the servers that hold the budgets, and what these need for an exchange."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from wiserouter.errors import InvalidInput
from wiserouter.validation import check_amount, check_count

_COUNTS = ("workers", "shards", "events_per_exchange")
_MAY_BE_ZERO = ("latency_s", "call_s", "lost_at_s", "outage_s", "durable_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTerms:
    """Workers that serve requests on shares of one budget per shard.

    Attributes
    ----------
    workers : int, default 1000
        Number of workers; the n-th belongs to the shard n modulo `shards`, as if traffic were divided by scope.
    requests_per_s : float, default 1000
        Of each worker, at random times.
    shards : int, default 1
        Number of Redis servers, each with one scope and an equal part of the budget.
    limit : {"hard", "expected"}, default "hard"
        Workers decide on leases, or on their replica of the account.
    lease_share : float, default 0.05
        Share of the amount left that each worker leases.
    horizon_s : float, default 10
        Simulated time.
    budget_share : float, default 0.9
        Budget over the cost of all requests.
    cost_usd, worst_usd : float, USD
        Of a call: its cost, and what a hard limit reserves for it; by default 0.001 and 0.002.
    call_s : float, default 1
        Time until a call is charged.
    flush_s, lease_ttl_s, retry_s : float, seconds
        Between two exchanges of a worker; how long a lease, or a replica, is used without an answer; until the next
        attempt after a failure. By default those of the stores.
    events_per_exchange : int, default 500
        Most reservations and charges in an exchange.
    latency_s : float, default 0.0005
        One way between a worker and its server.
    exchange_s, event_s : float, seconds
        Processor time of a server for an exchange, and for each of its events: by default as measured on one machine
        (docs/scale.md).
    lost_at_s : float, optional
        When the first shard is lost; by default never.
    outage_s : float, default 2
        How long it is away.
    durable_s : float, default 1
        What it has confirmed in the last so many seconds is lost with it: 1 with `appendfsync everysec`, 0 with always.

    Raises
    ------
    InvalidInput
        If a figure is out of its range.
    """

    workers: int = 1_000
    requests_per_s: float = 1_000.0
    shards: int = 1
    limit: Literal["hard", "expected"] = "hard"
    lease_share: float = 0.05
    horizon_s: float = 10.0
    budget_share: float = 0.9
    cost_usd: float = 0.001
    worst_usd: float = 0.002
    call_s: float = 1.0
    flush_s: float = 0.05
    lease_ttl_s: float = 30.0
    retry_s: float = 1.0
    events_per_exchange: int = 500
    latency_s: float = 0.0005
    exchange_s: float = 120e-6
    event_s: float = 30e-6
    lost_at_s: float | None = None
    outage_s: float = 2.0
    durable_s: float = 1.0

    def __post_init__(self) -> None:
        for name in _COUNTS:
            check_count(name, getattr(self, name), least=1)
        if self.limit not in ("hard", "expected"):
            raise InvalidInput(f"limit must be hard or expected, got {self.limit!r}", value=self.limit)
        for field in fields(self):
            if field.name not in (*_COUNTS, "limit"):
                _check_figure(field.name, getattr(self, field.name))
        if self.worst_usd < self.cost_usd:
            raise InvalidInput(
                f"worst_usd must be at least cost_usd={self.cost_usd}, got {self.worst_usd}", value=self.worst_usd
            )
        if self.lease_share > 0.5:
            raise InvalidInput(f"lease_share must be at most 0.5, got {self.lease_share}", value=self.lease_share)
        if self.shards > self.workers:
            raise InvalidInput(f"shards must be at most workers={self.workers}, got {self.shards}", value=self.shards)

    @property
    def amount_usd(self) -> float:
        """The budget of all shards."""
        return self.budget_share * self.workers * self.requests_per_s * self.horizon_s * self.cost_usd

    @property
    def reserved_usd(self) -> float:
        """What is reserved for a call."""
        return self.worst_usd if self.limit == "hard" else self.cost_usd


def _check_figure(name: str, value: float | None) -> None:
    if value is None:
        return
    check_amount(name, value)
    if value == 0.0 and name not in _MAY_BE_ZERO:
        raise InvalidInput(f"{name} must be above 0, got {value}", value=value)
