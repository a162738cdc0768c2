"""Contexts that grow in several workers: one of them fits, all take over the same version, and no observation is lost.

A version is published by a compare-and-swap: the first one counts, and a worker that ends while it fits leaves nothing
behind that others would wait for. The publication contains how the sums of the former contexts move (a linear map), so
that every worker moves what it knows, and what arrives later for former contexts, by the same map. Where a worker knows
the new context of a query better than the map does, it adds the difference to sums of corrections.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from wiserouter.errors import InvalidInput
from wiserouter.learning.context_moves import moved_sums
from wiserouter.learning.estimates import Estimates
from wiserouter.prompts.contexts import Contexts
from wiserouter.prompts.encoders import Encoder
from wiserouter.stores.engines.base import Reply
from wiserouter.stores.engines.events import Event, Learn, Note
from wiserouter.stores.ids import fresh_id
from wiserouter.stores.peer import Peer
from wiserouter.stores.shared.estimate_sync import EstimateSync, RemoteObservations, sums_name
from wiserouter.stores.shared.shared_contexts import ContextMove, SharedContexts, root_name
from wiserouter.types import FloatArray

logger = logging.getLogger("wiserouter")

FORMER_EVERY_S = 10.0
"""Seconds between two readings of the sums of former contexts, to which little is added."""

REPLACED = "replaced"
"""The text of a version after the next one: were its name free, a worker that has not read it yet would be handed what
a slower one publishes there."""


class _Version(NamedTuple):
    """The sums of one version of the contexts, and the corrections that were made when it began."""

    name: str
    sums: EstimateSync
    corrections: EstimateSync

    def each(self) -> tuple[EstimateSync, EstimateSync]:
        return self.sums, self.corrections


class ContextSync(Peer):
    """The observations of one worker and those of the others, and the versions of their contexts.

    Parameters
    ----------
    contexts : Contexts
        Those that the worker begins with; workers that begin with others share a budget, but nothing else.
    encoder : Encoder or None
        The worker's encoder.

    Attributes
    ----------
    offered : SharedContexts or None
        A later version than the present one, to be taken over by `advance`.
    """

    def __init__(self, contexts: Contexts, encoder: Encoder | None) -> None:
        self._root = root_name(contexts, encoder)
        self._versions = [_version(sums_name(contexts), contexts.n_contexts)]
        self._present: SharedContexts | None = None
        self._models: tuple[str, ...] = ()
        self._latest, self._declined, self._read = "", "", False
        self._publishing: SharedContexts | None = None
        self._asked_s = float("-inf")
        self._exchanging: list[EstimateSync] = []
        self.offered: SharedContexts | None = None

    def set_models(self, models: Sequence[str]) -> None:
        """Set the names of the models, in the order of the columns of `Estimates`."""
        self._models = tuple(models)
        for version in self._versions:
            for sync in version.each():
                sync.set_models(models)

    @property
    def sums(self) -> EstimateSync:
        """The observations in the present contexts."""
        return self._versions[-1].sums

    def publish(self, contexts: Contexts, encoder: Encoder | None, spread: FloatArray, n_seen: int, own: bool) -> None:
        """Offer contexts to all workers, this one included, as the next version; unless another worker was faster.

        Parameters
        ----------
        contexts : Contexts
            The contexts.
        encoder : Encoder or None
            The encoder that was fitted with them.
        spread : ndarray of shape (n_contexts now, n_contexts)
            The share of each present context in each new one.
        n_seen : int
            Number of queries seen.
        own : bool
            Whether each worker keeps its own encoder.
        """
        moves = () if self._present is None else self._present.moves
        move = ContextMove(self._versions[-1].name, spread)
        self._publishing = SharedContexts(
            f"{self._root.partition('|')[2]}-{fresh_id()[:16]}",
            contexts,
            None if own else encoder,
            not own,
            n_seen,
            (*moves, move),
        )

    def advance(self, shared: SharedContexts, corrected: Mapping[str, FloatArray]) -> None:
        """Count in a later version from now on, and let the other workers add the corrections of this one.

        Parameters
        ----------
        shared : SharedContexts
            The version.
        corrected : mapping of str to ndarray of shape (n_contexts, n_models)
            The sums by which this worker sets right what moved in proportion.
        """
        for move in shared.moves[len(self._versions) :]:
            self._versions.append(_version(move.sums, len(move.spread)))
        self._versions.append(_version(shared.sums, shared.contexts.n_contexts))
        self._present, self.offered, self._publishing = shared, None, None
        self.set_models(self._models)
        self._versions[-1].corrections.add_sums(corrected)
        self._asked_s = float("-inf")

    def outgoing(self, now_s: float) -> list[Event]:
        """Return the events that add to the sums and publish contexts; the same ones again until they have arrived."""
        former = [sync for version in self._versions[:-1] for sync in version.each()]
        if now_s - self._asked_s >= FORMER_EVERY_S or any(sync.has_unsent for sync in former):
            self._asked_s = now_s
        else:
            former = []
        self._exchanging = [*former, *self._versions[-1].each()]
        learned: list[Learn] = [learn for sync in self._exchanging for learn in sync.outgoing(now_s)]
        return [*learned, *self._publication()]

    def wanted(self, now_s: float) -> list[str]:
        """Return the names of the sums to read."""
        return [name for sync in self._exchanging for name in sync.wanted(now_s)]

    def wanted_notes(self) -> list[str]:
        """Return the names of the texts to read: the number of the latest version, and that version if it is later."""
        return [self._root, *([f"{self._root}|{self._latest}"] if self._is_late else [])]

    def incoming(self, reply: Reply) -> None:
        """Take over the sums, and a later version, as they are after the events of `outgoing`."""
        for sync in self._exchanging:
            sync.incoming(reply)
        text = reply.notes.get(f"{self._root}|{self._latest}")
        if self._is_late and text and text != REPLACED:
            self._offer(text)
        self._latest, self._read = reply.notes.get(self._root, ""), True

    def begin_again(self, sums: Mapping[str, Mapping[str, float]]) -> None:
        """Take what the next sums have beyond `sums` as additions since a loss of the store's data."""
        for version in self._versions:
            for sync in version.each():
                sync.begin_again(sums)

    def hasten(self) -> None:
        """Read the sums of former contexts with the next exchange."""
        self._asked_s = float("-inf")

    @property
    def is_behind(self) -> bool:
        """Whether there are later contexts that can be taken over, or sums that were never read."""
        is_late = self._is_late and self._latest != self._declined
        behind = not self._read or is_late or self.offered is not None
        return behind or any(sync.is_behind for version in self._versions for sync in version.each())

    @property
    def has_news(self) -> bool:
        """Whether other workers have added observations that were not read yet."""
        return any(sync.has_news for version in self._versions for sync in version.each())

    def remote_observations(self) -> list[RemoteObservations]:
        """Return the observations of the other workers since the last call, in the present contexts."""
        spreads = [] if self._present is None else [move.spread for move in self._present.moves]
        found = []
        for at, version in enumerate(self._versions):
            path = spreads[at:]
            for sync in version.each():
                corrects = sync is version.corrections
                for age_s, sums, _ in sync.remote_observations():
                    found.append(RemoteObservations(age_s, _along(path, sums), corrects))
        return found

    @property
    def _number(self) -> int:
        return len(self._versions) - 1

    @property
    def _is_late(self) -> bool:
        """Whether the store has a later version than this worker."""
        offered = 0 if self.offered is None else self.offered.version
        return _number_of(self._latest) > max(self._number, offered)

    def _publication(self) -> list[Event]:
        """Return the events that publish a version; the present one again, where the store has lost it."""
        offer = self._publishing
        if offer is not None and offer.version <= max(_number_of(self._latest), self._number):
            offer = self._publishing = None  # another worker was faster
        if offer is None and self._read and _number_of(self._latest) < self._number:
            offer = self._present
        if offer is None:
            return []
        number, former = str(offer.version), self._latest
        return [
            Note(f"{self._root}|{number}", offer.to_text(), former=""),
            Note(self._root, number, former=former),
            *([Note(f"{self._root}|{former}", REPLACED)] if former else []),
        ]

    def _offer(self, text: str) -> None:
        """Keep a version to be taken over, if it follows from the present one."""
        self._declined = self._latest
        try:
            shared = SharedContexts.from_text(text)
        except InvalidInput as error:
            logger.warning("the contexts of the other workers are left alone: %s", error)
            return
        if [move.sums for move in shared.moves[: len(self._versions)]] != [one.name for one in self._versions]:
            logger.warning("the contexts of the other workers do not follow from those of this one: left alone")
            return
        self.offered, self._declined = shared, ""


def _number_of(text: str) -> int:
    """Return the number of a version as it is kept; 0 for none."""
    return int(text) if text.isdecimal() else 0


def _version(name: str, n_contexts: int) -> _Version:
    return _Version(name, EstimateSync.named(name, n_contexts), EstimateSync.named(f"{name}-moved", n_contexts))


def _along(path: Sequence[FloatArray], sums: Estimates) -> Estimates:
    """Return sums of former contexts as sums of the present ones."""
    if not path:
        return sums
    moved = Estimates.of_arrays(moved_sums(sums.arrays(), reduce(np.matmul, path)))
    moved.n_invoked = sums.n_invoked
    moved.observed = [1] * moved.shape[0]
    moved.n_observations = sums.n_observations
    return moved
