"""Checks of leases."""

from __future__ import annotations

from support.engines import apply, counters, lease, opened, release, renew, reserve, rolling, state, window


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


def check_overdue_leases_come_back_under_expected_limits(place):
    engine = opened(place, window("w", hard=False))
    assert apply(engine, lease("l", 0.5, ttl_s=place.short_s), lease("m", 0.25)) == [0.5, 0.25]
    place.advance(place.short_s)
    assert counters(engine) == {"leased_usd": 0.25}
    assert apply(engine, reserve("a", lease="l"), lease("l", 0.25)) == ["ok", 0.25]
    assert counters(engine)["leased_usd"] == 0.5


def presumed(usd: float) -> dict[str, float]:
    return {"spent_usd": usd, "debited_usd": usd, "presumed_usd": usd}


def check_the_rest_of_an_overdue_lease_is_presumed_where_any_limit_is_hard(place):
    """Until it is reported or returned: the worker may have made calls on it before it was killed."""
    engine = opened(place, window("w", hard=False), window("v", 0.75))
    both = "w", "v"
    assert apply(engine, lease("l", 0.5, *both, ttl_s=place.short_s), reserve("a", *both, held_usd=0.125, lease="l"))
    place.advance(place.short_s)
    for level in range(2):
        held = {"reserved_usd": 0.125, "expected_usd": 0.125, "decided": 1, "in_flight": 1}
        assert counters(engine, level) == {**held, **presumed(0.375)}
    assert apply(engine, release("a"), reserve("b", *both, held_usd=0.5)) == ["in flight", "refused"]
    assert apply(engine, reserve("b", *both, held_usd=0.25, lease="l"), release("b")) == ["ok", "in flight"]
    assert counters(engine, 0) == counters(engine, 1) == {**presumed(0.125), "released": 2}
    assert apply(engine, lease("l", 0.0, ttl_s=0.0)) == [0.0]
    assert counters(engine, 0) == counters(engine, 1) == {"released": 2}


def check_a_worker_that_comes_back_goes_on_with_its_lease(place):
    engine = opened(place)
    assert apply(engine, lease("l", 0.75, ttl_s=place.short_s)) == [0.75]
    place.advance(place.short_s)
    assert counters(engine) == presumed(0.75)
    assert apply(engine, reserve("a", held_usd=0.25, lease="l"), lease("l", 1.0)) == ["ok", 0.75]
    assert counters(engine) == {
        "reserved_usd": 0.25,
        "expected_usd": 0.125,
        "decided": 1,
        "in_flight": 1,
        "leased_usd": 0.75,
    }


def check_a_presumed_lease_stays_spent(place):
    engine = opened(place, decision_ttl_s=place.short_s)
    assert apply(engine, lease("l", 0.75, ttl_s=place.short_s)) == [0.75]
    for _ in range(2):
        place.advance(1.5 * place.short_s)
        assert counters(engine) == presumed(0.75)
    assert apply(engine, lease("l", 1.0)) == [0.25]


def check_a_presumed_lease_is_carried_over(place):
    engine = opened(place, rolling("w", 4.0))
    apply(engine, lease("l", 1.0, ttl_s=place.short_s), renew("w", rolling("v", 4.0)))
    place.advance(place.short_s)
    assert state(engine).carried_usd == 3.0
    assert apply(engine, lease("l", 0.0, ttl_s=0.0)) == [0.0]
    assert state(engine).carried_usd == 4.0
