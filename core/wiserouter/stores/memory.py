"""The store of a single process: dictionaries behind a lock."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from threading import RLock
from typing import NamedTuple

from wiserouter.budgets.budget import Budget
from wiserouter.budgets.changes import BudgetChange, ChangeAnswer
from wiserouter.budgets.funds import BudgetSnapshot
from wiserouter.budgets.nested import (
    Account,
    NestedLedger,
    amended,
    check_parent,
    check_same_shape,
    open_account,
    with_present_limits,
)
from wiserouter.budgets.pauses import check_runs
from wiserouter.budgets.run_caps import OpenCaps, RunCap, capped_snapshot, check_caps
from wiserouter.conversations.conversation import Conversation
from wiserouter.errors import AlreadySettled, NotStarted, UnknownDecision
from wiserouter.learning.source_scores import HUMAN, Scores, SourceScore, full_score, with_score
from wiserouter.parallel.forks import held_at_fork
from wiserouter.stores.base import Health, Record
from wiserouter.stores.kept_conversations import KeptConversations
from wiserouter.stores.local_changes import LocalChanges
from wiserouter.stores.peer import Peer
from wiserouter.stores.transitions import Outcome, presumed_cost_usd, settle

ALIASES_PER_DECISION = 8
"""Number of names kept per decision: LiteLLM's has five of its call and its answer, and three of its run."""

_Kept = tuple[Record, Account]
"""A record, and the account that bears its call, in the windows of that time."""


class _Given(NamedTuple):
    """What a scope was last started with."""

    budget: Budget
    parent: str | None
    whole: Budget


class MemoryStore:
    """A store in the memory of one process, lost when the process ends.

    Parameters
    ----------
    clock : callable returning float, default time.time
        Seconds; a fake in tests.
    reservation_ttl_s : float, default 900
        Time after which an unsettled call is presumed to have been billed; longer than the longest call.
    decision_ttl_s : float, default 7 days
        Time for which a settled decision can be rewarded.
    max_decisions : int, default 100,000
        Beyond this many, the oldest settled ones are dropped.
    max_conversations : int, default 100,000
        Beyond this many, the conversations kept longest ago are dropped, as are the caps of runs.
    """

    durable = False

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        *,
        reservation_ttl_s: float = 900.0,
        decision_ttl_s: float = 7 * 86_400.0,
        max_decisions: int = 100_000,
        max_conversations: int = 100_000,
    ) -> None:
        self.now = clock
        self._reservation_ttl_s = reservation_ttl_s
        self._decision_ttl_s = decision_ttl_s
        self._max_decisions = max_decisions
        self._ledgers: dict[str, Account] = {}
        self._parents: dict[str, str] = {}
        self._given: dict[str, _Given] = {}
        self._renewing: set[str] = set()
        self._aliases: OrderedDict[str, str] = OrderedDict()
        self._in_flight: OrderedDict[str, _Kept] = OrderedDict()
        self._records: OrderedDict[str, _Kept] = OrderedDict()
        self._conversations = KeptConversations(max_conversations, self._commit)
        self._committed: dict[str, tuple[float, int]] = {}  # by scope, with the number of runs
        self._caps = OpenCaps(max_conversations)
        self._claims: dict[str, tuple[float, str]] = {}
        self._changes = LocalChanges()
        self._followers: list[Callable[[Collection[str]], object]] = []
        self._lock = held_at_fork(RLock())

    def waits(self, scope: str, decision_id: str | None = None) -> bool:
        """Return False: no method waits."""
        return False

    def open(
        self,
        scope: str,
        budget: Budget,
        *,
        parent: str | None = None,
        restart: bool = False,
        whole: Budget | None = None,
    ) -> None:
        """Start a budget for `scope`, or join the running one with the amount and horizon given now."""
        with self._lock:
            if parent is not None:
                check_parent(scope, parent, self._scopes(parent))
                self._account_at(parent, self.now())
            running, former = None if restart else self._ledgers.get(scope), self._given.get(scope)
            given = _Given(budget, parent, whole or budget)
            if running is not None and former == given:  # what was changed while it ran stays
                return
            pause, other = self._changes.pauses.get(scope), former is None or former[1:] != given[1:]
            if running is None or (other and pause is not None and pause.ended):
                self._ledgers[scope] = open_account(budget, self.now())
                self._changes.pauses.pop(scope, None)
                self._show_committed(scope)
                renews = any(one.every is not None for one in budget.each)
                (self._renewing.add if renews else self._renewing.discard)(scope)
                self._parents.pop(scope, None)
                if parent is not None:
                    self._parents[scope] = parent
            else:
                budget = budget if former is None else with_present_limits(budget, former.budget, running.budget)
                check_same_shape(scope, running.budget, budget, self._parents.get(scope), parent)
                for ledger, one in zip(running.each, budget.each, strict=True):
                    ledger.amend(amount_usd=one.amount_usd, horizon=one.horizon)
            self._given[scope] = given

    def amend(self, scope: str, *, amount_usd: float | None, horizon: int | None, every: str | None = None) -> None:
        """Change the running budget of `scope`."""
        with self._lock:
            self._account_at(scope, self.now())
            self._ledgers[scope].amend(amount_usd=amount_usd, horizon=horizon, every=every)
            given = self._given[scope]
            self._given[scope] = given._replace(budget=amended(given.budget, amount_usd, horizon, every))

    def change(self, scope: str, change: BudgetChange, *, token: str = "", request: str = "") -> ChangeAnswer:
        """Change the running budget of `scope`, once for each token, and return the answer."""
        with self._lock:
            now = self.now()
            self._account_at(scope, now)
            answered = self._changes.change(self._ledgers[scope], scope, change, now, token, request)
            hard = [name for name, account in self._ledgers.items() if account.hard]
            for follower in self._followers:
                follower(hard)
            return answered

    def ledger(self, scope: str) -> Account:
        """Return the account of `scope`, after overdue reservations were presumed."""
        with self._lock:
            now = self.now()
            self._expire(now)
            return self._account_at(scope, now)

    def snapshot(self, scope: str, caps: Sequence[RunCap] = ()) -> BudgetSnapshot:
        """Return the budget of `scope` at this moment, with the room that the caps of a run leave."""
        with self._lock:
            now = self.now()
            self._expire(now)
            account = self._account_at(scope, now)
            if self._changes.pauses:
                check_runs(self._changes.pauses_of(self._scopes(scope)), now)
            return capped_snapshot(account, self._caps.ledgers(caps, now)) if caps else account.snapshot()

    def payers(self, scope: str) -> tuple[str, ...]:
        """Return the scope of each budget that pays for a scope, in the order of its ledgers."""
        with self._lock:
            return tuple([one for one in self._scopes(scope) for _ in self._ledgers[one].each])

    def reserve(self, record: Record) -> None:
        """Reserve the cost of a decision and keep its record."""
        decision = record.decision
        with self._lock:
            now = self.now()
            account = self._account_at(decision.scope, now)
            if decision.id in self._records:
                return
            if record.caps:
                account = self._reserve_in_run(record, account, now)
            else:
                account.reserve(decision.reserved_usd, decision.expected_cost_usd, record.counts)
            self._records[decision.id] = self._in_flight[decision.id] = (record, account)
            self._forget(now)

    def find(self, decision_id: str, *others: str) -> Record:
        """Return the record of a decision, by the first of the ids and aliases that is known."""
        with self._lock:
            for name in others and (decision_id, *others):
                if self._aliases.get(name, name) in self._records:
                    return self._known(name)[0]
            return self._known(decision_id)[0]

    def settle(self, decision_id: str, cost_usd: float, model: str | None = None) -> Record:
        """Charge the true cost of a call, once."""
        with self._lock:
            record, account = self._known(decision_id)
            return self._finish(record, account, decision_id, "charged", cost_usd, model)

    def spend(self, scope: str, cost_usd: float, *, billed: bool = False) -> None:
        """Count a cost that belongs to no decision."""
        with self._lock:
            ledger = self._account_at(scope, self.now())
            if not billed and cost_usd > ledger.room_usd():
                raise ledger.exhausted(cost_usd)
            ledger.spend(cost_usd, cost_usd)

    def release(self, decision_id: str) -> Record:
        """Return the reservation, or the presumed cost, of a call that cost nothing."""
        with self._lock:
            return self._finish(*self._known(decision_id), decision_id, "released")

    def presume(self, decision_id: str) -> Record:
        """Count a call whose outcome is unknown as spent."""
        with self._lock:
            return self._presume(*self._known(decision_id), decision_id)

    def reward(self, decision_id: str, score: SourceScore | float, source: str = HUMAN) -> tuple[Record, Scores]:
        """Keep the score of a source for a decision; return its record, and the scores of all sources before."""
        with self._lock:
            record, _ = self._known(decision_id)
            if record.state == "released":
                raise AlreadySettled(decision_id, record.state)
            before = record.scores
            record.take(with_score(before, source, full_score(score)))
            return record, before

    def alias(self, aliases: Iterable[str], decision_id: str) -> None:
        """Let a decision be found by other names as well."""
        with self._lock:
            for alias in aliases:
                self._aliases[alias] = decision_id
                self._aliases.move_to_end(alias)
                if len(self._aliases) > ALIASES_PER_DECISION * self._max_decisions:
                    self._aliases.popitem(last=False)

    def conversation(self, key: str) -> Conversation | None:
        """Return the kept state of a conversation; None where it is unknown, has ended or has expired."""
        with self._lock:
            return self._conversations.get(key, self.now())

    def keep_conversation(self, conversation: Conversation, ttl_s: float) -> bool:
        """Keep a state in place of its version; return False, and change nothing, where another one is kept."""
        with self._lock:
            now = self.now()
            self._conversations.expire(now)
            scopes = self._scopes(conversation.scope) if self._parents else (conversation.scope,)
            return self._conversations.keep(conversation, now + ttl_s, now, scopes)

    def end_conversation(self, key: str) -> None:
        """Forget a conversation, what it commits, and its cap unless a call of it is in flight."""
        with self._lock:
            self._conversations.end(key)
            self._caps.end(key)

    def claim(self, name: str, at_s: float, by: str) -> bool:
        """Return True if `by` is the first to claim an occasion; also where it asks again."""
        with self._lock:
            known = self._claims.get(name)
            if known is None or known[0] < at_s:
                known = self._claims[name] = (at_s, by)
            return known == (at_s, by)

    def join(self, peer: Peer) -> None:
        """Do nothing: there is no other worker."""

    def follow(self, listener: Callable[[Collection[str]], object]) -> None:
        """Call a listener when the terms of an account were changed."""
        self._followers.append(listener)

    def read_orders(self) -> str:
        """Return the orders of administrators."""
        return self._changes.orders

    def keep_orders(self, text: str) -> bool:
        """Keep orders; there is no other worker."""
        self._changes.orders = text
        return True

    def follow_orders(self, listener: Callable[[str], object]) -> None:
        """Do nothing: all orders are this worker's own."""

    def refresh(self) -> None:
        """Do nothing: no event waits to be sent."""

    def health(self) -> Health:
        """Return the state of a store that is always reachable."""
        return Health()

    def close(self) -> None:
        """Do nothing: there is no connection or file."""

    def _account_at(self, scope: str, now_s: float) -> Account:
        """Return the account of `scope` with those that enclose it, all in their present windows."""
        account = self._ledgers.get(scope)
        if account is None:
            raise NotStarted(scope)
        if scope in self._renewing:
            account = self._ledgers[scope] = account.at(now_s)
        if scope not in self._parents:
            return account
        return NestedLedger((*account.each, *self._account_at(self._parents[scope], now_s).each))

    def _scopes(self, scope: str) -> tuple[str, ...]:
        """Return a scope and those that enclose it."""
        scopes = [scope]
        while scopes[-1] in self._parents:
            scopes.append(self._parents[scopes[-1]])
        return tuple(scopes)

    def _commit(self, scopes: tuple[str, ...], before_usd: float, after_usd: float) -> None:
        """Replace an amount that a run commits in its scopes."""
        for scope in scopes:
            committed_usd, runs = self._committed.get(scope, (0.0, 0))
            runs += (after_usd > 0.0) - (before_usd > 0.0)
            self._committed[scope] = committed_usd + after_usd - before_usd, runs
            if not runs:  # leaves no rounding error
                del self._committed[scope]
            self._show_committed(scope)

    def _show_committed(self, scope: str) -> None:
        """Let the ledgers of a scope show the amount that open runs commit."""
        committed_usd, _ = self._committed.get(scope, (0.0, 0))
        if scope in self._ledgers:
            for ledger in self._ledgers[scope].each:
                ledger.committed_usd = committed_usd

    def _reserve_in_run(self, record: Record, account: Account, now_s: float) -> Account:
        """Reserve the cost of a call of a run in the account and in its caps, and return them all."""
        held_usd, expected_usd = record.decision.reserved_usd, record.decision.expected_cost_usd
        caps = self._caps.ledgers(record.caps, now_s)
        if held_usd > account.room_usd():
            raise account.exhausted(held_usd)
        check_caps(caps, held_usd, expected_usd)
        self._caps.keep(record.caps, caps, now_s)
        every = NestedLedger((*account.each, *caps))
        every.hold(held_usd, expected_usd, record.counts)
        return every

    def _known(self, decision_id: str) -> _Kept:
        try:
            return self._records[self._aliases.get(decision_id, decision_id)]
        except KeyError:
            raise UnknownDecision(decision_id) from None

    def _finish(
        self,
        record: Record,
        account: Account,
        decision_id: str,
        to: Outcome,
        cost_usd: float = 0.0,
        model: str | None = None,
    ) -> Record:
        """Change the state of a call that still changes to the outcome `to`, and its account with it."""
        caps = self._caps.in_use(account.each, self.now()) if record.caps else ()
        settle(record, account.each, decision_id, to, cost_usd, model)
        self._in_flight.pop(record.decision.id, None)
        for cap in caps:
            cap.now_s = self.now()
        return record

    def _presume(self, record: Record, account: Account, decision_id: str) -> Record:
        cost_usd = presumed_cost_usd(record.decision, hard=account.hard)
        return self._finish(record, account, decision_id, "presumed", cost_usd)

    def _expire(self, now_s: float) -> None:
        """Presume the reservations older than their time to live, in order of age, and end the runs likewise."""
        if self._committed:
            self._conversations.expire(now_s)
        oldest_s = now_s - self._reservation_ttl_s
        while self._in_flight:
            record, account = next(iter(self._in_flight.values()))
            if record.decision.decided_at > oldest_s:
                return
            self._presume(record, account, record.decision.id)

    def _forget(self, now_s: float) -> None:
        """Drop the oldest settled records that are too many or too old, with their names."""
        while self._records:
            record, _ = next(iter(self._records.values()))
            many = len(self._records) > self._max_decisions
            if record.state == "in flight" or not (many or record.decision.decided_at <= now_s - self._decision_ttl_s):
                return
            del self._records[record.decision.id]
            self._forget_names()

    def _forget_names(self) -> None:
        """Drop the oldest names up to the first one of a decision that is kept."""
        while self._aliases:
            name, decision_id = next(iter(self._aliases.items()))
            if decision_id in self._records:
                return
            del self._aliases[name]
