"""What every engine must do: checks that take a `Place`, which is fresh state to open engines on.

A check never asks for what a slow machine could have changed: short times to live are looked at when they are over.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from support.engine_model import ModelEngine
from wiserouter.stores.engines.base import Engine, ReadRequest
from wiserouter.stores.engines.events import (
    COUNTERS,
    Alias,
    Amend,
    Event,
    Find,
    Learn,
    Lease,
    Note,
    Open,
    Renew,
    Reserve,
    Score,
    Settle,
    Spend,
    WindowOpening,
)


@dataclass
class Place:
    """Fresh state.

    Attributes
    ----------
    open : callable returning Engine
        Opens an engine on it, as another worker would; takes `reservation_ttl_s` and `decision_ttl_s`. Whoever made
        the place closes them.
    advance : callable
        Lets so many seconds pass, by the engine's time.
    short_s : float
        A short time, such that to let it pass is no burden.
    """

    open: Callable[..., Engine]
    advance: Callable[[float], object]
    short_s: float


def window(name: str, amount_usd: float = 1.0, *, hard: bool = True, rollover: bool = False, **begins) -> WindowOpening:
    return WindowOpening(name, amount_usd, hard, rollover, **begins)


def opened(place: Place, *windows: WindowOpening, **ttl_s: float) -> Engine:
    engine = place.open(**ttl_s)
    assert apply(engine, Open("s", 0, "terms", windows or (window("w"),))) == [1]
    return engine


def reserve(name: str, *windows: str, held_usd=0.25, expected_usd=0.125, paper=False, lease=None) -> Reserve:
    return Reserve(name, windows or ("w",), held_usd, expected_usd, paper, f"record of {name}", lease)


def charge(name: str, cost_usd: float, token: str | None = None, model: int | None = None) -> Settle:
    return Settle(name, "charged", token or f"charge {name}", cost_usd, model)


def release(name: str, token: str | None = None) -> Settle:
    return Settle(name, "released", token or f"release {name}")


def apply(engine: Engine, *events: Event) -> list[object]:
    return engine.exchange(events).results


def state(engine: Engine, level: int = 0, scope: str = "s"):
    return engine.exchange([], ReadRequest([scope])).accounts[scope].windows[level]


def counters(engine: Engine, level: int = 0, scope: str = "s") -> dict[str, float]:
    """Return the counters that are not zero."""
    return {name: value for name, value in state(engine, level, scope).counters.items() if value}


def assert_same(left, right) -> None:
    """Replies but for the time: numbers to 1e-9."""
    for one, two in zip(left.results, right.results, strict=True):
        assert one == (pytest.approx(two, rel=0, abs=1e-9) if isinstance(two, float) else two)
    assert left.notes == right.notes
    assert left.accounts.keys() == right.accounts.keys()
    for scope, account in left.accounts.items():
        other = right.accounts[scope]
        assert account[:2] == other[:2]
        for one, two in zip(account.windows, other.windows, strict=True):
            assert (one.id, one.amount_usd) == (two.id, two.amount_usd)
            assert one.carried_usd == pytest.approx(two.carried_usd, rel=0, abs=1e-9)
            assert dict(one.counters) == pytest.approx(dict(two.counters), rel=0, abs=1e-9)
    for name, sums in left.sums.items():
        assert sums == pytest.approx(right.sums[name], rel=0, abs=1e-9)


# accounts ------------------------------------------------------------------------------------------------------------


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


# the life of a call --------------------------------------------------------------------------------------------------

HELD = {"reserved_usd": 0.25, "expected_usd": 0.125, "decided": 1, "in_flight": 1}
CHARGED = {"spent_usd": 0.5, "debited_usd": 0.5, "decided": 1, "charged": 1}
RELEASED = {"released": 1}
EXPIRED = {"decided": 1, "expired": 1}


def check_transitions(place):
    """Every change of state that there is, and those that there are not."""
    engine = opened(place, window("w"), window("v", 10.0, hard=False))
    ways = [
        ([charge("a", 0.5, model=2)], ["in flight"], CHARGED),
        ([release("a")], ["in flight"], RELEASED),
        ([charge("a", 0.5), release("a")], ["in flight", "again"], CHARGED),
        ([charge("a", 0.5), charge("a", 0.75, "other")], ["in flight", "again"], CHARGED),
        ([release("a"), charge("a", 0.5)], ["in flight", "released"], CHARGED),
        ([release("a"), release("a", "other")], ["in flight", "again"], RELEASED),
        ([release("a"), charge("a", 0.5), release("a", "other")], ["in flight", "released", "again"], CHARGED),
    ]
    for i, (events, results, count) in enumerate(ways):
        mine = [event._replace(id=f"a{i}") for event in events]
        ids = (f"w{i}", f"v{i}")
        assert apply(engine, Open("s", i + 1, "", tuple([window(one, 1.0) for one in ids]))) == [i + 2]
        assert apply(engine, reserve(f"a{i}", *ids)) == ["ok"]
        assert counters(engine, 0) == counters(engine, 1) == HELD
        assert apply(engine, *mine) == results
        assert counters(engine, 0) == counters(engine, 1) == count
        assert apply(engine, *mine) == results
        assert counters(engine, 0) == counters(engine, 1) == count


def check_transitions_of_expired_calls(place):
    engine = opened(place, reservation_ttl_s=place.short_s)
    for i, (events, results, count) in enumerate(
        [
            ([], [], EXPIRED),
            ([charge("a", 0.5)], ["expired"], CHARGED),
            ([release("a")], ["expired"], RELEASED),
            ([release("a"), charge("a", 0.5)], ["expired", "released"], CHARGED),
        ]
    ):
        assert apply(engine, Open("s", i + 1, "", (window(f"w{i}"),)), reserve(f"a{i}", f"w{i}")) == [i + 2, "ok"]
        place.advance(place.short_s)
        mine = [event._replace(id=f"a{i}") for event in events]
        assert counters(engine) == EXPIRED
        assert apply(engine, *mine) == results
        assert apply(engine, *mine) == results
        assert counters(engine) == count


def check_paper_accounting(place):
    engine = opened(place)
    assert apply(engine, reserve("a", paper=True), charge("a", 0.5)) == ["ok", "in flight"]
    assert counters(engine) == {**CHARGED, "debited_usd": 0.125}


def check_unknown_decisions(place):
    engine = opened(place)
    assert apply(engine, charge("x", 0.5), release("x"), Score("x", 0.5, "t"), Find("x")) == [
        "unknown", "unknown", "unknown", None,
    ]  # fmt: skip
    assert counters(engine) == {}


def check_nothing_is_held_back_twice(place):
    engine = opened(place)
    assert apply(engine, reserve("a"), reserve("a")) == ["ok", "ok"]
    assert counters(engine) == HELD
    assert apply(engine, charge("a", 0.5), reserve("a")) == ["in flight", "ok"]
    assert counters(engine) == CHARGED


def check_rounding_is_not_left_behind(place):
    engine = opened(place)
    costs = [0.1, 0.2, 0.3]
    apply(engine, *[reserve(f"a{i}", held_usd=usd, expected_usd=usd) for i, usd in enumerate(costs)])
    apply(engine, *[release(f"a{i}") for i in range(3)])
    assert counters(engine)["released"] == 3
    assert abs(state(engine).counters["reserved_usd"]) < 1e-15


def check_a_hard_limit_refuses_in_all_windows_or_in_none(place):
    engine = opened(place, window("w", 10.0), window("v", 1.0), window("u", 0.5, hard=False))
    ids = "w", "v", "u"
    assert apply(engine, reserve("a", *ids, held_usd=0.75), reserve("b", *ids, held_usd=0.5)) == ["ok", "refused"]
    for level in range(3):
        assert counters(engine, level)["decided"] == 1
    assert apply(engine, Find("b"), reserve("c", *ids, held_usd=0.25)) == [None, "ok"]
    assert apply(engine, reserve("d", "u", held_usd=100.0)) == ["ok"]
    assert apply(engine, charge("a", 0.25), reserve("b", *ids, held_usd=0.5)) == ["in flight", "ok"]


def check_a_rounding_of_the_limit_is_admitted(place):
    engine = opened(place, window("w", 0.3))
    held = [reserve(str(i), held_usd=0.1) for i in range(4)]
    assert apply(engine, *held) == ["ok", "ok", "ok", "refused"]


def check_windows_that_are_not_there(place):
    engine = opened(place)
    assert apply(engine, reserve("a", "w", "x"), Spend("t", ("w", "x"), 0.5)) == ["unknown", "unknown"]
    assert apply(engine, Find("a"), Lease("l", ("w", "x"), 0.5, 900.0)) == [None, 0.0]
    assert counters(engine) == {}
    assert apply(engine, reserve("a"), Spend("t", ("w",), 0.5)) == ["ok", "ok"]


def check_spend(place):
    engine = opened(place, window("w"), window("v", 0.75))
    both = "w", "v"
    assert apply(engine, Spend("a", both, 0.5), Spend("a", both, 0.5), Spend("b", both, 0.5)) == ["ok", "ok", "refused"]
    assert apply(engine, Spend("c", both, -0.25), Spend("b", both, 0.5)) == ["ok", "ok"]
    assert counters(engine, 0) == counters(engine, 1) == {"spent_usd": 0.75, "debited_usd": 0.75}


def check_find(place):
    engine = opened(place, window("w"), window("v"))
    assert apply(engine, reserve("a", "w", "v"), Find("a"), Alias("other", "a"), Find("other"), Find("none")) == [
        "ok", ("a", "record of a", "in flight", None, None, None, ("w", "v")),
        "ok", ("a", "record of a", "in flight", None, None, None, ("w", "v")), None,
    ]  # fmt: skip
    apply(engine, charge("a", 0.1, model=3), Score("a", 0.3, "t"))
    assert apply(place.open(), Find("other")) == [("a", "record of a", "charged", 3, 0.1, 0.3, ("w", "v"))]
    apply(engine, reserve("b"), release("b"), Alias("other", "b"))
    assert apply(engine, Find("other")) == [("b", "record of b", "released", None, None, None, ("w",))]


def check_alias_before_its_decision(place):
    engine = opened(place)
    assert apply(engine, Alias("other", "a"), Find("other"), reserve("a")) == ["ok", None, "ok"]
    assert apply(engine, Find("other"))[0].id == "a"


def check_score(place):
    engine = opened(place)
    assert apply(engine, reserve("a"), Score("a", 0.5, "t"), Score("a", 0.75, "u"), charge("a", 0.5)) == [
        "ok", None, 0.5, "in flight",
    ]  # fmt: skip
    assert apply(engine, Score("a", 0.0, "v"), Score("a", 0.25, "w"), Find("a"))[:2] == [0.75, 0.0]
    apply(engine, reserve("b"), release("b"))
    assert apply(engine, Score("b", 0.5, "t"), Find("b"))[0] == "released"
    assert apply(engine, Find("b"))[0].reward is None


# delivered again -----------------------------------------------------------------------------------------------------


def check_a_token_again_gets_the_first_result(place):
    """However much has happened in between."""
    engine = opened(place)
    events = [release("a", "1"), charge("a", 0.5, "2"), release("a", "3"), charge("a", 0.7, "4")]
    events += [Score("a", 0.5, "1"), Score("a", 0.75, "2"), Score("a", 0.25, "3")]
    results = ["in flight", "released", "again", "again", None, 0.5, 0.75]
    apply(engine, reserve("a"))
    assert apply(engine, *events) == results
    for event, result in zip(events, results, strict=True):
        assert apply(engine, event) == [result]
    assert counters(engine) == CHARGED
    assert apply(engine, Find("a"))[0].reward == 0.25


def check_a_batch_again_changes_nothing(place):
    engine = opened(place)
    batch = [
        Open("t", 0, "", (window("x", 5.0, rollover=True), window("y", 9.0))),
        reserve("a", "x", "y"),
        Alias("other", "a"),
        charge("a", 0.1),
        Score("a", 0.3, "t"),
        Spend("s", ("x", "y"), 0.1),
        Renew("t", 0, "x", window("z", 5.0, rollover=True), 0),
        reserve("b", "z", "y"),
        release("b"),
        Learn("sums", "worker", 1, {"n": 1.0}),
        Note("note", "text"),
        Find("other"),
    ]
    reading = ReadRequest(["s", "t"], ["sums"], ["note"])
    once = engine.exchange(batch, reading)
    for _ in range(3):
        assert_same(place.open().exchange(batch, reading), once)
    assert once.accounts["t"].windows[0].carried_usd == pytest.approx(4.8)


# time ----------------------------------------------------------------------------------------------------------------


def check_what_nobody_settles_comes_back(place):
    engine = opened(place, window("w"), window("v", 9.0), reservation_ttl_s=place.short_s)
    apply(engine, *[reserve(str(i), "w", "v") for i in range(4)])
    place.advance(place.short_s)
    assert counters(engine, 0) == counters(engine, 1) == {"decided": 4, "expired": 4}
    assert apply(engine, reserve("b", held_usd=1.0), Find("0"))[0] == "ok"
    assert apply(engine, Find("0"))[0].state == "expired"


def check_what_is_settled_in_time_does_not_expire(place):
    engine, brief = opened(place), place.open(reservation_ttl_s=place.short_s)
    apply(brief, reserve("a"), charge("a", 0.5), reserve("b"), release("b"))
    place.advance(place.short_s)
    assert counters(engine) == {**CHARGED, "released": 1}


def check_decisions_are_forgotten(place):
    engine = opened(place, reservation_ttl_s=place.short_s, decision_ttl_s=place.short_s)
    apply(engine, reserve("a"), Alias("other", "a"), charge("a", 0.5))
    place.advance(4 * place.short_s)
    assert apply(engine, Find("a"), Find("other"), charge("a", 0.5)) == [None, None, "unknown"]
    assert counters(engine) == CHARGED


def check_what_is_due_comes_back_however_late(place):
    engine = opened(place, reservation_ttl_s=place.short_s, decision_ttl_s=place.short_s)
    apply(engine, reserve("a"), lease("l", 0.5, ttl_s=place.short_s))
    place.advance(4 * place.short_s)
    assert counters(engine) == EXPIRED


def check_much_that_is_due_at_once(place):
    engine = opened(place, window("w", 1000.0), reservation_ttl_s=place.short_s)
    for start in range(0, 1200, 400):
        apply(engine, *[reserve(str(i)) for i in range(start, start + 400)])
    place.advance(place.short_s)
    for _ in range(20):
        engine.exchange([])
    assert counters(engine) == {"decided": 1200, "expired": 1200}


# leases --------------------------------------------------------------------------------------------------------------


def lease(name: str, held_usd: float, *windows: str, ttl_s: float = 900.0) -> Lease:
    return Lease(name, windows or ("w",), held_usd, ttl_s)


def check_leases(place):
    engine = opened(place)
    assert apply(engine, lease("l", 0.5), lease("m", 0.75), lease("n", 0.1)) == [0.5, 0.5, 0.0]
    assert counters(engine) == {"leased_usd": 1.0}
    assert apply(engine, reserve("a", held_usd=0.25)) == ["refused"]
    assert apply(engine, lease("l", 0.25), lease("m", 0.625), lease("m", 9.0)) == [0.25, 0.625, 0.75]
    assert apply(engine, lease("m", 0.0, ttl_s=0.0), lease("l", 0.25), lease("none", 1.0, ttl_s=0.0)) == [
        0.0,
        0.25,
        0.0,
    ]
    assert counters(engine) == {"leased_usd": 0.25}
    assert apply(engine, reserve("a", held_usd=0.75), reserve("b", held_usd=0.125)) == ["ok", "refused"]


def check_leases_are_bounded_under_expected_limits_too(place):
    engine = opened(place, window("w", 1.0, hard=False), window("v", 0.75, hard=False))
    assert apply(engine, lease("l", 5.0, "w", "v"), lease("m", 5.0, "w", "v")) == [0.75, 0.0]
    assert apply(engine, reserve("a", "w", "v", held_usd=9.0), lease("l", 0.5, "w", "v")) == ["ok", 0.5]
    assert apply(engine, lease("l", 0.75, "w", "v")) == [0.5]


def check_calls_out_of_a_lease(place):
    engine = opened(place)
    assert apply(engine, lease("l", 0.5), reserve("a", held_usd=0.375, lease="l")) == [0.5, "ok"]
    assert counters(engine) == {
        "leased_usd": 0.125,
        "reserved_usd": 0.375,
        "expected_usd": 0.125,
        "decided": 1,
        "in_flight": 1,
    }
    assert apply(engine, reserve("b", held_usd=0.25, lease="l"), reserve("b", held_usd=0.25, lease="l")) == ["ok", "ok"]
    assert counters(engine)["reserved_usd"] == 0.625
    assert "leased_usd" not in counters(engine)
    assert apply(engine, reserve("c", held_usd=2.0, lease="l"), reserve("d", held_usd=2.0, lease="none")) == [
        "ok",
        "ok",
    ]
    assert counters(engine)["reserved_usd"] == 4.625
    assert apply(engine, lease("l", 1.0)) == [0.0]
    assert apply(engine, *[release(name) for name in "abcd"], lease("l", 0.5)) == ["in flight"] * 4 + [0.5]
    assert counters(engine) == {"leased_usd": 0.5, "released": 4}


def check_a_lease_of_other_windows_is_given_back(place):
    engine = opened(place, window("w"), window("v"))
    assert apply(engine, lease("l", 0.5, "w"), lease("l", 0.75, "v")) == [0.5, 0.75]
    assert (counters(engine, 0), counters(engine, 1)) == ({}, {"leased_usd": 0.75})
    assert apply(engine, lease("l", 0.75, "x")) == [0.0]
    assert counters(engine, 1) == {}


def check_leases_come_back(place):
    engine = opened(place)
    assert apply(engine, lease("l", 0.5, ttl_s=place.short_s), lease("m", 0.25)) == [0.5, 0.25]
    place.advance(place.short_s)
    assert counters(engine) == {"leased_usd": 0.25}
    assert apply(engine, reserve("a", lease="l"), lease("l", 0.25)) == ["ok", 0.25]
    assert counters(engine)["leased_usd"] == 0.5


# windows that follow -------------------------------------------------------------------------------------------------


def renew(former: str, follower: WindowOpening, skipped: int = 0, level: int = 0) -> Renew:
    return Renew("s", level, former, follower, skipped)


def rolling(name: str, amount_usd: float = 1.0) -> WindowOpening:
    return window(name, amount_usd, rollover=True)


def check_a_window_follows_once(place):
    engine = opened(place)
    assert apply(engine, reserve("a"), renew("w", window("v", 2.0)), renew("w", window("u", 3.0))) == ["ok"] * 3
    assert state(engine)[:3] == ("v", 2.0, 0.0)
    assert apply(
        engine, reserve("b", "v"), charge("a", 0.5), renew("none", window("u")), renew("w", window("u"), level=9)
    )
    assert counters(engine) == HELD
    assert apply(engine, Renew("nobody", 0, "v", window("u"), 0)) == ["ok"]
    assert place.open().exchange([], ReadRequest(["nobody"])).accounts == {}


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


def check_what_expires_and_leases_of_old_windows_are_handed_down(place):
    engine = opened(place, rolling("w"), reservation_ttl_s=place.short_s)
    apply(engine, reserve("a", held_usd=0.5), lease("l", 0.25, ttl_s=place.short_s), renew("w", rolling("v")))
    place.advance(place.short_s)
    assert state(engine).carried_usd == 1.0


# learning and notes --------------------------------------------------------------------------------------------------


def check_sums(place):
    engine = opened(place)
    apply(
        engine,
        Learn("x", "one", 1, {"a": 0.1, "b": -1.0}),
        Learn("x", "one", 1, {"a": 9.0}),
        Learn("y", "one", 1, {"a": 7}),
    )
    assert apply(engine, Learn("x", "two", 5, {"a": 0.2}), Learn("x", "two", 4, {"a": 9.0})) == ["ok", "ok"]
    reply = engine.exchange([Learn("x", "one", 3, {"a": 0.3, "c": 1e-300})], ReadRequest(sums=["x", "y", "z"]))
    assert reply.sums == {"x": {"a": pytest.approx(0.6), "b": -1.0, "c": 1e-300}, "y": {"a": 7.0}, "z": {}}
    assert place.open().exchange([], ReadRequest(sums=["x"])).sums["x"] == reply.sums["x"]


def check_many_cells(place):
    engine = place.open()
    deltas = {f"{i}": i / 7 for i in range(5000)}
    for sequence in (1, 2):
        reply = engine.exchange([Learn("x", "one", sequence, deltas)], ReadRequest(sums=["x"]))
        assert reply.sums["x"] == {cell: sequence * delta for cell, delta in deltas.items()}


def check_notes(place):
    engine = opened(place)
    texts = {"": "", "a:b": 'é"\\/\n\t ', "b": "x" * 100_000, "{c}": "\x00\x7f", "ü": "[]"}
    assert apply(engine, *[Note(name, "earlier") for name in texts]) == ["ok"] * 5
    reply = engine.exchange([Note(name, text) for name, text in texts.items()], ReadRequest(notes=[*texts, "none"]))
    assert reply.notes == texts == place.open().exchange([], ReadRequest(notes=[*texts])).notes


def check_odd_names(place):
    """Names that could be taken for something else."""
    names = ["a:b", "{w}", "call:a", "é", "a b", "x" * 1000, '"', "0", "null"]
    engine = place.open()
    for name in names:
        events = [Open(name, 0, name, (window(name),)), reserve(name, name), Alias(f"{name} too", name)]
        assert apply(engine, *events) == [1, "ok", "ok"]
        assert apply(engine, Find(f"{name} too"))[0][:2] == (name, f"record of {name}")
        assert apply(engine, charge(name, 0.5, name), Score(name, 0.5, name)) == ["in flight", None]
        assert counters(engine, scope=name) == CHARGED


# numbers and races ---------------------------------------------------------------------------------------------------


def check_numbers_come_back_as_they_were(place):
    rng = random.Random(0)
    engine = opened(place)
    costs = [rng.uniform(0, 1) * 10.0 ** rng.randrange(-12, 3) for _ in range(300)] + [
        5e-324,
        1e-17,
        0.1,
        2 / 3,
        1e15 + 0.5,
    ]
    apply(engine, *[reserve(str(i), held_usd=0.0) for i in range(len(costs))])
    apply(engine, *[charge(str(i), cost) for i, cost in enumerate(costs)])
    found = apply(engine, *[Find(str(i)) for i in range(len(costs))])
    assert [one.cost_usd for one in found] == costs


def check_totals_are_the_sum_of_all_charges(place):
    rng = random.Random(1)
    engine = opened(place, window("w", 1000.0))
    costs = [rng.lognormvariate(-7.0, 2.0) for _ in range(1000)]
    for start in range(0, 1000, 250):
        part = [(str(i), costs[i]) for i in range(start, start + 250)]
        apply(engine, *[reserve(name, held_usd=cost, expected_usd=cost) for name, cost in part])
        apply(engine, *[charge(name, cost) for name, cost in part])
    at = state(engine).counters
    assert at["spent_usd"] == pytest.approx(math.fsum(costs), rel=0, abs=1e-9)
    assert (at["reserved_usd"], at["expected_usd"], at["charged"]) == (0.0, 0.0, 1000)


def check_a_race_for_a_hard_window(place):
    """Workers ask for 0.01 each until nobody gets more: 100 fit."""
    opened(place)

    def work(worker: int) -> list[str]:
        engine, granted = place.open(), []
        for i in range(100):
            name = f"{worker}-{i}"
            if apply(engine, reserve(name, held_usd=0.01)) == ["refused"]:
                return granted
            granted.append(name)
        return granted

    with ThreadPoolExecutor(8) as pool:
        granted = [name for names in pool.map(work, range(8)) for name in names]
    assert len(granted) == 100
    assert state(place.open()).counters["reserved_usd"] == pytest.approx(1.0, rel=0, abs=1e-9)


def check_threads_may_share_an_engine(place):
    engine = opened(place, window("w", 1000.0))

    def work(i: int) -> list[object]:
        return apply(engine, reserve(str(i), held_usd=0.01), charge(str(i), 0.01))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(200))) == [["ok", "in flight"]] * 200
    assert counters(engine)["spent_usd"] == pytest.approx(2.0, rel=0, abs=1e-9)


# against the model ---------------------------------------------------------------------------------------------------


def check_random_events_against_the_model(place):
    """Whole seeded lives, delivered now and then twice; the model is told the engine's time."""
    for seed in range(4):
        rng = random.Random(seed)
        ttl_s = place.short_s if seed % 2 else 900.0
        engine, model = place.open(reservation_ttl_s=ttl_s), ModelEngine(ttl_s)
        events = Events(rng, f"{seed}-", place.short_s)
        for step in range(60):
            batch = [events.any() for _ in range(rng.randrange(1, 25))]
            for _ in range(rng.choice([1, 1, 2])):
                reply = engine.exchange(batch, events.reading)
                model.now_s = reply.now_s
                assert_same(reply, model.exchange(batch, events.reading))
            if step % 20 == 19:
                place.advance(place.short_s)


class Events:
    """Draws events that mostly make sense."""

    def __init__(self, rng: random.Random, mark: str, short_s: float):
        self.rng, self.mark, self.short_s = rng, mark, short_s
        self.reading = ReadRequest([f"{mark}s{i}" for i in range(3)], [f"{mark}x"], [f"{mark}n"])
        self.windows: list[tuple[str, ...]] = [(f"{mark}s{i} 0 0", f"{mark}s{i} 1 0") for i in range(3)]
        self.old: list[tuple[str, ...]] = []
        self.n = 0

    def any(self) -> Event:
        kinds = {
            self.open: 1, self.amend: 1, self.renew: 1, self.reserve: 12, self.settle: 12, self.score: 3, self.spend: 2,
            self.lease: 4, self.find: 2, self.alias: 1, self.learn: 2, self.note: 1,
        }  # fmt: skip
        return self.rng.choices(list(kinds), list(kinds.values()))[0]()

    def name(self) -> str:
        """Return a new name, or one of the last."""
        self.n += self.rng.random() < 0.6
        return f"{self.mark}{self.n - min(self.n, int(self.rng.expovariate(0.3)))}"

    def usd(self) -> float:
        return self.rng.choice([0.0, 0.1, 0.3, self.rng.lognormvariate(-2.0, 1.0)])

    def where(self) -> tuple[str, ...]:
        pairs = self.old if self.old and self.rng.random() < 0.2 else self.windows
        return self.rng.choice([*pairs, ("nowhere",)] if self.rng.random() < 0.1 else pairs)

    def window(self, name: str) -> WindowOpening:
        rolls = name.startswith(f"{self.mark}s2")
        return window(name, self.rng.choice([1.0, 2.5]), hard=" 0 " in name, rollover=rolls)

    def open(self) -> Open:
        i = self.rng.randrange(3)
        generation = self.rng.choice([0, 0, 0, 1])
        pair = self.windows[i] if not generation else tuple([f"{one}'" for one in self.windows[i]])
        return Open(f"{self.mark}s{i}", generation, f"terms {self.n}", tuple([self.window(one) for one in pair]))

    def amend(self) -> Amend:
        i = self.rng.randrange(2)  # what is carried stays as it is when an amount is amended
        return Amend(f"{self.mark}s{i}", f"amended {self.n}", self.windows[i][0], 1.0 + self.usd())

    def renew(self) -> Renew:
        i = self.rng.randrange(3)
        former, outer = self.windows[i]
        stem, _, number = former.rpartition(" ")
        follower = f"{stem} {int(number.rstrip(chr(39))) + 1}"
        self.old.append(self.windows[i])
        self.windows[i] = (follower, outer)
        return Renew(f"{self.mark}s{i}", 0, former, self.window(follower), self.rng.randrange(2))

    def reserve(self) -> Reserve:
        lease = self.rng.choice([None, None, None, f"{self.mark}l{self.rng.randrange(4)}"])
        return reserve(self.name(), *self.where(), held_usd=self.usd(), expected_usd=self.usd() / 2, lease=lease,
                       paper=self.rng.random() < 0.2)  # fmt: skip

    def settle(self) -> Settle:
        token = f"{self.n} {self.rng.randrange(3)}"
        if self.rng.random() < 0.7:
            return charge(self.name(), self.usd(), token, self.rng.choice([None, 1, 2]))
        return release(self.name(), token)

    def score(self) -> Score:
        return Score(self.name(), self.rng.random(), f"{self.n} {self.rng.randrange(3)}")

    def spend(self) -> Spend:
        return Spend(self.name(), self.where(), self.usd())

    def lease(self) -> Lease:
        ttl_s = self.rng.choice([900.0, self.short_s, 0.0])
        return Lease(f"{self.mark}l{self.rng.randrange(4)}", self.where(), self.usd(), ttl_s)

    def find(self) -> Find:
        return Find(self.rng.choice([self.name(), f"{self.mark}a{self.rng.randrange(9)}"]))

    def alias(self) -> Alias:
        return Alias(f"{self.mark}a{self.rng.randrange(9)}", self.name())

    def learn(self) -> Learn:
        cells = {f"c{self.rng.randrange(5)}": self.rng.gauss(0, 1) for _ in range(3)}
        return Learn(f"{self.mark}x", f"worker {self.rng.randrange(2)}", self.rng.randrange(50), cells)

    def note(self) -> Note:
        return Note(f"{self.mark}n", f"text {self.n}")


CONTRACT = [check for name, check in globals().items() if name.startswith("check_")]
