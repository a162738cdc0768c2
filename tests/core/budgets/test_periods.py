"""Budgets that renew: windows by the clock, and the forecast that stands in for the horizon."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiserouter import Budget, Contexts, Model, Price, WiseRouter
from wiserouter.budgets.ledger import Ledger
from wiserouter.budgets.periods import parse_period, requests_left, window_at, windows_between
from wiserouter.errors import BudgetExhausted, InvalidInput
from wiserouter.stores import MemoryStore
from wiserouter.testing import FakeClock

DAY = 86_400.0


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("every", "zone", "now", "start", "end"),
    [
        ("15m", "UTC", "2026-11-21T10:20:00", "2026-11-21T10:15:00", "2026-11-21T10:30:00"),
        ("1d", "Europe/Berlin", "2026-11-21T00:30:00", "2026-11-21T00:00:00", "2026-11-22T00:00:00"),
        ("1w", "UTC", "2026-11-21T10:00:00", "2026-11-16T00:00:00", "2026-11-23T00:00:00"),
        ("1mo", "America/New_York", "2026-12-31T23:59:59", "2026-12-01T00:00:00", "2027-01-01T00:00:00"),
        ("3mo", "UTC", "2026-11-21T10:00:00", "2026-10-01T00:00:00", "2027-01-01T00:00:00"),
        ("1d", "Europe/Berlin", "2026-03-29T12:00:00", "2026-03-29T00:00:00", "2026-03-30T00:00:00"),
        ("day", "Europe/Berlin", "2026-11-21T00:30:00", "2026-11-21T00:00:00", "2026-11-22T00:00:00"),
        ("week", "UTC", "2026-11-21T10:00:00", "2026-11-16T00:00:00", "2026-11-23T00:00:00"),
        ("month", "America/New_York", "2028-02-29T12:00:00", "2028-02-01T00:00:00", "2028-03-01T00:00:00"),
    ],
)
def test_windows_by_the_calendar(every, zone, now, start, end):
    window = window_at(parse_period(every, zone), at(now, zone))
    assert window == (at(start, zone), at(end, zone))


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-06-01", 24), ("2026-10-25", 25)])
def test_a_day_of_the_clock_change_has_an_hour_less_or_more(day, hours):
    start, end = window_at(parse_period("day", "Europe/Berlin"), at(f"{day}T12:00:00", "Europe/Berlin"))
    assert end - start == hours * 3_600


@pytest.mark.parametrize(("month", "days"), [("2026-02", 28), ("2028-02", 29), ("2026-04", 30), ("2026-12", 31)])
def test_months_are_as_long_as_they_are(month, days):
    start, end = window_at(parse_period("month"), at(f"{month}-15T00:00:00"))
    assert end - start == days * DAY


periods = st.builds(
    lambda n, unit, zone: parse_period(f"{n}{unit}", zone),
    st.integers(1, 40),
    st.sampled_from(["s", "m", "h", "d", "w", "mo"]),
    st.sampled_from(["UTC", "Asia/Kathmandu", "America/St_Johns", "Australia/Lord_Howe"]),
)


@given(periods, st.floats(0, 4e9))
def test_windows_hold_the_instant_and_follow_one_another(period, now):
    window = window_at(period, now)
    assert window.start_s <= now < window.end_s
    assert window_at(period, window.end_s).start_s == window.end_s
    assert window_at(period, window.start_s) == window


@given(periods, st.floats(0, 2e9), st.integers(0, 12))
def test_the_windows_between_are_counted(period, now, skipped):
    window = window_at(period, now)
    end = start = window.end_s
    for _ in range(skipped):
        start = window_at(period, start).end_s
    assert windows_between(period, end, start) == skipped


@pytest.mark.parametrize("every", ["", "d", "0d", "-1d", "1.5h", "1 d", "1y", "1mon", 30, None])
def test_a_period_that_cannot_be_read_is_refused(every):
    with pytest.raises(InvalidInput, match="every must be a number and s, m, h, d, w or mo"):
        parse_period(every)


def test_months_beyond_the_calendar_are_refused_when_a_budget_is_made():
    with pytest.raises(InvalidInput, match="every must be at most 23628mo, got '24320mo'"):
        Budget(1.0, every="24320mo")
    for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):
        for every in ("23628mo", "99999w", "99999d"):
            for now in (0.0, 1.8e9):
                window = Budget(1.0, every=every, timezone=zone).window(now)
                assert window.start_s <= now < window.end_s


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd", 3])
def test_an_unknown_timezone_is_refused(zone):
    with pytest.raises(InvalidInput, match="timezone must be an IANA name"):
        Budget(1.0, every="1d", timezone=zone)


def test_a_budget_needs_a_horizon_or_a_period():
    with pytest.raises(InvalidInput, match="needs horizon"):
        Budget(1.0)


@given(st.integers(0, 10_000), st.floats(0, 1), st.one_of(st.none(), st.floats(0, 1e6)))
def test_the_forecast_is_between_the_two_paces(decided, elapsed, expected):
    left = requests_left(decided, elapsed, 1.0 - elapsed, 1.0, expected)
    prior = 100.0 if expected is None else expected
    observed = decided / elapsed if elapsed > 1e-9 else float("inf")
    paces = sorted([observed, prior])
    assert left >= 1
    assert left <= max(1, paces[1] * (1.0 - elapsed) + 1 if decided else prior + 1)


def test_the_forecast_is_visible_with_its_interval():
    clock = FakeClock(at("2026-11-20T00:00:00"))
    router = make(clock)
    router.start(Budget(100.0, horizon=240, every="1d"))
    for _ in range(120):
        clock.advance(DAY / 240)
        router.charge(router.decide("q"), 0.001)
    status = router.status()
    assert status.horizon_low < status.horizon < status.horizon_high
    assert status.horizon == pytest.approx(240, rel=0.05)
    assert status.as_dict()["windows"][0]["horizon_low"] == status.horizon_low
    router.start(Budget(100.0, horizon=240))
    assert (router.status().horizon_low, router.status().horizon_high) == (None, None)


def test_the_rate_hardly_varies_over_a_day_whose_pattern_is_known():
    """At the observed pace it would double between night and noon."""
    clock = FakeClock(at("2026-11-16T00:00:00"))
    ledger, rates = Ledger.opened(Budget(100.0, every="day"), clock()), []
    for hour in range(6 * 24):
        for _ in range(2 if hour % 24 < 8 else 20):
            ledger = ledger.at(clock())
            rate = ledger.rate_usd
            ledger.reserve(rate, rate)
            ledger.settle(rate, rate, cost_usd=rate, debit_usd=rate)
            clock.advance(3_600.0 / (2 if hour % 24 < 8 else 20))
        rates.append(rate)
    assert max(rates[4 * 24 : -2]) < 1.3 * min(rates[4 * 24 : -2])


def test_a_change_of_the_expected_traffic_is_believed():
    clock = FakeClock(at("2026-11-20T00:00:00"))
    router = make(clock)
    router.start(Budget(100.0, horizon=240, every="1d"))
    router.set_budget(horizon=2_400)
    assert router.status().horizon == 2_400


def make(clock: FakeClock) -> WiseRouter:
    models = [Model("small", Price(1e-6, 1e-6), max_cost_usd=0.1), Model("large", Price(1e-5, 1e-5), max_cost_usd=1.0)]
    return WiseRouter(models, Contexts.single(), store=MemoryStore(clock), seed=0)


def test_a_budget_renews_and_calls_of_the_old_window_settle_there():
    clock = FakeClock(at("2026-11-20T12:00:00"))
    router = make(clock)
    router.start(Budget(2.0, every="1d", limit="hard"))
    old = router.decide("q")
    clock.advance(DAY / 2 + 1)
    status = router.status()
    assert (status.spent_usd, status.reserved_usd, status.in_flight) == (0.0, 0.0, 0)
    assert status.renews_at == at("2026-11-22T00:00:00")
    router.charge(old, 0.1)
    assert router.status().spent_usd == 0.0
    assert router.status().charged == 0


def test_what_is_spent_stays_within_each_window():
    clock = FakeClock(at("2026-11-20T00:00:00"))
    router = make(clock)
    router.start(Budget(1.0, every="1d", limit="hard"))
    for _ in range(3):
        for _ in range(10):
            router.charge(router.decide("q"), 0.1)
        with pytest.raises(BudgetExhausted) as refused:
            router.decide("q")
        assert router.status().spent_usd == pytest.approx(1.0)
        renews = refused.value.renews_at
        assert f"renews at {datetime.fromtimestamp(renews, UTC).isoformat()}" in str(refused.value)
        clock.advance(DAY)


def test_the_horizon_is_learned_from_the_window_before():
    clock = FakeClock(at("2026-11-20T00:00:00"))
    router = make(clock)
    router.start(Budget(100.0, horizon=10, every="1d"))
    assert router.status().horizon_left == 10
    for _ in range(240):
        clock.advance(DAY / 240)
        if router.status().renews_at == at("2026-11-21T00:00:00"):
            router.charge(router.decide("q"), 0.001)
    clock.advance(1)
    assert router.status().horizon == pytest.approx(240, rel=0.1)


def test_the_rate_spends_a_window_of_steady_traffic_to_its_end():
    clock = FakeClock(at("2026-11-20T00:00:00"))
    router = make(clock)
    router.start(Budget(5.5, every="1d"))
    cost, reward = {"small": 0.001, "large": 0.01}, {"small": 0.3, "large": 0.9}
    for _ in range(1_000):
        clock.advance(DAY / 1_001)
        decision = router.decide("q")
        router.charge(decision, cost[decision.model])
        router.reward(decision, reward[decision.model])
    assert 0.95 * 5.5 <= router.status().spent_usd <= 5.5
