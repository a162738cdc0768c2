"""A store for several workers: one budget and one set of decisions, held by an engine that all of them reach.

* Where each exchange with the engine matters, as under a hard limit, every step waits for one.
* Otherwise, under an expected limit with a remote engine or within a lease, a step is applied to the worker's own
  replica at once and sent to the engine some hundredths of a second later.
* A replica is as old as the last reply, at most `refresh_s` while the engine answers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, cast

from wiserouter.budgets.budget import Budget
from wiserouter.budgets.changes import AccountTerms, BudgetChange, ChangeAnswer
from wiserouter.budgets.funds import BudgetSnapshot
from wiserouter.budgets.ledger import Ledger
from wiserouter.budgets.nested import Account, check_parent, check_same_shape
from wiserouter.budgets.pauses import check_runs
from wiserouter.budgets.run_caps import RunCap, capped_snapshot
from wiserouter.conversations.conversation import Conversation
from wiserouter.errors import AlreadySettled, InvalidInput, UnknownDecision
from wiserouter.learning.source_scores import (
    HUMAN,
    Scores,
    SourceScore,
    full_score,
    scores_of_texts,
    text_of_score,
    with_score,
)
from wiserouter.stores.base import Health, Record
from wiserouter.stores.engines.base import Engine
from wiserouter.stores.engines.events import Alias, Open, Score, Spend
from wiserouter.stores.ids import fresh_id
from wiserouter.stores.peer import Peer
from wiserouter.stores.shared import account_changes, claims, conversations, steps
from wiserouter.stores.shared.codec import text_of_account, text_of_terms
from wiserouter.stores.shared.exchange import PendingEvent
from wiserouter.stores.shared.leases import LeasedAccount, Leases
from wiserouter.stores.shared.losses import name_of_opening
from wiserouter.stores.shared.order_sync import OrderSync
from wiserouter.stores.shared.replica import AccountView, first_windows
from wiserouter.stores.shared.worker import Worker
from wiserouter.validation import check_amount

logger = logging.getLogger("wiserouter")

OnStoreError = Literal["closed", "local"]


class SharedStore:
    """A store of budgets and decisions that several workers share.

    Parameters
    ----------
    engine : Engine
        Holds the shared state: `SQLiteEngine` or `RedisEngine`.
    name : str, default "store"
        The name of the store in errors and logs; contains no password.
    clock : callable returning float, default time.monotonic
        Seconds; only differences count, the time of day is the engine's.
    refresh_s : float, default 1
        The greatest age of the replica while the engine answers.
    flush_s : float, default 0.05
        How long an event that no caller waits for may stay unsent.
    lease_share : float, optional
        Each worker leases this share of the amount left and decides within it without an exchange; under a hard limit
        this is the only way to do so.
    lease_ttl_s : float, default 30
        How long a lease can be used without a renewal.
    on_store_error : {"closed", "local"}, optional
        While the engine cannot be reached: "closed" decides nothing. "local" decides on the replica and sends it later;
        under a hard limit within `local_share` of the budget, leased beforehand. By default expected limits are local
        and hard ones closed.
    local_share : float, default 0.02
        Share of the amount left that each worker leases for hard limits that are local.
    max_staleness_s : float, default 5
        The greatest age of the replica at which a closed store still decides, where no step waits for the engine.
    reservation_ttl_s : float, default 900
        That of the engine: a lease is kept this much longer than it can be used, for the calls made on it.
    max_decisions : int, default 20,000
        Decisions of this worker kept in memory; others are read from the engine.
    spool : str or Path, optional
        The beginning of the names of files in which events that could not be sent outlive the worker; the same for all
        workers of the store. By default they are in memory only.

    Raises
    ------
    InvalidInput
        If a share is not in (0, 0.5], or `on_store_error` is neither of the two.
    """

    durable = True

    def __init__(
        self,
        engine: Engine,
        *,
        name: str = "store",
        clock: Callable[[], float] = time.monotonic,
        refresh_s: float = 1.0,
        flush_s: float = 0.05,
        lease_share: float | None = None,
        lease_ttl_s: float = 30.0,
        on_store_error: OnStoreError | None = None,
        local_share: float = 0.02,
        max_staleness_s: float = 5.0,
        reservation_ttl_s: float = 900.0,
        max_decisions: int = 20_000,
        spool: str | Path | None = None,
    ) -> None:
        for what, share in (("lease_share", lease_share), ("local_share", local_share)):
            if share is not None and not 0.0 < check_amount(what, share) <= 0.5:
                raise InvalidInput(f"{what} must lie in (0, 0.5], got {share!r}", value=share)
        if on_store_error not in ("closed", "local", None):
            raise InvalidInput(f"on_store_error must be 'closed' or 'local', got {on_store_error!r}")
        self.name = name
        share = lease_share if lease_share is not None else local_share if on_store_error == "local" else None
        self._worker = Worker(
            engine,
            Leases(share, lease_ttl_s, reservation_ttl_s, clock),
            clock,
            name=name,
            decides_on_leases=lease_share is not None,
            continues=on_store_error != "closed",
            refresh_s=refresh_s,
            flush_s=flush_s,
            max_staleness_s=max_staleness_s,
            reservation_ttl_s=reservation_ttl_s,
            max_decisions=max_decisions,
            spool=None if spool is None else Path(spool),
        )
        self.now, self._orders = self._worker.now, OrderSync(self._worker.client)
        self._worker.peers.add(self._orders)

    def waits(self, scope: str, decision_id: str | None = None) -> bool:
        """Return True if a step waits for the engine and must stay off the event loop.

        A step of a conversation, or of a call with caps, always does.
        """
        worker = self._worker
        with worker.lock:
            if worker.near or worker.needs_reading(scope) or not worker.may_act_locally(scope):
                return True
            if decision_id is not None:
                return decision_id not in worker.decisions
            return worker.leases_to(scope) and worker.leases.left_usd(scope) <= 0.0

    def open(
        self,
        scope: str,
        budget: Budget,
        *,
        parent: str | None = None,
        restart: bool = False,
        whole: Budget | None = None,
    ) -> None:
        """Start a budget for `scope`, or join the running one with the amount and horizon given now.

        Raises
        ------
        InvalidInput
            If the running budget renews differently, has another limit or another parent, and `restart` is False; or if
            the scope encloses the parent.
        NotStarted
            If the parent has no budget.
        """
        if parent is not None:
            self._check_parent(scope, parent)
        self._worker.refresh_account(scope)
        view, terms = self._running(scope), account_changes.started(budget, parent, whole)
        while view is None or restart:
            if self._opened(scope, view, terms):
                return
            restart, view = False, self._running(scope)
        given = text_of_terms(budget, parent)
        if view.terms.configured == given:  # what was changed while it ran stays
            return
        if account_changes.begins_again(view.terms, terms.whole or given):
            self.open(scope, budget, parent=parent, restart=True, whole=whole)
        elif text_of_terms(view.budget, view.parent) != given:
            terms = terms._replace(budget=account_changes.joined(view, budget, self.name), configured=given)
            check_same_shape(scope, view.budget, terms.budget, view.parent, parent)
            logger.info("the budget of scope %r is now %s", scope, terms.budget)
            account_changes.start_with(self._worker, scope, terms)

    def amend(self, scope: str, *, amount_usd: float | None, horizon: int | None, every: str | None = None) -> None:
        """Change the running budget of `scope`: the one that renews `every` so often, where there are several."""
        account_changes.amend(self._worker, scope, amount_usd, horizon, every)

    def change(self, scope: str, change: BudgetChange, *, token: str = "", request: str = "") -> ChangeAnswer:
        """Change the running budget of `scope`, once for each token, and return the answer."""
        return account_changes.change(self._worker, scope, change, token, request)

    def ledger(self, scope: str) -> Account:
        """Return the account of `scope`, as of the last reply and the worker's own steps since."""
        return self._worker.account(scope)

    def snapshot(self, scope: str, caps: Sequence[RunCap] = ()) -> BudgetSnapshot:
        """Return the budget of `scope`, as of the last reply and the worker's own steps since."""
        worker = self._worker
        worker.keep_current(scope)
        ledgers = steps.cap_ledgers(worker, scope, caps) if caps else ()
        with worker.lock:
            chain = worker.present_chain(scope)
            if chain.pauses:
                check_runs(chain.pauses, worker.now())
            seen = capped_snapshot(chain.account, ledgers) if caps else chain.account.snapshot()
            if chain.account.each[0].lease_usd is None:
                return seen
            unavailable = worker.client.unavailable("the lease does not cover the call")
            return seen._replace(account=LeasedAccount(seen.account, chain.account, unavailable))

    def payers(self, scope: str) -> tuple[str, ...]:
        """Return the scope of each budget that pays for a scope, in the order of its ledgers."""
        worker = self._worker
        worker.account(scope)  # a budget that another worker has opened is read first
        with worker.lock:
            chain = worker.replica.chain(scope)
            return tuple([one for one, view in zip(chain.scopes, chain.views, strict=True) for _ in view.windows])

    def reserve(self, record: Record) -> None:
        """Reserve the cost of a decision, in all budgets of its scope or in none, and keep its record."""
        steps.reserve(self._worker, record)

    def find(self, decision_id: str, *others: str) -> Record:
        """Return the record of a decision, by the first of the ids and aliases that is known; in one exchange."""
        return steps.find(self._worker, decision_id, *others)

    def alias(self, aliases: Iterable[str], decision_id: str) -> None:
        """Let a decision be found by other names as well."""
        near, client = self._worker.near, self._worker.client
        for alias in aliases:
            pending = PendingEvent(Alias(alias, decision_id), "", applied=not near, defer=lambda: True)
            if near:
                client.request(pending)
            else:
                client.enqueue(pending)

    def settle(self, decision_id: str, cost_usd: float, model: str | None = None) -> Record:
        """Charge the true cost of a call, once, and record the model that answered where it is another one."""
        record = steps.find(self._worker, decision_id)
        steps.finish(self._worker, record, "charged", cost_usd, model)
        return record

    def release(self, decision_id: str) -> Record:
        """Return the reservation, or the presumed cost, of a call that cost nothing."""
        record = steps.find(self._worker, decision_id)
        steps.finish(self._worker, record, "released")
        return record

    def presume(self, decision_id: str) -> Record:
        """Count a call whose outcome is unknown as spent."""
        record = steps.find(self._worker, decision_id)
        steps.finish(self._worker, record, "presumed")
        return record

    def reward(self, decision_id: str, score: SourceScore | float, source: str = HUMAN) -> tuple[Record, Scores]:
        """Keep the score of a source for a decision; return its record, and the scores of all sources before."""
        record = self.find(decision_id)
        given = full_score(score)
        event = Score(record.decision.id, source, text_of_score(given), fresh_id())
        result = steps.score(self._worker, record, event)
        if result == "unknown":
            raise UnknownDecision(decision_id)
        if result == "released":
            record.state = "released"
            raise AlreadySettled(decision_id, record.state)
        before = scores_of_texts(cast("dict[str, str]", result), self._worker.name)
        record.take(with_score(before, source, given))
        return record, before

    def spend(self, scope: str, cost_usd: float, *, billed: bool = False) -> None:
        """Count a cost that belongs to no decision; a negative cost is a refund, and a billed one is never refused."""
        worker, account = self._worker, self.ledger(scope)
        with worker.lock:
            windows = worker.replica.chain(scope).windows
            effect = partial(Ledger.spend, cost_usd=cost_usd, debit_usd=cost_usd)
            pending = PendingEvent(Spend(fresh_id(), windows, cost_usd, billed), scope, windows, effect)
            pending.defer = partial(self._defer, scope, pending)
            if worker.may_act_locally(scope) and not account.hard:
                worker.apply_locally(pending)
                return
        result = worker.client.request(pending)
        if result == "closed":
            raise worker.restoring()
        if result != "ok":
            raise self.ledger(scope).exhausted(cost_usd)

    def conversation(self, key: str) -> Conversation | None:
        """Return the kept state of a conversation; None where it is unknown, has ended or has expired."""
        return conversations.find_conversation(self._worker, key)

    def keep_conversation(self, conversation: Conversation, ttl_s: float) -> bool:
        """Keep a state in place of its version; return False, and change nothing, where another one is kept."""
        return conversations.keep_conversation(self._worker, conversation, ttl_s)

    def end_conversation(self, key: str) -> None:
        """Forget a conversation, what it commits, and its cap unless a call of it is in flight."""
        conversations.end_conversation(self._worker, key)

    def claim(self, name: str, at_s: float, by: str) -> bool:
        """Return True if `by` is the first of all workers to claim an occasion; also where it asks again."""
        return claims.claim(self._worker, name, at_s, by)

    def join(self, peer: Peer) -> None:
        """Exchange the sums of a peer with its counterparts in other workers, for as long as the peer is referenced."""
        with self._worker.lock:
            self._worker.peers.add(peer)
            self._worker.client.listen()

    def follow(self, listener: Callable[[Collection[str]], object]) -> None:
        """Call a listener when this worker learns that the terms of an account were changed; the lock is held."""
        self._worker.followers.append(listener)

    def read_orders(self) -> str:
        """Return the orders of administrators."""
        return self._orders.read()

    def keep_orders(self, text: str) -> bool:
        """Keep orders in place of those that were read last; return False, and change nothing, if these are others."""
        return self._orders.keep(text)

    def follow_orders(self, listener: Callable[[str], object]) -> None:
        """Call a listener with later orders; the lock is held."""
        self._orders.followers.append(listener)

    def refresh(self) -> None:
        """Send all waiting events to the engine, and read the current state.

        Raises
        ------
        StoreUnavailable, StoreDamaged
            If that fails; it is tried again later.
        """
        self._worker.client.refresh()
        with self._worker.lock:
            self._worker.caps.refresh()

    def health(self) -> Health:
        """Return the state of the store: reachable or not, age of the replica, events still to be sent."""
        return self._worker.client.health()

    def close(self) -> None:
        """Send the waiting events, return the leases and close the engine."""
        self._worker.close()

    def _defer(self, scope: str, pending: PendingEvent) -> bool:
        """Count a cost on the replica where the engine does not answer and the limit permits that."""
        if not self._worker.continues_alone(scope):
            return False
        self._worker.apply(pending)
        return True

    def _running(self, scope: str) -> AccountView | None:
        with self._worker.lock:
            return self._worker.replica.views.get(scope)

    def _check_parent(self, scope: str, parent: str) -> None:
        """Raise the error of a parent that has no budget, or that the scope encloses."""
        self._worker.refresh_account(parent)  # another worker may have opened it within other scopes
        with self._worker.lock:
            enclosing = self._worker.replica.scopes(parent)
        check_parent(scope, parent, enclosing)
        self.ledger(parent)

    def _opened(self, scope: str, running: AccountView | None, terms: AccountTerms) -> bool:
        """Open an account in place of the running one; return False if another worker did so first, on other terms."""
        if running is None and self._worker.now() < self._worker.restored_by_s:  # another may know its spend
            raise self._worker.restoring("no other budget is opened")
        generation = 0 if running is None else running.generation
        windows = first_windows(scope, generation + 1, terms.budget, self.now())
        event = Open(scope, generation, text_of_account(terms), windows, name_of_opening(self.now()))
        opened, view = self._worker.client.request(PendingEvent(event, scope)), self._running(scope)
        return opened == generation + 1 and view is not None and view.state.terms == event.terms
