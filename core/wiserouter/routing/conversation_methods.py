"""The methods of `WiseRouter` for conversations: how a call of one is decided, its end, and its reward."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from numpy.typing import ArrayLike

from wiserouter.budgets.run_caps import name_of_cap
from wiserouter.conversations.conversation import Conversation
from wiserouter.conversations.identity import conversation_key
from wiserouter.conversations.settings import Conversations
from wiserouter.errors import (
    AlreadySettled,
    BudgetExhausted,
    InvalidInput,
    RunBudgetExhausted,
    StoreUnavailable,
    UnknownConversation,
    UnknownDecision,
)
from wiserouter.learning.source_scores import HUMAN
from wiserouter.planning.value_mix import check_value
from wiserouter.prompts.query import Query
from wiserouter.prompts.short_answers import is_informative
from wiserouter.routing.conversation_calls import KEPT_TTLS, MAX_ATTEMPTS, ConversationCalls, name_of_ended
from wiserouter.routing.conversation_figures import ConversationFigures
from wiserouter.routing.keyed_draws import check_draw_key
from wiserouter.routing.settlement import RouterSettlement
from wiserouter.stores.base import Record
from wiserouter.types import NO_CONTEXT
from wiserouter.validation import check_count, check_kind


class CallQuestion(NamedTuple):
    """The arguments of `WiseRouter.decide` that describe one call."""

    text: str | None
    embedding: ArrayLike | None
    context: int | None
    eligible: Iterable[str] | None
    input_tokens: int | None
    max_output_tokens: int | None
    worst_case_usd: Mapping[str, float] | None
    scope: str
    may_wait: bool
    draw_key: str | None
    value: float | None = None

    @property
    def asks(self) -> bool:
        """True if it says what is asked for: "yes, go on" does not."""
        if isinstance(self.text, str) and self.embedding is None and self.context is None:
            return is_informative(self.text)
        return self.text is not None or self.embedding is not None or self.context not in (None, NO_CONTEXT)


class RouterConversations(RouterSettlement):
    """The methods that know which conversation a call belongs to."""

    @property
    def conversations(self) -> Conversations | None:
        """The settings of conversations; None where every call is decided alone."""
        return None if self._calls is None else self._calls.settings

    def conversation_figures(self) -> ConversationFigures | None:
        """Return the figures of the conversations in this process; None where every call is decided alone."""
        with self._lock:
            return None if self._calls is None else self._calls.counts.figures(self._calls.settings.unit)

    def keep_conversations(self, settings: Conversations) -> None:
        """Keep conversations from now on, as with `WiseRouter(conversations=...)`: for a router that was loaded.

        Raises
        ------
        InvalidInput
            If the router keeps them under other settings already.
        """
        check_kind("conversations", settings, Conversations, 'Conversations("run")')
        if self._calls is None:
            grows = self._growing is not None
            parts = (settings, self._store, self._learner, self._lock)
            self._calls = ConversationCalls(*parts, grows=grows, sums=self._call_sums)
        elif self._calls.settings != settings:
            raise InvalidInput(
                f"a router keeps conversations under one setting, got {settings} for one with {self._calls.settings}"
            )

    def conversation(self, conversation: str, *, caller: str = "", scope: str = "default") -> Conversation | None:
        """Return the kept state of a conversation; None where none is known, or its time to live is over.

        Parameters
        ----------
        conversation, caller : str
            As in `decide`.
        scope : str, default "default"
            The scope that pays.
        """
        return self._store.conversation(conversation_key(conversation, _owner(scope, caller)))

    def end(self, conversation: str, *, caller: str = "", scope: str = "default") -> None:
        """End a conversation or run: the rest of its committed amount is free, and its cost and length are learned.

        One that no one ends is over after its time to live. An unknown one is over already: nothing happens.
        """
        calls = self._conversation_calls()
        key = conversation_key(conversation, _owner(scope, caller))
        state = self._store.conversation(key)
        if state is not None:
            calls.end(state)
        if calls.settings.run_budget_usd is not None:
            self._store.end_conversation(name_of_cap(key))

    def reward_conversation(
        self,
        conversation: str,
        reward: float,
        *,
        caller: str = "",
        scope: str = "default",
        source: str = HUMAN,
        weight: float = 1.0,
        comment: str | None = None,
    ) -> bool:
        """Record a score in [0, 1] for a run, or for the latest call of a conversation, by its id; it may have ended.

        Returns
        -------
        bool
            True if an earlier score was replaced.

        Raises
        ------
        UnknownConversation
            If none is known, or all its calls have failed. Nothing is changed.
        InvalidInput
            If the score is outside [0, 1].
        """
        key = conversation_key(conversation, _owner(scope, caller))
        state = self._store.conversation(key)
        decision_id = name_of_ended(key) if state is None else state.decision_id
        try:
            if decision_id:
                return self.reward(decision_id, reward, source=source, weight=weight, comment=comment)
        except (UnknownDecision, AlreadySettled) as error:
            raise UnknownConversation(conversation) from error
        raise UnknownConversation(conversation)

    def _reserve(self, record: Record) -> None:
        """Reserve the cost of a decision; one that is refused is not sent, so that limits wait for no use of it."""
        try:
            self._store.reserve(record)
        except Exception:
            self._take_back(record)
            raise

    def _take_back(self, record: Record) -> None:
        """Let the limits forget a decision that is not sent."""
        with self._lock:
            if self._decider.limits is not None:
                self._decider.limits.unsent(record.decision)

    def _decided_in(
        self, call: CallQuestion, conversation: str, caller: str, parent: str | None
    ) -> tuple[Record, Query]:
        """Return the reserved decision of a call of a conversation, whose state is kept, and the query as read."""
        calls = self._conversation_calls()
        scope = call.scope
        owner = _owner(scope, caller)
        key = conversation_key(conversation, owner)
        parent_key = "" if parent is None else conversation_key(parent, owner)
        for _ in range(MAX_ATTEMPTS):
            state = calls.opened(key, scope, parent_key)
            try:
                record, query = self._reserved_in(calls, state, call)
            except RunBudgetExhausted:
                if state.parent and not state.version:  # its own parts draw on the same budget
                    with suppress(StoreUnavailable):
                        self._store.keep_conversation(state, KEPT_TTLS * calls.settings.ttl_s)
                raise
            is_kept = False
            try:
                is_kept = calls.decided(state, record)
            finally:
                if not is_kept:  # another call has chosen the model, or the store went away: nothing was sent yet
                    self._store.release(record.decision.id)
                    self._take_back(record)
            if is_kept:
                break
        return record, query

    def _reserved_in(self, calls: ConversationCalls, state: Conversation, call: CallQuestion) -> tuple[Record, Query]:
        """Return a reserved decision, whose conversation does not know of it yet, and the query as read."""
        caps = calls.caps(state)
        eligible = calls.eligible(state, call.eligible)
        budget = self._store.snapshot(call.scope, caps)
        context = self._context_in(state, call)
        embedding = None if context is not None else call.embedding
        query = self._learner.reader.read(call.text, embedding, call.input_tokens, context, hard=budget.hard)
        encodes = call.text is not None and embedding is None and context is None
        for attempt in range(2):
            if attempt or (encodes and not self._learner.reader.is_quick(call.text)):  # others were decided meanwhile
                budget = self._store.snapshot(call.scope, caps)
            with self._lock:
                if self._store.durable:
                    self._learner.merge_remote()
                query = self._learner.present_query(query)
                terms = calls.terms(state, query.context, call.input_tokens, caps)
                record = self._decider.decide(
                    query,
                    budget,
                    eligible,
                    call.worst_case_usd,
                    call.max_output_tokens,
                    call.scope,
                    call.may_wait,
                    call.draw_key or state.key,
                    terms,
                    call.value,
                )
            try:
                self._reserve(record)
            except BudgetExhausted as error:  # another call was faster
                refused = error
                continue
            return record, query
        raise refused

    def _context_in(self, state: Conversation, call: CallQuestion) -> int | None:
        """Return the context of a call: that of its conversation, where it has no question of its own."""
        if state.unit != "run" and call.asks:  # a run keeps the context of its task
            return call.context
        if not self._learner.context_names.has(state.contexts, state.contexts_version):
            return call.context
        kept = self._learner.present_context(state.decision_id, state.context, state.contexts_version)
        return kept if NO_CONTEXT < kept < self._learner.contexts.n_contexts else call.context

    def _conversation_calls(self) -> ConversationCalls:
        if self._calls is None:
            raise InvalidInput(
                "conversation= needs a router that keeps conversations: make it with conversations=Conversations(...)"
            )
        return self._calls


def _owner(scope: str, caller: str) -> str:
    """Return the text that keeps the conversations of different callers apart: no id of one names that of another."""
    return f"{len(scope)}:{scope}:{caller}"


def check_restrictions(max_output_tokens: int | None, draw_key: str | None, value: float | None = None) -> None:
    """Raise `InvalidInput` for a restriction or a value of a call that is none."""
    if max_output_tokens is not None:
        check_count("max_output_tokens", max_output_tokens, least=1)
    if draw_key is not None:
        check_draw_key(draw_key)
    if value is not None:
        check_value(value)
