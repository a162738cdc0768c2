"""The conversations that a process keeps in memory: bounded, expiring, with the amounts that open runs commit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from wiserouter.conversations.conversation import Conversation

MAX_EXPIRED_PER_STEP = 100
"""The most conversations that expire in one step, so that its work stays bounded."""

Commit = Callable[[tuple[str, ...], float, float], None]
"""Called with the scopes of a run, and the amounts that it committed before and commits from now on."""


class KeptConversation(NamedTuple):
    """A conversation, the end of its time to live, the scopes in which it commits its rest, and that amount."""

    conversation: Conversation
    until_s: float
    scopes: tuple[str, ...]
    committed_usd: float


class KeptConversations:
    """Conversations by key; the caller holds a lock.

    Parameters
    ----------
    max_conversations : int
        Beyond this many, those kept longest ago are dropped.
    commit : callable
        Changes the committed amounts of scopes.
    """

    def __init__(self, max_conversations: int, commit: Commit) -> None:
        self._max_conversations, self._commit = max_conversations, commit
        self._kept: OrderedDict[str, KeptConversation] = OrderedDict()
        self._due: list[tuple[float, str]] = []  # a heap of the runs that commit an amount, with outdated entries

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str, now_s: float) -> Conversation | None:
        """Return a conversation that has not expired."""
        kept = self._kept.get(key)
        return None if kept is None or kept.until_s <= now_s else kept.conversation

    def keep(self, conversation: Conversation, until_s: float, now_s: float, scopes: tuple[str, ...]) -> bool:
        """Keep a state in place of its version, until `until_s`; return False where another version is kept."""
        present = self._kept.get(conversation.key)
        version = 0 if present is None or present.until_s <= now_s else present.conversation.version
        if version != conversation.version:
            return False
        self._put(conversation.next_version(), until_s, scopes, present)
        self._drop_old(now_s)
        return True

    def put(self, conversation: Conversation, until_s: float, scopes: tuple[str, ...]) -> None:
        """Keep a state whatever is kept now."""
        self._put(conversation, until_s, scopes, self._kept.get(conversation.key))

    def _put(
        self, conversation: Conversation, until_s: float, scopes: tuple[str, ...], former: KeptConversation | None
    ) -> None:
        """Keep a state in place of the former one."""
        key, usd = conversation.key, committed_usd(conversation)
        fields = (conversation, until_s, scopes, usd)
        kept = self._kept[key] = tuple.__new__(KeptConversation, fields)  # in half the time of a call
        self._kept.move_to_end(key)
        if usd or (former is not None and former.committed_usd):
            self._recommit(former, kept)
        if usd > 0.0:
            self._note_deadline(key, until_s)

    def end(self, key: str) -> None:
        """Forget a conversation."""
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._recommit(kept, None)

    def expire(self, now_s: float) -> None:
        """Take back the amounts of runs that have expired, in steps of bounded work."""
        for _ in range(MAX_EXPIRED_PER_STEP):
            if not self._due or self._due[0][0] > now_s:
                return
            _, key = heappop(self._due)
            kept = self._kept.get(key)
            if kept is not None and kept.until_s <= now_s:
                self.end(key)

    def _drop_old(self, now_s: float) -> None:
        kept = self._kept
        for _ in range(MAX_EXPIRED_PER_STEP):
            key = next(iter(kept), None)
            if key is None or (kept[key].until_s > now_s and len(kept) <= self._max_conversations):
                return
            self.end(key)

    def _recommit(self, former: KeptConversation | None, kept: KeptConversation | None) -> None:
        """Replace the amount that a former state commits by that of the present one."""
        before_usd = 0.0 if former is None else former.committed_usd
        after_usd = 0.0 if kept is None else kept.committed_usd
        if former is not None and kept is not None and former.scopes == kept.scopes:
            if before_usd != after_usd:
                self._commit(kept.scopes, before_usd, after_usd)
            return
        if former is not None and before_usd:
            self._commit(former.scopes, before_usd, 0.0)
        if kept is not None and after_usd:
            self._commit(kept.scopes, 0.0, after_usd)

    def _note_deadline(self, key: str, until_s: float) -> None:
        """Add a deadline; those outdated are removed once they are most of the heap."""
        heappush(self._due, (until_s, key))
        if len(self._due) > 2 * len(self._kept) + MAX_EXPIRED_PER_STEP:
            self._due = [(kept.until_s, key) for key, kept in self._kept.items() if kept.committed_usd > 0.0]
            heapify(self._due)


def committed_usd(conversation: Conversation) -> float:
    """Return the amount that a conversation commits: the expected rest of a run."""
    rest_usd = conversation.rest_usd
    return rest_usd if rest_usd > 0.0 and conversation.unit == "run" else 0.0
