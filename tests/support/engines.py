"""Places to open engines on, and short forms of events and states for tests of engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from wiserouter.budgets.run_caps import RunCap
from wiserouter.stores.engines.base import Engine, ReadRequest
from wiserouter.stores.engines.events import (
    Alias,
    Event,
    KeepConversation,
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

READ_ALL = ReadRequest(["s"], ["sums"], ["note"], ["k"])
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
        Opens an engine on it, as another worker would; takes `reservation_ttl_s`, `decision_ttl_s` and
        `max_conversations`. The fixture that made the place closes the engines.
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


def opened(place: Place, *windows: WindowOpening, **bounds: float) -> Engine:
    engine = place.open(**bounds)
    assert apply(engine, Open("s", 0, "terms", windows or (window("w"),))) == [1]
    return engine


def reserve(name: str, *windows: str, held_usd=0.25, expected_usd=0.125, paper=False, lease=None) -> Reserve:
    return Reserve(name, windows or ("w",), held_usd, expected_usd, paper, f"record of {name}", lease)


def in_run(name: str, *caps: RunCap, held_usd=0.25, expected_usd=0.125, **others) -> Reserve:
    return reserve(name, held_usd=held_usd, expected_usd=expected_usd)._replace(caps=caps, **others)


def hard_cap(key: str, amount_usd: float = 1.0, ttl_s: float = 900.0) -> RunCap:
    return RunCap(key, amount_usd, True, ttl_s)


def soft_cap(key: str, amount_usd: float = 1.0, ttl_s: float = 900.0) -> RunCap:
    return RunCap(key, amount_usd, False, ttl_s)


def keep(key: str, version: int = 0, committed_usd=0.0, *scopes: str, ttl_s=900.0, token=None) -> KeepConversation:
    text = f"{key} {version + 1}"
    return KeepConversation(key, version, text, ttl_s, token or text, scopes, committed_usd)


def cap_counters(engine: Engine, key: str) -> dict[str, float] | None:
    """Return the counters of a cap that are not zero; None where it is not open."""
    found = engine.exchange([], ReadRequest(caps=[key])).caps.get(key)
    return None if found is None else {name: value for name, value in found.counters.items() if value}


def committed_usd(engine: Engine, *scopes: str) -> list[float]:
    accounts = engine.exchange([], ReadRequest(scopes)).accounts
    return [round(accounts[scope].committed_usd, 9) for scope in scopes]


def charge(name: str, cost_usd: float, token: str | None = None, model: str | None = None) -> Settle:
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
        assert account.committed_usd == pytest.approx(other.committed_usd, rel=0, abs=1e-9)
        for one, two in zip(account.windows, other.windows, strict=True):
            assert (one.id, one.amount_usd) == (two.id, two.amount_usd)
            assert one.carried_usd == pytest.approx(two.carried_usd, rel=0, abs=1e-9)
            assert dict(one.counters) == pytest.approx(dict(two.counters), rel=0, abs=1e-9)
    assert left.caps.keys() == right.caps.keys()
    for key, cap in left.caps.items():
        assert cap[:2] == right.caps[key][:2]
        assert dict(cap.counters) == pytest.approx(dict(right.caps[key].counters), rel=0, abs=1e-9)
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
            Score("a", "human", "0.5", "t"),
            Alias("other", "a"),
            Spend("t", ("w",), 0.5),
            lease("l", 1.0),
            renew("w", rolling("v", 10.0)),
            Learn("sums", "worker", 1, {"n": 1.0}),
            Note("note", "text"),
            in_run("r", hard_cap("k")),
            keep("k", 0, 0.5, "s"),
        ],
        READ_ALL,
    )
