"""Synchronisation of estimates between the workers of one store, through sums that all of them add to.

Each worker adds its observations to sums in the store, and reads by how much the sums have grown beyond its own
additions; the order does not matter. Sums are kept by day, so that a worker that starts later discounts old ones as
much as the others do. Their names contain a hash of the contexts and the names of the models: workers with other
contexts share a budget, but no observations.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np

from wiserouter.learning.estimates import FIELDS, Estimates
from wiserouter.pricing.prices import Usage
from wiserouter.prompts.contexts import Contexts
from wiserouter.stores.engines.base import Reply
from wiserouter.stores.engines.events import Learn
from wiserouter.stores.ids import WorkerIdentity
from wiserouter.types import FloatArray

DAY_S = 86_400.0

ROUNDING = 1e-12
"""Relative change of a sum that is taken as a rounding error, not as an addition of another worker."""

MAX_AGE_DAYS = 90
"""A worker that starts reads the sums of this many days."""


class RemoteObservations(NamedTuple):
    """Observations of the other workers.

    Attributes
    ----------
    age_s : float, seconds
        Their age; 0 for those of today and yesterday.
    sums : Estimates
        The sums added.
    """

    age_s: float
    sums: Estimates


class EstimateSync:
    """The sums of one worker's observations that others have not read yet, and those of the others.

    Parameters
    ----------
    contexts : Contexts
        The contexts that the sums are about.
    """

    def __init__(self, contexts: Contexts) -> None:
        self.sums = hashlib.sha256(contexts.centroids.tobytes()).hexdigest()[:16]
        self._n_contexts = contexts.n_contexts
        self._models: tuple[str, ...] = ()
        self._identity, self._sequence = WorkerIdentity(), 0
        self._additions: defaultdict[tuple[int, str], dict[str, float]] = defaultdict(_nothing_added)
        self._sent: list[Learn] = []
        self._totals: dict[str, dict[str, float]] = {}
        self._remote: dict[str, dict[str, float]] = {}
        self._started = False
        self._now_s = 0.0
        self._lock = Lock()

    def set_models(self, models: Sequence[str]) -> None:
        """Set the names of the models, in the order of the columns of `Estimates`."""
        with self._lock:
            self._models = tuple(models)

    def add_invoked(self, context: int, model: int, count: int = 1) -> None:
        """Count a decision, or with -1 take one back."""
        with self._lock:
            addition = self._additions[context, self._models[model]]
            addition["invoked"] += count
            addition["met"] += count

    def add_cost(self, context: int, model: int, cost_usd: float, usage: Usage | None = None) -> None:
        """Count the true cost of one call, and its tokens where they are known."""
        with self._lock:
            addition = self._additions[context, self._models[model]]
            addition["calls"] += 1.0
            addition["cost"] += cost_usd
            addition["cost_sq"] += cost_usd * cost_usd
            if usage is not None:
                addition["metered"] += 1.0
                addition["input_tokens"] += usage.input_tokens
                addition["output_tokens"] += usage.output_tokens

    def amend_cost(self, context: int, model: int, cost_usd: float, *, replacing: float) -> None:
        """Replace the cost of one call, or of a run that has gone on, by what it has come to."""
        with self._lock:
            addition = self._additions[context, self._models[model]]
            addition["cost"] += cost_usd - replacing
            addition["cost_sq"] += cost_usd * cost_usd - replacing * replacing

    def add_reward(self, context: int, model: int, reward: float, replacing: float | None) -> None:
        """Count one reward, in place of the earlier one `replacing` where that is given."""
        old = 0.0 if replacing is None else replacing
        with self._lock:
            addition = self._additions[context, self._models[model]]
            addition["labels"] += float(replacing is None)
            addition["reward"] += reward - old
            addition["reward_sq"] += reward * reward - old * old

    def reprice(self, model: int, factor: FloatArray) -> None:
        """Do nothing: every worker restates its estimates when its own prices change."""

    def outgoing(self, now_s: float) -> list[Learn]:
        """Return the events that add to the sums; the same ones again until `incoming` confirms their arrival."""
        with self._lock:
            if self._identity.renew_after_fork():  # the parent sends its own additions
                self._sent = []
                self._additions.clear()
            if not self._sent and self._additions:
                self._sequence += 1
                deltas = _cells(self._additions)
                self._sent = [Learn(self._day(now_s), self._identity.name, self._sequence, deltas)]
                self._additions.clear()
            return list(self._sent)

    def wanted(self, now_s: float) -> list[str]:
        """Return the names of the sums to read: of today and yesterday, the first time of all days."""
        self._now_s = now_s
        days = 2 if self._started else MAX_AGE_DAYS
        wanted = [self._day(now_s - day * DAY_S) for day in range(days)]
        sent = [learn.sums for learn in self._sent]
        return list(dict.fromkeys([*wanted, *sent]))

    def incoming(self, reply: Reply) -> None:
        """Take over the sums as they are after the events of `outgoing`."""
        with self._lock:
            own: defaultdict[tuple[str, str], float] = defaultdict(float)
            for learn in self._sent:
                for cell, delta in learn.deltas.items():
                    own[learn.sums, cell] += delta
            self._sent = []
            for name, totals in reply.sums.items():
                known = self._totals.setdefault(name, {})
                for cell, total in totals.items():
                    grown = total - known.get(cell, 0.0) - own[name, cell]
                    if abs(grown) > ROUNDING * abs(total):
                        remote = self._remote.setdefault(name, {})
                        remote[cell] = remote.get(cell, 0.0) + grown
                self._totals[name] = dict(totals)
            self._started = True

    @property
    def has_news(self) -> bool:
        """Whether other workers have added observations that were not read yet."""
        return bool(self._remote)

    def remote_observations(self) -> list[RemoteObservations]:
        """Return the observations of the other workers since the last call, the oldest first.

        Those of models that this worker does not know are kept until it does.
        """
        with self._lock:
            if not self._remote:
                return []
            column = {name: k for k, name in enumerate(self._models)}
            found, unknown = [], {}
            for name in sorted(self._remote, key=_day):
                cells = self._remote[name]
                known = {cell: total for cell, total in cells.items() if cell.split("|", 2)[2] in column}
                if known:
                    age_s = self._now_s - (_day(name) + 0.5) * DAY_S
                    found.append(RemoteObservations(age_s if age_s >= DAY_S else 0.0, self._placed(known, column)))
                if len(known) < len(cells):
                    unknown[name] = {cell: total for cell, total in cells.items() if cell not in known}
            self._remote = unknown
            return found

    def _placed(self, cells: dict[str, float], column: dict[str, int]) -> Estimates:
        """Return sums by the names of their cells as arrays."""
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


def _nothing_added() -> dict[str, float]:
    return dict.fromkeys(FIELDS, 0.0)


def _cells(additions: Mapping[tuple[int, str], Mapping[str, float]]) -> dict[str, float]:
    """Return the amounts to add, by the names of the cells in a store."""
    return {
        f"{field}|{context}|{name}": value
        for (context, name), addition in additions.items()
        for field, value in addition.items()
        if value
    }


def _day(sums: str) -> int:
    """Return the day of sums by their name, counted from 1970."""
    return int(sums.rpartition("@")[2])
