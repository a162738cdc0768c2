"""The observers of a router: its journal, metrics, and warnings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from wiserouter.errors import InvalidInput
from wiserouter.routing.journal import Journal
from wiserouter.routing.observer import Observer, RequestObserver

if TYPE_CHECKING:
    from wiserouter.stores.base import Store


class ObservedRouter:
    """The methods that say who is told of decisions and outcomes."""

    _store: Store

    def __init__(self) -> None:
        self._observers: tuple[Observer, ...] = ()
        self._request_observers: tuple[RequestObserver, ...] = ()

    @property
    def journal(self) -> Journal | None:
        """The journal, where one is kept."""
        return next((one for one in self._observers if isinstance(one, Journal)), None)

    @journal.setter
    def journal(self, journal: Journal | None) -> None:
        others = [one for one in self._observers if not isinstance(one, Journal)]
        self._observers = tuple(others if journal is None else [journal, *others])

    def report_to(self, observer: Observer) -> None:
        """Let an observer, such as metrics, take every decision and outcome from now on.

        Raises
        ------
        InvalidInput
            If it lacks a method of an observer.
        """
        if not isinstance(observer, Observer):
            rule = "an observer must have the methods decision, event and note"
            raise InvalidInput(f"{rule}, got {observer!r}", value=observer)
        self._observers = (*self._observers, observer)
        if isinstance(observer, RequestObserver):
            self._request_observers = (*self._request_observers, observer)

    @property
    def request_observers(self) -> tuple[RequestObserver, ...]:
        """The observers that count refused requests and measure decisions, as an adapter reports them."""
        return self._request_observers

    def claim(self, name: str, at_s: float, by: str) -> bool:
        """Return True if `by` is the first observer of all workers to claim an occasion; see `Store.claim`."""
        return self._store.claim(name, at_s, by)

    def journal_to(self, path: str | Path) -> Journal:
        """Append every decision, charge, release and reward from now on to a file of JSON lines.

        A thread of its own writes the file; no request waits for it.

        Raises
        ------
        OSError
            If the file cannot be opened.
        """
        self.journal = journal = Journal(path)
        return journal
