"""Places to open engines on, and short forms of events and states for tests of engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from wiserouter.stores.engines.base import Engine, ReadRequest
from wiserouter.stores.engines.events import (
    Alias,
    Event,
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

READ_ALL = ReadRequest(["s"], ["sums"], ["note"])
HELD = {"reserved_usd": 0.25, "expected_usd": 0.125, "decided": 1, "in_flight": 1}
CHARGED = {"spent_usd": 0.5, "debited_usd": 0.5, "decided": 1, "charged": 1}
RELEASED = {"released": 1}
PRESUMED = {"spent_usd": 0.25, "debited_usd": 0.25, "decided": 1, "presumed": 1, "presumed_usd": 0.25}


@dataclass
class Place:
    """Empty state on which engines can be opened.

    Attributes
    ----------
    open : callable returning Engine
        Opens an engine on it, as another worker would; takes `reservation_ttl_s` and `decision_ttl_s`. The fixture that
        made the place closes the engines.
    advance : callable
        Lets the given number of seconds pass, by the engine's time.
    short_s : float
        A time that a test can afford to wait.
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


def presume(name: str, token: str | None = None) -> Settle:
    return Settle(name, "presumed", token or f"presume {name}")


def apply(engine: Engine, *events: Event) -> list[object]:
    return engine.exchange(events).results


def state(engine: Engine, level: int = 0, scope: str = "s"):
    return engine.exchange([], ReadRequest([scope])).accounts[scope].windows[level]


def counters(engine: Engine, level: int = 0, scope: str = "s") -> dict[str, float]:
    """Return the counters that are not zero."""
    return {name: value for name, value in state(engine, level, scope).counters.items() if value}


def assert_same(left, right) -> None:
    """Compare replies except for the time, numbers to 1e-9."""
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


def lease(name: str, held_usd: float, *windows: str, ttl_s: float = 900.0) -> Lease:
    return Lease(name, windows or ("w",), held_usd, ttl_s)


def renew(former: str, follower: WindowOpening, skipped: int = 0, level: int = 0) -> Renew:
    return Renew("s", level, former, follower, skipped)


def rolling(name: str, amount_usd: float = 1.0) -> WindowOpening:
    return window(name, amount_usd, rollover=True)


def fill(engine):
    """Let one entry of each kind exist, and read it."""
    return engine.exchange(
        [
            Open("s", 0, "terms", (rolling("w", 10.0),)),
            reserve("a"),
            reserve("b"),
            charge("a", 0.5),
            Score("a", 0.5, "t"),
            Alias("other", "a"),
            Spend("t", ("w",), 0.5),
            lease("l", 1.0),
            renew("w", rolling("v", 10.0)),
            Learn("sums", "worker", 1, {"n": 1.0}),
            Note("note", "text"),
        ],
        READ_ALL,
    )
