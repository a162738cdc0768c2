"""The simulation: the exchanges of all workers in the order of time.

Every exchange is an event; the requests between two exchanges of a worker are a Poisson number each. A server is a
queue in the order of arrival with a fixed time of service per exchange and event. Requests that arrive before the
answer to an exchange use what the worker had before.
"""

from __future__ import annotations

from heapq import heapify, heapreplace

import numpy as np

from wiserouter.evaluation.fleet.outcome import FleetOutcome
from wiserouter.evaluation.fleet.shard import FleetServer
from wiserouter.evaluation.fleet.terms import FleetTerms
from wiserouter.evaluation.fleet.worker import FleetWorker


def simulate_fleet(fleet: FleetTerms, rng: np.random.Generator) -> FleetOutcome:
    """Return the figures of a fleet over its horizon.

    Examples
    --------
    >>> one = FleetTerms(workers=1, requests_per_s=100.0, horizon_s=5.0, call_s=0.0)
    >>> simulate_fleet(one, np.random.default_rng(0)).overspend_usd
    0.0
    """
    return _FleetRun(fleet, rng).outcome()


class _FleetRun:
    """The state of one simulation."""

    def __init__(self, fleet: FleetTerms, rng: np.random.Generator) -> None:
        self.fleet, self.rng = fleet, rng
        members = [len(range(at, fleet.workers, fleet.shards)) for at in range(fleet.shards)]
        self.shards = [FleetServer(fleet, fleet.amount_usd * n / fleet.workers) for n in members]
        self.workers = [FleetWorker(fleet, name) for name in range(fleet.workers)]
        for worker in self.workers:
            worker.left_usd = self._shard_of(worker).amount_usd
        self.replies_s: list[float] = []
        self.done = 0
        self.refused_away = 0
        self.forgotten_usd = 0.0
        self._is_lost = False

    def outcome(self) -> FleetOutcome:
        """Run to the horizon, and add up."""
        fleet = self.fleet
        queue = [(float(start), name) for name, start in enumerate(self.rng.uniform(0, fleet.flush_s, fleet.workers))]
        for start, name in queue:
            self.workers[name].answered_s = start  # its first requests come with its first lease
        heapify(queue)
        while queue[0][0] < fleet.horizon_s:
            now_s, name = queue[0]
            heapreplace(queue, (self._exchange(self.workers[name], now_s), name))
        return self._sum()

    def _exchange(self, worker: FleetWorker, now_s: float) -> float:
        """Let a worker exchange with its server; return the time of its next exchange."""
        fleet, shard = self.fleet, self._shard_of(worker)
        self._arrive(worker, worker.answered_s, now_s)
        worker.answered_s = now_s
        if shard is self.shards[0] and self._is_away(now_s):
            return now_s + fleet.retry_s
        began, ended = worker.message(now_s)
        answer = shard.exchange(worker.name, now_s + fleet.latency_s, began, ended, worker.wanted_usd())
        answered_s = answer.done_s + fleet.latency_s
        self._arrive(worker, now_s, answered_s)
        worker.take(answer, now_s, answered_s)
        self.replies_s.append(answered_s - now_s)
        self.done += answer.done_s <= fleet.horizon_s
        return max(now_s + fleet.flush_s, answered_s)

    def _arrive(self, worker: FleetWorker, since_s: float, now_s: float) -> None:
        """Let the requests of some time arrive, but none after the horizon."""
        until_s = min(now_s, self.fleet.horizon_s)
        if until_s <= since_s:
            return
        refused = worker.refused
        worker.serve(int(self.rng.poisson(self.fleet.requests_per_s * (until_s - since_s))), now_s)
        if self._shard_of(worker) is self.shards[0] and self._is_away(now_s):
            self.refused_away += worker.refused - refused

    def _is_away(self, now_s: float) -> bool:
        """Find out whether the first shard is away; it is lost at the first look after that."""
        lost_at_s = self.fleet.lost_at_s
        if lost_at_s is None or now_s < lost_at_s:
            return False
        if not self._is_lost:
            self._is_lost = True
            self.forgotten_usd = self.shards[0].lose(lost_at_s)
        return now_s < lost_at_s + self.fleet.outage_s

    def _shard_of(self, worker: FleetWorker) -> FleetServer:
        return self.shards[worker.name % self.fleet.shards]

    def _sum(self) -> FleetOutcome:
        fleet = self.fleet
        for worker in self.workers:
            self._arrive(worker, worker.answered_s, fleet.horizon_s)
        served, refused = (np.zeros(fleet.shards, dtype=int) for _ in range(2))
        for worker in self.workers:
            served[worker.name % fleet.shards] += worker.served
            refused[worker.name % fleet.shards] += worker.refused
        over_usd = served * fleet.cost_usd - np.array([shard.amount_usd for shard in self.shards])
        over_usd[np.abs(over_usd) < 1e-9 * fleet.amount_usd] = 0.0
        replies_s = np.array(self.replies_s)
        return FleetOutcome(
            requests=int((served + refused).sum()),
            served=int(served.sum()),
            amount_usd=fleet.amount_usd,
            spent_usd=float(served.sum() * fleet.cost_usd),
            overspend_usd=float(np.maximum(over_usd, 0.0).sum()),
            idle_usd=sum([shard.idle_usd_s for shard in self.shards]) / fleet.horizon_s,
            stranded_usd=float(np.where(refused > 0, np.maximum(-over_usd, 0.0), 0.0).sum()),
            exchanges_per_s=self.done / fleet.horizon_s,
            busy=max([shard.busy_s for shard in self.shards]) / fleet.horizon_s,
            reply_p50_s=float(np.median(replies_s)),
            reply_p99_s=float(np.quantile(replies_s, 0.99)),
            refused_away=self.refused_away,
            forgotten_usd=self.forgotten_usd,
        )
