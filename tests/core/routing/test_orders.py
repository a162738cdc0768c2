"""Orders of administrators on running routers: all workers follow, restarts keep them, and a hard limit holds."""

import json
import time
from contextlib import closing, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter import Budget, MemoryStore, Model, Offline, Price, WiseRouter
from wiserouter.budgets.changes import BudgetChange, ChangeRefused
from wiserouter.budgets.pauses import BudgetPaused
from wiserouter.errors import BudgetError, InvalidInput, UnknownModel
from wiserouter.learning.estimates import Estimates
from wiserouter.routing.journal_reader import JournalReader
from wiserouter.routing.orders import ModelOrder, Orders
from wiserouter.stores.engines.sqlite import SQLiteEngine
from wiserouter.stores.shared import SharedStore
from wiserouter.testing import FakeClock
from wiserouter.testing.change_contract import becomes_hard_without_calls_in_flight
from wiserouter.testing.shelf import Shelf


def router_on(store, **terms):
    estimates = Estimates(1, 2)
    for k, cost_usd in enumerate((0.01, 0.03)):
        for _ in range(50):
            estimates.add_cost(0, k, cost_usd)
            estimates.add_reward(0, k, 0.2 + 0.6 * k)
    models = [
        Model("small", Price(1e-6, 1e-6), max_cost_usd=0.02),
        Model("large", Price(3e-6, 3e-6), max_cost_usd=0.06),
    ]
    return WiseRouter(models, estimates=estimates, policy=Offline(), store=store, seed=0, **terms)


@pytest.fixture
def workers(tmp_path):
    """Return a function that opens a worker on one file, at one clock."""
    clock, stores = FakeClock(1_000.0), []

    def open_worker():
        stores.append(SharedStore(SQLiteEngine(tmp_path / "budget.db", clock), clock=clock))
        router = router_on(stores[-1])
        router.start(Budget(100.0, 1_000))
        return router

    yield open_worker
    for store in stores:
        store.close()


def follow(router):
    for _ in range(2):
        router.refresh()
    return router.decide(context=0)


def test_a_retired_model_is_retired_in_every_worker_and_after_a_restart(workers):
    one, two = workers(), workers()
    assert two.decide(context=0).model == "large"
    one.change_model("large", retired=True, by="ann")
    assert follow(two).model == "small"
    assert workers().decide(context=0).model == "small"
    two.change_model("large", retired=None)
    assert follow(one).model == "large"
    with pytest.raises(UnknownModel):
        one.change_model("other", retired=True)
    with pytest.raises(InvalidInput, match="got none"):
        one.change_model("large")
    one.change_model("large", retired=True)
    with pytest.raises(InvalidInput, match="not retired"):
        two.change_model("small", retired=True)


def test_a_price_restates_the_costs_in_every_worker(workers):
    one, two = workers(), workers()
    one.change_model("large", price=Price(6e-6, 6e-6))
    follow(two)
    for router in (one, two):
        assert router.pool.by_name["large"].price == Price(6e-6, 6e-6)
        assert router.estimates.cost[0, 1] / router.estimates.calls[0, 1] == pytest.approx(0.06)
    two.change_model("large", price=None)
    follow(one)
    assert one.pool.by_name["large"].price == Price(3e-6, 3e-6)


def test_an_order_with_a_key_is_answered_once_more_and_written_once(workers, tmp_path):
    one, two = workers(), workers()
    journal = one.journal_to(tmp_path / "journal.jsonl")
    first = one.change_model("large", max_share=0.5, by="ann", key="k")
    assert two.change_model("large", max_share=0.5, key="k") == first._replace(replayed=True)
    with pytest.raises(InvalidInput, match="another order"):
        two.change_model("large", max_share=0.4, key="k")
    one.change_budget(BudgetChange(add_usd=1.0), by="ben")
    journal.flush()
    lines = [(line["what"], line["by"]) for line in JournalReader(journal.path)]
    assert lines == [("model", "ann"), ("budget", "ben")]


def test_a_model_that_joins_later_follows_its_order(workers):
    one, two = workers(), workers()
    extra = Model("extra", Price(2e-6, 2e-6), max_cost_usd=0.05)
    one.add_model(extra)
    one.change_model("extra", retired=True)
    follow(two)
    two.add_model(extra)
    assert two.pool.by_name["extra"].retired


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_budget_becomes_hard_while_it_is_paused(kind, tmp_path):
    clock = FakeClock(1_000.0)
    memory = MemoryStore(clock)

    def opened(**_):
        return memory if kind == "memory" else SharedStore(SQLiteEngine(tmp_path / "b.db", clock), clock=clock)

    becomes_hard_without_calls_in_flight(Shelf(opened, clock.advance))


CHANGES = st.one_of(
    st.builds(BudgetChange, amount_usd=st.floats(0.0, 1.0)),
    st.builds(BudgetChange, add_usd=st.floats(0.01, 0.5), windows=st.integers(1, 3)),
    st.builds(BudgetChange, horizon=st.integers(1, 100)),
    st.builds(BudgetChange, paused=st.booleans()),
)
STEPS = st.lists(st.one_of(CHANGES, st.just("decide"), st.just("settle"), st.just("renew")), max_size=40)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@settings(max_examples=25, deadline=None)
@given(steps=STEPS, data=st.data())
def test_no_sequence_of_changes_lets_a_hard_budget_spend_more_than_its_amount(kind, tmp_path_factory, steps, data):
    clock = FakeClock(1_000.0)
    path = tmp_path_factory.mktemp("changes") / "budget.db"
    stores = [MemoryStore(clock)] if kind == "memory" else [shared(path, clock) for _ in range(2)]
    routers = [router_on(store) for store in stores]
    for router in routers:
        router.start(Budget(0.3, every="1h", limit="hard"))
    open_calls = []
    for step in steps:
        act(data.draw(st.sampled_from(routers)), step, open_calls, clock)
        for each in routers:
            each.refresh()
            ledger = each.account().each[0]
            assert ledger.spent_usd + ledger.reserved_usd <= ledger.budget.amount_usd * (1 + 1e-9) + 1e-9
    for router in routers:
        router.close()


def shared(path, clock):
    return SharedStore(SQLiteEngine(path, clock), clock=clock)


def act(router, step, open_calls, clock):
    """Change the budget, or let calls begin and end at their worst case, or time pass."""
    if isinstance(step, BudgetChange):
        try:
            router.change_budget(step)
        except ChangeRefused as error:
            used_usd = sum(error.figures[name] for name in ("spent_usd", "reserved_usd", "leased_usd"))
            assert used_usd > step.amount_usd
    elif step == "decide":
        with suppress(BudgetError):
            open_calls.append((router, router.decide(context=0)))
    elif step == "settle" and open_calls:
        decider, decision = open_calls.pop()
        decider.charge(decision, decision.reserved_usd)
    elif step == "renew" and not open_calls:
        clock.advance(1_800.0)


def test_orders_survive_as_text():
    orders = Orders().with_model("m", ModelOrder(Price(1e-6, 2e-6), True, 0.25))
    assert Orders.from_text(orders.to_text()).models == orders.models
    assert Orders.from_text("") == Orders()
    for broken in ("{", "[]", json.dumps({"models": {"m": {}}, "mode": None, "answers": []}), "null"):
        with pytest.raises(InvalidInput, match="orders"):
            Orders.from_text(broken)


def test_the_mode_changes_in_every_worker_and_the_budget_is_divided(workers):
    one, two = workers(), workers()
    answer = one.change_mode("shadow", share=0.25)
    assert (answer.before, answer.after) == ({"mode": "route", "share": 1.0}, {"mode": "shadow", "share": 0.25})
    follow(two)
    wait_for(lambda: two.shadow is not None)
    two.refresh()
    for router in (one, two, workers()):
        assert router.shadow.share == 0.25
        assert (router.budget().amount_usd, router.budget("shadow:default").amount_usd) == (25.0, 75.0)
    two.change_mode("route")
    follow(one)
    wait_for(lambda: one.shadow is None)
    assert one.budget().amount_usd == 100.0
    one.change_mode("shadow")
    one.change_mode(None)
    assert (one.shadow, one.orders.mode) == (None, None)


def test_a_budget_that_was_ended_stays_so_whatever_the_mode(workers):
    one, two = workers(), workers()
    one.charge(one.decide(context=0), cost_usd=0.5)
    one.change_budget(BudgetChange(ended=True))
    for share in (0.5, 0.25, None):
        one.change_mode("shadow" if share else None, share=share or 0.0)
        for _ in range(2):
            two.refresh()
        two.status()  # what is paused decides nothing, and follows where it is looked at
        wait_for(lambda share=share: (two.shadow and two.shadow.share) == share)
        for router in (one, two, workers()):
            assert router.budget().amount_usd == 100.0 * (share or 1.0)
            with pytest.raises(BudgetPaused, match="ended"):
                router.decide(context=0)


def test_a_mode_ordered_while_no_router_runs_begins_no_ended_budget_again(workers, tmp_path):
    workers().change_budget(BudgetChange(ended=True))
    clock = FakeClock(1_000.0)
    with closing(SharedStore(SQLiteEngine(tmp_path / "budget.db", clock), clock=clock)) as store:
        for mode, share in (("shadow", 0.25), ("shadow", 0.5), ("route", 0.0)):
            router_on(store).change_mode(mode, share=share)
            router = workers()
            assert router.budget().amount_usd == 100.0 * (share or 1.0)
            with pytest.raises(BudgetPaused, match="ended"):
                router.decide(context=0)


def test_budgets_are_divided_from_the_outermost_whatever_their_order():
    router = router_on(MemoryStore(FakeClock(0.0)))
    for scope, parent in (("team", None), ("org", None), ("default", "team"), ("team", "org")):
        router.start(Budget(10.0, 100), scope=scope, parent=parent)
    router.change_mode("shadow", share=0.25)
    assert [router.budget(f"shadow:{scope}").amount_usd for scope in ("org", "team", "default")] == [7.5] * 3


def test_a_share_that_would_break_a_hard_limit_is_refused():
    router = router_on(MemoryStore(FakeClock(0.0)))
    router.start(Budget(10.0, 100, limit="hard"))
    router.spend(2.0)
    with pytest.raises(ChangeRefused, match="must cover what is used"):
        router.change_mode("shadow", share=0.1)
    assert (router.shadow, router.budget().amount_usd) == (None, 10.0)
    with pytest.raises(InvalidInput, match="share is for"):
        router.change_mode("route", share=0.1)


def wait_for(condition):
    deadline = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
