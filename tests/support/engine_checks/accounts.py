"""Checks of accounts, and of windows that follow one another."""

from __future__ import annotations

from support.engines import HELD, apply, charge, counters, lease, opened, renew, reserve, rolling, state, window
from wiserouter.stores.engines.base import ReadRequest
from wiserouter.stores.engines.changes import Change
from wiserouter.stores.engines.events import COUNTERS, Amend, Open, Renew, Spend


def check_nothing_is_there_at_first(place):
    reply = place.open().exchange([], ReadRequest(["s"], ["sums"], ["note"]))
    assert (reply.results, reply.accounts, reply.sums, reply.notes) == ([], {}, {"sums": {}}, {})


def check_time_goes_on(place):
    engine = place.open()
    before = engine.exchange([]).now_s
    place.advance(place.short_s)
    assert engine.exchange([]).now_s >= before + place.short_s


def check_an_account_is_opened_once(place):
    engine, other = opened(place, window("w", 2.0)), place.open()
    assert apply(other, Open("s", 0, "others", (window("v"),))) == [1]
    account = other.exchange([], ReadRequest(["s", "t"])).accounts
    assert account.keys() == {"s"}
    assert (account["s"].generation, account["s"].terms) == (1, "terms")
    assert state(engine) == ("w", 2.0, 0.0, dict.fromkeys(COUNTERS, 0.0))


def check_a_new_generation_takes_the_place_of_the_old_one_once(place):
    engine = opened(place)
    reset = [Open("s", 1, name, (window(name, 5.0), window(f"{name}2", 9.0))) for name in ("first", "second")]
    assert apply(engine, reserve("a"), *reset) == ["ok", 2, 2]
    account = engine.exchange([], ReadRequest(["s"])).accounts["s"]
    assert (account.terms, [one.id for one in account.windows]) == ("first", ["first", "first2"])
    assert apply(engine, charge("a", 0.5), Open("s", 0, "late", (window("late"),))) == ["in flight", 2]
    assert counters(engine) == {}


def check_an_account_that_was_lost_keeps_its_number(place):
    assert apply(place.open(), Open("s", 3, "terms", (window("w"),))) == [4]


def check_scopes_are_apart(place):
    engine = opened(place)
    assert apply(engine, Open("t", 0, "", (window("x"),)), reserve("a", "x")) == [1, "ok"]
    assert counters(engine) == {}
    assert counters(engine, scope="t")["decided"] == 1


def check_all_scopes_are_listed(place):
    engine = place.open()
    assert engine.exchange([], ReadRequest(None)).accounts == {}
    scopes = ["team/ä", "default", "*", ""]
    events = [Open(scope, 0, "terms", (window(f"w{i}", 2.0),)) for i, scope in enumerate(scopes)]
    opened = engine.exchange(events, ReadRequest(None)).accounts
    assert (
        opened
        == place.open().exchange([], ReadRequest(None)).accounts
        == engine.exchange([], ReadRequest(scopes)).accounts
    )
    assert opened.keys() == set(scopes)
    apply(engine, Open("default", 1, "others", (window("v"),)), Amend("*", "amended", "w2", 3.0))
    terms = {scope: one.terms for scope, one in engine.exchange([], ReadRequest(None)).accounts.items()}
    assert terms == {"team/ä": "terms", "default": "others", "*": "amended", "": "terms"}


def check_what_a_window_begins_with(place):
    begins = {name: float(i) for i, name in enumerate(COUNTERS, 1)}
    engine = opened(place, window("w", 50.0, counters=begins, carried_usd=-0.5))
    assert state(engine) == ("w", 50.0, -0.5, begins)


def check_amend(place):
    engine = opened(place, window("w"), window("v", 5.0))
    assert apply(engine, Amend("s", "others", "v", 6.0), Amend("t", "", "v", 7.0)) == ["ok", "unknown"]
    account = engine.exchange([], ReadRequest(["s"])).accounts["s"]
    assert (account.terms, [one.amount_usd for one in account.windows]) == ("others", [1.0, 6.0])
    assert apply(engine, reserve("a", "w", held_usd=1.5)) == ["refused"]
    assert apply(engine, Amend("s", "", "w", 2.0), reserve("a", "w", held_usd=1.5)) == ["ok", "ok"]


def check_a_window_follows_once(place):
    engine = opened(place)
    assert apply(engine, reserve("a"), renew("w", window("v", 2.0)), renew("w", window("u", 3.0))) == ["ok"] * 3
    assert state(engine)[:3] == ("v", 2.0, 0.0)
    assert apply(
        engine, reserve("b", "v"), charge("a", 0.5), renew("none", window("u")), renew("w", window("u"), level=9)
    )
    assert counters(engine) == HELD
    assert apply(engine, Renew("unknown", 0, "v", window("u"), 0)) == ["ok"]
    assert place.open().exchange([], ReadRequest(["unknown"])).accounts == {}


def check_what_is_left_is_handed_down(place):
    engine = opened(place, rolling("w"), rolling("m", 30.0))
    apply(engine, reserve("a", "w", "m", held_usd=0.75), reserve("b", "w", "m"), charge("b", 0.125))
    apply(engine, renew("w", rolling("v")))
    assert (state(engine)[:3], state(engine, 1).id) == (("v", 1.0, 0.125), "m")
    apply(engine, reserve("c", "v", "m", held_usd=1.125), renew("v", rolling("u")))
    assert state(engine).carried_usd == 0.0
    apply(engine, charge("a", 0.25))  # late, in the window that came first
    assert state(engine).carried_usd == 0.5
    apply(engine, charge("c", 2.0))
    assert state(engine).carried_usd == -0.375
    assert apply(engine, reserve("d", "u", held_usd=0.75), reserve("d", "u", held_usd=0.625)) == ["refused", "ok"]
    assert counters(engine, 1) == {"spent_usd": 2.375, "debited_usd": 2.375, "decided": 3, "charged": 3}


def check_skipped_windows_and_the_most_that_is_carried(place):
    engine = opened(place, rolling("w"))
    apply(engine, Spend("t", ("w",), 1.0), Spend("u", ("w",), -0.75), renew("w", rolling("v", 3.0), skipped=1))
    assert state(engine).carried_usd == 3.0
    apply(engine, reserve("a", lease="none", held_usd=4.0))
    assert state(engine).carried_usd == -0.25
    apply(engine, charge("a", 0.0), renew("v", rolling("u", 2.0), skipped=5))
    assert state(engine).carried_usd == 2.0


def check_a_window_to_which_the_clock_was_set_back_goes_on(place):
    engine = opened(place, rolling("w"))
    apply(engine, Spend("t", ("w",), 0.25), renew("w", rolling("v")), Spend("u", ("v",), 1.0))
    assert apply(engine, renew("v", rolling("w"), skipped=-1)) == ["ok"]
    assert (state(engine)[:3], counters(engine)) == (("w", 1.0, 0.0), {"spent_usd": 0.25, "debited_usd": 0.25})
    apply(engine, Spend("x", ("w",), 0.5), renew("w", rolling("v")))
    assert (state(engine)[:3], counters(engine)) == (("v", 1.0, 0.25), {"spent_usd": 1.0, "debited_usd": 1.0})
    apply(engine, renew("v", rolling("before"), skipped=-1))
    assert (state(engine)[:3], counters(engine)) == (("before", 1.0, 0.0), {})


def check_what_is_presumed_or_returned_of_old_windows_is_handed_down(place):
    """A lease under an expected limit is returned; a call is presumed, and corrected later."""
    engine = opened(place, rolling("w")._replace(hard=False), reservation_ttl_s=place.short_s)
    apply(engine, reserve("a", held_usd=0.5, expected_usd=0.25), lease("l", 0.25, ttl_s=place.short_s))
    assert apply(engine, renew("w", rolling("v"))) == ["ok"]
    assert state(engine).carried_usd == 0.25
    place.advance(place.short_s)
    assert state(engine).carried_usd == 0.75
    assert apply(engine, charge("a", 0.125)) == ["presumed"]
    assert state(engine).carried_usd == 0.875


def check_change(place):
    engine = opened(place, window("w"), window("v", 5.0, hard=False))

    def change(former, amount_usd, *, terms="new", of="w", hard=True, token="", scope="s"):
        return apply(engine, Change(scope, former, terms, of, amount_usd, hard, token, '{"first": 1}'))[0]

    terms = engine.exchange([], ReadRequest(["s"])).accounts["s"].terms
    assert (change(terms, 1.0, scope="t"), change("others", 1.0), change(terms, 1.0, of="u")) == (
        "unknown",
        "other",
        "other",
    )
    assert apply(engine, reserve("a", "w", "v", held_usd=0.6)) == ["ok"]
    assert change(terms, 0.5, token="t") == "short"
    assert change(terms, 5.0, of="v") == "busy"
    assert change(terms, 0.6, token="t") == "ok"
    assert change("new", 0.7, token="t") == '{"first": 1}'
    account = engine.exchange([], ReadRequest(["s"])).accounts["s"]
    assert (account.terms, [one.amount_usd for one in account.windows]) == ("new", [0.6, 5.0])
    assert apply(engine, reserve("b", "w", held_usd=0.1)) == ["refused"]
    apply(engine, charge("a", 0.5))
    assert change("new", 0.4, of="v") == "short"
    assert change("new", 0.5, of="v", terms="last") == "ok"
    assert apply(engine, reserve("c", "v", held_usd=0.1)) == ["refused"]
    assert change("last", 0.1, hard=False) == "ok"
    assert apply(engine, reserve("d", "w", held_usd=9.0)) == ["ok"]
