"""Which decision a call id stands for, so that feedback finds it; bounded in number and in time."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock

from wiserouter_litellm.errors import UnknownCall


@dataclass(slots=True)
class Call:
    """A call that can be rated.

    Attributes
    ----------
    decision_id : str
        The decision behind its latest attempt.
    group : str
        The model group.
    caller : str or None
        The hash of the key that made it; None outside a proxy.
    at_s : float
        When it was decided.
    score : float or None
        The latest score.
    comment : str or None
        What was said with it.
    """

    decision_id: str
    group: str
    caller: str | None
    at_s: float
    score: float | None = None
    comment: str | None = None


ById = OrderedDict[str, dict[str | None, Call | None]]


class Calls:
    """Calls by id, the oldest forgotten first.

    Clients may choose their call id, so an id alone proves nothing: `find` also asks who made the call, and an id that
    a second caller uses names only that caller's own call.

    Parameters
    ----------
    ttl_s : float, default 7 days
        How long a call can be rated.
    max_calls : int, default 100,000
        How many are kept.
    clock : callable returning float, default time.time
        Seconds.
    """

    def __init__(
        self, ttl_s: float = 7 * 86_400.0, *, max_calls: int = 100_000, clock: Callable[[], float] = time.time
    ) -> None:
        self._ttl_s, self._max_calls, self._clock = ttl_s, max_calls, clock
        self._calls: ById = OrderedDict()
        self._responses: ById = OrderedDict()
        self._lock = RLock()

    def __len__(self) -> int:
        return len(self._calls)

    def note(self, call_id: str, decision_id: str, group: str, caller: str | None) -> None:
        """Keep the decision behind a call; a retry of the same call replaces it."""
        with self._lock:
            self._keep(self._calls, call_id, caller, Call(decision_id, group, caller, self._clock()))

    def note_response(self, response_id: str, call_id: str, caller: str | None) -> None:
        """Let a response id stand for a call; one that two calls share stands for none."""
        with self._lock:
            call = self._calls.get(call_id, {}).get(caller)
            if call is not None:
                before = self._responses.get(response_id, {}).get(caller, call)
                self._keep(self._responses, response_id, caller, call if before is call else None)

    def forget(self, call_id: str, caller: str | None) -> None:
        """Drop a call that cannot be rated, as one that the cache answered."""
        with self._lock:
            self._calls.get(call_id, {}).pop(caller, None)

    def find(self, call_id: str, caller: str | None, *, any_caller: bool = False) -> Call:
        """Return the call that an id stands for.

        Parameters
        ----------
        call_id : str
            A call id, or a response id where it is unambiguous.
        caller : str or None
            Who asks.
        any_caller : bool, default False
            Let an administrator rate everybody's calls.

        Raises
        ------
        UnknownCall
            If there is none, it has expired, or another caller made it.
        """
        with self._lock:
            call = self._found(self._calls, call_id, caller, any_caller) or self._found(
                self._responses, call_id, caller, any_caller
            )
            if call is None or call.at_s < self._clock() - self._ttl_s:
                raise UnknownCall(call_id)
            return call

    def _keep(self, calls: ById, key: str, caller: str | None, call: Call | None) -> None:
        calls.setdefault(key, {})[caller] = call
        calls.move_to_end(key)
        while len(calls) > self._max_calls:
            calls.popitem(last=False)

    @staticmethod
    def _found(calls: ById, key: str, caller: str | None, any_caller: bool) -> Call | None:
        by_caller = calls.get(key, {})
        if caller in by_caller or not any_caller:
            return by_caller.get(caller)
        return next(iter(by_caller.values())) if len(by_caller) == 1 else None
