"""One worker: it serves requests on its lease or its replica, and sends what it did in the next exchange."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from wiserouter.evaluation.fleet.shard import CallsTogether, ExchangeAnswer
from wiserouter.evaluation.fleet.terms import FleetTerms


@dataclass(slots=True)
class FleetWorker:
    """What a worker may still spend on its own, and the calls that its server does not know yet.

    Attributes
    ----------
    fleet : FleetTerms
        Its constants.
    name : int
        Its number.
    room_usd : float
        What it may reserve before the next answer: the rest of its lease, or of the account as it was last read.
    until_s : float
        Until when it may do so.
    left_usd : float
        What was left in the account at the last answer.
    answered_s : float
        When the last answer came.
    served, refused : int
        Its requests so far.
    """

    fleet: FleetTerms
    name: int
    room_usd: float = 0.0
    until_s: float = 0.0
    left_usd: float = 0.0
    answered_s: float = 0.0
    served: int = 0
    refused: int = 0
    unsent: deque[CallsTogether] = field(default_factory=deque)
    flying: deque[CallsTogether] = field(default_factory=deque)

    def serve(self, requests: int, now_s: float) -> None:
        """Serve as many of the requests as there is room for; refuse the others."""
        each = self.fleet.reserved_usd
        fit = 0
        if now_s <= self.until_s and self.room_usd > 0.0:
            # a lease is never exceeded; on a replica the last call may begin while anything is left
            fit = int(self.room_usd / each + 1e-9) if self.fleet.limit == "hard" else -int(-self.room_usd // each)
        taken = min(requests, fit)
        self.refused += requests - taken
        if taken:
            self.served += taken
            self.room_usd -= taken * each
            self._keep(taken, now_s + self.fleet.call_s)

    def message(self, now_s: float) -> tuple[list[CallsTogether], list[CallsTogether]]:
        """Return the calls to reserve and to charge, no more than fit into an exchange, but one batch at least."""
        room = self.fleet.events_per_exchange
        ended: list[CallsTogether] = []
        while self.flying and self.flying[0].due_s <= now_s and (not ended or self.flying[0].calls <= room):
            room -= self.flying[0].calls
            ended.append(self.flying.popleft())
        began: list[CallsTogether] = []
        while self.unsent and (not (began or ended) or self.unsent[0].calls <= room):
            room -= self.unsent[0].calls
            began.append(self.unsent.popleft())
        self.flying.extend(began)
        return began, ended

    def wanted_usd(self) -> float | None:
        """Return the lease to ask for, and use no more than that from now on; None where none is asked for.

        It is a share of what is left and what is leased; a lease stays as it is until all that was drawn on it is told.
        """
        if self.fleet.limit != "hard" or self.unsent:
            return None
        wanted_usd = self.fleet.lease_share * max(self.left_usd + self.room_usd, 0.0)
        self.room_usd = min(self.room_usd, wanted_usd)
        return wanted_usd

    def take(self, answer: ExchangeAnswer, asked_s: float, answered_s: float) -> None:
        """Take over an answer, less what was reserved since the message was sent."""
        since_usd = sum([one.calls for one in self.unsent]) * self.fleet.reserved_usd
        known_usd = answer.lease_usd if self.fleet.limit == "hard" else answer.left_usd
        self.room_usd, self.left_usd = known_usd - since_usd, answer.left_usd
        self.until_s, self.answered_s = asked_s + self.fleet.lease_ttl_s, answered_s

    def _keep(self, calls: int, due_s: float) -> None:
        """Keep calls to be sent, in batches of which each fits into an exchange."""
        most = self.fleet.events_per_exchange
        for first in range(0, calls, most):
            self.unsent.append(CallsTogether(min(most, calls - first), due_s))
