"""The outcomes of a call: which may follow its present state, and what each changes in its record and its ledgers.

A call whose outcome is unknown is presumed to have cost its worst case under a hard limit, and its expected cost
otherwise. It can still be charged, or released where it is certain to have cost nothing; a released call can still be
charged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from wiserouter.budgets.ledger import Ledger
from wiserouter.errors import AlreadySettled
from wiserouter.stores.base import Record, State
from wiserouter.types import Decision

Outcome = Literal["charged", "released", "presumed"]

FINAL: dict[Outcome, tuple[State, ...]] = {
    "charged": ("charged",),
    "released": ("charged", "released"),
    "presumed": ("charged", "released", "presumed"),
}
"""The states that no longer change to each outcome."""


def settle(
    record: Record,
    ledgers: Iterable[Ledger],
    decision_id: str,
    to: Outcome,
    cost_usd: float = 0.0,
    model: str | None = None,
) -> None:
    """Change the state of a call to the outcome `to`, and the ledgers that bear it; raises as `ledger_change` does."""
    change = ledger_change(record, decision_id, to, cost_usd)
    for ledger in ledgers:
        change(ledger)
    set_outcome(record, to, cost_usd, model)


def presumed_cost_usd(decision: Decision, *, hard: bool) -> float:
    """Return the cost at which a call of unknown outcome counts, where one of its limits is `hard` or none is."""
    return decision.reserved_usd if hard else decision.expected_cost_usd


def ledger_change(record: Record, decision_id: str, to: Outcome, cost_usd: float) -> Callable[[Ledger], None]:
    """Return the change of each ledger of a call when the outcome `to`, at `cost_usd`, follows its present state.

    Raises
    ------
    AlreadySettled
        If no such change is left.
    """
    state, decision, counts = record.state, record.decision, record.counts
    if state in FINAL[to]:
        raise AlreadySettled(decision_id, state)
    reserved_usd, expected_usd = decision.reserved_usd, decision.expected_cost_usd
    debit_usd = cost_usd if record.debit == "actual" else expected_usd
    if state == "in flight":
        if to == "charged":
            return lambda ledger: ledger.settle(reserved_usd, expected_usd, cost_usd, debit_usd, counts)
        if to == "released":
            return lambda ledger: ledger.release(reserved_usd, expected_usd, counts)
        return lambda ledger: ledger.presume(reserved_usd, expected_usd, cost_usd, debit_usd, counts)
    if state == "released":
        return lambda ledger: ledger.charge_released(cost_usd, debit_usd, counts)
    known_usd = record.cost_usd or 0.0
    known_debit_usd = known_usd if record.debit == "actual" else expected_usd
    if to == "released":
        return lambda ledger: ledger.release_presumed(known_usd, known_debit_usd, counts)
    return lambda ledger: ledger.charge_presumed(known_usd, known_debit_usd, cost_usd=cost_usd, debit_usd=debit_usd)


def set_outcome(record: Record, to: Outcome, cost_usd: float, model: str | None) -> None:
    """Set the outcome of a record; `model` names the one that answered, where it is another one than chosen."""
    record.state = to
    record.cost_usd = None if to == "released" else cost_usd
    if to == "charged" and model is not None:
        record.answered = model
