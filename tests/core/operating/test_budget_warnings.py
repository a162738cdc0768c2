"""Warnings on budgets: when they are due, that one worker alone sends each, and that no request waits for them."""

import json
import logging
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.redis_servers import MISSING, redis_server
from support.redis_servers import serving as serving_redis
from support.webhooks import receiving
from wiserouter import Budget, MemoryStore, Model, Price, WiseRouter, open_store
from wiserouter.budgets.ledger import Ledger
from wiserouter.errors import InvalidInput
from wiserouter.operating.budget_warnings import SIGNATURE, BudgetWarnings, Notice, WarningRules, Webhook, is_signed
from wiserouter.operating.budget_warnings.delivery import Delivery, DeliveryFailed
from wiserouter.operating.budget_warnings.rules import RecentSpend, due
from wiserouter.testing import FakeClock

MODELS = [Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))]
DAY = Budget(24.0, 2_400, every="day")
MIDNIGHT = 20_000 * 86_400.0


def spent(ledger: Ledger, usd: float, decided: int) -> Ledger:
    ledger.spent_usd, ledger.debited_usd, ledger.decided = usd, usd, decided
    return ledger


def warned(rules: WarningRules, ledger: Ledger, past: RecentSpend, at_s: float) -> list[tuple[str, float]]:
    return [(one.kind, one.level) for one in due(rules, ledger, past, at_s, "wise", "default")]


def test_each_share_that_is_reached_is_due_the_highest_first():
    ledger, rules = Ledger.opened(DAY, MIDNIGHT), WarningRules(exhaustion=False)
    assert warned(rules, spent(ledger, 11.9, 1_000), RecentSpend(), MIDNIGHT) == []
    assert warned(rules, spent(ledger, 12.0, 1_000), RecentSpend(), MIDNIGHT) == [("budget_threshold", 0.5)]
    shares = [level for _, level in warned(rules, spent(ledger, 23.0, 1_000), RecentSpend(), MIDNIGHT)]
    assert shares == [0.95, 0.8, 0.5]


def test_what_was_carried_over_counts():
    ledger = spent(Ledger.opened(DAY, MIDNIGHT), 13.0, 1_000)
    ledger.carried_usd = 24.0
    assert warned(WarningRules(exhaustion=False), ledger, RecentSpend(), MIDNIGHT) == []


@pytest.mark.parametrize(("usd_per_request", "ends"), [(0.0105, False), (0.0125, True)])
def test_the_forecast_is_the_cost_of_recent_requests_for_those_to_come(usd_per_request, ends):
    ledger, past, rules = Ledger.opened(DAY, MIDNIGHT), RecentSpend(), WarningRules(thresholds=())
    found = []
    for minute in range(61):  # 100 requests an hour, as planned
        ledger = ledger.at(MIDNIGHT + 60.0 * minute)
        spent(ledger, minute / 60 * 100 * usd_per_request, round(minute / 60 * 100))
        ledger.arrivals = None  # 100 more in each hour to come
        found = warned(rules, ledger, past, MIDNIGHT + 60.0 * minute)
        assert minute >= 10 or not found
    assert found == ([("budget_exhaustion", 1.0)] if ends else [])


def test_the_end_of_the_amount_follows_from_the_pace():
    past, rules = RecentSpend(), WarningRules(thresholds=())
    start = spent(Ledger.opened(DAY, MIDNIGHT), 0.0, 0)
    list(due(rules, start, past, MIDNIGHT, "wise", "default"))
    later = spent(start.at(MIDNIGHT + 1_800.0), 6.0, 200)  # $12 an hour: $18 left for an hour and a half
    (one,) = due(rules, later, past, MIDNIGHT + 1_800.0, "wise", "default")
    assert one.ends_at == pytest.approx(MIDNIGHT + 1_800.0 + 1.5 * 3_600)
    assert "ends about 2024-10-04T02:00:00Z by the forecast: $6.00 of $24.00 spent, renews 2024-10-05" in one.text


def test_the_pace_of_the_last_hour_is_compared_with_the_plan():
    rules = WarningRules(thresholds=(), exhaustion=False, pace=3.0)
    for usd, expected in ((1.4, []), (1.6, [("budget_pace", 3.0)])):  # $1 an hour is planned
        past = RecentSpend()
        ledger = Ledger.opened(DAY, MIDNIGHT)
        list(due(rules, ledger, past, MIDNIGHT, "wise", "default"))
        ledger = spent(ledger.at(MIDNIGHT + 1_800.0), usd, 50)
        assert warned(rules, ledger, past, MIDNIGHT + 1_800.0) == expected


def test_a_new_window_has_no_past():
    past = RecentSpend()
    past.add(spent(Ledger.opened(DAY, MIDNIGHT), 20.0, 100), MIDNIGHT + 86_000.0)
    first = past.add(spent(Ledger.opened(DAY, MIDNIGHT + 86_400.0), 0.1, 1), MIDNIGHT + 86_460.0)
    assert first.spent_usd == 0.1


def test_a_clock_that_is_set_back_leaves_the_past_before_it():
    past, ledger = RecentSpend(), Ledger.opened(DAY, MIDNIGHT)
    past.add(ledger, MIDNIGHT)
    past.add(ledger, MIDNIGHT + 50_000.0)  # set forward by mistake
    past.add(ledger, MIDNIGHT + 60.0)
    assert MIDNIGHT + 660.0 - past.add(ledger, MIDNIGHT + 660.0).at_s >= 600.0


def test_an_end_beyond_the_calendar_is_a_warning_without_a_date():
    past, ledger = RecentSpend(), Ledger.opened(Budget(1e6, 10**15), 0.0)
    past.add(ledger, 0.0)
    (one,) = due(WarningRules(), spent(ledger, 1e-6, 1), past, 700.0, "wise", "default")
    assert one.kind == "budget_exhaustion"
    assert "before its requests are served" in one.text
    assert one.as_dict()["ends_at"] is None


def test_the_past_is_an_hour_of_minutes():
    past, ledger = RecentSpend(), Ledger.opened(DAY, MIDNIGHT)
    for second in range(0, 3 * 3_600, 10):
        first = past.add(ledger, MIDNIGHT + second)
    assert 3_600 <= MIDNIGHT + second - first.at_s < 3_700
    assert len(past.samples) < 65


@pytest.mark.parametrize(
    "terms",
    [
        {"thresholds": (0.0,)},
        {"thresholds": (-0.5,)},
        {"thresholds": (50, 80)},
        {"pace": 1.0},
        {"pace": float("nan")},
    ],
)
def test_rules_are_checked(terms):
    with pytest.raises(InvalidInput):
        WarningRules(**terms)


def worker(store, send, clock=time.time, scope="default") -> tuple[WiseRouter, BudgetWarnings]:
    router = WiseRouter(MODELS, store=store, seed=0)
    router.start(Budget(10.0, 1_000))
    if scope != "default":
        router.start(Budget(5.0, 500), scope=scope)
    warnings = BudgetWarnings([send], every_s=3_600.0, clock=clock)
    warnings.watch(router, "wise")
    return router, warnings


def drained(*warnings: BudgetWarnings) -> None:
    for one in warnings:
        one.close()


def test_a_share_is_warned_of_once_in_each_window():
    clock, got = FakeClock(MIDNIGHT), []
    router = WiseRouter(MODELS, store=MemoryStore(clock), seed=0)
    router.start(Budget(10.0, 1_000, every="day"))
    warnings = BudgetWarnings([got.append], WarningRules(exhaustion=False), every_s=3_600.0, clock=clock)
    warnings.watch(router)
    for _ in range(3):
        for usd in (4.0, 4.5, 0.1, 1.0):  # 40, 85, 86 and 96 %
            router.spend(usd)
            warnings.check()
            warnings.check()
        clock.advance(86_400.0)
    drained(warnings)
    assert [one.level for one in got] == [0.8, 0.95] * 3


def test_a_larger_amount_is_warned_of_again():
    got = []
    router, warnings = worker("memory://", got.append)
    router.spend(8.5)
    warnings.check()
    router.set_budget(amount_usd=20.0)
    warnings.check()
    router.spend(8.0)
    warnings.check()
    drained(warnings)
    assert [(one.amount_usd, one.level) for one in got] == [(10.0, 0.8), (20.0, 0.8)]


def test_the_scopes_of_decisions_are_watched():
    got = []
    router, warnings = worker("memory://", got.append, scope="team:red")
    router.charge(router.decide("q", scope="team:red"), 2.6)
    warnings.check()
    drained(warnings)
    assert [(one.scope, one.window, one.level, one.spent_usd) for one in got] == [("team:red", "never", 0.5, 2.6)]


def test_the_budget_of_a_group_is_warned_of_once_and_not_for_each_team():
    got = []
    router, warnings = worker("memory://", got.append)
    for team in ("team:red", "team:blue"):
        router.start(Budget(100.0, 500), scope=team, parent="default")
        router.charge(router.decide("q", scope=team), 2.6)
    warnings.check()
    drained(warnings)
    assert [(one.scope, one.level, one.spent_usd) for one in got] == [("default", 0.5, 5.2)]


def once_over_workers(url: str) -> None:
    stores = [open_store(url), open_store(url)]
    with receiving() as receiver:
        found = [worker(store, Webhook(receiver.url, "secret")) for store in stores]
        try:
            for share, number in ((0.55, 1), (0.3, 2), (0.12, 3)):
                found[0][0].spend(share * 10.0)
                for router, warnings in [*found, *found]:
                    router._store.refresh()
                    warnings.check()
                receiver.wait_for(number)
        finally:
            drained(*[warnings for _, warnings in found])
            for store in stores:
                store.close()
        assert [one["level"] for one in receiver.messages] == [0.5, 0.8, 0.95]
        assert len({one["id"] for one in receiver.messages}) == 3


def test_two_workers_on_one_sqlite_file_send_one_message(tmp_path):
    once_over_workers(f"sqlite:///{tmp_path}/budget.db")


@pytest.mark.skipif(redis_server() is None, reason=MISSING)
def test_two_workers_on_one_redis_send_one_message():
    with serving_redis() as server:
        once_over_workers(f"{server.url}?name=warned")


def notice(**fields) -> Notice:
    given = {"kind": "budget_threshold", "group": "wise", "scope": "default", "window": "day", "level": 0.8}
    figures = {"began_at": 0.0, "at_s": 1.0, "amount_usd": 1.0, "carried_usd": 0.0, "spent_usd": 0.8, "left_usd": 0.2}
    return Notice(**(given | figures | fields))


def test_a_message_is_signed_and_says_what_happened():
    with receiving() as receiver:
        Webhook(receiver.url, "s3cret", clock=lambda: 1_000.0)(notice())
    ((headers, body),) = receiver.got
    header = headers[SIGNATURE.lower()]
    assert is_signed(body, header, "s3cret", 1_100.0)
    assert not is_signed(body, header, "another", 1_100.0)
    assert not is_signed(body + b" ", header, "s3cret", 1_100.0)
    assert not is_signed(body, header, "s3cret", 1_400.0)
    assert not is_signed(body, header.replace("t=1000", "t=1100"), "s3cret", 1_100.0)
    assert headers["idempotency-key"] == notice().id
    message = json.loads(body)
    assert (message["kind"], message["level"], message["renews_at"]) == ("budget_threshold", 0.8, None)
    assert message["text"] == "The budget of wise, scope default (day), has reached 80%: $0.8 of $1.00 spent."


@given(st.text())
def test_no_header_breaks_the_check_of_a_signature(header):
    assert not is_signed(b"{}", header, "secret", 0.0)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 501, 507, 522, 529, 599])
def test_what_may_pass_is_tried_six_times(status):
    with receiving() as receiver:
        receiver.answers = [status] * 6
        delivery = Delivery(Webhook(receiver.url))
        delivery._closing.set()  # no pauses
        delivery.put(notice())
        delivery.close()
    assert (len(receiver.got), delivery.failed) == (6, 1)


def test_passing_failures_are_tried_again(monkeypatch):
    with receiving() as receiver:
        receiver.answers = [500, 429, 200]
        delivery = Delivery(Webhook(receiver.url))
        delivery._closing.set()  # no pauses
        delivery.put(notice())
        delivery.close()
    assert (len(receiver.got), delivery.sent, delivery.failed) == (3, 1, 0)


@pytest.mark.parametrize("status", [400, 410, 302, 307])
def test_a_refusal_is_final_and_no_redirection_is_followed(status, caplog):
    with receiving() as receiver:
        receiver.answers = [status]
        delivery = Delivery(Webhook(receiver.url))
        delivery.put(notice())
        delivery.close()
    assert (len(receiver.got), delivery.sent, delivery.failed) == (1, 0, 1)
    assert str(status) in caplog.text
    assert "T0P53CR3T" not in caplog.text


def test_a_receiver_that_is_away_is_given_up():
    def away(_):
        raise DeliveryFailed("no route", passing=True)

    delivery = Delivery(away, attempts=3)
    delivery._closing.set()
    delivery.put(notice())
    delivery.close()
    assert delivery.failed == 1


def test_the_queue_is_bounded_and_no_caller_waits(caplog):
    with receiving() as receiver:
        receiver.hold.clear()
        delivery = Delivery(Webhook(receiver.url), max_waiting=10)
        for _ in range(50):
            delivery.put(notice())
        assert receiver.got == []  # it has taken none that a caller could have waited for
        assert 39 <= delivery.dropped <= 40
        receiver.hold.set()
        receiver.wait_for(10)
        delivery.close()
    assert delivery.sent == 50 - delivery.dropped


def test_a_request_never_waits_for_a_receiver_that_hangs():
    with receiving() as receiver:
        receiver.hold.clear()
        router, warnings = worker("memory://", Webhook(receiver.url))
        router.spend(5.5)
        warnings.check()
        for _ in range(20):
            router.release(router.decide("q", eligible=["small"]))
            warnings.check()
        assert receiver.got == []  # it has taken none that a request could have waited for
        receiver.hold.set()
        receiver.wait_for(1)
        drained(warnings)


def test_the_thread_reads_the_budgets():
    got = []
    router = WiseRouter(MODELS, seed=0)
    router.start(Budget(10.0, 1_000))
    warnings = BudgetWarnings([got.append], every_s=0.02)
    warnings.watch(router)
    router.spend(6.0)
    deadline = time.monotonic() + 30.0
    while not got:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    drained(warnings)
    assert got[0].level == 0.5


@pytest.mark.parametrize("url", ["ftp://host/x", "host/x", "http://", "file:///etc/passwd", ""])
def test_the_address_of_a_webhook_is_checked(url):
    with pytest.raises(InvalidInput, match="must begin with http"):
        Webhook(url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://user:SECRET@hooks.example.org/x", "hooks.example.org must have no user and password"),
        ("https://hooks.example.org:port/SECRET", "port of a webhook cannot be read"),
        ("https://hooks.example.org:99999/SECRET", "port of a webhook cannot be read"),
        ("https://[::1/SECRET", "cannot be read"),
        ("https://hooks.example.org/SECRET key", "without spaces"),
        ("https://hooks.example.org/SECRET\nkey", "without spaces"),
        ("https://hooks.example.org/SECRÉT", "without spaces"),
        ("https://bücher.example/SECRET", "as xn--"),
    ],
)
def test_an_address_that_could_never_be_reached_is_refused_and_not_shown(url, said):
    with pytest.raises(InvalidInput, match=said) as refused:
        Webhook(url)
    assert "SECR" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://user-service:8080", "http://user-service"),
        ("http://[::1]:80/x", "http://::1"),
        ("https://xn--bcher-kva.example/x", "https://xn--bcher-kva.example"),
        ("https://hooks.example.org/x@y?z=@", "https://hooks.example.org"),
    ],
)
def test_an_address_that_may_be_reached_is_taken(url, name):
    assert Webhook(url).name == name


def test_a_warning_reaches_an_address_that_ends_in_a_newline():
    with receiving() as receiver:
        Webhook(f" {receiver.url}\n")(notice())
    assert receiver.messages == [notice().as_dict()]


def test_an_empty_secret_is_refused():
    with pytest.raises(InvalidInput, match="must not be empty"):
        Webhook("https://hooks.example.org/x", "")


@given(group=st.text(max_size=300), scope=st.text(max_size=300), window=st.text(max_size=50))
def test_hostile_names_break_no_line_and_no_message(group, scope, window):
    one = notice(group=group, scope=scope, window=window)
    assert one.text.isprintable()
    assert len(one.text) < 600
    body = json.loads(json.dumps(one.as_dict()))
    assert (body["group"], body["scope"]) == (group, scope)
    record = logging.LogRecord("wiserouter", logging.ERROR, "", 0, "dropped: %s", (one.text,), None)
    assert len(logging.Formatter().format(record).splitlines()) == 1
    assert one.id == notice(group=group, scope=scope, window=window, at_s=9.0).id
