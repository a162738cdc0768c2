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
from typing import NamedTuple

import numpy as np

from wiserouter.learning.estimates import FIELDS, Estimates, reward_changes
from wiserouter.learning.fading import ALL_LEFT, Left
from wiserouter.pricing.prices import Usage
from wiserouter.prompts.contexts import Contexts
from wiserouter.stores.engines.events import Learn
from wiserouter.stores.shared.daily_sums import DailySums, DailySumsPeer
from wiserouter.types import FloatArray


class RemoteObservations(NamedTuple):
    """Observations of the other workers.

    Attributes
    ----------
    age_s : float, seconds
        Their age; 0 for those of today and yesterday.
    sums : Estimates
        The sums added.
    corrects : bool
        Whether they only move earlier observations to other contexts.
    """

    age_s: float
    sums: Estimates
    corrects: bool = False


class EstimateSync(DailySumsPeer):
    """The sums of one worker's observations that others have not read yet, and those of the others.

    Parameters
    ----------
    contexts : Contexts
        The contexts that the sums are about.
    """

    def __init__(self, contexts: Contexts) -> None:
        super().__init__(sums_name(contexts))
        self._n_contexts = contexts.n_contexts
        self._models: tuple[str, ...] = ()
        self._additions: defaultdict[tuple[int, str], dict[str, float]] = defaultdict(_nothing_added)

    @classmethod
    def named(cls, name: str, n_contexts: int) -> EstimateSync:
        """Return the sums of a name, about so many contexts."""
        sync = cls(Contexts.single())
        sync._sums, sync._n_contexts = DailySums(name), n_contexts
        return sync

    def set_models(self, models: Sequence[str]) -> None:
        """Set the names of the models, in the order of the columns of `Estimates`."""
        with self._lock:
            self._models = tuple(models)

    def add_invoked(self, context: int, model: int, count: int = 1) -> None:
        """Count decisions."""
        with self._lock:
            addition = self._additions[context, self._models[model]]
            addition["invoked"] += count
            addition["met"] += count

    def take_back(self, context: int, model: int, left: Left = ALL_LEFT) -> None:
        """Take back what is left of a decision: the other workers' sums have faded as those of this one."""
        with self._lock:
            addition = self._additions[context, self._models[model]]
            addition["invoked"] -= left.others
            addition["met"] -= left.met

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

    def amend_cost(self, context: int, model: int, cost_usd: float, *, replacing: float, left: float = 1.0) -> None:
        """Replace what is left of the cost of one call, or of a run that has gone on, by what it has come to."""
        with self._lock:
            addition = self._additions[context, self._models[model]]
            addition["cost"] += left * (cost_usd - replacing)
            addition["cost_sq"] += left * (cost_usd * cost_usd - replacing * replacing)

    def add_reward(
        self,
        context: int,
        model: int,
        reward: float,
        *,
        weight: float = 1.0,
        replacing: float | None = None,
        replaced_weight: float = 1.0,
        delay_s: float = 0.0,
        left: Left = ALL_LEFT,
    ) -> None:
        """Count one reward, `delay_s` after its decision, or in place of an earlier one where `replacing` is given."""
        old, old_weight = (0.0, 0.0) if replacing is None else (replacing, replaced_weight)
        changes = reward_changes(reward, weight, old, old_weight, delay_s, left)
        with self._lock:
            addition = self._additions[context, self._models[model]]
            for name, change in changes.items():
                addition[name] += change

    def add_sums(self, sums: Mapping[str, FloatArray]) -> None:
        """Add arrays of shape (n_contexts, n_models), by the names in `FIELDS`."""
        with self._lock:
            for name, table in sums.items():
                for context, model in zip(*np.nonzero(table), strict=True):
                    self._additions[int(context), self._models[model]][name] += float(table[context, model])

    def outgoing(self, now_s: float) -> list[Learn]:
        """Return the events that add to the sums; the same ones again until `incoming` confirms their arrival."""
        with self._lock:
            if self._sums.renew_after_fork():  # the parent sends its own additions
                self._additions.clear()
            if not self._sums.sent and self._additions:
                self._sums.send(now_s, _cells(self._additions))
                self._additions.clear()
            return list(self._sums.sent)

    @property
    def has_unsent(self) -> bool:
        """Whether additions of this worker have not been confirmed."""
        return bool(self._additions) or bool(self._sums.sent)

    @property
    def is_behind(self) -> bool:
        """Whether the sums of the other workers were never read."""
        return self._sums.is_behind

    def remote_observations(self) -> list[RemoteObservations]:
        """Return the observations of the other workers since the last call, the oldest first.

        Those of models that this worker does not know are kept until it does.
        """
        with self._lock:
            if not self._sums.has_news:
                return []
            column = {name: k for k, name in enumerate(self._models)}
            taken = self._sums.take_remote(column)
            return [RemoteObservations(age_s, self._placed(cells, column)) for age_s, cells in taken]

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


def sums_name(contexts: Contexts) -> str:
    """Return the name of the sums of these contexts."""
    return hashlib.sha256(contexts.centroids.tobytes()).hexdigest()[:16]


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
