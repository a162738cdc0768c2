"""Stores by URL: the scheme names the engine, and settings follow the question mark."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from wiserouter.errors import InvalidInput
from wiserouter.stores.base import Store
from wiserouter.stores.memory import MemoryStore

if TYPE_CHECKING:
    from wiserouter.stores.engines.base import Engine

REDIS = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster")

_NUMBERS = ("refresh_s", "flush_s", "lease_share", "lease_ttl_s", "local_share", "max_staleness_s")
_TEXTS = ("on_store_error", "spool")
_ENGINE_NUMBERS, _ENGINE_TEXTS = ("timeout_s",), {"sqlite": ("synchronous",), "redis": ("name", "prefix")}


def open_store(
    url: str | Store = "memory://", *, reservation_ttl_s: float = 900.0, decision_ttl_s: float = 7 * 86_400.0
) -> Store:
    """Return the store that a URL names; a store passes through.

    Parameters
    ----------
    url : str or Store, default "memory://"
        `memory://` keeps everything in this process. `sqlite:///budget.db` (a relative path; an absolute one has four
        slashes) is for several processes on one machine, `redis://host:6379/0` for several machines, as are `rediss://`
        (TLS), `unix://` and `redis+cluster://`. Settings of `SharedStore` and of the engine follow a "?":
        `redis://host?on_store_error=local&name=team`.
    reservation_ttl_s : float, default 900
        Time after which an unsettled call is presumed to have been billed; longer than the longest call.
    decision_ttl_s : float, default 7 days
        Time for which a settled decision can be rewarded.

    Raises
    ------
    InvalidInput
        If it is neither, or the scheme or a setting is unknown.
    StoreUnavailable, StoreDamaged
        If a file cannot be used. A server is contacted when it is first needed.
    MissingExtra
        If redis-py is not installed.

    Examples
    --------
    >>> type(open_store("memory://")).__name__
    'MemoryStore'
    """
    if not isinstance(url, str):
        if not hasattr(url, "durable"):
            rule = "store must be a URL such as 'sqlite:///budget.db' or 'redis://host:6379/0', or one of open_store"
            raise InvalidInput(f"{rule}, got {url!r}", value=url)
        return url
    ttls: dict[str, Any] = {"reservation_ttl_s": reservation_ttl_s, "decision_ttl_s": decision_ttl_s}
    if url.partition("://")[0] == "memory":
        if query := url.partition("?")[2]:
            raise InvalidInput(f"a store in memory has no settings, got {query!r}: leave them out", value=query)
        return MemoryStore(**ttls)
    from wiserouter.stores.shared import SharedStore  # a router in memory does not need it

    opened = open_engine(url, **ttls)
    return SharedStore(opened.engine, name=opened.name, reservation_ttl_s=reservation_ttl_s, **opened.settings)


def url_of(named: str) -> str:
    """Return the URL of a store that is named by its URL, or by the path of a SQLite file.

    Examples
    --------
    >>> url_of("budget.db"), url_of("redis:localhost")
    ('sqlite:///budget.db', 'redis:localhost')
    """
    scheme, colon, _ = named.partition(":")
    is_url = "://" in named or (colon and scheme in {"sqlite", *REDIS})  # one with a mistake is refused with its remedy
    return named if is_url else f"sqlite:///{named}"


class OpenedEngine(NamedTuple):
    """An engine, its name in errors, and the settings of the store."""

    engine: Engine
    name: str
    settings: dict[str, Any]


def open_engine(url: str, *, create: bool = True, **ttl_s: Any) -> OpenedEngine:
    """Return the engine that a URL names, with the settings of the store in the URL; raises as `open_store` does.

    Parameters
    ----------
    url : str
        As of `open_store`; a store in memory has no engine.
    create : bool, default True
        Whether to create a missing file.
    **ttl_s : float, seconds
        `reservation_ttl_s` and `decision_ttl_s`, as of `open_store`.
    """
    scheme = url.partition("://")[0]
    if scheme not in {"sqlite", *REDIS}:
        given = _public(url) if "://" in url else url.rpartition("@")[2]
        raise InvalidInput(
            f"store must be a URL that starts with memory://, sqlite:// or redis://, got {given!r}{_remedy(url)}",
            value=given.partition("://")[0],
        )
    kind = "sqlite" if scheme == "sqlite" else "redis"
    plain, settings, engine_settings, rest = _split(url, kind)
    if kind == "sqlite":
        from wiserouter.stores.engines.sqlite import SQLiteEngine

        path = plain.removeprefix("sqlite://").removeprefix("/")
        engine: Engine = SQLiteEngine(path, create=create, **engine_settings, **ttl_s)
        settings.setdefault("spool", path)
    else:
        from wiserouter.stores.engines.redis import RedisEngine

        engine = RedisEngine(plain + rest, **engine_settings, **ttl_s)
    return OpenedEngine(engine, _public(plain), settings)


def _split(url: str, kind: str) -> tuple[str, dict[str, Any], dict[str, Any], str]:
    """Return a URL without its settings, the settings of the store and of the engine, and the rest of the query."""
    plain, _, query = url.partition("?")
    settings: dict[str, Any] = {}
    engine: dict[str, Any] = {}
    rest = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in _NUMBERS or name in _ENGINE_NUMBERS:
            (settings if name in _NUMBERS else engine)[name] = _number(name, value)
        elif name in _TEXTS or name in _ENGINE_TEXTS[kind]:
            (settings if name in _TEXTS else engine)[name] = value
        elif kind == "redis":  # settings of redis-py
            rest.append((name, value))
        else:
            known = ", ".join((*_NUMBERS, *_TEXTS, *_ENGINE_NUMBERS, *_ENGINE_TEXTS[kind]))
            raise InvalidInput(f"a setting of a store must be one of {known}, got {name!r}", value=name)
    return plain, settings, engine, "?" + urlencode(rest) if rest else ""


def _number(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise InvalidInput(f"{name} must be a number, got {value!r}", value=value) from None
    if name == "max_staleness_s" and number == 0.0:  # without the engine, nothing is decided
        return number
    if name.endswith("_s") and not 0.0 < number < math.inf:
        raise InvalidInput(f"{name} must be a finite number of seconds, more than 0, got {value!r}", value=value)
    return number


def _remedy(url: str) -> str:
    """Return the remedy for a text that is no URL; none where it may hold a password."""
    place = url.partition("?")[0]
    if not place or "://" in place or "@" in place:
        return ""
    scheme, _, rest = place.partition(":")
    if scheme in REDIS:
        return f": for that server say {scheme}://{rest.lstrip('/') or 'localhost:6379/0'}"
    return f": for that file say sqlite:///{rest if scheme == 'sqlite' and rest else place}"


def _public(url: str) -> str:
    """Return a URL without user, password and settings."""
    scheme, _, place = url.partition("://")
    if scheme != "sqlite":
        place = place.rpartition("@")[2]  # before all else: a password that is not encoded may hold any sign
    return f"{scheme}://{place.partition('?')[0]}"
