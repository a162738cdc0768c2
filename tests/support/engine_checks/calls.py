"""Checks of the life of a call: its states, events delivered twice, expiry and deletion."""

from __future__ import annotations

import pytest

from support.engines import (
    CHARGED,
    HELD,
    PRESUMED,
    RELEASED,
    apply,
    assert_same,
    charge,
    counters,
    lease,
    opened,
    presume,
    release,
    renew,
    reserve,
    rolling,
    state,
    window,
)
from wiserouter.stores.engines.base import ReadRequest
from wiserouter.stores.engines.events import Alias, Find, Learn, Lease, Note, Open, Renew, Score, Spend


def human_score(name, reward, token):
    return Score(name, "human", repr(reward), token)


def check_transitions(place):
    """All changes of state, and those that are refused."""
    engine = opened(place, window("w"), window("v", 10.0, hard=False))
    ways = [
        ([charge("a", 0.5, model="2")], ["in flight"], CHARGED),
        ([release("a")], ["in flight"], RELEASED),
        ([charge("a", 0.5), release("a")], ["in flight", "again"], CHARGED),
        ([charge("a", 0.5), charge("a", 0.75, "other")], ["in flight", "again"], CHARGED),
        ([release("a"), charge("a", 0.5)], ["in flight", "released"], CHARGED),
        ([release("a"), release("a", "other")], ["in flight", "again"], RELEASED),
        ([release("a"), charge("a", 0.5), release("a", "other")], ["in flight", "released", "again"], CHARGED),
        ([presume("a")], ["in flight"], PRESUMED),
        ([presume("a"), presume("a", "other")], ["in flight", "again"], PRESUMED),
        ([presume("a"), charge("a", 0.5)], ["in flight", "presumed"], CHARGED),
        ([presume("a"), release("a")], ["in flight", "presumed"], RELEASED),
        ([charge("a", 0.5), presume("a")], ["in flight", "again"], CHARGED),
        ([release("a"), presume("a")], ["in flight", "again"], RELEASED),
        ([presume("a"), charge("a", 0.5), presume("a", "other")], ["in flight", "presumed", "again"], CHARGED),
        ([presume("a"), release("a"), charge("a", 0.5)], ["in flight", "presumed", "released"], CHARGED),
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


def check_transitions_of_calls_that_were_not_settled_in_time(place):
    engine = opened(place, reservation_ttl_s=place.short_s)
    for i, (events, results, count) in enumerate(
        [
            ([], [], PRESUMED),
            ([presume("a")], ["again"], PRESUMED),
            ([charge("a", 0.5)], ["presumed"], CHARGED),
            ([release("a")], ["presumed"], RELEASED),
            ([release("a"), charge("a", 0.5)], ["presumed", "released"], CHARGED),
        ]
    ):
        assert apply(engine, Open("s", i + 1, "", (window(f"w{i}"),)), reserve(f"a{i}", f"w{i}")) == [i + 2, "ok"]
        place.advance(place.short_s)
        mine = [event._replace(id=f"a{i}") for event in events]
        assert counters(engine) == PRESUMED
        assert apply(engine, *mine) == results
        assert apply(engine, *mine) == results
        assert counters(engine) == count


def check_a_presumed_call_costs_its_worst_case_where_any_limit_is_hard(place):
    """And its expected cost where none is."""
    engine = opened(place, window("w", hard=False), window("v", 9.0), window("u", 9.0, hard=False))
    assert apply(engine, reserve("a", "w", "v"), presume("a"), Find("a"))[2][2:5] == ("presumed", None, 0.25)
    assert counters(engine, 0) == counters(engine, 1) == PRESUMED
    assert counters(engine, 2) == {}
    assert apply(engine, reserve("b", "w", "u"), presume("b"), Find("b"))[2][2:5] == ("presumed", None, 0.125)
    expected = {"spent_usd": 0.125, "debited_usd": 0.125, "decided": 1, "presumed": 1, "presumed_usd": 0.125}
    assert counters(engine, 2) == expected
    found = apply(engine, charge("a", 0.5, model="3"), release("b"), Find("a"), Find("b"))[2]
    assert found[2:5] == ("charged", "3", 0.5)
    assert apply(engine, Find("b"))[0][2:5] == ("released", None, None)
    assert counters(engine, 0) == {**CHARGED, "released": 1}
    assert (counters(engine, 1), counters(engine, 2)) == (CHARGED, RELEASED)


def check_a_presumed_call_leaves_no_room_until_it_is_corrected(place):
    engine = opened(place)
    assert apply(engine, reserve("a", held_usd=0.75), presume("a"), reserve("b", held_usd=0.5)) == [
        "ok", "in flight", "refused",
    ]  # fmt: skip
    assert apply(engine, charge("a", 0.5), reserve("b", held_usd=0.5)) == ["presumed", "ok"]
    assert apply(engine, human_score("a", 0.5, "t")) == [{}]


def check_a_presumed_call_can_be_scored(place):
    engine = opened(place)
    assert apply(engine, reserve("a"), presume("a"), human_score("a", 0.5, "t"), Find("a"))[2] == {}
    assert apply(engine, Find("a"))[0].scores == {"human": "0.5"}


def check_a_presumed_call_is_carried_over_and_so_is_its_correction(place):
    engine = opened(place, rolling("w", 4.0))
    apply(engine, reserve("a", held_usd=1.0), reserve("b", held_usd=1.0), renew("w", rolling("v", 4.0)))
    assert state(engine).carried_usd == 2.0
    assert apply(engine, presume("a"), presume("b")) == ["in flight", "in flight"]
    assert state(engine).carried_usd == 2.0
    assert apply(engine, charge("a", 0.25), release("b")) == ["presumed", "presumed"]
    assert (state(engine).carried_usd, counters(engine)) == (3.75, {})


def check_paper_accounting(place):
    engine = opened(place)
    assert apply(engine, reserve("a", paper=True), charge("a", 0.5)) == ["ok", "in flight"]
    assert counters(engine) == {**CHARGED, "debited_usd": 0.125}
    assert apply(engine, reserve("b", paper=True), presume("b")) == ["ok", "in flight"]
    assert counters(engine)["debited_usd"] == 0.25
    assert apply(engine, release("b"), charge("b", 0.25)) == ["presumed", "released"]
    assert counters(engine) == {"spent_usd": 0.75, "debited_usd": 0.25, "decided": 2, "charged": 2}


def check_unknown_decisions(place):
    engine = opened(place)
    assert apply(engine, charge("x", 0.5), release("x"), human_score("x", 0.5, "t"), Find("x")) == [
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
    assert apply(engine, Spend("d", both, 0.5), Spend("e", both, 0.5, billed=True)) == ["refused", "ok"]


def check_find(place):
    engine = opened(place, window("w"), window("v"))
    assert apply(engine, reserve("a", "w", "v"), Find("a"), Alias("other", "a"), Find("other"), Find("none")) == [
        "ok", ("a", "record of a", "in flight", None, None, {}, ("w", "v")),
        "ok", ("a", "record of a", "in flight", None, None, {}, ("w", "v")), None,
    ]  # fmt: skip
    apply(engine, charge("a", 0.1, model="3"), human_score("a", 0.3, "t"))
    found = ("a", "record of a", "charged", "3", 0.1, {"human": "0.3"}, ("w", "v"))
    assert apply(place.open(), Find("other")) == [found]
    apply(engine, reserve("b"), release("b"), Alias("other", "b"))
    assert apply(engine, Find("other")) == [("b", "record of b", "released", None, None, {}, ("w",))]


def check_alias_before_its_decision(place):
    engine = opened(place)
    assert apply(engine, Alias("other", "a"), Find("other"), reserve("a")) == ["ok", None, "ok"]
    assert apply(engine, Find("other"))[0].id == "a"


def check_score(place):
    engine = opened(place)
    assert apply(engine, reserve("a"), human_score("a", 0.5, "t"), human_score("a", 0.75, "u"), charge("a", 0.5)) == [
        "ok", {}, {"human": "0.5"}, "in flight",
    ]  # fmt: skip
    assert apply(engine, human_score("a", 0.0, "v"), human_score("a", 0.25, "w"), Find("a"))[:2] == [
        {"human": "0.75"}, {"human": "0.0"},
    ]  # fmt: skip
    apply(engine, reserve("b"), release("b"))
    assert apply(engine, human_score("b", 0.5, "t"), Find("b"))[0] == "released"
    assert apply(engine, Find("b"))[0].scores == {}


def check_scores_of_several_sources(place):
    engine = opened(place)
    judged, rated = Score("a", "judge:mini/2", "0.2 0.5 0.1", "t"), human_score("a", 1.0, "u")
    assert apply(engine, reserve("a"), judged, rated) == ["ok", {}, {"judge:mini/2": "0.2 0.5 0.1"}]
    both = {"judge:mini/2": "0.2 0.5 0.1", "human": "1.0"}
    assert apply(place.open(), Score("a", "judge:mini/2", "0.7", "v"), Find("a"))[0] == both
    assert apply(engine, judged, Find("a"))[1].scores == {"judge:mini/2": "0.7", "human": "1.0"}


def check_a_token_again_gets_the_first_result(place):
    """Whatever happened in between."""
    engine = opened(place)
    events = [release("a", "1"), charge("a", 0.5, "2"), release("a", "3"), charge("a", 0.7, "4")]
    events += [human_score("a", 0.5, "1"), human_score("a", 0.75, "2"), human_score("a", 0.25, "3")]
    results = ["in flight", "released", "again", "again", {}, {"human": "0.5"}, {"human": "0.75"}]
    apply(engine, reserve("a"))
    assert apply(engine, *events) == results
    for event, result in zip(events, results, strict=True):
        assert apply(engine, event) == [result]
    assert counters(engine) == CHARGED
    assert apply(engine, Find("a"))[0].scores == {"human": "0.25"}


def check_a_batch_again_changes_nothing(place):
    engine = opened(place)
    batch = [
        Open("t", 0, "", (window("x", 5.0, rollover=True), window("y", 9.0))),
        reserve("a", "x", "y"),
        Alias("other", "a"),
        charge("a", 0.1),
        human_score("a", 0.3, "t"),
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


def check_a_call_that_is_not_settled_in_time_is_presumed(place):
    engine = opened(place, window("w"), window("v", 9.0), reservation_ttl_s=place.short_s)
    apply(engine, *[reserve(str(i), "w", "v") for i in range(4)])
    place.advance(place.short_s)
    four = {"spent_usd": 1.0, "debited_usd": 1.0, "decided": 4, "presumed": 4, "presumed_usd": 1.0}
    assert counters(engine, 0) == counters(engine, 1) == four
    assert apply(engine, reserve("b", held_usd=0.25), release("0"), reserve("b", held_usd=0.25)) == [
        "refused", "presumed", "ok",
    ]  # fmt: skip
    assert apply(engine, Find("1"))[0][2:5] == ("presumed", None, 0.25)


def check_what_is_settled_in_time_is_not_presumed(place):
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
    both = {"spent_usd": 0.75, "debited_usd": 0.75, "decided": 1, "presumed": 1, "presumed_usd": 0.75}
    assert counters(engine) == both


def check_much_that_is_due_at_once(place):
    engine = opened(place, window("w", 1000.0), reservation_ttl_s=place.short_s)
    for start in range(0, 1200, 400):
        apply(engine, *[reserve(str(i)) for i in range(start, start + 400)])
    place.advance(place.short_s)
    for _ in range(20):
        engine.exchange([])
    all_of_them = {"spent_usd": 300.0, "debited_usd": 300.0, "presumed_usd": 300.0}
    assert counters(engine) == {**all_of_them, "decided": 1200, "presumed": 1200}
