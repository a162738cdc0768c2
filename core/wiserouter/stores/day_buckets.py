"""What was called, charged and scored, summed by day, model and scope: all that a report on savings is computed from.

A call counts on the day of its decision, once it is charged, whenever the bill comes; so do its scores. A store that
outlives the process gets the sums about once a second, by the names `savings@DAY` (all scopes) and `savings@DAY@SCOPE`,
as additions that count once; otherwise they are kept here, for `DAYS_KEPT` days. Each is a cell `field|model`. Calls
that can be compared are counted by context too, in cells `CONTEXTS.CONTEXT|model`, with the name of their contexts.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import RLock
from typing import NamedTuple

from wiserouter.learning.source_scores import SourceScore
from wiserouter.parallel.forks import held_at_fork
from wiserouter.pricing.prices import Usage
from wiserouter.prompts.contexts import Contexts
from wiserouter.stores.base import Record, Store
from wiserouter.stores.engines.base import Reply
from wiserouter.stores.engines.events import Learn, Note
from wiserouter.stores.ids import WorkerIdentity
from wiserouter.stores.peer import Peer
from wiserouter.types import NO_CONTEXT, Decision

DAY_S = 86_400.0

DAYS_KEPT = 62
"""Days that a process keeps where its store does not outlive it."""

DAYS_STORED = 400
"""Days that a store keeps which outlives the process."""

MAX_SCOPES_KEPT = 20
"""Scopes of a day that have rows of their own where the process keeps them."""

MAX_SCOPES = 1_000
"""Scopes of a day that have sums of their own in a store; the calls of the others count in the sums of all."""

OTHER_SCOPES = "(other)"
"""The scope that the calls of further scopes are counted under."""

NO_MODEL = -1

MODELS_NOTE = "savings"
"""The name of the note on the models in a store."""

DESCRIBED_EVERY_S = 10.0
"""Seconds between two notes on the models, at least."""

BATCH = 64
"""The most events that are counted at once: a charge only notes them, unless so many have come together."""

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

Cells = dict[str, float]
"""Sums by the names of their cells."""


class CallSums:
    """The sums of the calls of one day, scope, context and model; calls that cannot be compared are few."""

    __slots__ = (
        "cache_read_tokens",
        "cache_write_tokens",
        "calls",
        "cost_usd",
        "input_tokens",
        "output_tokens",
        "reasoning_tokens",
        "score",
        "score_sq",
        "scores",
        "set_aside",
        "uncompared",
        "uncompared_usd",
    )

    def __init__(self) -> None:
        self.calls = self.cost_usd = self.set_aside = self.uncompared = self.uncompared_usd = 0.0
        self.input_tokens = self.cache_read_tokens = self.cache_write_tokens = 0
        self.output_tokens = self.reasoning_tokens = 0
        self.scores = self.score = self.score_sq = 0.0

    @property
    def compared(self) -> float:
        """Number of calls that can be compared."""
        return self.calls - self.uncompared

    @property
    def compared_usd(self) -> float:
        """Their cost; a cost without a call belongs to none."""
        return self.cost_usd - self.uncompared_usd if self.compared else 0.0


Key = tuple[str, int, int]
"""Scope, context and index of the model."""

Rows = dict[Key, CallSums]

_Call = tuple[Decision, int, Contexts, int, float, Usage | None, bool]
_Scores = tuple[Decision, int, SourceScore | None, SourceScore | None]


class Bucket(NamedTuple):
    """A day, and the name of the contexts that its calls are counted in."""

    day: int
    contexts: str


class DayBuckets(Peer):
    """The sums of one process, as a peer of the other workers of its store.

    Parameters
    ----------
    names : callable returning sequence of str
        The names of the models, in the order of the pool.
    keeps : bool
        Whether the rows stay here, since the store does not outlive the process.
    describe : callable returning str or None, optional
        A text on the models, which the store keeps for those who have no router; None where it is not at hand now.
    """

    def __init__(
        self,
        names: Callable[[], Sequence[str]],
        *,
        keeps: bool,
        describe: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._names, self._keeps, self._describe = names, keeps, describe
        self._described_s, self._text = float("-inf"), ""
        self._events: deque[_Call | _Scores] = deque()  # any thread may append without the lock
        self._buckets: dict[Bucket, Rows] = {}
        self._scopes: dict[int, set[str]] = {}
        self._max_scopes = MAX_SCOPES_KEPT if keeps else MAX_SCOPES
        self._contexts: Contexts | None = None
        self._bucket, self._rows = Bucket(-1, ""), Rows()
        self._begins_s = self._ends_s = 0.0
        self._identity, self._sequence = WorkerIdentity(), 0
        self._sent: list[Learn] = []
        self._asked: list[str] = []
        self._read: dict[str, Cells] = {}
        self._lock, self._reading = held_at_fork(RLock(), innermost=True), held_at_fork(RLock())

    def charged(
        self,
        record: Record,
        contexts: Contexts,
        context: int,
        cost_usd: float,
        usage: Usage | None,
        compares: bool,
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
        events = self._events
        events.append((record.decision, record.model, contexts, context, cost_usd, usage, compares))
        if len(events) >= BATCH:
            self._count_now()

    def scored(self, record: Record, score: SourceScore | None, former: SourceScore | None) -> None:
        """Count what the scores of a call come to, in place of what they came to before."""
        events = self._events
        if record.model != NO_MODEL:  # a query that was served
            events.append((record.decision, record.model, score, former))
            if len(events) >= BATCH:
                self._count_now()

    def spent(self, scope: str, cost_usd: float, now_s: float) -> None:
        """Count a cost that belongs to no call."""
        with self._lock:
            self._row(now_s, scope, NO_MODEL).cost_usd += cost_usd

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
                self._count()
                return {day: self._cells(self._of_day(day), scope) for day in days}
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

    def outgoing(self, now_s: float) -> list[Learn | Note]:
        """Return the events that add to the sums; the same ones again until `incoming` confirms their arrival."""
        note = self._noted(now_s)
        with self._lock:
            self._count()
            if self._identity.renew_after_fork():  # the parent sends what it has counted
                self._forget_rows()
                self._sent = []
            if not self._sent and self._buckets:
                days = dict.fromkeys(bucket.day for bucket in self._buckets)
                self._sent = [learn for day in days for learn in self._learned(day)]
                self._forget_rows()
            return [*self._sent, *note]

    def wanted(self, now_s: float) -> list[str]:
        """Return the names of the sums to read: those of a report that is being made, otherwise none."""
        return list(self._asked)

    def incoming(self, reply: Reply) -> None:
        """Take over the sums as they are after the events of `outgoing`."""
        with self._lock:
            self._sent = []
            self._read |= {name: dict(cells) for name, cells in reply.sums.items() if name in self._asked}

    def hasten(self) -> None:
        """Send the note on the models with the next exchange: a report without a router reads its scores there."""
        self._described_s = float("-inf")

    def _count_now(self) -> None:
        with self._lock:
            self._count()

    def _count(self) -> None:
        """Add the events that have come to the rows; the caller holds the lock."""
        events = self._events
        for _ in range(len(events)):
            event = events.popleft()
            if len(event) == 4:
                self._count_scores(*event)
            else:
                self._count_call(*event)

    def _count_call(
        self,
        decision: Decision,
        model: int,
        contexts: Contexts,
        context: int,
        cost_usd: float,
        usage: Usage | None,
        compares: bool,
    ) -> None:
        if contexts is not self._contexts or not self._begins_s <= decision.decided_at < self._ends_s:
            self._turn_to(decision.decided_at, contexts)
        row = self._rows.get((decision.scope, context, model))
        if row is None:
            row = self._added(decision.scope, context, model)
        row.calls += 1.0
        row.cost_usd += cost_usd
        if usage is None or not compares:
            row.uncompared += 1.0
            row.uncompared_usd += cost_usd
            row.set_aside += 0.0 if compares else 1.0
            return
        row.input_tokens += usage.input_tokens
        row.output_tokens += usage.output_tokens
        row.cache_read_tokens += usage.cache_read_tokens
        row.cache_write_tokens += usage.cache_write_tokens
        row.reasoning_tokens += usage.reasoning_tokens

    def _count_scores(
        self, decision: Decision, model: int, score: SourceScore | None, former: SourceScore | None
    ) -> None:
        row = self._row(decision.decided_at, decision.scope, model)
        for one, sign in ((score, 1.0), (former, -1.0)):
            if one is not None:
                weight = sign * one.weight
                row.scores += weight
                row.score += weight * one.counted
                row.score_sq += weight * one.counted * one.counted

    def _row(self, at_s: float, scope: str, model: int) -> CallSums:
        """Return the row of a model whatever the context is."""
        if not self._begins_s <= at_s < self._ends_s:
            self._turn_to(at_s, self._contexts)
        row = self._rows.get((scope, NO_CONTEXT, model))
        return self._added(scope, NO_CONTEXT, model) if row is None else row

    def _turn_to(self, at_s: float, contexts: Contexts | None) -> None:
        """Count in the bucket of a time and of contexts from now on; days that are too old are forgotten."""
        name = self._bucket.contexts if contexts is self._contexts else "" if contexts is None else name_of(contexts)
        self._contexts, self._bucket = contexts, Bucket(int(at_s // DAY_S), name)
        self._begins_s, self._ends_s = self._bucket.day * DAY_S, (self._bucket.day + 1) * DAY_S
        oldest = max([self._bucket.day, *self._scopes]) - DAYS_KEPT
        self._scopes = {day: scopes for day, scopes in self._scopes.items() if day > oldest}
        self._buckets = {bucket: rows for bucket, rows in self._buckets.items() if bucket.day > oldest}
        self._rows = self._buckets.setdefault(self._bucket, {})

    def _added(self, scope: str, context: int, model: int) -> CallSums:
        """Return the row of what was not counted before, under the name that its scope is counted by."""
        scopes = self._scopes.setdefault(self._bucket.day, set())
        if scope not in scopes and len(scopes) >= self._max_scopes:
            scope = OTHER_SCOPES
        scopes.add(scope)
        return self._rows.setdefault((scope, context, model), CallSums())

    def _noted(self, now_s: float) -> list[Note]:
        """Return the note on the models, where it is another one, and due, or a report is being made."""
        if now_s - self._described_s < DESCRIBED_EVERY_S and not self._asked:
            return []
        text = self._describe()
        if text is None or text == self._text:
            return []
        self._described_s, self._text = now_s, text
        return [Note(MODELS_NOTE, text)]

    def _forget_rows(self) -> None:
        self._buckets, self._rows, self._ends_s = {}, {}, 0.0

    def _of_day(self, day: int) -> list[tuple[str, Rows]]:
        """Return the rows of a day, with the names of the contexts that they are counted in."""
        return [(bucket.contexts, rows) for bucket, rows in self._buckets.items() if bucket.day == day]

    def _cells(self, of_day: Iterable[tuple[str, Rows]], scope: str | None) -> Cells:
        """Return the sums of the rows of a scope, by the names of their cells."""
        names, cells = self._names(), defaultdict[str, float](float)
        for contexts, rows in of_day:
            for (of_scope, context, model), row in rows.items():
                if scope is not None and of_scope != scope:
                    continue
                name = names[model] if model != NO_MODEL else ""
                for field in FIELDS:
                    if value := getattr(row, field):
                        cells[f"{field}|{name}"] += value
                if row.compared:
                    cells[f"{contexts}.{context}|{name}"] += row.compared
        return dict(cells)

    def _learned(self, day: int) -> list[Learn]:
        """Return the additions to the sums of a day: of all scopes, and of each."""
        of_day = self._of_day(day)
        scopes = dict.fromkeys(key[0] for _, rows in of_day for key in rows)
        found: list[tuple[str, Mapping[str, float]]] = [(sums_name(day), self._cells(of_day, None))]
        found += [(sums_name(day, scope), self._cells(of_day, scope)) for scope in scopes]
        self._sequence += 1
        return [Learn(name, self._identity.name, self._sequence, cells, DAYS_STORED) for name, cells in found]


def sums_name(day: int, scope: str | None = None) -> str:
    """Return the name of the sums of a day in a store."""
    return f"savings@{day}" if scope is None else f"savings@{day}@{scope}"


def name_of(contexts: Contexts) -> str:
    """Return a short name of contexts, by which workers with the same ones agree."""
    return hashlib.sha256(contexts.centroids.tobytes()).hexdigest()[:12]
