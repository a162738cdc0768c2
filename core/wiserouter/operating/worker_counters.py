"""Counts that a process keeps elsewhere, brought to counters of prometheus-client at each scrape.

Several workers of one proxy add their counters up. A count that was read from the worker that answers a scrape alone
would go up and down with the worker, and `increase()` would take each step down for a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Counter

    from wiserouter.operating.account_gauges import WatchedRouter

NAMES = {
    "faults": ("What went wrong, by kind.", "fault"),
    "judgements": ("Calls offered to the judge, by what became of them.", "outcome"),
    "cache_missed_usd": ("Paid for tokens that a warm model would have read from its cache, in USD.",),
}
"""What each counter is, and its label beside the group."""

_OF_JUDGE = ("judged", "dropped", "failed", "unpaid")

Count = tuple[str, tuple[str, ...], float]
"""The name of the counter, the values of its labels after the group, and the figure."""


class WorkerCounters:
    """The faults of routers and of their journals, the calls of their judges, and the cost of missed caches.

    Parameters
    ----------
    counters : mapping of str to Counter
        One for each of `NAMES`, with the label `group` before its own.
    """

    def __init__(self, counters: Mapping[str, Counter]) -> None:
        self._counters = counters
        self._seen: dict[tuple[str, ...], float] = {}
        self._lock = Lock()

    def update(self, watched: WatchedRouter) -> None:
        """Add what a router has counted since the last scrape of this process."""
        with self._lock:
            for name, labels, count in _counts(watched):
                key = (name, watched.group, *labels)
                one = self._counters[name].labels(*key[1:])
                one.inc(max(count - self._seen.get(key, 0.0), 0.0))
                self._seen[key] = count


def _counts(watched: WatchedRouter) -> Iterator[Count]:
    """Return the counts of a router since the start of the process."""
    for kind, count in watched.faults().items():
        yield "faults", (kind,), float(count)
    if (journal := watched.router.journal) is not None:
        yield "faults", ("journal",), float(journal.dropped)
    judge = watched.router.judge_figures()
    if judge is not None:
        for outcome in _OF_JUDGE:
            yield "judgements", (outcome,), float(getattr(judge, outcome))
    conversations = watched.router.conversation_figures()
    if conversations is not None:
        yield "cache_missed_usd", (), conversations.missed_usd
