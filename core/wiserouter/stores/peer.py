"""The protocol of what takes part in the exchanges of a store, such as shared sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from wiserouter.stores.engines.base import Reply
    from wiserouter.stores.engines.events import Event


class Peer(Protocol):
    """A participant that exchanges sums with its counterparts in other workers, and no texts unless it says which."""

    def outgoing(self, now_s: float) -> Sequence[Event]:
        """Return the events that add to the sums; the same ones again until `incoming` confirms their arrival."""
        ...

    def wanted(self, now_s: float) -> Sequence[str]:
        """Return the names of the sums to read."""
        return ()

    def wanted_notes(self) -> Sequence[str]:
        """Return the names of the texts to read."""
        return ()

    def incoming(self, reply: Reply) -> None:
        """Take over the sums as they are after the events of `outgoing`."""
        ...

    def begin_again(self, sums: Mapping[str, Mapping[str, float]]) -> None:
        """Expect sums that begin again at `sums`: the store has lost data, and what was learned from them stays."""
        return

    def hasten(self) -> None:
        """Leave nothing for later: the next exchange may be the last one, or shows what an older state has."""
        return
