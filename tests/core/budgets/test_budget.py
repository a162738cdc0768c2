import math

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from wiserouter import Budget
from wiserouter.budgets.ledger import Ledger
from wiserouter.errors import BudgetExhausted, HorizonExhausted, InvalidInput


@pytest.mark.parametrize("amount", [math.nan, math.inf, -1.0, "ten"])
def test_an_amount_that_is_none_is_refused(amount):
    with pytest.raises(InvalidInput, match="amount_usd must be a finite number"):
        Budget(amount_usd=amount, horizon=10)


@pytest.mark.parametrize("horizon", [0, -3, 2.5, True])
def test_a_horizon_that_is_none_is_refused(horizon):
    with pytest.raises(InvalidInput, match="horizon must be a whole number of at least 1"):
        Budget(amount_usd=1.0, horizon=horizon)


def test_unknown_choices_are_refused():
    with pytest.raises(InvalidInput, match="limit must be one of 'expected', 'hard', got 'soft'"):
        Budget(1.0, 10, limit="soft")
    with pytest.raises(InvalidInput, match="on_exhausted"):
        Budget(1.0, 10, on_exhausted="panic")


def test_hand_checked_account():
    ledger = Ledger(Budget(10.0, 4))
    assert ledger.rate_usd == 2.5
    ledger.reserve(4.0, 3.0)
    assert (ledger.rate_usd, ledger.left_usd) == (7.0 / 3, 6.0)
    ledger.settle(4.0, 3.0, cost_usd=1.0, debit_usd=1.0)
    assert (ledger.rate_usd, ledger.left_usd, ledger.spent_usd) == (3.0, 9.0, 1.0)
    ledger.reserve(4.0, 3.0)
    ledger.release(4.0, 3.0)
    assert (ledger.rate_usd, ledger.horizon_left, ledger.released) == (3.0, 3, 1)
    ledger.reserve(4.0, 3.0)
    ledger.presume(4.0, 3.0, cost_usd=3.0, debit_usd=3.0)
    assert (ledger.rate_usd, ledger.horizon_left, ledger.presumed, ledger.presumed_usd) == (3.0, 2, 1, 3.0)
    ledger.charge_presumed(3.0, 3.0, cost_usd=1.0, debit_usd=1.0)
    assert (ledger.spent_usd, ledger.charged, ledger.presumed, ledger.presumed_usd) == (2.0, 2, 0, 0.0)
    ledger.reserve(4.0, 3.0)
    ledger.presume(4.0, 3.0, cost_usd=3.0, debit_usd=3.0)
    ledger.release_presumed(3.0, 3.0)
    assert (ledger.spent_usd, ledger.horizon_left, ledger.presumed, ledger.released) == (2.0, 2, 0, 2)
    ledger.charge_released(cost_usd=0.5, debit_usd=0.5)
    assert (ledger.spent_usd, ledger.horizon_left, ledger.charged, ledger.released) == (2.5, 1, 3, 1)


def test_exhaustion_carries_the_figures():
    ledger = Ledger(Budget(1.0, 2, limit="hard"))
    ledger.reserve(0.75, 0.5)
    with pytest.raises(BudgetExhausted, match=r"0\.75 reserved.*0\.25 left, 0\.5 needed, 1 of 2") as error:
        ledger.reserve(0.5, 0.5)
    assert (error.value.amount_usd, error.value.left_usd, error.value.needed_usd) == (1.0, 0.25, 0.5)
    assert (ledger.reserved_usd, ledger.decided) == (0.75, 1)
    ledger.reserve(0.25, 0.2)
    with pytest.raises(HorizonExhausted, match="horizon of 2 requests"):
        raise ledger.refusal(0.1)


def test_five_calls_fit_in_five_calls_cost_though_floats_round():
    ledger = Ledger(Budget(0.3, 3, limit="hard"))
    for _ in range(3):
        ledger.reserve(0.1, 0.1)
        ledger.settle(0.1, 0.1, cost_usd=0.1, debit_usd=0.1)
    assert ledger.spent_usd == pytest.approx(0.3, rel=1e-12)


class HardBudget(RuleBasedStateMachine):
    """Whatever happens in whatever order, a hard budget holds and nothing leaks."""

    def __init__(self):
        super().__init__()
        self.ledger = Ledger(Budget(10.0, 1_000, limit="hard"))
        self.open = []
        self.costs = []
        self.presumed = []

    @rule(worst=st.floats(0.001, 4.0), share=st.floats(0, 1))
    def reserve(self, worst, share):
        if worst <= self.ledger.left_usd:
            self.ledger.reserve(worst, worst * share)
            self.open.append((worst, worst * share))
        elif worst > self.ledger.left_usd + 1e-9:
            with pytest.raises(BudgetExhausted):
                self.ledger.reserve(worst, worst * share)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), share=st.floats(0, 1))
    def settle(self, data, share):
        held = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        self.costs.append(held[0] * share)
        self.ledger.settle(*held, cost_usd=held[0] * share, debit_usd=held[0] * share)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def release(self, data):
        self.ledger.release(*self.open.pop(data.draw(st.integers(0, len(self.open) - 1))))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def presume(self, data):
        held = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        self.presumed.append(held[0])
        self.ledger.presume(*held, cost_usd=held[0], debit_usd=held[0])

    @precondition(lambda self: self.presumed)
    @rule(data=st.data(), share=st.none() | st.floats(0, 1))
    def correct(self, data, share):
        worst = self.presumed.pop(data.draw(st.integers(0, len(self.presumed) - 1)))
        if share is None:
            self.ledger.release_presumed(worst, worst)
        else:
            self.costs.append(worst * share)
            self.ledger.charge_presumed(worst, worst, cost_usd=worst * share, debit_usd=worst * share)

    @invariant()
    def holds(self):
        assert self.ledger.spent_usd + self.ledger.reserved_usd <= 10.0 * (1 + 1e-9)
        assert self.ledger.spent_usd == pytest.approx(math.fsum(self.costs + self.presumed), abs=1e-9)
        assert self.ledger.presumed_usd == pytest.approx(math.fsum(self.presumed), abs=1e-9)
        assert self.ledger.reserved_usd == pytest.approx(math.fsum(worst for worst, _ in self.open), abs=1e-9)
        assert self.ledger.in_flight == len(self.open)
        counts = self.ledger.charged + self.ledger.in_flight + self.ledger.presumed
        assert self.ledger.decided == counts


TestHardBudget = HardBudget.TestCase
