"""What a store keeps: the ledger of each scope, and the record of each decision until it is old."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from wiserouter.budgets.budget import Budget, Debit
from wiserouter.budgets.funds import BudgetSnapshot
from wiserouter.budgets.nested import Account
from wiserouter.types import Decision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wiserouter.learning.residuals import QueryFeatures
    from wiserouter.planning.trace import DecisionTrace
    from wiserouter.stores.engines.base import Reply
    from wiserouter.stores.engines.events import Learn

State = Literal["in flight", "charged", "released", "expired"]


@dataclass(slots=True)
class Record:
    """A decision and what became of it.

    Attributes
    ----------
    decision : Decision
        What was decided.
    model : int
        Index of the model in the pool; of the one that answered, once charged.
    debit : {"actual", "paper"}
        Whether planning debits the true or the expected cost.
    state : {"in flight", "charged", "released", "expired"}
        Where the call stands.
    reward : float or None
        The latest reward.
    cost_usd : float or None
        The true cost, once charged.
    trace : DecisionTrace or None
        The figures that it was made from, to explain it; None if a store does not keep them.
    query : QueryFeatures or None
        What is remembered of the query, where queries are judged one by one.
    """

    decision: Decision
    model: int
    debit: Debit
    state: State = "in flight"
    reward: float | None = None
    cost_usd: float | None = None
    trace: DecisionTrace | None = None
    query: QueryFeatures | None = None


class Health(NamedTuple):
    """How a store is doing.

    Attributes
    ----------
    reachable : bool
        Whether the last attempt to reach it succeeded.
    staleness_s : float, seconds
        How old the view is that decisions rest on; 0 where there is only one.
    waiting : int
        Events that it has not been told of yet.
    failures, exchanges : int
        Attempts to reach it that failed, and that succeeded.
    """

    reachable: bool = True
    staleness_s: float = 0.0
    waiting: int = 0
    failures: int = 0
    exchanges: int = 0


class Peer(Protocol):
    """Somebody who exchanges sums with the same peers of other workers."""

    def outgoing(self, now_s: float) -> list[Learn]:
        """Return what to add; the same again until `incoming` has told that it arrived."""
        ...

    def wanted(self, now_s: float) -> Sequence[str]:
        """Return the names of the sums to read."""
        ...

    def incoming(self, reply: Reply) -> None:
        """Take what was read after `outgoing` was added."""
        ...


class Store(Protocol):
    """Keeps budgets and decisions; every method is atomic and safe to call from several threads.

    Attributes
    ----------
    durable : bool
        Whether budgets outlive the process, so that to start one is to take part in the one that runs.

    Raises
    ------
    StoreUnavailable, StoreDamaged
        From every method but `now`, `waits` and `health`, where what keeps the state cannot be reached or read.
    """

    durable: bool

    def now(self) -> float:
        """Return the store's time in seconds."""
        ...

    def waits(self, scope: str, decision_id: str | None = None) -> bool:
        """Return whether the methods may wait for something else than this process: keep off the event loop then.

        Parameters
        ----------
        scope : str
            Whose budget the step is about; "" where only a decision is known.
        decision_id : str, optional
            The decision that it is about, where it was made before.
        """
        ...

    def open(self, scope: str, budget: Budget, *, parent: str | None = None, restart: bool = False) -> None:
        """Start a budget for `scope`, or take part in the one that runs, with amount and horizon as given now.

        Parameters
        ----------
        scope : str
            Whose budget it is.
        budget : Budget
            The terms.
        parent : str, optional
            Another scope, whose budgets must bear each call as well.
        restart : bool, default False
            End the one that runs; its calls in flight no longer count.

        Raises
        ------
        InvalidInput
            If the one that runs renews otherwise, has another limit or another parent, and `restart` is not said.
        NotStarted
            If the parent has no budget.
        """
        ...

    def amend(self, scope: str, *, amount_usd: float | None, horizon: int | None, every: str | None = None) -> None:
        """Change the running budget of `scope`: the one that renews `every` so often, where there are several.

        Raises
        ------
        InvalidInput
            If none does, or there are several and it is not said; nothing is changed.
        """
        ...

    def ledger(self, scope: str) -> Account:
        """Return the account of `scope`, reservations past their time to live given back.

        Raises
        ------
        NotStarted
            If the scope has no budget.
        """
        ...

    def snapshot(self, scope: str) -> BudgetSnapshot:
        """Return the budget of `scope` at this moment, for one decision; raise as `ledger` does."""
        ...

    def reserve(self, record: Record) -> None:
        """Hold back the cost of a decision, in all budgets of its scope or in none, and keep its record; once.

        Raises
        ------
        BudgetExhausted
            If a hard limit does not admit it; nothing is changed.
        """
        ...

    def find(self, decision_id: str) -> Record:
        """Return the record of a decision, by its id or an alias; raises `UnknownDecision` if there is none."""
        ...

    def alias(self, alias: str, decision_id: str) -> None:
        """Let a decision be found by another name as well, as long as it is kept."""
        ...

    def settle(self, decision_id: str, cost_usd: float, model: int | None = None) -> Record:
        """Charge the true cost of a call, once, and note the model that answered where it is another one.

        It counts in the windows in which it was decided. The bill of a reservation that has expired, or was released,
        still counts: the money is gone.

        Raises
        ------
        UnknownDecision, AlreadySettled
            If there is no such decision, or it was charged before; nothing is changed.
        """
        ...

    def spend(self, scope: str, cost_usd: float) -> None:
        """Count a cost that belongs to no decision, or with a negative one give some of it back.

        Raises
        ------
        BudgetExhausted
            If a hard limit does not admit it; nothing is changed.
        """
        ...

    def release(self, decision_id: str) -> Record:
        """Give back the reservation of a call that failed; raises as `settle` does, and if it was released before."""
        ...

    def reward(self, decision_id: str, reward: float) -> tuple[Record, float | None]:
        """Keep the reward of a decision, and return its record and the reward that it replaces."""
        ...

    def join(self, peer: Peer) -> None:
        """Let somebody exchange sums with the peers of other workers, where there are any."""
        ...

    def refresh(self) -> None:
        """Deliver what is on its way, and see how things stand."""
        ...

    def health(self) -> Health:
        """Return how the store is doing."""
        ...

    def close(self) -> None:
        """Let go of everything; what is on its way is delivered before."""
        ...
