"""The engine on Redis or Valkey, single server or cluster: one exchange is one script, which runs atomically.

The state of one router is in one hash slot, under keys that begin with `{prefix:name}`. Times are the server's.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from inspect import signature
from threading import RLock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from wiserouter.errors import InvalidInput, MissingExtra, StoreDamaged, StoreError, StoreUnavailable
from wiserouter.parallel.forks import held_at_fork
from wiserouter.stores.engines.acknowledgements import Acknowledge
from wiserouter.stores.engines.base import NOTHING, AccountState, CapState, Found, ReadRequest, Reply, WindowState
from wiserouter.stores.engines.events import (
    COUNTERS,
    Event,
    Find,
    FindConversation,
    Lease,
    Open,
    Renew,
    Reserve,
    Restore,
    Score,
)
from wiserouter.stores.engines.redis_answers import LASTING, OF_SCRIPT, REMEDIES, first_failure

if TYPE_CHECKING:
    from redis import Redis, RedisCluster

logger = logging.getLogger("wiserouter")

SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster")
_SCRIPT = files("wiserouter.stores.engines").joinpath("exchange.lua").read_text(encoding="utf-8")
_OF_RUNS = ("caps", "counts", "admitted")
_OBJECTS = {"credential_provider", "retry_on_error", "redis_connect_func", "event_dispatcher", "command_packer"}
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=dict).encode
_SHA = hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()


class RedisEngine:
    """An engine that keeps the state of a shared store on a Redis server.

    Parameters
    ----------
    url : str
        `redis://user:password@host:6379/0`, `rediss://` over TLS, `unix:///path/to/socket?db=0`; `redis+cluster://` and
        `rediss+cluster://` for Redis Cluster. Options of redis-py may follow a question mark.
    name : str, default "default"
        The name of the router, if several share the server.
    prefix : str, default "wiserouter"
        The beginning of all keys, before the name.
    reservation_ttl_s : float, default 900
        Time after which an unsettled call is presumed to have been billed.
    decision_ttl_s : float, default 7 days
        Time for which a settled decision can be rewarded.
    max_conversations : int, default 100,000
        Beyond this many, the conversations kept longest ago are forgotten, as are the caps of runs.
    timeout_s : float, default 2
        Time limit for a connection, and for an answer.

    Raises
    ------
    MissingExtra
        If redis-py is not installed.
    InvalidInput
        If the URL or a name cannot be used.

    Notes
    -----
    A server that may evict keys (`maxmemory-policy` other than `noeviction`) loses the amounts spent, and one that
    restarts from snapshots (`save` without `appendonly`) those since the last one: it is named in a warning.
    """

    near = False

    def __init__(
        self,
        url: str,
        *,
        name: str = "default",
        prefix: str = "wiserouter",
        reservation_ttl_s: float = 900.0,
        decision_ttl_s: float = 7 * 86_400.0,
        max_conversations: int = 100_000,
        timeout_s: float = 2.0,
    ) -> None:
        self.store = without_password(url)
        self._base = _base(prefix, name)
        self._absent = f"{self._base}:absent"  # a cluster runs nothing on a part of the keys while it moves them
        ttls_s = {"reservation_ttl_s": reservation_ttl_s, "decision_ttl_s": decision_ttl_s}
        self._bounds = {**ttls_s, "max_conversations": max_conversations}
        self._connect = _connector(url, timeout_s)
        self._client: Redis | RedisCluster | None = None
        self._asked_losses = False
        self._lock = held_at_fork(RLock())

    def exchange(self, events: Sequence[Event], reading: ReadRequest = NOTHING, within_s: float | None = None) -> Reply:
        """Apply the events in order, all in one transaction, and read; `timeout_s` alone limits the time."""
        asked = {**reading._asdict(), **self._bounds, "is_first": not self._asked_losses}
        request = {"events": [_plain(event) for event in events], **asked}
        body = _to_json(request)
        return _reply(events, self._run(body.encode("utf-8", "surrogatepass")))

    def close(self) -> None:
        """Close the connections; another exchange opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()
            if hasattr(client, "connection_pool"):  # redis-py 5.0.0 leaves it open
                client.connection_pool.disconnect()

    def _run(self, body: bytes) -> list[Any]:
        from redis.exceptions import NoScriptError

        with self._errors():
            client: Any = self._connected()  # redis-py has no types for the results of scripts
            try:
                reply: list[Any] = client.evalsha(_SHA, 2, self._base, self._absent, body)
            except NoScriptError:  # the server is new or was restarted
                reply = client.eval(_SCRIPT, 2, self._base, self._absent, body)
        if not self._asked_losses:
            self._asked_losses = True
            self._warn_of_losses(client)
        return reply

    def _warn_of_losses(self, client: Any) -> None:
        """Log how the server may lose the amounts spent; one that does not say is trusted."""
        for loss_of in (_eviction, _old_snapshot, _other_slot):
            try:
                loss = loss_of(client)
            except Exception as error:  # the exchange has been applied: whatever the server answers, it holds
                logger.debug("%s does not say whether it may lose data: %s", self.store, error)
                continue
            if loss:
                logger.warning("%s %s", self.store, loss)

    def _connected(self) -> Redis | RedisCluster:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from redis.exceptions import ReadOnlyError, RedisClusterException, RedisError

        try:
            yield
        except (RedisError, RedisClusterException, OSError) as error:
            if isinstance(error, ReadOnlyError) or "READONLY" in str(error):
                self.close()  # another server has become the master: connect again
            raise self._failure(first_failure(error)) from error

    def _failure(self, error: Exception) -> StoreError:
        from redis.exceptions import AuthenticationError, ResponseError

        said = f"{error}"
        if newer := re.search(r"NEWER (.*?);", said):
            what = f"{self._base} comes from a newer version of WISERouter (schema {newer[1]}): upgrade wiserouter"
            return StoreDamaged(f"{self.store}: {what}", store=self.store)
        if found := re.search(r"DAMAGED (.*?);|(WRONGTYPE)", said):
            what = found[1] or f"a key under {self._base} has the wrong type"
            if " lacks its window " in what:
                whole = f"delete all keys that begin with {self._base}, and the running workers restore what they know"
                what += f", which was deleted or evicted: set maxmemory-policy noeviction, {whole}"
            return StoreDamaged(f"{self.store} is damaged: {what}", store=self.store)
        if isinstance(error, AuthenticationError):
            form = "begin the URL with redis://user:password@host, or redis://:password@host"
            why = f"does not accept the user or password: {said.rstrip('.')}; {form}"
            return StoreUnavailable(f"{self.store} {why}", store=self.store, lasts=True)
        answers = "check that a server answers there" + (" with TLS" if self.store.startswith("rediss") else "")
        if isinstance(error, ResponseError):
            answers = "the server answers, and its log may say more"
        kind = type(error).__name__  # redis-py leaves the first word of some answers out
        word = next((word for word in REMEDIES if word in f"{kind} {said}"), "")
        why = f"{OF_SCRIPT.sub('', said).rstrip('.')}; {REMEDIES.get(word, answers)}"
        return StoreUnavailable(f"{self.store} cannot be used: {why}", store=self.store, lasts=word in LASTING)


def _eviction(client: Any) -> str:
    """Return that a server may delete keys when its memory is full, and what to do; "" where it does not."""
    memory = client.info("memory")
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    if int(memory.get("maxmemory", 0)) == 0 or policy == "noeviction":
        return ""
    what = "deletes keys when its memory is full, and loses the amounts spent"
    return f"{what}: set maxmemory-policy noeviction, not {policy}"


def _old_snapshot(client: Any) -> str:
    """Return that a restart takes a server back to its last snapshot, and what to do; "" where it does not."""
    if client.info("persistence").get("aof_enabled", 1) or not client.config_get("save").get("save"):
        return ""
    return "restarts from its last snapshot, and forgets what was spent since: set appendonly yes, or save to nothing"


def _other_slot(client: Any) -> str:
    """Return that a node of a cluster serves a router only while it has its slot, and what to do; "" for others."""
    from redis import RedisCluster

    if isinstance(client, RedisCluster) or not client.info("cluster").get("cluster_enabled"):
        return ""
    remedy = REMEDIES["MovedError"].rpartition(": ")[2]
    return f"is a node of a cluster, and refuses this router once another node has its slot: {remedy}"


def without_password(url: str) -> str:
    """Return a URL without its password and settings; a user without a password may be one that lacks its colon.

    Examples
    --------
    >>> without_password("redis://me:secret@host:6379/0?ssl_password=secret"), without_password("redis://secret@host")
    ('redis://me@host:6379/0', 'redis://host')
    """
    scheme, _, rest = url.partition("?")[0].partition("://")
    login, _, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    return f"{scheme}://{user}@{place}" if user and colon else f"{scheme}://{place}"


def _base(prefix: str, name: str) -> str:
    for what, value in (("prefix", prefix), ("name", name)):
        if not value or "{" in value or "}" in value:
            raise InvalidInput(f"{what} must be a word without braces, got {value!r}", value=value)
    return f"{{{prefix}:{name}}}"


def _connector(url: str, timeout_s: float) -> Callable[[], Redis | RedisCluster]:
    """Return a function that opens a client; a stale connection is replaced once, since exchanges may be sent again."""
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError:
        raise MissingExtra("the Redis store", "redis-py", "redis") from None
    scheme, _, rest = url.partition("://")
    plain = f"{scheme.removesuffix('+cluster')}://{rest}"
    _check_url(scheme, plain)
    client = redis.RedisCluster if scheme.endswith("+cluster") else redis.Redis
    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 1, (redis.exceptions.ConnectionError,)),
        "retry_on_error": [redis.exceptions.ConnectionError],  # read by redis-py 5
    }
    _check_settings(plain, options, client)
    return lambda: client.from_url(plain, **options)


def _check_url(scheme: str, url: str) -> None:
    """Refuse a URL that redis-py cannot parse; its own message may contain a part of the password."""
    from redis.connection import parse_url

    try:
        options = parse_url(url) if scheme in SCHEMES else None  # type: ignore[no-untyped-call]
    except ValueError:
        options = None
    if options is None:
        raise InvalidInput(
            f"store must be a URL of {', '.join(SCHEMES)} such as redis://user:password@host:6379/0, with special "
            f"characters of the password percent-encoded; got one of {scheme!r} that cannot be read",
            value=scheme,
        )
    if options.get("decode_responses"):
        raise InvalidInput("the URL of a store must leave decode_responses out, got True", value=True)
    database = "" if scheme == "unix" else urlsplit(url).path.strip("/").rpartition("@")[2]
    if database and not database.isdecimal():  # redis-py would use database 0
        raise InvalidInput(
            f"the database of a store must be a whole number, as in redis://host:6379/0, got {database!r}: "
            "to keep two budgets apart in one database, add ?name=",
            value=database,
        )
    if scheme.endswith("+cluster") and (found := options.get("db")):
        rule = f"a cluster has database 0 only, got {found}: to keep two budgets apart, add ?name="
        raise InvalidInput(rule, value=found)


def _check_settings(url: str, options: Mapping[str, Any], client: type) -> None:
    """Refuse a setting of a URL that redis-py does not take, before a thread meets it; nothing is contacted."""
    import redis
    from redis.connection import parse_url

    of_cluster = signature(redis.RedisCluster).parameters if client is redis.RedisCluster else ()
    given = {**options, **(in_url := parse_url(url))}  # type: ignore[no-untyped-call]
    try:
        if objects := _OBJECTS.intersection(in_url):
            raise TypeError(f"{min(objects)}, which no text can be")
        pool = redis.ConnectionPool(**{name: value for name, value in given.items() if name not in of_cluster})
        pool.connection_class(**pool.connection_kwargs)
    except (TypeError, AttributeError, ValueError, redis.exceptions.RedisError) as error:
        found = f"{error}".rpartition("unexpected keyword argument ")[2]
        raise InvalidInput(f"a setting of a store must be known here or to redis-py, got {found}") from error


def _plain(event: Event) -> dict[str, Any]:
    """Return an event as JSON values."""
    fields = {"kind": type(event).__name__, **event._asdict()}
    if isinstance(event, Open | Restore):
        fields["windows"] = [window._asdict() for window in event.windows]
    elif isinstance(event, Renew):
        fields["window"] = event.window._asdict()
    elif isinstance(event, Reserve):
        for name in _OF_RUNS if not event.caps and event.counts and not event.admitted else ():
            del fields[name]
    return fields


def _reply(events: Sequence[Event], answer: list[Any]) -> Reply:
    now_s, results, accounts, sums, notes, caps = answer
    return Reply(
        float(now_s),
        [_READ.get(type(event), _text)(result) for event, result in zip(events, results, strict=False)],
        {_text(scope): _account(*rest) for scope, *rest in accounts},
        {_text(name): _cells(flat) for name, flat in sums},
        {_text(name): _text(note) for name, note in notes},
        {_text(key): _cap(*rest) for key, *rest in caps},
    )


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")


def _account(
    generation: bytes, terms: bytes, windows: list[list[bytes]], restored: bytes, committed_usd: bytes
) -> AccountState:
    read = tuple([_window(*window) for window in windows])
    return AccountState(int(generation), _text(terms), read, _text(restored), float(committed_usd))


def _window(name: bytes, amount_usd: bytes, carried_usd: bytes, *counters: bytes) -> WindowState:
    return WindowState(_text(name), float(amount_usd), float(carried_usd), _counters(counters))


def _cap(amount_usd: bytes, hard: bytes, *counters: bytes) -> CapState:
    return CapState(float(amount_usd), hard == b"1", _counters(counters))


def _counters(values: Sequence[bytes]) -> dict[str, float]:
    return dict(zip(COUNTERS, map(float, values), strict=True))


def _cells(flat: list[bytes]) -> dict[str, float]:
    return {_text(cell): float(value) for cell, value in zip(flat[::2], flat[1::2], strict=True)}


def _scored(result: bytes) -> str | dict[str, str]:
    return _text(result) if result in (b"unknown", b"released") else _scores(result)


def _scores(result: bytes) -> dict[str, str]:
    return dict(json.loads(result)) if result else {}


def _number(value: bytes | None) -> float | None:
    return None if value is None else float(value)


def _found(result: list[Any] | None) -> Found | None:
    if result is None:
        return None
    name, record, state, model, cost_usd, scores, windows = result
    return Found(
        _text(name),
        _text(record),
        _text(state),
        _text_or_none(model),
        _number(cost_usd),
        _scores(scores),
        tuple([_text(window) for window in windows]),
    )


def _text_or_none(result: bytes | None) -> str | None:
    return None if result is None else _text(result)


_READ: dict[type, Callable[[Any], object]] = {
    Acknowledge: float,
    Open: int,
    Restore: int,
    Lease: float,
    Score: _scored,
    Find: _found,
    FindConversation: _text_or_none,
}
