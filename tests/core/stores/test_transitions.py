"""Every outcome of a call after every other one: what its record and its ledgers hold then, against sums over calls."""

from itertools import product

import pytest

from wiserouter import Budget, Decision
from wiserouter.budgets.ledger import Ledger
from wiserouter.errors import AlreadySettled
from wiserouter.stores import Record
from wiserouter.stores.transitions import FINAL, ledger_change, presumed_cost_usd, set_outcome, settle

HELD, EXPECTED, COST, LATER = 4.0, 3.0, 2.5, 3.25
OUTCOMES = ("charged", "released", "presumed")


def in_flight(debit="actual", counts=True, budgets=2):
    """Return the record of a call and the ledgers that bear it, beside a call of 1 USD that stays in flight."""
    decision = Decision("id", "m", 0, 1.0, 0.0, 0.0, EXPECTED, 0.5, HELD, "default", 0.0)
    ledgers = [Ledger.opened(Budget(100.0, 50), 0.0) for _ in range(budgets)]
    for ledger in ledgers:
        ledger.hold(1.0, 0.5)
        ledger.hold(HELD, EXPECTED, counts)
    return Record(decision, model=0, debit=debit, counts=counts), ledgers


def figures(ledger):
    return {
        "spent": ledger.spent_usd,
        "debited": ledger.debited_usd,
        "presumed_usd": ledger.presumed_usd,
        "reserved": ledger.reserved_usd,
        "expected": ledger.expected_usd,
        "decided": ledger.decided,
        "in_flight": ledger.in_flight,
        "continuing": ledger.continuing,
        **{name: getattr(ledger, name) for name in OUTCOMES},
    }


def expected_figures(state, cost_usd, debit, counts):
    """Return the figures of a ledger whose one call beside that in flight has ended in a state."""
    spent = cost_usd if state in ("charged", "presumed") else 0.0
    debited = spent if debit == "actual" else EXPECTED * (state in ("charged", "presumed"))
    return {
        "spent": spent,
        "debited": debited,
        "presumed_usd": cost_usd if state == "presumed" else 0.0,
        "reserved": 1.0,
        "expected": 0.5,
        "decided": 1 + int(counts and state != "released"),
        "in_flight": 1,
        "continuing": 0,
        **{name: int(name == state) for name in OUTCOMES},
    }


@pytest.mark.parametrize(("debit", "counts"), list(product(("actual", "paper"), (True, False))))
@pytest.mark.parametrize(("first", "then"), list(product(OUTCOMES, OUTCOMES)))
def test_an_outcome_follows_another_as_if_it_had_come_first(first, then, debit, counts):
    record, ledgers = in_flight(debit, counts)
    settle(record, ledgers, "id", first, COST if first != "released" else 0.0)
    for ledger in ledgers:
        assert figures(ledger) == expected_figures(first, COST, debit, counts)
    assert record.cost_usd == (None if first == "released" else COST)
    assert (record.state, record.answered) == (first, "")
    if first in FINAL[then]:
        with pytest.raises(AlreadySettled) as refused:
            settle(record, ledgers, "id", then, LATER)
        assert (refused.value.decision_id, refused.value.state) == ("id", first)
        assert str(refused.value) == str(AlreadySettled("id", first))
        assert figures(ledgers[0]) == expected_figures(first, COST, debit, counts)
        return
    settle(record, iter(ledgers), "id", then, LATER if then != "released" else 0.0, model="large")
    for ledger in ledgers:
        assert figures(ledger) == expected_figures(then, LATER, debit, counts)
    assert record.cost_usd == (None if then == "released" else LATER)
    assert (record.state, record.answered) == (then, "large" if then == "charged" else "")


def test_a_change_alone_leaves_the_record_as_it_was():
    record, (ledger, _) = in_flight()
    change = ledger_change(record, "id", "charged", COST)
    assert (record.state, record.cost_usd, ledger.spent_usd) == ("in flight", None, 0.0)
    change(ledger)
    set_outcome(record, "charged", COST, None)
    assert (record.state, record.cost_usd, record.model, ledger.spent_usd) == ("charged", COST, 0, COST)


def test_a_call_of_unknown_outcome_counts_at_what_its_limit_reserved():
    decision = in_flight()[0].decision
    assert (presumed_cost_usd(decision, hard=True), presumed_cost_usd(decision, hard=False)) == (HELD, EXPECTED)
