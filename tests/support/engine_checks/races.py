"""Checks of exact numbers, and of engines used by several threads and workers."""

from __future__ import annotations

import math
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.engines import apply, charge, counters, opened, reserve, state, window
from wiserouter.stores.engines.events import Find


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
    """Workers ask for 0.01 each until they are refused: 100 fit."""
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
