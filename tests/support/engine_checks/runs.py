"""Checks of conversations, the amounts that they commit, and the caps of runs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from support.engines import (
    apply,
    cap_counters,
    charge,
    committed_usd,
    counters,
    hard_cap,
    in_run,
    keep,
    lease,
    opened,
    presume,
    release,
    reserve,
    soft_cap,
    state,
    window,
)
from wiserouter.stores.engines.base import ReadRequest
from wiserouter.stores.engines.events import EndConversation, Find, FindConversation, Open, Settle

RICH = window("w", 100.0, hard=False)


def check_a_version_replaces_the_one_before(place):
    engine, other = opened(place), place.open()
    assert apply(engine, FindConversation("k"), keep("k", 1), keep("k"), keep("k", token="other")) == [
        None, "other", "ok", "other",
    ]  # fmt: skip
    assert apply(other, FindConversation("k"), keep("k", 1), keep("k", 1), keep("k", 3)) == ["k 1", "ok", "ok", "other"]
    assert apply(engine, FindConversation("k"), EndConversation("k"), EndConversation("k")) == ["k 2", "ok", "ok"]
    assert apply(other, FindConversation("k"), keep("k", 2), keep("k")) == [None, "other", "ok"]


def check_a_conversation_expires(place):
    engine = opened(place)
    assert apply(engine, keep("k", ttl_s=place.short_s), keep("l"), keep("l", 1, ttl_s=place.short_s)) == ["ok"] * 3
    assert apply(engine, keep("m", ttl_s=place.short_s), keep("m", 1)) == ["ok", "ok"]
    place.advance(place.short_s)
    assert apply(engine, *[FindConversation(key) for key in "klm"]) == [None, None, "m 2"]
    assert apply(engine, keep("k", 1, token="late"), keep("k")) == ["other", "ok"]
    assert apply(engine, FindConversation("k")) == ["k 1"]


def check_committed_amounts_are_those_of_the_conversations(place):
    engine = opened(place)
    apply(engine, Open("t", 0, "terms", (window("v"),)))
    assert apply(engine, keep("k", 0, 0.5, "s", "t"), keep("l", 0, 0.25, "t", "nowhere"), keep("m")) == ["ok"] * 3
    assert committed_usd(engine, "s", "t") == [0.5, 0.75]
    assert apply(engine, keep("k", 0, 9.0, "s", token="other"), keep("k", 1, 0.125, "t")) == ["other", "ok"]
    assert committed_usd(engine, "s", "t") == [0.0, 0.375]
    apply(engine, Open("t", 1, "terms", (window("u"),)))
    assert committed_usd(engine, "t") == [0.375]
    apply(engine, keep("l", 1), keep("m", 1, 0.1, "s"), keep("m", 2, 0.3, "s"))
    assert committed_usd(engine, "s", "t") == [0.3, 0.125]
    apply(engine, EndConversation("k"), EndConversation("m"))
    assert [one.committed_usd for one in _accounts(engine, "s", "t")] == [0.0, 0.0]


def check_an_expired_run_commits_nothing(place):
    engine = opened(place)
    apply(engine, keep("k", 0, 0.5, "s"), keep("k", 1, 0.25, "s", ttl_s=place.short_s), keep("l", 0, 0.125, "s"))
    place.advance(place.short_s)
    assert committed_usd(engine, "s") == [0.125]
    apply(engine, keep("k", 0, 0.5, "s"), EndConversation("l"))
    assert committed_usd(engine, "s") == [0.5]


def check_the_oldest_conversations_and_caps_are_dropped(place):
    engine = opened(place, RICH, max_conversations=3)
    for key in "abc":
        apply(engine, keep(key, 0, 0.5, "s"))
    apply(engine, keep("a", 1, 0.5, "s"))
    apply(engine, keep("d", 0, 0.5, "s"))
    assert apply(engine, *[FindConversation(key) for key in "abcd"]) == ["a 2", None, "c 1", "d 1"]
    assert committed_usd(engine, "s") == [1.5]
    apply(engine, in_run("flying", hard_cap("flying")))
    for key in "abcd":
        apply(engine, in_run(key, hard_cap(key)), charge(key, 0.25))
        place.advance(0.002)
    kept = {key for key in ("flying", *"abcd") if cap_counters(engine, key) is not None}
    assert {"flying", "d"} <= kept
    assert len(kept) <= 3


def check_a_hard_cap_bears_worst_cases(place):
    engine, other = opened(place, RICH), place.open()
    cap = hard_cap("k", 0.5)
    assert apply(engine, in_run("a", cap), in_run("b", cap), in_run("c", cap, held_usd=1e-9)) == ["ok", "ok", "capped"]
    assert apply(other, in_run("c", cap, held_usd=0.1), in_run("c", hard_cap("k", 9.0))) == ["capped", "capped"]
    assert counters(engine)["in_flight"] == cap_counters(engine, "k")["in_flight"] == 2
    assert apply(other, charge("a", 0.125), in_run("c", cap, held_usd=0.125)) == ["in flight", "ok"]
    assert apply(engine, in_run("d", cap, held_usd=0.001), reserve("e")) == ["capped", "ok"]
    assert cap_counters(other, "k") == {
        "spent_usd": 0.125, "debited_usd": 0.125, "reserved_usd": 0.375, "expected_usd": 0.25, "decided": 3,
        "in_flight": 2, "charged": 1,
    }  # fmt: skip


def check_a_cap_that_is_not_hard_bears_expected_costs(place):
    engine = opened(place, RICH)
    cap = soft_cap("k", 0.25)
    assert apply(engine, in_run("a", cap, held_usd=9.0), in_run("b", cap), in_run("c", cap)) == ["ok", "ok", "capped"]
    assert apply(engine, presume("a"), charge("b", 0.0), in_run("c", cap)) == ["in flight", "in flight", "ok"]
    assert cap_counters(engine, "k")["presumed_usd"] == 0.125


def check_a_call_that_continues_a_run_uses_no_request(place):
    engine = opened(place, RICH)
    ways = {"a": [], "b": [charge("b", 0.5)], "c": [presume("c")], "d": [presume("d"), release("d")],
            "e": [release("e"), charge("e", 0.5)], "f": [presume("f"), charge("f", 0.5)]}  # fmt: skip
    for name, events in ways.items():
        apply(engine, in_run(name, counts=False), *events)
    at = counters(engine)
    assert "decided" not in at
    assert (at["in_flight"], at["continuing"], at["charged"], at["presumed"], at["released"]) == (1, 1, 3, 1, 1)


def check_a_hard_cap_presumes_worst_cases(place):
    """Also where no limit of the scope is hard, in all windows of the call."""
    engine = opened(place, RICH, reservation_ttl_s=place.short_s)
    apply(engine, in_run("a", hard_cap("k")), in_run("b", soft_cap("l")))
    place.advance(place.short_s)
    assert [found.cost_usd for found in apply(engine, Find("a"), Find("b"))] == [0.25, 0.125]
    assert counters(engine)["presumed_usd"] == 0.375
    assert apply(engine, in_run("c", hard_cap("k"), held_usd=0.8), charge("a", 0.125)) == ["capped", "presumed"]
    assert apply(engine, in_run("c", hard_cap("k"), held_usd=0.8)) == ["ok"]


def check_a_call_is_borne_by_all_caps_or_none(place):
    engine = opened(place, window("w", 0.6))
    parent, child = hard_cap("parent", 0.5), hard_cap("child", 9.0)
    assert apply(engine, in_run("a", child, parent), in_run("b", child, parent, held_usd=0.3)) == ["ok", "capped"]
    assert (
        apply(engine, in_run("c", child, held_usd=0.5), in_run("d", hard_cap("new"), held_usd=0.5)) == ["refused"] * 2
    )
    assert (cap_counters(engine, "child")["decided"], cap_counters(engine, "new")) == (1, None)
    assert apply(engine, in_run("d", hard_cap("new", 0.1)), in_run("d", hard_cap("new", 0.25))) == ["capped", "ok"]


def check_a_cap_is_opened_again_its_time_after_the_last_call(place):
    engine = opened(place, RICH)
    cap = hard_cap("k", 0.25, ttl_s=place.short_s)
    apply(engine, in_run("a", cap))
    place.advance(place.short_s)
    assert apply(engine, in_run("b", cap), charge("a", 0.25)) == ["capped", "in flight"]
    place.advance(place.short_s)
    assert cap_counters(engine, "k") is None
    assert apply(engine, in_run("b", cap)) == ["ok"]


def check_late_bills_reach_the_cap_that_bore_the_call(place):
    """A bill of a former run under the same key does not lower what the present one has spent."""
    engine = opened(place, RICH)
    cap = hard_cap("k", 0.5)
    apply(engine, in_run("a", cap), presume("a"), EndConversation("k"), in_run("b", cap), charge("b", 0.25))
    before = cap_counters(engine, "k")
    assert apply(engine, charge("a", 0.125)) == ["presumed"]
    assert cap_counters(engine, "k") == before
    assert counters(engine)["spent_usd"] == 0.375
    assert apply(engine, in_run("c", cap, held_usd=0.3), in_run("c", cap)) == ["capped", "ok"]


def check_a_cap_is_not_ended_in_flight(place):
    engine = opened(place, RICH)
    cap = hard_cap("k", 0.25)
    assert apply(engine, in_run("a", cap), EndConversation("k"), in_run("b", cap)) == ["ok", "ok", "capped"]
    assert apply(engine, release("a"), EndConversation("k"), in_run("b", cap)) == ["in flight", "ok", "ok"]
    assert cap_counters(engine, "k")["decided"] == 1


def check_a_lease_pays_for_a_call_only_where_its_caps_admit_it(place):
    engine = opened(place, window("w", 1.0))
    cap = hard_cap("k", 0.25)
    assert apply(engine, lease("l", 1.0), in_run("a", cap), in_run("a", cap, lease="l")) == [1.0, "refused", "ok"]
    assert apply(engine, in_run("b", cap, lease="l"), lease("l", 1.0)) == ["capped", 0.75]


def check_a_call_admitted_elsewhere_is_never_capped(place):
    engine = opened(place, RICH)
    cap = soft_cap("k", 0.125)
    assert apply(engine, *[in_run(name, cap, admitted=True) for name in "ab"], in_run("c", cap)) == [
        "ok",
        "ok",
        "capped",
    ]
    assert cap_counters(engine, "k")["expected_usd"] == 0.25


def check_a_race_for_a_cap(place):
    """Workers ask for 0.01 each until they are refused: 100 fit."""
    opened(place, RICH)
    cap = hard_cap("k")

    def work(worker: int) -> int:
        engine, granted = place.open(), 0
        for i in range(40):
            results = apply(engine, in_run(f"{worker}-{i}", cap, held_usd=0.01))
            granted += results == ["ok"]
            if results == ["ok"] and i % 2:
                apply(engine, Settle(f"{worker}-{i}", "charged", f"{worker}-{i}", 0.01))
        return granted

    with ThreadPoolExecutor(8) as pool:
        granted = sum(pool.map(work, range(8)))
    at = cap_counters(place.open(), "k")
    assert granted == 100
    assert at["spent_usd"] + at["reserved_usd"] == pytest.approx(1.0, rel=0, abs=1e-9)
    assert state(place.open()).counters["decided"] == 100


def _accounts(engine, *scopes):
    accounts = engine.exchange([], ReadRequest(scopes)).accounts
    return [accounts[scope] for scope in scopes]
