import pytest

from wiserouter import Budget, Decision, MemoryStore, open_store
from wiserouter.budgets.changes import BudgetChange
from wiserouter.errors import AlreadySettled, InvalidInput, NotStarted, UnknownDecision
from wiserouter.stores import Record
from wiserouter.testing import FakeClock


def record(name, clock, *, scope="default", held=1.0, expected=0.5, debit="actual"):
    return Record(Decision(name, "m", 0, 1.0, 0.0, 0.0, expected, 0.5, held, scope, clock()), model=0, debit=debit)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(clock):
    store = MemoryStore(clock, reservation_ttl_s=60.0, decision_ttl_s=3600.0, max_decisions=5)
    store.open("default", Budget(10.0, 100))
    return store


def test_a_scope_without_a_budget_is_refused(store, clock):
    with pytest.raises(NotStarted, match="scope 'team-a' has no budget"):
        store.ledger("team-a")
    with pytest.raises(NotStarted):
        store.reserve(record("a", clock, scope="team-a"))


def test_scopes_have_their_own_ledgers(store, clock):
    store.open("team-a", Budget(1.0, 10))
    store.reserve(record("a", clock, scope="team-a"))
    store.settle("a", 0.25)
    assert (store.ledger("team-a").spent_usd, store.ledger("default").spent_usd) == (0.25, 0.0)


def test_settling_twice_charges_once(store, clock):
    store.reserve(record("a", clock))
    store.settle("a", 0.25)
    for settle_again in (lambda: store.settle("a", 0.25), lambda: store.release("a")):
        with pytest.raises(AlreadySettled, match="'a' was charged before"):
            settle_again()
    assert store.ledger("default").spent_usd == 0.25


def test_unknown_decisions_are_refused(store):
    for ask in (lambda: store.settle("x", 1.0), lambda: store.release("x"), lambda: store.reward("x", 1.0)):
        with pytest.raises(UnknownDecision, match="'x'"):
            ask()
    assert store.ledger("default").spent_usd == 0.0


def test_a_forgotten_call_is_presumed_and_a_late_charge_replaces_its_cost(store, clock):
    store.reserve(record("a", clock))
    clock.advance(30)
    store.reserve(record("b", clock))
    clock.advance(31)
    ledger = store.ledger("default")
    assert (ledger.in_flight, ledger.reserved_usd, ledger.spent_usd, ledger.presumed_usd) == (1, 1.0, 0.5, 0.5)
    store.settle("a", 0.75)
    ledger = store.ledger("default")
    assert (ledger.spent_usd, ledger.reserved_usd, ledger.charged, ledger.presumed) == (0.75, 1.0, 1, 0)
    with pytest.raises(AlreadySettled):
        store.settle("a", 0.75)


def test_a_late_release_of_a_presumed_call_gives_its_cost_back_once(store, clock):
    store.reserve(record("a", clock))
    clock.advance(61)
    store.ledger("default")
    store.release("a")
    ledger = store.ledger("default")
    assert (ledger.reserved_usd, ledger.decided, ledger.presumed, ledger.released) == (0.0, 0, 0, 1)
    assert (ledger.spent_usd, ledger.presumed_usd, ledger.left_usd) == (0.0, 0.0, 10.0)
    store.settle("a", 0.25)
    assert (ledger.spent_usd, ledger.decided, ledger.released, ledger.charged) == (0.25, 1, 0, 1)


def test_paper_accounting_debits_the_expected_cost(store, clock):
    store.reserve(record("a", clock, debit="paper"))
    store.settle("a", 2.0)
    ledger = store.ledger("default")
    assert (ledger.spent_usd, ledger.debited_usd, ledger.plannable_usd) == (2.0, 0.5, 9.5)


def test_a_reward_replaces_an_earlier_one(store, clock):
    store.reserve(record("a", clock))
    assert store.reward("a", 0.3)[1] == {}
    store.settle("a", 0.1)
    assert store.reward("a", 0.9)[1] == {"human": (0.3, 1.0, 0.3)}
    assert store.find("a").reward == 0.9


def test_a_released_call_cannot_be_rewarded(store, clock):
    store.reserve(record("a", clock))
    store.release("a")
    with pytest.raises(AlreadySettled, match="released"):
        store.reward("a", 1.0)


def test_records_are_forgotten_when_old_or_too_many_but_never_in_flight(store, clock):
    for name in "abcdefg":
        store.reserve(record(name, clock))
    store.settle("a", 0.0)
    store.reserve(record("h", clock))
    with pytest.raises(UnknownDecision):
        store.find("a")
    assert store.find("b").state == "in flight"
    for name in "bcdefgh":
        store.settle(name, 0.0)
    clock.advance(3601)
    store.reserve(record("i", clock))
    with pytest.raises(UnknownDecision):
        store.find("h")


def test_the_names_of_a_decision_are_forgotten_with_it(store, clock):
    for name in "abcdefgh":
        store.reserve(record(name, clock, held=0.1))
        store.alias([f"{name}-call", f"{name}-answer"], name)
        store.settle(name, 0.1)
        clock.advance(1000)
    assert store.find("h-answer").decision.id == "h"
    assert [*store._aliases.values()] == ["e", "e", "f", "f", "g", "g", "h", "h"]
    with pytest.raises(UnknownDecision, match="'a-call'"):
        store.find("a-call")


def test_a_new_budget_of_a_scope_starts_from_nothing(store, clock):
    store.reserve(record("a", clock))
    store.open("default", Budget(5.0, 10), restart=True)
    store.settle("a", 1.0)
    assert (store.ledger("default").spent_usd, store.ledger("default").decided) == (0.0, 0)


def test_a_change_of_a_running_budget_is_told_and_stays_until_a_start_on_other_terms(store):
    told = []
    store.follow(told.append)
    store.change("default", BudgetChange(add_usd=1.0))
    store.open("default", Budget(10.0, 100))
    assert store.ledger("default").budget.amount_usd == 11.0
    assert told == [[]]
    store.open("default", Budget(12.0, 100))
    assert store.ledger("default").budget.amount_usd == 12.0


def test_open_store():
    store = MemoryStore()
    assert open_store(store) is store
    with pytest.raises(InvalidInput, match="got 'mongodb://x'"):
        open_store("mongodb://x")
