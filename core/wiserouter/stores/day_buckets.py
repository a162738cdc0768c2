"""What was called, charged and scored, summed by day, model and scope: all that a report on savings is computed from.

A call counts on the day of its decision, once it is charged, whenever the bill comes; so do its scores. A process adds
to its own rows. A store that outlives it gets their sums about once a second, by the names `savings@DAY` (all scopes)
and `savings@DAY@SCOPE`, as additions that count once; otherwise the rows are kept here, for `DAYS_KEPT` days.

Each sum is a cell `field|model`. The calls that can be compared with another model are counted by context as well, in
the cells `CONTEXTS.CONTEXT|model`, where CONTEXTS names the contexts that they were decided in.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import NamedTuple

from wiserouter.learning.source_scores import SourceScore
from wiserouter.pricing.prices import Usage
from wiserouter.prompts.contexts import Contexts
from wiserouter.stores.base import Record, Store
from wiserouter.stores.engines.base import Reply
from wiserouter.stores.engines.events import Learn
from wiserouter.stores.ids import WorkerIdentity
from wiserouter.types import NO_CONTEXT

DAY_S = 86_400.0

DAYS_KEPT = 62
"""Days that a process keeps where its store does not outlive it."""

MAX_SCOPES_KEPT = 50
"""Scopes of a day that have rows of their own where the process keeps them."""

MAX_SCOPES = 1_000
"""Scopes of a day that have sums of their own in a store; the calls of the others count in the sums of all."""

OTHER_SCOPES = "(other)"
"""The scope that the calls of further scopes are counted under."""

NO_MODEL = -1

FIELDS = (
    "calls",
    "cost_usd",
    "set_aside",
    "compared",
    "compared_usd",
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "scores",
    "score",
    "score_sq",
)
"""The sums per model.

Calls that were charged, and their cost; of these, the calls that say nothing about a model, such as answers from a
cache, and those with tokens, their cost and their tokens; the weight, sum and sum of squares of the scores. A cost
without a model belongs to no call, such as that of an embedding.
"""

_CALLS, _USD, _ASIDE, _COMPARED, _COMPARED_USD, _TOKENS, _SCORES = 0, 1, 2, 3, 4, 5, 10

Cells = dict[str, float]
"""Sums by the names of their cells."""


class _Key(NamedTuple):
    """What a row is about; `model` is an index into the pool."""

    scope: str
    contexts: str
    context: int
    model: int


_Rows = dict[tuple[str, str, int, int], list[float]]


class DayBuckets:
    """The sums of one process, as a peer of the other workers of its store.

    Parameters
    ----------
    names : callable returning sequence of str
        The names of the models, in the order of the pool.
    keeps : bool
        Whether the rows stay here, since the store does not outlive the process.
    """

    def __init__(self, names: Callable[[], Sequence[str]], *, keeps: bool) -> None:
        self._names, self._keeps = names, keeps
        self._days: dict[int, _Rows] = {}
        self._scopes: dict[int, set[str]] = {}
        self._max_scopes = MAX_SCOPES_KEPT if keeps else MAX_SCOPES
        self._contexts: Contexts | None = None
        self._contexts_name = ""
        self._identity, self._sequence = WorkerIdentity(), 0
        self._sent: list[Learn] = []
        self._asked: list[str] = []
        self._read: dict[str, Cells] = {}
        self._lock, self._reading = Lock(), Lock()

    def charged(
        self, record: Record, contexts: Contexts, context: int, cost_usd: float, usage: Usage | None, *, compares: bool
    ) -> None:
        """Count a call that was charged.

        Parameters
        ----------
        record : Record
            The call, with the model that answered.
        contexts, context : Contexts, int
            The present contexts, and the one of the query among them.
        cost_usd : float, USD
            Its cost.
        usage : Usage or None
            Its tokens, where they are known.
        compares : bool
            False if the cost says nothing about the model, as with a cached answer.
        """
        decision = record.decision
        with self._lock:
            if contexts is not self._contexts:
                self._contexts, self._contexts_name = contexts, contexts_name(contexts)
            row = self._row(int(decision.decided_at // DAY_S), decision.scope, context, record.model)
            row[_CALLS] += 1.0
            row[_USD] += cost_usd
            if not compares:
                row[_ASIDE] += 1.0
            elif usage is not None:
                row[_COMPARED] += 1.0
                row[_COMPARED_USD] += cost_usd
                row[_TOKENS] += usage.input_tokens
                row[_TOKENS + 1] += usage.cache_read_tokens
                row[_TOKENS + 2] += usage.cache_write_tokens
                row[_TOKENS + 3] += usage.output_tokens
                row[_TOKENS + 4] += usage.reasoning_tokens

    def scored(self, record: Record, score: SourceScore | None, former: SourceScore | None) -> None:
        """Count what the scores of a call come to, in place of what they came to before."""
        decision = record.decision
        if record.model == NO_MODEL:  # a query that was not served
            return
        with self._lock:
            row = self._row(int(decision.decided_at // DAY_S), decision.scope, NO_CONTEXT, record.model)
            for one, sign in ((score, 1.0), (former, -1.0)):
                if one is not None:
                    row[_SCORES] += sign * one.weight
                    row[_SCORES + 1] += sign * one.weight * one.counted
                    row[_SCORES + 2] += sign * one.weight * one.counted * one.counted

    def spent(self, scope: str, cost_usd: float, now_s: float) -> None:
        """Count a cost that belongs to no call."""
        with self._lock:
            self._row(int(now_s // DAY_S), scope, NO_CONTEXT, NO_MODEL)[_USD] += cost_usd

    def read(self, store: Store, days: Iterable[int], scope: str | None = None) -> dict[int, Cells]:
        """Return the sums of days, of all scopes or of one, after what this process has counted was sent.

        Parameters
        ----------
        store : Store
            The store that this peer has joined.
        days : iterable of int
            Days since 1970.
        scope : str, optional
            By default all scopes.

        Raises
        ------
        StoreUnavailable, StoreDamaged
            If the store cannot be read.
        """
        if self._keeps:
            with self._lock:
                return {day: self._cells(self._days.get(day, {}), scope) for day in days}
        with self._reading:
            names = {sums_name(day, scope): day for day in days}
            with self._lock:
                self._asked, self._read = list(names), {}
            try:
                store.refresh()
            finally:
                with self._lock:
                    self._asked = []
            return {day: self._read.get(name, {}) for name, day in names.items()}

    def outgoing(self, now_s: float) -> list[Learn]:
        """Return the events that add to the sums; the same ones again until `incoming` confirms their arrival."""
        with self._lock:
            if self._identity.renew_after_fork():  # the parent sends what it has counted
                self._days, self._sent = {}, []
            if not self._sent and self._days:
                self._sent = [learn for day, rows in self._days.items() for learn in self._learned(day, rows)]
                self._days = {}
            return list(self._sent)

    def wanted(self, now_s: float) -> list[str]:
        """Return the names of the sums to read: those of a report that is being made, otherwise none."""
        return list(self._asked)

    def wanted_notes(self) -> list[str]:
        """Return no name: sums are all that is exchanged."""
        return []

    def incoming(self, reply: Reply) -> None:
        """Take over the sums as they are after the events of `outgoing`."""
        with self._lock:
            self._sent = []
            self._read |= {name: dict(cells) for name, cells in reply.sums.items() if name in self._asked}

    def _row(self, day: int, scope: str, context: int, model: int) -> list[float]:
        rows = self._days.get(day)
        if rows is None:
            rows = self._begun(day)
        row = rows.get((scope, self._contexts_name, context, model))
        return self._added(rows, day, scope, context, model) if row is None else row

    def _added(self, rows: _Rows, day: int, scope: str, context: int, model: int) -> list[float]:
        """Return the row of what was not counted before, under the name that its scope is counted by."""
        scopes = self._scopes.setdefault(day, set())
        if scope not in scopes and len(scopes) >= self._max_scopes:
            scope = OTHER_SCOPES
        scopes.add(scope)
        return rows.setdefault((scope, self._contexts_name, context, model), [0.0] * len(FIELDS))

    def _begun(self, day: int) -> _Rows:
        """Return the rows of a day that has none, after the days that are too old were forgotten."""
        oldest = max([day, *self._scopes]) - DAYS_KEPT
        self._scopes = {one: scopes for one, scopes in self._scopes.items() if one > oldest}
        if self._keeps:
            self._days = {one: rows for one, rows in self._days.items() if one > oldest}
        return self._days.setdefault(day, {})

    def _cells(self, rows: _Rows, scope: str | None) -> Cells:
        """Return the sums of the rows of a scope, by the names of their cells."""
        names, cells = self._names(), defaultdict[str, float](float)
        for key, row in rows.items():
            of = _Key(*key)
            if scope is not None and of.scope != scope:
                continue
            name = names[of.model] if of.model != NO_MODEL else ""
            for field, value in zip(FIELDS, row, strict=True):
                if value:
                    cells[f"{field}|{name}"] += value
            if row[_COMPARED]:
                cells[f"{of.contexts}.{of.context}|{name}"] += row[_COMPARED]
        return dict(cells)

    def _learned(self, day: int, rows: _Rows) -> list[Learn]:
        """Return the additions to the sums of a day: of all scopes, and of each."""
        scopes = dict.fromkeys(key[0] for key in rows)
        found: list[tuple[str, Mapping[str, float]]] = [(sums_name(day), self._cells(rows, None))]
        found += [(sums_name(day, scope), self._cells(rows, scope)) for scope in scopes]
        self._sequence += 1
        return [Learn(name, self._identity.name, self._sequence, cells) for name, cells in found]


def sums_name(day: int, scope: str | None = None) -> str:
    """Return the name of the sums of a day in a store."""
    return f"savings@{day}" if scope is None else f"savings@{day}@{scope}"


def contexts_name(contexts: Contexts) -> str:
    """Return a short name of contexts, by which workers with the same ones agree."""
    return hashlib.sha256(contexts.centroids.tobytes()).hexdigest()[:12]
