"""The calls of conversations and runs: the terms of each decision, and what its outcome changes in the kept state.

A run is decided once. Its first decision uses up one request of the horizon at the cost and the reward of a whole run;
its later calls hold the model and use up none. The cost of a run is learned with its first charge, as what it has spent
and is expected to spend, and corrected with each further one, so that runs in progress count at their full cost. Where
another model goes on with the run, the cost that is learned stays what the first one was expected to bring it to.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from threading import RLock
from typing import Any

import numpy as np

from wiserouter.budgets.run_caps import RunCap, name_of_cap, run_of
from wiserouter.conversations.cache_hits import USUAL_LIFETIME_S
from wiserouter.conversations.call_estimates import CallEstimates
from wiserouter.conversations.conversation import Conversation
from wiserouter.conversations.open_runs import OpenRuns
from wiserouter.conversations.settings import Conversations
from wiserouter.conversations.stay_or_switch import stay_or_switch
from wiserouter.errors import StoreUnavailable, UnknownDecision
from wiserouter.learning.shrinkage import PRIOR_COUNT
from wiserouter.planning.envelope import SKIP
from wiserouter.planning.policies import Choice
from wiserouter.pricing.prices import Usage
from wiserouter.routing.conversation_figures import ConversationCounts
from wiserouter.routing.conversation_terms import ConversationTerms
from wiserouter.routing.learner import Learner
from wiserouter.routing.own_records import own_record, teaches
from wiserouter.stores.base import Record, Store
from wiserouter.stores.shared.call_sync import CallSync
from wiserouter.types import NO_CONTEXT, Decision, FloatArray

logger = logging.getLogger("wiserouter")

MAX_ATTEMPTS = 100
"""Times that a state is read again where another call of the same conversation was faster."""

KEPT_TTLS = 2.0
"""A state is kept for this many times to live, so that the worker that served it last can count its end."""

INFINITE_PRICE = -1.0
"""Stands for an infinite shadow price in a kept state."""


class ConversationCalls:
    """The conversations of one router.

    Parameters
    ----------
    settings : Conversations
        The unit, the time to live and the budget of a run.
    store : Store
        Keeps their states.
    learner : Learner
        Learns the costs of runs.
    lock : RLock
        Guards the learner.
    grows : bool
        Whether contexts change while serving.
    sums : mapping of str to ndarray, optional
        What a saved router has learned of its calls.
    """

    def __init__(
        self,
        settings: Conversations,
        store: Store,
        learner: Learner,
        lock: RLock,
        *,
        grows: bool,
        sums: Mapping[str, FloatArray] | None = None,
    ) -> None:
        self.settings, self._store, self._learner, self._lock = settings, store, learner, lock
        models, n_contexts = learner.pool.models, 1 if grows else learner.contexts.n_contexts
        self.estimates = CallEstimates.of_sums(models, n_contexts, sums) if sums else CallEstimates(models, n_contexts)
        self.counts = ConversationCounts()
        self._open = OpenRuns(settings.ttl_s)
        self._is_run = settings.unit == "run"
        self._sync = CallSync(learner.contexts, self.estimates) if store.durable else None
        if self._sync is not None:
            self._sync.set_models(learner.pool.names)
            store.join(self._sync)

    def opened(self, key: str, scope: str, parent: str) -> Conversation:
        """Return the state of a conversation; a new one where there is none, or its time to live is over."""
        store, now_s = self._store, self._store.now()
        self._end_lapsed(now_s)
        state = store.conversation(key)
        if state is not None and now_s - state.used_s <= self.settings.ttl_s:
            return state
        if state is not None:
            self.end(state)
        return Conversation(key, scope, self.settings.unit, parent=self._root(parent), started_s=now_s, used_s=now_s)

    def caps(self, state: Conversation) -> tuple[RunCap, ...]:
        """Return the budget of the run, or of the run that it is part of."""
        settings = self.settings
        if settings.run_budget_usd is None:
            return ()
        key, ttl_s = name_of_cap(state.parent or state.key), KEPT_TTLS * settings.ttl_s
        return (RunCap(key, settings.run_budget_usd, settings.run_limit == "hard", ttl_s),)

    def eligible(self, state: Conversation, eligible: Iterable[str] | None) -> Iterable[str] | None:
        """Return the models that may take the next call: not the one that failed last, where there are others."""
        if not state.failed_model:
            return eligible
        names = [model.name for model in self._learner.pool.models if not model.retired]
        others = [name for name in (names if eligible is None else eligible) if name != state.failed_model]
        return others or eligible

    def terms(
        self, state: Conversation, context: int, input_tokens: int | None, caps: tuple[RunCap, ...]
    ) -> ConversationTerms:
        """Return the terms of the next call of a conversation; the lock is held."""
        estimates = self.estimates
        self._follow()
        now_s = self._store.now()
        prompt = estimates.prompt_tokens(state, context, input_tokens)
        common = (state.rest_usd, caps, state.model, state.warm)
        if self._is_run or context == NO_CONTEXT:
            held = self._held(state, context, prompt, now_s) if self._is_run else None
            counts, run_id = (not state.decision_id, state.decision_id) if self._is_run else (True, None)
            next_usd = partial(estimates.next_usd, state, context, prompt, now_s)
            return ConversationTerms(state.key, held, counts, run_id, *common, next_usd)
        known_usd, mean_usd = estimates.of_turn(state, context, prompt, now_s)
        typical = estimates.typical
        learned = typical.deviation(context if context < typical.n_contexts else 0, known_usd)
        fields = (state.key, None, True, None, *common, known_usd.__getitem__, mean_usd, learned)
        return tuple.__new__(ConversationTerms, fields)  # in half the time of a call

    def decided(self, state: Conversation, record: Record) -> bool:
        """Keep the state after a reserved decision; False if another call has chosen the model of the run meanwhile.

        A query that is not served leaves the state as it is, so that the next call is decided as if it were the first.
        """
        if record.model == SKIP:
            return True
        for _ in range(MAX_ATTEMPTS):
            after = self._after_decision(state, record)
            if self._store.keep_conversation(after, KEPT_TTLS * self.settings.ttl_s):
                with self._lock:
                    self.estimates.calls_left.made(record.model, after.calls)
                    self._open.touch(after.key, record.model, after.calls, after.used_s)
                    self.counts.decided(record.decision)
                return True
            state = self._store.conversation(state.key) or state._replace(version=0)
            if record.counts and self._is_run and state.decision_id:
                return False
        logger.warning("the state of a conversation changed %d times during one decision", MAX_ATTEMPTS)
        return True

    def charged(self, record: Record, cost_usd: float, usage: Usage | None) -> None:
        """Learn from a charged call, and keep what it changes in the state of its conversation."""
        decision = record.decision
        both = self._changed(decision, lambda state: self._after_charge(state, record, cost_usd, usage))
        if both is None:
            return
        state, after = both
        owner = self._owner(record, after) if self._is_run else None
        with self._lock:
            self._follow()
            if usage is not None and record.model != SKIP:
                self.counts.charged(state, self._learner.pool, record.model, cost_usd, usage, after.missed_usd)
                self.estimates.learn(state, decision.context, record.model, usage, decision.decided_at)
            if owner is not None:
                self._book(owner, state, after.estimate_usd)

    def unanswered(self, record: Record, *, released: bool, failed: bool) -> None:
        """Note a call without an answer: where its model failed, the next one goes to another where there is one."""
        decision = record.decision

        def change(state: Conversation) -> Conversation:
            freed = released and state.decision_id == decision.id
            failed_model = decision.model if failed else state.failed_model
            if not freed:
                return state._replace(failed_model=failed_model)
            first_model = state.first_model if state.warm or state.spent_usd else ""
            return state._replace(failed_model=failed_model, decision_id="", first_model=first_model)

        self._changed(decision, change)

    def end(self, state: Conversation) -> None:
        """End a conversation: its committed amount is free, and its length and its cost are known."""
        self._store.end_conversation(state.key)
        if state.decision_id:
            self._store.alias((name_of_ended(state.key),), state.decision_id)
        owner = self._owner(None, state) if self._is_run and state.estimate_usd else None
        with self._lock:
            self._open.close(state.key)
            pool = self._learner.pool
            if state.model not in pool.positions:
                return
            self._follow()
            self.estimates.end(pool.positions[state.model], state.calls)
            self.counts.ended += 1
            if owner is not None and not state.is_shared:
                self._book(owner, state, state.spent_usd)

    def scored_id(self, decision: Decision) -> str:
        """Return the decision that the score of a later call of a run belongs to: the one that the call goes on from.

        Where that was released, while calls that had gone on from it were under way, it is the decision of the run
        since then; the call's own where the run has none.
        """
        first = self._store.find(decision.run_id)
        if first.state != "released":
            return first.decision.id
        state = self._store.conversation(decision.conversation)
        try:
            later = self._store.find(name_of_ended(decision.conversation) if state is None else state.decision_id)
        except UnknownDecision:
            return decision.id
        is_later = later.decision.decided_at >= first.decision.decided_at  # else of an earlier run of this id
        return later.decision.id if is_later else decision.id

    def _follow(self) -> None:
        """Take over the present models, and what other workers have learned; the lock is held."""
        pool = self._learner.pool
        self.estimates.follow(pool.models)
        if self._sync is not None:
            self._sync.set_models(pool.names)
            if self._sync.has_news:
                self._sync.merge()

    def _root(self, parent: str) -> str:
        """Return the run whose budget pays for those that name `parent`, which may have ended."""
        state = self._store.conversation(parent) if parent else None
        with suppress(UnknownDecision):
            if state is None and parent:
                return run_of(self._store.find(name_of_ended(parent)).caps) or parent
        return parent if state is None else state.parent or parent

    def _end_lapsed(self, now_s: float) -> None:
        """End the conversations that this worker served last, and that no worker has served since."""
        with self._lock:
            lapsed = self._open.lapsed(now_s)
        for key, seen in lapsed:
            state = self._store.conversation(key)
            if state is not None and state.calls == seen.calls and now_s - state.used_s >= self.settings.ttl_s:
                self.end(state)

    def _held(self, state: Conversation, context: int, prompt_tokens: float, now_s: float) -> Choice | None:
        """Return the choice of the model that holds a run; None where it has none, or is to be decided again."""
        positions = self._learner.pool.positions
        if not state.decision_id or state.model not in positions or state.model == state.failed_model:
            return None
        model = positions[state.model]
        if self._is_cold(state, model, now_s):
            model = self._best_when_cold(state, model, context, prompt_tokens, now_s)
        price = math.inf if state.shadow_price == INFINITE_PRICE else state.shadow_price
        call_usd = self.estimates.next_usd(state, context, prompt_tokens, now_s, model)
        if math.isnan(call_usd):
            call_usd = state.spent_usd / max(state.calls, 1)
        return Choice(model, 1.0, price, call_usd, state.expected_reward, "actual", ((model, 1.0),), None, "hold")

    def _is_cold(self, state: Conversation, model: int, now_s: float) -> bool:
        """Return True if the model that holds a run has a cache, and it is probably gone."""
        warm, hits = state.warm.get(state.model), self.estimates.hits
        if warm is None or now_s - warm.at_s <= USUAL_LIFETIME_S or hits.hit_probability(model, 0.0) == 0.0:
            return False
        return hits.hit_probability(model, now_s - warm.at_s) < 0.5 * hits.hit_probability(model, 0.0)

    def _best_when_cold(
        self, state: Conversation, holder: int, context: int, prompt_tokens: float, now_s: float
    ) -> int:
        """Return the model for the rest of a run whose cache is cold.

        A run that two models share is taken to be worth the less of the two, so that a switch must pay by its cost.
        """
        plan = self._learner.policy.plan
        if plan is None or context == NO_CONTEXT:
            return holder
        estimates, models = self.estimates, range(len(self._learner.pool))
        reward = np.minimum(plan.reward[context], plan.reward[context, holder])
        next_usd = [estimates.next_usd(state, context, prompt_tokens, now_s, k) for k in models]
        rest = [estimates.rest_usd(k, context, state.calls + 1, prompt_tokens) for k in models]
        known = [k for k, usd in enumerate(rest) if not math.isnan(usd) and not self._learner.pool.models[k].retired]
        price = math.inf if state.shadow_price == INFINITE_PRICE else state.shadow_price
        if holder not in known:
            return holder
        return stay_or_switch(reward.tolist(), price, next_usd, rest, holder, known)

    def _after_decision(self, state: Conversation, record: Record) -> Conversation:
        """Return the state after a decision."""
        decision, decides = record.decision, not self._is_run or not state.decision_id
        price = decision.shadow_price if math.isfinite(decision.shadow_price) else INFINITE_PRICE
        chosen = (decision.id, price, decision.expected_reward) if decides else None
        rest_usd = self._rest_usd(state, record) if self._is_run else 0.0
        after = state.decided(decision.model, decision.context, rest_usd, decision.decided_at, chosen)
        fitted, name = record.contexts_version, record.contexts
        is_kept = fitted == after.contexts_version and name == after.contexts
        return after if is_kept else after._replace(contexts_version=fitted, contexts=name)

    def _rest_usd(self, state: Conversation, record: Record) -> float:
        """Return the expected cost of the calls that follow a decision, at most what the budget of the run leaves."""
        budget_usd, rest_usd = self.settings.run_budget_usd, self._wanted_usd(state, record)
        if budget_usd is None:
            return rest_usd
        return max(min(rest_usd, budget_usd - state.spent_usd - record.decision.expected_cost_usd), 0.0)

    def _wanted_usd(self, state: Conversation, record: Record) -> float:
        """Return the expected cost of the calls that follow a decision; `state` is that before it.

        Until this worker has seen runs end, the mean cost of a run is all that is known.
        """
        decision, model = record.decision, record.model
        if self.estimates.ended:
            prompt = self.estimates.prompt_tokens(state, decision.context, None)
            rest = self.estimates.rest_usd(model, decision.context, state.calls + 1, prompt)
            if not math.isnan(rest):
                return rest * self._known_ratio(model, decision.context)
        figures = None if record.trace is None else record.trace.choice.figures
        total_usd = state.estimate_usd or (0.0 if figures is None else figures.means(model)[1])
        return max(total_usd - state.spent_usd - decision.expected_cost_usd, 0.0)

    def _known_ratio(self, model: int, context: int) -> float:
        """Return the mean cost of the runs that are known, over the estimate from tokens and numbers of calls.

        Few calls and runs in progress say little of the length of runs, so that the rest of those would be committed at
        too much; a history in runs says more. The estimate itself counts for `PRIOR_COUNT` runs.
        """
        estimates, known = self.estimates.run_usd(model, context), self._learner.estimates
        if not NO_CONTEXT < context < known.shape[0] or not estimates > 0.0:
            return 1.0
        runs, usd = float(known.calls[context, model]), float(known.cost[context, model])
        return (usd + PRIOR_COUNT * estimates) / ((runs + PRIOR_COUNT) * estimates)

    def _after_charge(self, state: Conversation, record: Record, cost_usd: float, usage: Usage | None) -> Conversation:
        """Return the state after a charge."""
        decision, pool = record.decision, self._learner.pool
        spent_usd = state.spent_usd + cost_usd
        model, first_model, estimate_usd = state.model, state.first_model, state.estimate_usd
        if self._is_run:
            if model == decision.model:
                model = record.name  # a fallback may have answered
            if decision.id == state.decision_id:
                first_model = record.name
            if record.name == first_model and not state.is_shared and teaches(self._learner, record):
                estimate_usd = spent_usd + state.rest_usd
        read: dict[str, Any] = {}
        if usage is not None and record.model != SKIP:
            missed_usd = self.counts.missed_usd(state, pool.models[record.model].price, usage)
            read = {
                "prompt_tokens": usage.input_tokens,
                "warm": state.warm_after(record.name, usage.input_tokens, decision.decided_at),
                "missed_usd": state.missed_usd + missed_usd,
                "sent_tokens": state.sent_tokens + usage.input_tokens,
                "read_tokens": state.read_tokens + usage.cache_read_tokens,
            }
        return state._replace(
            model=model,
            first_model=first_model,
            failed_model="",
            spent_usd=spent_usd,
            estimate_usd=estimate_usd,
            **read,
        )

    def _changed(
        self, decision: Decision, change: Callable[[Conversation], Conversation]
    ) -> tuple[Conversation, Conversation] | None:
        """Change the kept state of a conversation; return it as it was and as it is, None where it is gone."""
        with suppress(StoreUnavailable):  # the call is settled all the same
            for _ in range(MAX_ATTEMPTS):
                if (state := self._store.conversation(decision.conversation)) is None:
                    return None
                after = change(state)
                if self._store.keep_conversation(after, KEPT_TTLS * self.settings.ttl_s):
                    return state, after
            logger.warning("the state of a conversation changed %d times during one settlement", MAX_ATTEMPTS)
        return None

    def _book(self, owner: Record, state: Conversation, usd: float) -> None:
        """Learn the cost of a run, in place of what was learned of it before."""
        if former_usd := state.estimate_usd:
            self._learner.amend_cost(owner, usd, former_usd, spent_usd=min(state.spent_usd, former_usd))
        else:
            self._learner.add_cost(owner, usd, None)

    def _owner(self, record: Record | None, state: Conversation) -> Record | None:
        """Return the decision that the cost of a run belongs to; None where it is no longer kept."""
        if record is not None and record.decision.id == state.decision_id:
            return record
        with suppress(UnknownDecision, StoreUnavailable):
            return own_record(self._learner, self._store.find(state.decision_id))
        return None


def name_of_ended(key: str) -> str:
    """Return the name by which a score finds the decision of a conversation that has ended."""
    return f"conversation {key}"
