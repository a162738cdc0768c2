"""Orders of administrators in a shared store: a number that each worker reads as it exchanges, and a text behind it."""

from __future__ import annotations

from collections.abc import Callable

from wiserouter.stores.engines.base import ReadRequest, Reply
from wiserouter.stores.engines.events import Event, Note
from wiserouter.stores.peer import Peer
from wiserouter.stores.shared.exchange import EngineClient

ROOT = "orders"


class OrderSync(Peer):
    """The latest orders that one worker has read.

    Parameters
    ----------
    client : EngineClient
        Exchanges with the engine.

    Attributes
    ----------
    text : str
        The orders; "" for none.
    followers : list of callable
        Called with later orders, in the thread that read them.
    """

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self.text, self._number, self._latest = "", "", ""
        self.followers: list[Callable[[str], object]] = []

    def outgoing(self, now_s: float) -> list[Event]:
        """Return no event: orders are kept at once."""
        return []

    def wanted_notes(self) -> list[str]:
        """Return the names of the latest number, and of its text where that was not read yet."""
        return [ROOT] if self._latest == self._number else [ROOT, _name(self._latest)]

    def incoming(self, reply: Reply) -> None:
        """Take over later orders."""
        text = reply.notes.get(_name(self._latest))
        if self._latest != self._number and text:
            self._take(self._latest, text)
        self._latest = reply.notes.get(ROOT, self._number)
        if self._latest != self._number:  # the text is read at once, and not with the next periodic exchange
            self._client.hastened = True

    def read(self) -> str:
        """Return the present orders of the store."""
        while True:
            number = self._client.exchange_apart([], ReadRequest(notes=[ROOT])).notes.get(ROOT, "")
            if number == self._number:
                return self.text
            text = self._client.exchange_apart([], ReadRequest(notes=[_name(number)])).notes.get(_name(number), "")
            if text:  # else a later one has taken its place
                self._latest = number
                self._take(number, text)

    def keep(self, text: str) -> bool:
        """Keep orders in place of those that were read last; return False if others have come first."""
        former = self._number
        number = str(int(former or "0") + 1)
        events = [Note(_name(number), text, former=""), Note(ROOT, number, former=former)]
        if former:
            events.append(Note(_name(former), ""))
        results = self._client.exchange_apart(events, ReadRequest()).results
        if results[1] != "ok":
            return False
        self._latest = number
        self._take(number, text)
        return True

    def _take(self, number: str, text: str) -> None:
        self._number, self.text = number, text
        for follower in self.followers:
            follower(text)


def _name(number: str) -> str:
    return f"{ROOT}|{number}"
