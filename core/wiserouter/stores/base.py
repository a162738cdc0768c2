"""What a store keeps: the ledger of each scope, and the record of each decision until it is old."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from wiserouter.accounts import Account
from wiserouter.budget import Budget, Debit
from wiserouter.types import Decision

if TYPE_CHECKING:
    from wiserouter.facts import Facts
    from wiserouter.finer import Particulars

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
    facts : Facts or None
        What it rested on, to explain it; None where a store does not keep them.
    query : Particulars or None
        What is remembered of the query, where queries are judged one by one.
    """

    decision: Decision
    model: int
    debit: Debit
    state: State = "in flight"
    reward: float | None = None
    cost_usd: float | None = None
    facts: Facts | None = None
    query: Particulars | None = None


class Store(Protocol):
    """Keeps budgets and decisions; every method is atomic and safe to call from several threads."""

    def now(self) -> float:
        """Return the store's time in seconds."""
        ...

    def open(self, scope: str, budget: Budget) -> None:
        """Start a budget for `scope`; an earlier one of that scope ends, and calls in flight no longer count."""
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

    def reserve(self, record: Record) -> None:
        """Hold back the cost of a decision, in all budgets of its scope or in none, and keep its record.

        Raises
        ------
        BudgetExhausted
            If a hard limit does not admit it; nothing is changed.
        """
        ...

    def find(self, decision_id: str) -> Record:
        """Return the record of a decision; raises `UnknownDecision` if there is none."""
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
