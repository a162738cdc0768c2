"""Claims: of all workers of a store, one alone acts on an occasion, such as a budget that has reached 80 %."""

from __future__ import annotations

from wiserouter.stores.engines.base import ReadRequest
from wiserouter.stores.engines.events import Note
from wiserouter.stores.shared.worker import Worker


def claim(worker: Worker, name: str, at_s: float, by: str) -> bool:
    """Return True if `by` is the first to claim the latest occasion of a name; an occasion is known by its time.

    The texts of an engine are replaced only where they are as they were read, so that one of several claimants wins.
    """
    key, mine = f"claim|{name}", f"{at_s!r} {by}"
    reading = ReadRequest(notes=[key])
    while True:
        former = worker.client.exchange_apart([], reading).notes.get(key, "")
        latest_s, _, holder = former.partition(" ")
        if former and float(latest_s) >= at_s:
            return (float(latest_s), holder) == (at_s, by)
        if worker.client.exchange_apart([Note(key, mine, former)], reading).results[0] == "ok":
            return True
