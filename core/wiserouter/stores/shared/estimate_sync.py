"""What the workers of one store learn from one another: sums that all of them add to.

Each worker adds what it observes to sums in the store, and takes over by how much they have grown beyond its own
additions; the order never matters. Sums are kept by day, so that a worker that starts later lets old ones count as
little as the others do. They are known by the contexts that they are about and by the names of the models: workers with
other contexts share a budget, but nothing learned.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

import numpy as np

from wiserouter.learning.estimates import Estimates
from wiserouter.pricing.prices import Usage
from wiserouter.prompts.contexts import Contexts
from wiserouter.stores.engines.base import Reply
from wiserouter.stores.engines.events import Learn
from wiserouter.types import FloatArray

logger = logging.getLogger("wiserouter")

DAY_S = 86_400.0

ROUNDING = 1e-12
"""Share of a sum by which it may differ though nobody has added anything: floats round."""

DAYS = 90
"""Sums of earlier days are not read by a worker that starts."""


class RemoteObservations(NamedTuple):
    """What the others have observed.

    Attributes
    ----------
    age_s : float, seconds
        How old it is; 0 for what is of today or yesterday.
    sums : Estimates
        What was added.
    """

    age_s: float
    sums: Estimates


@dataclass(slots=True)
class _Addition:
    """What this worker has observed of one (context, model); the names are those of `Estimates`."""

    invoked: float = 0.0
    met: float = 0.0
    calls: float = 0.0
    cost: float = 0.0
    cost_sq: float = 0.0
    metered: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    labels: float = 0.0
    reward: float = 0.0
    reward_sq: float = 0.0


class EstimateSync:
    """Adds the observations of one worker to shared sums, and brings those of the others.

    Parameters
    ----------
    contexts : Contexts
        What the sums are about.
    """

    def __init__(self, contexts: Contexts) -> None:
        self.sums = hashlib.sha256(contexts.centroids.tobytes()).hexdigest()[:16]
        self._n_contexts = contexts.n_contexts
        self._names: tuple[str, ...] = ()
        self._worker, self._process, self._sequence = os.urandom(8).hex(), os.getpid(), 0
        self._additions: defaultdict[tuple[int, str], _Addition] = defaultdict(_Addition)
        self._sent: list[Learn] = []
        self._known: dict[str, dict[str, float]] = {}
        self._news: dict[str, dict[str, float]] = {}
        self._started = False
        self._now_s = 0.0
        self._lock = Lock()

    def name(self, names: Sequence[str]) -> None:
        """Say which models the columns are."""
        with self._lock:
            self._names = tuple(names)

    def add_invoked(self, context: int, model: int, count: int = 1) -> None:
        """Count a decision, or take one back."""
        with self._lock:
            addition = self._additions[context, self._names[model]]
            addition.invoked += count
            addition.met += count

    def add_cost(self, context: int, model: int, cost_usd: float, usage: Usage | None = None) -> None:
        """Count the true cost of one call."""
        with self._lock:
            addition = self._additions[context, self._names[model]]
            addition.calls += 1.0
            addition.cost += cost_usd
            addition.cost_sq += cost_usd * cost_usd
            if usage is not None:
                addition.metered += 1.0
                addition.input_tokens += usage.input_tokens
                addition.output_tokens += usage.output_tokens

    def add_reward(self, context: int, model: int, reward: float, replacing: float | None) -> None:
        """Count one reward, instead of an earlier one where `replacing` is given."""
        old = 0.0 if replacing is None else replacing
        with self._lock:
            addition = self._additions[context, self._names[model]]
            addition.labels += float(replacing is None)
            addition.reward += reward - old
            addition.reward_sq += reward * reward - old * old

    def reprice(self, model: int, factor: FloatArray) -> None:
        """Do nothing: every worker restates what it knows when its own prices change."""

    def outgoing(self, now_s: float) -> list[Learn]:
        """Return what to add; the same again until `incoming` has told that it arrived."""
        with self._lock:
            if self._process != os.getpid():  # forked off: what the parent has not sent is the parent's to send
                self._worker, self._process = os.urandom(8).hex(), os.getpid()
                self._sent = []
                self._additions.clear()
            if not self._sent and self._additions:
                self._sequence += 1
                day = self._day(now_s)
                self._sent = [Learn(day, self._worker, self._sequence, _cells(self._additions))]
                self._additions.clear()
            return list(self._sent)

    def wanted(self, now_s: float) -> list[str]:
        """Return the names of the sums to read: of today and yesterday, at first of all days."""
        self._now_s = now_s
        days = 2 if self._started else DAYS
        wanted = [self._day(now_s - day * DAY_S) for day in range(days)]
        sent = [learn.sums for learn in self._sent]
        return list(dict.fromkeys([*wanted, *sent]))

    def incoming(self, reply: Reply) -> None:
        """Take over how the sums stand, after `outgoing` was added."""
        with self._lock:
            own: defaultdict[tuple[str, str], float] = defaultdict(float)
            for learn in self._sent:
                for cell, delta in learn.deltas.items():
                    own[learn.sums, cell] += delta
            self._sent = []
            for name, totals in reply.sums.items():
                known = self._known.setdefault(name, {})
                for cell, total in totals.items():
                    grown = total - known.get(cell, 0.0) - own[name, cell]
                    if abs(grown) > ROUNDING * abs(total):
                        news = self._news.setdefault(name, {})
                        news[cell] = news.get(cell, 0.0) + grown
                self._known[name] = dict(totals)
            self._started = True

    @property
    def heard(self) -> bool:
        """Whether there are any news."""
        return bool(self._news)

    def news(self) -> list[RemoteObservations]:
        """Return what the others have observed since this was last asked, the oldest first.

        What is of models that this worker does not know is kept until it does.
        """
        with self._lock:
            if not self._news:
                return []
            column = {name: k for k, name in enumerate(self._names)}
            found, unknown = [], {}
            for name in sorted(self._news, key=_day):
                known = {cell: total for cell, total in self._news[name].items() if cell.split("|", 2)[2] in column}
                if known:
                    age_s = self._now_s - (_day(name) + 0.5) * DAY_S
                    found.append(RemoteObservations(age_s if age_s >= DAY_S else 0.0, self._placed(known, column)))
                if len(known) < len(self._news[name]):
                    unknown[name] = {cell: total for cell, total in self._news[name].items() if cell not in known}
            self._news = unknown
            return found

    def _placed(self, cells: dict[str, float], column: dict[str, int]) -> Estimates:
        sums = Estimates(self._n_contexts, len(column))
        for cell, value in cells.items():
            field, context, name = cell.split("|", 2)
            getattr(sums, field)[int(context), column[name]] += value
        sums.n_invoked = round(sums.invoked.sum())
        sums.observed = np.abs(sums.calls + sums.labels).sum(axis=1).round().astype(int).tolist()
        sums.n_observations = sum(sums.observed)
        return sums

    def _day(self, now_s: float) -> str:
        return f"{self.sums}@{int(now_s // DAY_S)}"


def _cells(additions: Mapping[tuple[int, str], _Addition]) -> dict[str, float]:
    """Return what is to be added, by the names that sums have in a store."""
    return {
        f"{field}|{context}|{name}": value
        for (context, name), addition in additions.items()
        for field in _Addition.__slots__
        if (value := getattr(addition, field))
    }


def _day(sums: str) -> int:
    return int(sums.rpartition("@")[2])
