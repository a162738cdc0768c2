"""The methods of `WiseRouter` for shadow mode: a decision that is only recorded, and the cost of what ran instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from numpy.typing import ArrayLike

from wiserouter.errors import BudgetError, BudgetExhausted, InvalidInput, NotStarted
from wiserouter.planning.envelope import SKIP
from wiserouter.prompts.query import Query
from wiserouter.routing.conversation_methods import RouterConversations, check_restrictions
from wiserouter.routing.shadow import Shadow, acted_scope, is_observed, observed_scope, shadow_line
from wiserouter.stores.base import Record
from wiserouter.stores.ids import fresh_id
from wiserouter.types import Decision
from wiserouter.validation import check_kind, checked_names


class RouterShadow(RouterConversations):
    """The methods with which a router decides beside the model that is called anyway."""

    decide: Callable[..., Decision]

    @property
    def shadow(self) -> Shadow | None:
        """The share of the calls of `observe` on which the router acts; None outside shadow mode.

        Set it before `start`, which divides the budget between the calls that it acts on and the others.
        """
        return self._shadow

    @shadow.setter
    def shadow(self, shadow: Shadow | None) -> None:
        if shadow is not None:
            check_kind("shadow", shadow, Shadow, "Shadow(share=0.1)")
        self._configured_shadow = shadow
        self._shadow = self._shadow_under(self._orders)
        self._has_observed = self._has_observed or self._shadow is not None

    def observe(
        self,
        text: str | None = None,
        *,
        incumbent: str | None = None,
        embedding: ArrayLike | None = None,
        context: int | None = None,
        eligible: Iterable[str] | None = None,
        input_tokens: int | None = None,
        max_output_tokens: int | None = None,
        scope: str = "default",
        draw_key: str | None = None,
        acts: bool | None = None,
        share_key: str | None = None,
        refused: bool = False,
        call_id: str | None = None,
        **acting: Any,
    ) -> Decision:
        """Decide in shadow mode: act on a share of the calls, and only record what the choice for the others would be.

        Charge, release, presume or reward the decision as one of `decide`: the true cost goes to the model that ran and
        into the journal, what the router's choice would have cost to the account of observed calls.

        Parameters
        ----------
        text, embedding, context, eligible, input_tokens, max_output_tokens, scope
            As in `decide`.
        incumbent : str, optional
            The model that takes the call without the router. Where it is known only afterwards, `charge(model=...)`
            names it.
        draw_key : str, optional
            As in `decide`.
        acts : bool, optional
            Whether it acts on this call; by default as the share key says.
        share_key : str, optional
            Calls of one key are on one side of the share; by default the draw key.
        refused : bool, default False
            Whether the budget of the calls that it acts on has refused this one.
        call_id : str, optional
            The id by which logs of prompts and answers know the call, for the journal.
        **acting
            Further arguments of `decide`, for the calls that it acts on.

        Returns
        -------
        Decision
            `model` is the one to call: the incumbent, where it is named and the router does not act. `would_be` is then
            the router's choice; where it acts, `would_be` is empty.

        Raises
        ------
        InvalidInput
            If the router is not in shadow mode, its budget was started before it was, or the query is wrong.
        UnknownModel, NoEligibleModel, EncoderError, UnknownPrice
            As from `decide`. A budget refuses no call: where the part for those that it acts on is used up, it only
            observes.

        Examples
        --------
        >>> from wiserouter import Budget, Model, Price, Shadow, WiseRouter
        >>> router = WiseRouter([Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))], seed=0)
        >>> router.shadow = Shadow()
        >>> router.start(Budget(amount_usd=1.0, horizon=1_000))
        >>> decision = router.observe("What is the capital of France?", incumbent="large")
        >>> decision.model, decision.would_be
        ('large', 'small')
        >>> router.charge(decision, cost_usd=0.002)
        >>> router.status().spent_usd
        0.0
        """
        shadow = self._shadow
        if shadow is None:
            raise InvalidInput("observe needs shadow mode: set router.shadow = Shadow(share=...) before start()")
        self.pool.check_known(incumbent)
        eligible = None if eligible is None else checked_names("eligible", eligible)
        if refused:
            self._shadow_paused.add(scope)
        share_key = share_key or draw_key
        if shadow.acts(share_key or fresh_id()) if acts is None else acts:
            given = {"embedding": embedding, "context": context, "eligible": eligible, "input_tokens": input_tokens}
            limits = {"max_output_tokens": max_output_tokens, "scope": scope, "draw_key": draw_key}
            try:
                decision = self.decide(text, **given, **limits, **acting)
            except BudgetError:  # the part of the budget for the calls that it acts on is used up
                self._shadow_paused.add(scope)
            else:
                self.note_side(decision, incumbent, call_id, share_key)
                return decision
        check_restrictions(max_output_tokens, draw_key)
        query = self._learner.reader.read(text, embedding, input_tokens, context, hard=False)
        record, choice = self._reserved(query, eligible, max_output_tokens, observed_scope(scope), draw_key, incumbent)
        decision = record.decision
        for observer in self._observers:
            observer.decision(decision, record.trace)
        self.note_side(decision, incumbent, call_id, share_key)
        if query.embedding is not None and choice != SKIP:
            with self._lock:
                self._learner.keep_query(record, query.embedding)
        return decision._replace(model=incumbent or decision.model, would_be=decision.model)

    def note_side(
        self,
        decision: Decision,
        incumbent: str | None = None,
        call_id: str | None = None,
        share_key: str | None = None,
    ) -> None:
        """Write on which side of shadow mode a decision is into the journal; also for one that `decide` has made.

        Parameters
        ----------
        decision : Decision
            The decision.
        incumbent : str, optional
            The model that takes the call without the router.
        call_id, share_key : str, optional
            As in `observe`.
        """
        scope, shadow = decision.scope, self._shadow
        if shadow is None:
            return
        if not is_observed(scope):
            self._shadow_paused.discard(scope)
        share = 0.0 if acted_scope(scope) in self._shadow_paused else shadow.share
        line = shadow_line(decision, share, incumbent, call_id, share_key)
        for observer in self._observers:
            observer.note(lambda: line)

    def _reserved(
        self,
        query: Query,
        eligible: tuple[str, ...] | None,
        max_output_tokens: int | None,
        scope: str,
        key: str | None,
        incumbent: str | None,
    ) -> tuple[Record, int]:
        """Return a decision on the account of observed calls, which bears any, and its choice."""
        try:
            budget = self._store.snapshot(scope)
        except NotStarted as error:
            raise InvalidInput("shadow mode needs a budget: set router.shadow, then call start()") from error
        for last in (False, True):
            with self._lock:
                if self._store.durable:
                    self._learner.merge_remote()
                query = self._learner.present_query(query)
                record = self._decider.decide(query, budget, eligible, None, max_output_tokens, scope, False, key)
            choice, record.incumbent = record.model, incumbent or ""
            record.model = record.model if incumbent is None else self.pool.index(incumbent)
            try:
                self._reserve(record)
            except BudgetExhausted:  # a lease of a shared store that is used up
                if last:
                    raise
                budget = self._store.snapshot(scope)
                continue
            break
        return record, choice
