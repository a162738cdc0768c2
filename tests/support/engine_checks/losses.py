"""Checks of accounts that an engine has lost, and that workers restore from what they saw last."""

from __future__ import annotations

from support.engines import apply, charge, counters, lease, opened, release, renew, reserve, state, window
from wiserouter.stores.engines.acknowledgements import KEPT_S, Acknowledge
from wiserouter.stores.engines.base import ReadRequest
from wiserouter.stores.engines.events import Open, Restore, Spend

ONE = {"spent_usd": 0.25, "debited_usd": 0.25, "decided": 1, "charged": 1}
TWO = {"spent_usd": 0.5, "debited_usd": 0.5, "decided": 3, "charged": 2, "presumed": 1, "presumed_usd": 0.125}


def restore(seen, as_of_s, *, held_usd=0.0, closed_s=0.0, token="t", hard=True, generation=1, named="w") -> Restore:
    windows = (window(named, 4.0, hard=hard, counters=seen),)
    return Restore("s", generation, "terms", windows, token, as_of_s, "lost", held_usd, 900.0, closed_s)


def check_a_lost_account_is_opened_as_it_was_last_seen(place):
    engine = place.open()
    assert apply(engine, restore(ONE, 1.0, held_usd=0.5)) == [1]
    assert counters(engine) == {**ONE, "leased_usd": 0.5}
    account = engine.exchange([], ReadRequest(["s"])).accounts["s"]
    assert (account.generation, account.terms, account.restored) == (1, "terms", "t")
    assert apply(engine, reserve("a", held_usd=0.375, lease="lost"), charge("a", 0.25)) == ["ok", "in flight"]
    assert counters(engine)["spent_usd"] == 0.5
    assert counters(engine)["leased_usd"] == 0.125


def check_a_later_view_replaces_an_earlier_one(place):
    engine = place.open()
    assert apply(engine, restore(ONE, 1.0, held_usd=0.5)) == [1]
    assert apply(engine, reserve("a", held_usd=0.25), charge("a", 0.125)) == ["ok", "in flight"]
    later = restore(TWO, 2.0, held_usd=0.75, token="u")
    assert apply(engine, later, later, restore(ONE, 1.5)) == [1, 1, 1]
    both = {**TWO, "spent_usd": 0.625, "debited_usd": 0.625, "decided": 4, "charged": 3, "leased_usd": 0.75}
    assert counters(engine) == both
    assert apply(engine, restore(ONE, 3.0, held_usd=0.25)) == [1]
    assert counters(engine)["leased_usd"] == 0.25
    assert engine.exchange([], ReadRequest(["s"])).accounts["s"].restored == "t"


def check_calls_taken_from_the_lost_ones_are_not_set_apart_twice(place):
    engine = place.open()
    apply(engine, restore(ONE, 1.0, held_usd=0.5), reserve("a", held_usd=0.5, lease="lost"))
    assert apply(engine, restore(TWO, 2.0, held_usd=0.25)) == [1]
    assert "leased_usd" not in counters(engine)
    assert apply(engine, release("a")) == ["in flight"]
    assert state(engine).counters["spent_usd"] == 0.5


def check_an_account_that_is_there_is_not_restored(place):
    engine = opened(place)
    assert apply(engine, reserve("a"), charge("a", 0.5)) == ["ok", "in flight"]
    before = state(engine)
    assert apply(engine, restore(TWO, 9.0, held_usd=0.5), restore(TWO, 9.0, generation=2)) == [1, 1]
    assert state(engine) == before


def check_a_view_is_added_to_an_account_that_was_opened_meanwhile(place):
    engine = place.open()
    opening = Open("s", 0, "terms", (window("w", 4.0),), "opened later")
    assert apply(engine, opening, reserve("a"), charge("a", 0.25)) == [1, "ok", "in flight"]
    late = restore(TWO, 2.0, held_usd=0.5, closed_s=900.0, token="u")._replace(former="opened later")
    assert apply(engine, restore(ONE, 1.0), late._replace(former="another"), late) == [1, 1, 1]
    both = {**TWO, "spent_usd": 0.75, "debited_usd": 0.75, "decided": 4, "charged": 3, "leased_usd": 0.5}
    assert counters(engine) == both
    assert engine.exchange([], ReadRequest(["s"])).accounts["s"].restored == "u"
    assert apply(engine, reserve("b")) == ["closed"]
    assert apply(engine, late, restore(ONE, 1.0), restore(TWO, 3.0, held_usd=0.25)) == [1, 1, 1]
    assert counters(engine) == {**both, "leased_usd": 0.25}


def check_an_account_that_alone_was_lost_is_opened_on_its_windows(place):
    engine = opened(place)
    assert apply(engine, reserve("a"), charge("a", 0.5), reserve("b")) == ["ok", "in flight", "ok"]
    before = counters(engine)
    lost = restore(TWO, 9.0, held_usd=0.5, closed_s=60.0)._replace(scope="alone")
    assert apply(engine, lost, lost._replace(as_of_s=10.0, token="later")) == [1, 1]
    account = engine.exchange([], ReadRequest(["alone"])).accounts["alone"]
    assert (account.generation, account.restored, [one.id for one in account.windows]) == (1, "t", ["w"])
    assert counters(engine) == before
    assert apply(engine, reserve("c")) == ["ok"]  # no limit is closed


def check_hard_limits_are_closed_while_they_are_restored(place):
    engine = place.open()
    apply(engine, restore(ONE, 1.0, held_usd=0.5, closed_s=place.short_s * 20.0))
    assert apply(engine, reserve("a"), Spend("p", ("w",), 0.125), Spend("n", ("w",), -0.125)) == [
        "closed",
        "closed",
        "ok",
    ]
    assert apply(engine, lease("l", 0.5), reserve("b", lease="lost"), charge("b", 0.25)) == [0.0, "ok", "in flight"]
    place.advance(place.short_s * 20.0)
    assert apply(engine, reserve("a"), lease("l", 0.5)) == ["ok", 0.5]


def check_expected_limits_are_restored_open(place):
    engine = place.open()
    apply(engine, restore(ONE, 1.0, closed_s=900.0, hard=False))
    assert apply(engine, reserve("a")) == ["ok"]


def check_a_view_of_the_next_window_follows_one_of_the_former(place):
    engine = place.open()
    assert apply(engine, restore(ONE, 1.0, held_usd=0.5)) == [1]
    assert apply(engine, restore(TWO, 2.0, held_usd=0.25, named="v")) == [1]
    assert state(engine).id == "v"
    assert counters(engine) == {**TWO, "leased_usd": 0.25}


def check_a_view_of_a_window_that_has_begun_since_is_added(place):
    engine = place.open()
    apply(engine, restore(ONE, 1.0, held_usd=0.5), renew("w", window("v", 4.0)))
    assert apply(engine, reserve("a", "v", held_usd=0.25), charge("a", 0.125)) == ["ok", "in flight"]
    assert apply(engine, restore(TWO, 2.0, held_usd=0.75, named="v"), restore(TWO, 3.0, named="v")) == [1, 1]
    both = {**TWO, "spent_usd": 0.625, "debited_usd": 0.625, "decided": 4, "charged": 3}
    assert (state(engine).id, counters(engine)) == ("v", both)


def check_a_window_that_follows_a_closed_one_is_closed(place):
    engine = place.open()
    apply(engine, restore(ONE, 1.0, closed_s=900.0), renew("w", window("v", 4.0)))
    assert apply(engine, reserve("a", "v")) == ["closed"]


def check_a_restored_window_renews(place):
    engine = place.open()
    apply(engine, restore(ONE, 1.0), renew("w", window("v", 4.0)))
    assert apply(engine, restore(TWO, 2.0)) == [1]
    assert state(engine).id == "v"
    assert counters(engine) == {}


def check_events_after_a_reply_that_the_engine_does_not_know_are_not_applied(place):
    engine = opened(place)
    first = engine.exchange([Acknowledge("one", 0.0), reserve("a")])
    assert first.results == [0.0, "ok"]
    place.advance(place.short_s)
    second = engine.exchange([Acknowledge("one", first.now_s), reserve("b")])
    assert second.results == [first.now_s, "ok"]
    ahead = second.now_s + place.short_s
    assert engine.exchange([Acknowledge("one", ahead), reserve("c")]).results == [second.now_s]
    assert engine.exchange([Acknowledge("two", ahead), reserve("c")]).results == [0.0]
    assert counters(engine)["in_flight"] == 2
    assert engine.exchange([Acknowledge("one", second.now_s)]).results == [second.now_s]  # nothing was kept


def check_the_time_kept_of_an_exchange_never_goes_back(place):
    engine = opened(place)
    ahead = engine.exchange([]).now_s + 10_000.0
    assert engine.exchange([Acknowledge("one", 0.0)]).results == [0.0]
    (known,) = engine.exchange([Acknowledge("one", 0.0)]).results
    long_ago = known - KEPT_S - 1.0
    assert engine.exchange([Acknowledge("away", long_ago)]).results == [long_ago]
    times = [engine.exchange([Acknowledge("one", 0.0), Acknowledge("one", 0.0)]).results for _ in range(3)]
    assert [second > first for first, second in times] == [True] * 3
    assert known < times[0][0] < times[-1][-1] < ahead


def check_a_later_view_takes_the_place_of_an_older_state(place):
    engine, window_of = place.open(), window("w", 4.0)
    before = Open("s", 0, "old terms", (window_of,), "t0"), Open("outer", 0, "terms", (window("o", 9.0),), "t0")
    assert apply(engine, *before, reserve("a", "w", "o"), reserve("b", "w", "o")) == [1, 1, "ok", "ok"]
    apply(engine, restore(ONE, 1.0, held_usd=0.5), lease("l", 0.5, "w", "o"))
    view = restore(TWO, 2.0, held_usd=0.25, generation=2, named="v")._replace(former="t0")
    assert apply(engine, view._replace(former="another"), view, view) == [1, 2, 2]
    assert counters(engine) == {**TWO, "leased_usd": 0.25}
    account = engine.exchange([], ReadRequest(["s"])).accounts["s"]
    assert (account.generation, account.terms, account.restored, account.windows[0].id) == (2, "terms", "t", "v")
    assert apply(engine, charge("a", 0.125)) == ["unknown"]  # its worker reserves it again in the present windows
    assert apply(engine, reserve("a", "v", "o", lease="lost"), charge("a", 0.125)) == ["ok", "in flight"]
    assert counters(engine)["spent_usd"] == 0.625
    assert counters(engine, scope="outer") == {
        "spent_usd": 0.125, "debited_usd": 0.125, "decided": 2, "charged": 1,
        "reserved_usd": 0.25, "expected_usd": 0.125, "in_flight": 1, "leased_usd": 0.5,
    }  # fmt: skip
    assert apply(engine, restore(TWO, 3.0, generation=2, named="v", held_usd=0.5)) == [2]
    assert counters(engine)["leased_usd"] == 0.25


def check_an_admitted_call_counts_in_the_windows_that_are_left(place):
    engine = opened(place)
    again = reserve("a", "gone", "w")
    assert apply(engine, again, again._replace(windows=("gone",), admitted=True)) == ["unknown", "unknown"]
    assert apply(engine, again._replace(admitted=True, lease="lost"), charge("a", 0.5)) == ["ok", "in flight"]
    assert counters(engine) == {"spent_usd": 0.5, "debited_usd": 0.5, "decided": 1, "charged": 1}
