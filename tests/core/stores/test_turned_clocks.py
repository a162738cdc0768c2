"""A clock that was wrong for a while: a budget that renews goes on in the window of the present time."""

import pytest

from support.redis_servers import MISSING, redis_server, serving
from support.store_worker import record
from wiserouter import Budget, open_store
from wiserouter.errors import BudgetExhausted
from wiserouter.stores.engines.sqlite import SQLiteEngine
from wiserouter.stores.memory import MemoryStore
from wiserouter.stores.shared import SharedStore
from wiserouter.testing import FakeClock

DAY_S = 86_400.0


@pytest.fixture
def clock():
    return FakeClock(1_000_000.5 * DAY_S)


@pytest.fixture(params=["memory", "sqlite"])
def store(request, clock, tmp_path):
    if request.param == "memory":
        opened = MemoryStore(clock=clock)
    else:
        opened = SharedStore(SQLiteEngine(tmp_path / "budget.db", clock), clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def turn(store, clock):
    def turned(seconds):
        clock.advance(seconds)
        store.refresh()

    return turned


def calls(store, most=50):
    """Make calls of 1 USD until the budget refuses one; return their number."""
    for made in range(most):
        name = f"{store.now()!r} {made}"
        try:
            store.reserve(record(store, "s", name, 1.0, 1.0))
        except BudgetExhausted:
            return made
        store.settle(name, 1.0)
    return most


@pytest.mark.parametrize("rollover", [False, True])
@pytest.mark.parametrize("jump_s", [DAY_S, 30 * DAY_S, 3_650 * DAY_S])
def test_a_jump_of_the_clock_costs_no_later_window(store, turn, jump_s, rollover):
    store.open("s", Budget(10.0, every="day", limit="hard", rollover=rollover))
    assert calls(store, 4) == 4
    turn(jump_s)
    assert calls(store, 2) == 2
    turn(10.0 - jump_s)
    assert calls(store) == 6
    turn(DAY_S)
    assert calls(store) == (8 if jump_s == DAY_S else 10)
    turn(DAY_S)
    assert calls(store) == 10


@pytest.mark.parametrize("jump_s", [20 * DAY_S, 3_650 * DAY_S])
def test_a_budget_that_was_opened_on_a_wrong_day_carries_nothing_back(store, turn, jump_s):
    store.open("s", Budget(10.0, every="day", limit="hard", rollover=True))
    assert calls(store, 4) == 4
    turn(-jump_s)
    assert calls(store) == 10
    assert 1 <= store.ledger("s").horizon_left < 1_000
    turn(DAY_S)
    assert calls(store, 3) == 3
    turn(DAY_S)
    assert calls(store) == 17


@pytest.mark.parametrize("rollover", [False, True])
def test_a_window_that_a_jump_has_opened_goes_on_when_its_time_comes(store, turn, rollover):
    store.open("s", Budget(10.0, every="day", limit="hard", rollover=rollover))
    assert calls(store, 4) == 4
    turn(2 * DAY_S)
    assert calls(store) == (20 if rollover else 10)
    turn(10.0 - 2 * DAY_S)
    assert calls(store, 1) == 1
    turn(DAY_S)
    assert calls(store, 2) == 2
    turn(DAY_S)
    assert calls(store) == 0
    turn(DAY_S)
    assert calls(store) == 10


def test_a_clock_that_is_set_back_for_a_while_carries_nothing_over(store, turn):
    store.open("s", Budget(10.0, every="day", limit="hard", rollover=True))
    assert calls(store, 4) == 4
    turn(-DAY_S)
    assert calls(store, 1) == 1
    turn(DAY_S + 10.0)
    assert calls(store) == 6


def test_a_clock_that_is_weeks_behind_for_a_while_forgets_nothing(store, turn):
    store.open("s", Budget(10.0, every="day", limit="hard"))
    assert calls(store, 4) == 4
    turn(-20 * DAY_S)
    assert calls(store) == 10
    turn(20 * DAY_S + 10.0)
    assert calls(store) == 6


def test_a_step_of_some_seconds_opens_no_former_window(store, turn):
    store.open("s", Budget(10.0, every="day", limit="hard"))
    turn(0.5 * DAY_S + 1.0)
    assert calls(store, 4) == 4
    turn(-30.0)
    assert store.ledger("s").spent_usd == 4.0
    assert calls(store) == 6


@pytest.mark.parametrize("jump_s", [9 * DAY_S, 40 * DAY_S])
def test_a_clock_that_was_weeks_behind_is_no_sign_of_an_older_state(clock, tmp_path, caplog, jump_s):
    stores = [SharedStore(SQLiteEngine(tmp_path / "budget.db", clock), clock=clock) for _ in range(2)]
    for store in stores:
        store.open("s", Budget(10.0, every="day", limit="hard"))
    assert calls(stores[0], 4) == 4
    for moved_s in (-jump_s, jump_s + 10.0):
        clock.advance(moved_s)
        for store in reversed(stores):
            store.refresh()
        assert calls(stores[0], 6) == 6
    assert not caplog.records
    for store in stores:
        store.close()


@pytest.mark.skipif(redis_server() is None, reason=MISSING)
def test_redis_keeps_the_last_exchange_of_a_worker_as_long_where_its_clock_was_set_back():
    with serving() as server:
        store = open_store(server.url)
        store.open("s", Budget(10.0, every="day", limit="hard"))
        key = server.ask("KEYS", "*:worker:*").split(b"\r\n")[2].decode()
        ahead_s = store.now() + 20 * DAY_S
        server.ask("SET", key, repr(ahead_s))  # as it was before the clock was set back
        store.refresh()
        assert int(server.ask("PTTL", key)[1:]) > 26 * DAY_S * 1_000
        store.close()


@pytest.mark.parametrize("every", ["1h", "day", "month"])
@pytest.mark.parametrize("back_s", [2.0, 90.0, 3_600.0, 2 * DAY_S])
@pytest.mark.parametrize("before", [1, 30])
def test_a_clock_set_back_to_before_the_start_of_a_budget_leaves_its_horizon_sane(store, turn, every, back_s, before):
    store.open("s", Budget(1_000.0, every=every, limit="hard"))
    assert calls(store, before) == before
    turn(-back_s - 0.25)
    for _ in range(30):
        assert 1 <= store.ledger("s").horizon_left < 40_000_000
        turn(1.0)
        assert calls(store, 1) == 1
