"""The kept states of conversations in a shared store: each step is one exchange with the engine.

While the engine does not answer, a worker continues the conversations that it has seen, where the limit of their scope
lets it decide at all. What it keeps then is sent later, and counts if no other worker has kept another state meanwhile.
"""

from __future__ import annotations

from functools import partial

from wiserouter.conversations.conversation import Conversation
from wiserouter.errors import StoreUnavailable
from wiserouter.stores.engines.events import EndConversation, FindConversation, KeepConversation
from wiserouter.stores.ids import fresh_id
from wiserouter.stores.kept_conversations import committed_usd
from wiserouter.stores.shared.codec import conversation_of_text
from wiserouter.stores.shared.exchange import PendingEvent
from wiserouter.stores.shared.worker import Worker

MAX_SEEN = 10_000
"""The number of states that a worker keeps for the time in which its engine does not answer."""


def find_conversation(worker: Worker, key: str) -> Conversation | None:
    """Return the kept state of a conversation; the one that this worker saw last, where the engine does not answer."""
    try:
        found = worker.client.request(PendingEvent(FindConversation(key), ""))
    except StoreUnavailable:
        if not worker.continues:
            raise
        with worker.lock:
            text = worker.seen.get(key)
    else:
        text = None if found is None else str(found)
        with worker.lock:
            _note(worker, key, text)
    return None if text is None else conversation_of_text(text, worker.name)


def keep_conversation(worker: Worker, conversation: Conversation, ttl_s: float) -> bool:
    """Keep a state in place of its version; False where another one is kept."""
    scope, usd = conversation.scope, committed_usd(conversation)
    if usd > 0.0 and scope not in worker.replica.views:
        worker.refresh_account(scope)
    with worker.lock:
        scopes = tuple(worker.replica.scopes(scope)) if usd > 0.0 else ()
    key, text = conversation.key, conversation.next_version().to_text()
    event = KeepConversation(key, conversation.version, text, ttl_s, fresh_id(), scopes, usd)
    pending = PendingEvent(event, scope if scope in worker.replica.views else "")
    pending.defer = partial(_defer_keeping, worker, conversation, text)
    try:
        is_kept = worker.client.request(pending) == "ok"
    except StoreUnavailable:
        with worker.lock:
            if _continues(worker, scope) and not _is_latest(worker, conversation):
                return False  # another call of this worker was faster
        raise
    with worker.lock:
        if is_kept:
            _note(worker, key, text)
    return is_kept


def end_conversation(worker: Worker, key: str) -> None:
    """Forget a conversation, what it commits, and its cap unless a call of it is in flight."""
    with worker.lock:
        text = worker.seen.get(key)
        scope = "" if text is None else conversation_of_text(text, worker.name).scope
    pending = PendingEvent(EndConversation(key), scope if scope in worker.replica.views else "", caps=(key,))
    pending.defer = lambda: worker.continues
    worker.client.request(pending)
    with worker.lock:
        _note(worker, key, None)


def _defer_keeping(worker: Worker, conversation: Conversation, text: str) -> bool:
    """Keep a state here where the engine does not answer and the limit of the scope permits decisions."""
    if not _continues(worker, conversation.scope) or not _is_latest(worker, conversation):
        return False
    _note(worker, conversation.key, text)
    return True


def _continues(worker: Worker, scope: str) -> bool:
    """Return True if calls of a scope are decided while the engine does not answer."""
    return worker.continues and worker.may_act_locally(scope)


def _is_latest(worker: Worker, conversation: Conversation) -> bool:
    """Return True if a state follows the one that this worker saw last."""
    text = worker.seen.get(conversation.key)
    seen = 0 if text is None else conversation_of_text(text, worker.name).version
    return seen == conversation.version


def _note(worker: Worker, key: str, text: str | None) -> None:
    """Note the state that this worker saw last; None where there is none."""
    if text is None:
        worker.seen.pop(key, None)
        return
    worker.seen[key] = text
    worker.seen.move_to_end(key)
    if len(worker.seen) > MAX_SEEN:
        worker.seen.popitem(last=False)
