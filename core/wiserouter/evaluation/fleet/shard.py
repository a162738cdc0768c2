"""One Redis server: it serves exchanges one after the other, and keeps the account of one scope."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from wiserouter.evaluation.fleet.terms import FleetTerms


@dataclass(slots=True)
class CallsTogether:
    """Calls of one worker that begin and end together.

    Attributes
    ----------
    calls : int
        How many they are.
    due_s : float
        When they are charged.
    known : bool
        Whether the server has their reservation.
    """

    calls: int
    due_s: float
    known: bool = True


class ExchangeAnswer(NamedTuple):
    """The answer to an exchange: when the server is done, and the figures that it returns."""

    done_s: float
    lease_usd: float
    left_usd: float


class _Entry(NamedTuple):
    """What an exchange has changed, to be undone if it is lost with the server."""

    done_s: float
    worker: int
    spent_usd: float
    reserved_usd: float
    leased_usd: float
    began: list[CallsTogether]


@dataclass(slots=True)
class FleetServer:
    """The server and its account.

    Attributes
    ----------
    fleet : FleetTerms
        Its constants.
    amount_usd : float
        The budget of its scope.
    spent_usd, reserved_usd, leased_usd : float
        What it knows to be charged, in flight, and leased and unused.
    busy_s : float
        Time that it has worked.
    idle_usd_s : float
        Integral of `leased_usd` over time.
    """

    fleet: FleetTerms
    amount_usd: float
    spent_usd: float = 0.0
    reserved_usd: float = 0.0
    leased_usd: float = 0.0
    busy_s: float = 0.0
    idle_usd_s: float = 0.0
    _free_s: float = 0.0
    _held: dict[int, float] = field(default_factory=dict)
    _recent: deque[_Entry] = field(default_factory=deque)

    @property
    def left_usd(self) -> float:
        """What is neither spent, nor reserved, nor leased."""
        return self.amount_usd - self.spent_usd - self.reserved_usd - self.leased_usd

    def exchange(
        self,
        worker: int,
        arrives_s: float,
        began: list[CallsTogether],
        ended: list[CallsTogether],
        target_usd: float | None,
    ) -> ExchangeAnswer:
        """Take in calls that began and ended, and renew the lease of a worker.

        Parameters
        ----------
        worker : int
            The worker.
        arrives_s : float
            When its message arrives; no earlier than those before.
        began, ended : list of CallsTogether
            The calls to reserve, on the lease under a hard limit, and those to charge.
        target_usd : float or None
            The lease that it wants; None leaves it as it is.
        """
        fleet = self.fleet
        n_began, n_ended = sum([one.calls for one in began]), sum([one.calls for one in ended])
        done_s = self._work(arrives_s, n_began + n_ended + (target_usd is not None))
        spent = n_ended * fleet.cost_usd
        reserved = (n_began - sum([one.calls for one in ended if one.known])) * fleet.reserved_usd
        held = self._held.get(worker, 0.0)
        drawn = min(n_began * fleet.reserved_usd, held)
        self.spent_usd += spent
        self.reserved_usd += reserved
        self.leased_usd -= drawn
        wanted = 0.0 if target_usd is None else target_usd - (held - drawn)
        change = min(wanted, max(self.left_usd, 0.0))
        self.leased_usd += change
        self._held[worker] = held - drawn + change
        if fleet.lost_at_s is not None:
            self._remember(_Entry(done_s, worker, spent, reserved, change - drawn, began))
        return ExchangeAnswer(done_s, self._held[worker], self.left_usd)

    def lose(self, at_s: float) -> float:
        """Forget what was confirmed in the last seconds before `at_s`; return the charges among it in USD."""
        lost_usd = 0.0
        for entry in self._recent:
            if entry.done_s <= at_s - self.fleet.durable_s:
                continue
            self.spent_usd -= entry.spent_usd
            self.reserved_usd -= entry.reserved_usd
            self.leased_usd -= entry.leased_usd
            self._held[entry.worker] -= entry.leased_usd
            for batch in entry.began:
                batch.known = False
            lost_usd += entry.spent_usd
        self._recent.clear()
        self._free_s = at_s + self.fleet.outage_s
        return lost_usd

    def _work(self, arrives_s: float, events: int) -> float:
        """Serve an exchange after those before it; return when it is done."""
        begins_s, end_s = max(arrives_s, self._free_s), self.fleet.horizon_s
        done_s = begins_s + self.fleet.exchange_s + self.fleet.event_s * events
        self.busy_s += max(min(done_s, end_s) - begins_s, 0.0)
        self.idle_usd_s += self.leased_usd * max(min(done_s, end_s) - self._free_s, 0.0)
        self._free_s = done_s
        return done_s

    def _remember(self, entry: _Entry) -> None:
        self._recent.append(entry)
        while self._recent and self._recent[0].done_s <= entry.done_s - self.fleet.durable_s:
            self._recent.popleft()
