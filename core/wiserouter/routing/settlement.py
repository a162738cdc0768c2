"""The methods of `WiseRouter` that follow a decision: charge, release, presume and reward.

Each method goes to the store first, which refuses a decision that is unknown or already settled; only then does the
learner see it. A refused call changes nothing.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NoReturn, TypeVar

from wiserouter.errors import InvalidInput, QuerySkipped, UnknownPrice
from wiserouter.learning.source_scores import (
    HUMAN,
    JUDGE,
    SourceScore,
    change_of_evidence,
    check_source,
    check_weight,
    kind_of,
)
from wiserouter.pricing.prices import Usage
from wiserouter.pricing.prices import cost_usd as cost_of_usage
from wiserouter.pricing.usage_shapes import UsageLike, usage_from
from wiserouter.pricing.use_rates import Rates, uses_of
from wiserouter.routing.decision_ids import id_of, scope_of
from wiserouter.routing.own_records import own_record
from wiserouter.routing.shadow import is_observed
from wiserouter.routing.spending import RouterSpending
from wiserouter.stores.base import Record
from wiserouter.types import Decision
from wiserouter.validation import check_amount, check_reward, check_uses, checked_names

logger = logging.getLogger("wiserouter")

T = TypeVar("T")


class RouterSettlement(RouterSpending):
    """The methods that a caller uses after a decision."""

    _use_rates: Rates = MappingProxyType({})

    def charge(
        self,
        decision: Decision | str,
        cost_usd: float | None = None,
        *,
        usage: UsageLike | None = None,
        model: str | None = None,
        learn: bool = True,
        learned_usd: float | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        """Settle the true cost of a call, given in USD or as tokens.

        Parameters
        ----------
        decision : Decision or str
            The decision, or its id. A released decision can still be charged, since the money is spent; the charge of
            a presumed one replaces the presumed cost.
        cost_usd : float, USD, optional
            Cost of the call.
        usage : Usage, mapping or object, optional
            Tokens of the call, also as the usage block of OpenAI, Anthropic, LiteLLM or LangChain. They give the cost
            at the model's price if `cost_usd` is not given; in any case the lengths of prompts and answers are learned
            from them.
        model : str, optional
            The model that answered, if a retry or a fallback replaced the chosen one.
        learn : bool, default True
            False if the cost says nothing about the model, as with a cached answer.
        learned_usd : float, USD, optional
            The cost to learn from where the call was billed at other prices than plain ones, such as those of a batch.
        resources : mapping of str to float, optional
            What the call has used of named resources, such as `{"latency_s": 1.7}`, where `set_limits` limits them.

        Raises
        ------
        UnknownDecision, AlreadySettled
            If there is no such decision, or it was charged before. Nothing is charged twice.
        InvalidInput, UnknownModel, UnknownPrice
            If the cost is not a finite number of at least 0, or the model is unknown or has no price. Nothing is
            changed.
        """
        decision_id, pool = id_of(decision), self._learner.pool
        pool.check_known(model)
        tokens = usage if usage is None or isinstance(usage, Usage) else usage_from(usage)
        uses = None if resources is None else check_uses(resources)
        if self._has_observed and self._charged_observed(decision, model, cost_usd, tokens, learn=learn):
            return
        cost = self._cost_usd(decision, model, cost_usd, tokens)
        plain = cost if learned_usd is None else check_amount("learned_usd", learned_usd)
        record = own_record(self._learner, self._store.settle(decision_id, cost, model))
        for listener in self._listeners:
            listener()
        calls, learner = self._calls, self._learner
        if calls is not None and record.decision.conversation:
            calls.charged(record, cost, tokens if learn else None)
        with self._lock:
            if model is not None and record.scores:
                learner.move_score(record, pool.positions.get(record.taken_by, record.model), self._days.scored)
            learns = learn and not record.decision.run_id
            context = learner.add_cost(record, plain, tokens) if learns else learner.context_of(record)
            self._days.charged(record, learner.contexts, context, cost, tokens, learn)
            if self._decider.limits is not None:
                stated = uses_of(self._use_rates, pool.by_name.get(record.name), tokens)
                self._decider.limits.record(record, context, stated | (uses or {}), learn=learn)
        for observer in self._observers:
            used = {"resources": uses} if uses else {}
            figures = {"cost_usd": cost, "model": record.name, "learn": learn, "usage": tokens, **used}
            observer.event("charge", decision_id, self._store.now(), **figures)
        if cost > record.decision.reserved_usd:
            self._warn_if_hard(record, cost)

    async def acharge(
        self,
        decision: Decision | str,
        cost_usd: float | None = None,
        *,
        usage: UsageLike | None = None,
        model: str | None = None,
        learn: bool = True,
        learned_usd: float | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        """Charge like `charge`, off the event loop if the store may have to be waited for."""
        charge = partial(self.charge, usage=usage, model=model, learn=learn, learned_usd=learned_usd)
        step = partial(charge, decision, cost_usd, resources=resources)
        await self._offload(scope_of(decision), step, id_of(decision))

    def decision(self, decision_id: str, *others: str) -> Decision:
        """Return the decision of an id or an alias, or of the first of several that is known, for one round trip.

        Raises
        ------
        UnknownDecision
            If there is none.
        """
        return self._store.find(decision_id, *others).decision

    def release(self, decision: Decision | str, *, failed: bool = True) -> None:
        """Give back the reservation, or the presumed cost, of a call that costs nothing; raise as `charge` does.

        With `failed=False` the model did not fail, so that it keeps its conversation: the call was never sent.
        """
        record = own_record(self._learner, self._store.release(id_of(decision)))
        for listener in self._listeners:
            listener()
        self._note_outcome(record, released=True, failed=failed)
        if record.counts and not is_observed(record.decision.scope):
            with self._lock:
                self._learner.take_back(record)
        for observer in self._observers:
            observer.event("release", record.decision.id, self._store.now())

    def presume(self, decision: Decision | str, *, failed: bool = True) -> None:
        """Count a call whose outcome is unknown as spent: after a timeout, or a connection lost in the middle.

        It counts at `reserved_usd` where a limit is hard, and at `expected_cost_usd` otherwise, until a charge or a
        release corrects it. Nothing is learned from it. A call that is not settled within the time to live of its
        reservation is presumed too.

        Parameters
        ----------
        decision : Decision or str
            The decision, or its id.
        failed : bool, default True
            False if the model did not fail, so that it keeps its conversation: only the cost is unknown.

        Raises
        ------
        UnknownDecision, AlreadySettled
            If there is no such decision, or it was charged, released or presumed before. Nothing is changed.
        """
        record = self._store.presume(id_of(decision))
        for listener in self._listeners:
            listener()
        self._note_outcome(record, released=False, failed=failed)
        for observer in self._observers:
            observer.event("presume", record.decision.id, self._store.now(), cost_usd=record.cost_usd)

    async def apresume(self, decision: Decision | str) -> None:
        """Presume like `presume`, off the event loop if the store may have to be waited for."""
        await self._offload(scope_of(decision), partial(self.presume, decision), id_of(decision))

    def reward(
        self,
        decision: Decision | str,
        reward: float,
        *,
        source: str = HUMAN,
        weight: float = 1.0,
        comment: str | None = None,
    ) -> bool:
        """Record a score in [0, 1] for a decision; it replaces an earlier score of the same source.

        Where a decision has scores of several sources, one is learned from: a person's before a rule's, and a rule's
        before a judge's. The score of any call of a run is that of the run.

        Parameters
        ----------
        decision : Decision or str
            The decision, its id, or an alias.
        reward : float
            The score.
        source : str, default "human"
            The source of the score: "human", "rule:<name>" or "judge:<name>".
        weight : float, default 1
            Number of observations that the score counts as, in [0, 1].
        comment : str, optional
            Kept in the journal, if there is one.

        Returns
        -------
        bool
            True if an earlier score of this source was replaced.

        Raises
        ------
        InvalidInput
            If the score or the weight is outside [0, 1], or the source is of no known kind.
        UnknownDecision, AlreadySettled
            If there is no such decision, or its call was released. Nothing is changed.
        """
        value = check_reward(reward)
        score = tuple.__new__(SourceScore, (value, check_weight(weight), value))  # in half the time of a call
        decision_id = self._rewarded_id(decision)
        if kind_of(check_source(source)) == JUDGE:
            score = score._replace(counted=self._corrected(source, decision_id, value))
        kept, before = self._store.reward(decision_id, score, source)
        record = own_record(self._learner, kept)
        former, learned = change_of_evidence(before, source, score)
        with self._lock:
            if learned != former:
                self._learner.take_score(record, learned, former)
                if not is_observed(record.decision.scope):
                    self._days.scored(record, learned, former)
            self._learner.note_pairs(record, before, source, score)
        if source == HUMAN and self.judge is not None:
            self.judge.offer_scored(record.decision.id)
        figures: dict[str, object] = {"reward": value} if comment is None else {"reward": value, "comment": comment}
        if source != HUMAN or score.weight != 1.0:
            figures |= {"source": source, "weight": score.weight}
            figures |= {} if score.counted == value else {"counted": score.counted}
        for observer in self._observers:
            observer.event("reward", record.decision.id, self._store.now(), **figures)
        return source in before

    async def arelease(self, decision: Decision | str) -> None:
        """Release like `release`, off the event loop if the store may have to be waited for."""
        await self._offload(scope_of(decision), partial(self.release, decision), id_of(decision))

    async def areward(
        self,
        decision: Decision | str,
        reward: float,
        *,
        source: str = HUMAN,
        weight: float = 1.0,
        comment: str | None = None,
    ) -> bool:
        """Reward like `reward`, off the event loop if the store may have to be waited for."""
        step = partial(self.reward, decision, reward, source=source, weight=weight, comment=comment)
        return await self._offload("", step)

    def alias(self, alias: str | Iterable[str], decision: Decision | str) -> None:
        """Give a decision further names, such as the id of its call, to charge, reward and find it by.

        An alias that was given before passes to the later decision; with "" as the decision it is withdrawn.

        Raises
        ------
        InvalidInput
            If a name is empty or no text.
        """
        names = checked_names("alias", (alias,) if isinstance(alias, str) else alias)
        if "" in names:
            raise InvalidInput("alias must be a name, such as the id of a call, got ''", value="")
        self._store.alias(names, id_of(decision))

    def waits(self, scope: str | None = None) -> bool:
        """Return True if a step may wait for the store; such a step must not run on the event loop.

        Parameters
        ----------
        scope : str, optional
            The scope of the step; None for a step that knows a decision by its id only.
        """
        if not self._store.durable:
            return False
        return self._calls is not None or self._store.waits("" if scope is None else scope)

    def _charged_observed(
        self, observed: Decision | str, served: str | None, given_usd: float | None, usage: Usage | None, *, learn: bool
    ) -> bool:
        """Book what the router's choice would have cost, and learn from what ran; False for a call that it acts on."""
        known = own_record(self._learner, self._store.find(id_of(observed)))
        decision = known.decision
        if not is_observed(decision.scope):
            return False
        cost_usd = self._cost_usd(observed, served or known.name, given_usd, usage)
        record = own_record(self._learner, self._store.settle(decision.id, decision.expected_cost_usd, served))
        with self._lock:
            self._learner.move_score(record, known.model, lambda *_: None)
            self._learner.add_invoked(self._learner.context_of(record), record.model)
            if learn:
                self._learner.add_cost(record, cost_usd, usage)
        figures = {"model": record.name, "learn": learn, "would_cost_usd": decision.expected_cost_usd}
        for observer in self._observers:
            observer.event("charge", decision.id, self._store.now(), cost_usd=cost_usd, **figures)
        if self._learner.estimates.n_invoked >= self._learner.pending.due:
            self._take_stock(decision)
        return True

    def _settle_skipped(self, decision: Decision) -> NoReturn:
        """Charge nothing for a query that is not served, and raise `QuerySkipped`."""
        self._store.settle(decision.id, 0.0)
        for observer in self._observers:
            observer.event("charge", decision.id, self._store.now(), cost_usd=0.0, model="", learn=False)
        raise QuerySkipped(decision.context, decision.rate_usd)

    def _note_outcome(self, record: Record, *, released: bool, failed: bool) -> None:
        """Note in the state of its conversation that a call has ended without an answer, or with an unknown cost."""
        if self._calls is not None and record.decision.conversation and (released or failed):
            self._calls.unanswered(record, released=released, failed=failed)

    def _rewarded_id(self, decision: Decision | str) -> str:
        """Return the decision that a score belongs to: that of the run, for a call of a run."""
        decision_id = id_of(decision)
        if self._calls is None:
            return decision_id
        known = self._store.find(decision_id).decision if isinstance(decision, str) else decision
        return decision_id if known.run_id in ("", known.id) else self._calls.scored_id(known)

    def _warn_if_hard(self, record: Record, cost_usd: float) -> None:
        """Log that a call cost more than its reservation, where a hard limit bounded it."""
        if self._was_hard(record):
            says = "a call of %s cost %.6g USD, more than its worst case of %.6g: the hard limit may not hold"
            logger.warning(says, record.name, cost_usd, record.decision.reserved_usd)

    def _corrected(self, source: str, decision_id: str, reward: float) -> float:
        """Return the score of a judge as it is learned, corrected by its agreement with people."""
        model = own_record(self._learner, self._store.find(decision_id)).model
        with self._lock:
            return self._learner.corrected(source, model, reward)

    def _was_hard(self, record: Record) -> bool:
        """Return True if a hard limit bounded the decision."""
        trace = record.trace
        return self.is_hard(record.decision.scope) if trace is None else trace.worst_usd is not None

    def _cost_usd(
        self, decision: Decision | str, served: str | None, cost_usd: float | None, usage: Usage | None
    ) -> float:
        """Return the cost of a call, given in USD or as tokens of the model that answered."""
        if type(cost_usd) is float and 0.0 <= cost_usd < math.inf:
            return cost_usd
        if cost_usd is not None:  # not plainly an amount: left to the full check
            return check_amount("cost_usd", cost_usd)
        if usage is None:
            raise InvalidInput("charge needs cost_usd or usage, got neither")
        name = served or (self.decision(decision) if isinstance(decision, str) else decision).model
        pool = self._learner.pool
        if name not in pool.by_name:  # a decision of another router, or a model that was never here
            self._store.find(id_of(decision))
        price = (pool.by_name.get(name) or pool.models[pool.index(name)]).price
        if price is None:
            raise UnknownPrice(name, "price: give Model(price=Price(input=..., output=...)), or cost_usd")
        return cost_of_usage(price, usage)
