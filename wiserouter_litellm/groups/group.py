"""One model group: its router, its budget, the way from a request to a decision and from a bill to its settlement."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Literal

from wiserouter import NO_CONTEXT, Decision, WiseRouter
from wiserouter.errors import AlreadySettled, BudgetExhausted, StoreError, UnknownDecision
from wiserouter.integration import (
    MAX_WAIT_S,
    AdmissionQueue,
    Bill,
    ContextAssignment,
    ContextLookup,
    ConversationKey,
    DrawBy,
    Orders,
    RouterMetrics,
    Signals,
    admission_queue,
    below,
    offload,
)
from wiserouter_litellm.conversations.continuations import makers
from wiserouter_litellm.conversations.feedback_keys import keys_of_decision
from wiserouter_litellm.conversations.request_conversation import LONG_HISTORY_CHARS, SESSION_KEYS, TURN_KEY
from wiserouter_litellm.deployments.deployment_source import follow_figures
from wiserouter_litellm.deployments.registry import DeploymentInfo, DeploymentRegistry
from wiserouter_litellm.groups.arm_candidates import one_arm_each
from wiserouter_litellm.groups.attempts import Mark, is_covered
from wiserouter_litellm.groups.candidates import Bounds, bounds_of, is_slow_to_read, note_fitting_output, ranked
from wiserouter_litellm.groups.request_values import ValueRule
from wiserouter_litellm.groups.scopes import OWN, GroupScope, ScopeResolver
from wiserouter_litellm.groups.selection import RoutingRequest, Selection
from wiserouter_litellm.groups.signals import read_request

logger = logging.getLogger("wiserouter.litellm")

FallbackPolicy = Literal["inside", "refuse", "outside"]
"""Whose budget pays for a fallback: the group's own, none since it is refused, or that of its target, if it has one."""

UNPLACED = ContextAssignment(NO_CONTEXT)

ONLY_CONTEXT = ContextAssignment(0)
"""The context of every question where nothing is routed by it."""

DECISION_KEY = "wiserouter_decision"
"""Key of `model_info` under which a deployment's copy carries the decision to the log events of its call."""


@dataclass
class Group:
    """A model group under one budget, or one for each of its scopes.

    Attributes
    ----------
    name : str
        The group's name in LiteLLM.
    router : WiseRouter
        Decides, and keeps the budget; started.
    registry : DeploymentRegistry
        The deployments registered so far.
    lookup : ContextLookup
        Finds the context of a question.
    hard : bool
        Whether a budget must never be exceeded.
    scope_resolver : ScopeResolver
        Says whose budget pays.
    cap_output_tokens : int or None
        The limit of the output where a request sets none; it is then sent to the provider as well.
    max_wait_s : float, seconds
        How long a request waits while the rest of the budget is only held by calls in flight; 0 refuses it at once.
    queue : AdmissionQueue
        The requests that wait.
    fallback_policy : {"inside", "refuse", "outside"}
        Whose budget pays for a call that LiteLLM sends on to another group.
    draw_by : {"request", "question", "context"}
        What calls that get the same model, where the plan mixes two, have in common.
    shared_budget : str or None
        The name of the budget that it shares with other groups of the proxy.
    keeps_conversations : bool
        Whether its calls are decided as those of conversations or runs.
    faults : Counter of str
        Faults by kind.
    metrics : RouterMetrics or None
        Counts refusals and measures decisions, where metrics are on.
    traces : bool
        Whether each decision is a span of OpenTelemetry.
    value_rule : callable or None
        Returns the value of a request; None where all are worth 1.
    durable : bool
        Whether the budget lives in a store that outlasts the process, and that may have to be waited for.
    reads_question : bool
        Whether anything is routed by what a request asks for.
    observes : bool
        Whether the router is in shadow mode.
    signals : Signals or None
        The rules that score failures, as the router has them when the group is opened.
    """

    name: str
    router: WiseRouter
    registry: DeploymentRegistry
    lookup: ContextLookup
    hard: bool
    scope_resolver: ScopeResolver = field(default_factory=GroupScope)
    cap_output_tokens: int | None = None
    max_wait_s: float = MAX_WAIT_S
    fallback_policy: FallbackPolicy = "inside"
    draw_by: DrawBy = "request"
    shared_budget: str | None = None
    keeps_conversations: bool = False
    faults: Counter[str] = field(default_factory=Counter)
    metrics: RouterMetrics | None = None
    traces: bool = False
    value_rule: ValueRule | None = None
    queue: AdmissionQueue = field(init=False)
    durable: bool = field(init=False)
    reads_question: bool = field(init=False)
    observes: bool = field(init=False)
    signals: Signals | None = field(init=False)
    _adding: Lock = field(default_factory=Lock)
    _has_orders: bool = False

    def __post_init__(self) -> None:
        self.queue = admission_queue(self.router)
        self.durable = self.router.durable
        self.reads_question = self.lookup.needs_question or self.draw_by == "question"
        self.observes, self.signals = self.router.shadow is not None, self.router.signals
        kept = self.router.conversations
        self._run_is_hard = self.keeps_conversations and kept is not None and kept.has_hard_runs
        self.hard |= self._run_is_hard
        self.router.follow(self._follow_limits)
        self.router.follow_orders(self._follow_orders)
        self._follow_orders(self.router.orders)

    def _follow_orders(self, orders: Orders) -> None:
        """Take the prices and the mode that administrators have set."""
        self.observes = self.router.shadow is not None
        prices = {name: one.price for name, one in orders.models.items() if one.price is not None}
        if prices or self._has_orders:
            self.registry.price(prices)
        self._has_orders = bool(prices)

    def _follow_limits(self, hard_scopes: Collection[str]) -> None:
        """Bound the requests of a group whose limit an administrator has made hard."""
        self.hard = self.hard or any(one in hard_scopes for one in (OWN, *self.scope_resolver.opened))

    def add_new_models(self, infos: Iterable[DeploymentInfo]) -> None:
        """Add the models of new deployments to the pool; those that are there follow prices and limits that changed."""
        for info in infos:
            self.add_missing_models([info])
            follow_figures(self.router, info.model, info.rate_card)

    def add_missing_models(self, infos: Iterable[DeploymentInfo]) -> None:
        """Add the models of deployments to the pool, unless they are there."""
        for info in infos:
            with self._adding:
                if info.model not in self.router.pool.names:
                    self.router.add_model(info.rate_card.model(info.model))
                    logger.info("group %r: new model %r, expected to be as good as the others", self.name, info.model)

    async def aselect(self, routing: RoutingRequest) -> Selection:
        """Choose a model for a request, with encoding, counting and the store off the event loop.

        Where the budget is only held by calls in flight, the request waits for their settlements.
        """
        if routing.references:
            keep = partial(self._kept, routing)
            routing = await offload(keep) if self.router.waits() else keep()
        attempt = Attempt(self, routing, await self.aplaced(routing))
        off_loop = self._is_slow_to_read(routing) or (self.durable and self.router.waits(routing.scope))
        undo = self._undo if off_loop else None
        return await self.queue.aadmit(routing.scope, attempt, attempt.needed_usd, self.max_wait_s, undo)

    def select(self, routing: RoutingRequest) -> Selection:
        """Do what `aselect` does, in a thread that may wait."""
        routing = self._kept(routing)
        placed = UNPLACED if self._goes_on(routing) else self.lookup.look_up(routing.request.question)
        attempt = Attempt(self, routing, placed)
        return self.queue.admit(routing.scope, attempt, attempt.needed_usd, self.max_wait_s)

    def settle(self, decision_id: str, bill: Bill, uses: Mapping[str, float] | None = None) -> None:
        """Charge a call, once."""
        cost_usd, usage, model, learn, _ = bill
        try:
            self.router.charge(decision_id, cost_usd, usage=usage, model=model, learn=learn, resources=uses)
        except AlreadySettled:
            self.faults["duplicate_events"] += 1
        except UnknownDecision:
            self.fault(
                "lost_decisions", f"the record of {decision_id} is gone: {bill.cost_usd:.6g} USD are not counted"
            )
        except StoreError as error:  # another worker decided this call; the store settles our own later
            self.fault("lost_decisions", f"{bill.cost_usd:.6g} USD of {decision_id} are not counted", error=error)

    def release(self, decision_id: str, *, failed: bool = False) -> None:
        """Give back the reservation of a call; several events may report one failure, of which `failed` is that."""
        try:
            self.router.release(decision_id, failed=failed)
        except (AlreadySettled, UnknownDecision):
            return
        except StoreError as error:  # the reservation expires
            self.fault("store", f"{decision_id} is not released", error=error)

    def presume(self, decision_id: str, *, failed: bool = False) -> None:
        """Count a call whose outcome is unknown as spent, unless it is settled; `failed` if it was its model's."""
        try:
            self.router.presume(decision_id, failed=failed)
        except (AlreadySettled, UnknownDecision):
            return
        except StoreError as error:  # it is presumed when its reservation expires
            self.fault("store", f"{decision_id} is not presumed yet", error=error)

    def decide_again(self, decision: Decision, model: str, worst_usd: Mapping[str, float]) -> Decision:
        """Return a decision for another model in place of one that was not sent; it is released.

        Raises
        ------
        BudgetError
            If the model does not fit the budget.
        """
        self.release(decision.id)
        return self.router.decide(
            context=decision.context,
            eligible=[model],
            worst_case_usd=worst_usd,
            scope=decision.scope,
            conversation=ConversationKey(decision.conversation) if decision.conversation else None,
        )

    def alias(self, keys: Iterable[str], decision_id: str) -> None:
        """Let feedback find a decision by further keys; with "" as the decision it finds none by them."""
        try:
            self.router.alias(keys, decision_id)
        except StoreError as error:
            self.fault("store", "an answer cannot be rated", error=error)

    def fault(self, kind: str, message: str, *, error: BaseException | None = None) -> None:
        """Count a fault, and log the first of its kind in full, with its traceback."""
        self.faults[kind] += 1
        level = logging.ERROR if self.faults[kind] == 1 else logging.DEBUG
        logger.log(level, "group %r: %s", self.name, message, exc_info=error)

    def note_refusal(self, error: Exception) -> None:
        """Count an error that ends a selection in the metrics, if it is a refusal."""
        if self.metrics is not None:
            self.metrics.refused(error)

    def _kept(self, routing: RoutingRequest) -> RoutingRequest:
        """Return a request with the candidates that made what it continues; with all of them where none is there."""
        found = makers(routing.candidates, routing.references, routing.caller, self._is_known)
        if found is not None:
            return routing._replace(candidates=found)
        for _, deployment_id in routing.references:
            if self.registry.find(deployment_id) is not None:
                self.fault(
                    "moved_continuations", f"deployment {deployment_id} cannot continue what it made: it is away"
                )
                break
        return routing

    def _is_known(self, *keys: str) -> bool:
        try:
            self.router.decision(*keys)
        except UnknownDecision:
            return False
        return True

    def _is_slow_to_read(self, routing: RoutingRequest) -> bool:
        request, conversation = routing.request, routing.conversation
        reads_history = conversation is not None and conversation.reads_history
        if reads_history and len(request.counted) >= LONG_HISTORY_CHARS:
            return True
        return is_slow_to_read(request, routing.candidates, exact=self.hard)

    async def aplaced(self, routing: RoutingRequest) -> ContextAssignment:
        """Return the context of a request's question, if anything is routed by it."""
        if not self.lookup.needs_question:
            return ONLY_CONTEXT
        return UNPLACED if self._goes_on(routing) else await self.lookup.alook_up(routing.request.question)

    def _goes_on(self, routing: RoutingRequest) -> bool:
        """Return True if a request asks for nothing by itself, so that it has the context of its conversation."""
        has_question = routing.request.informative or not self.lookup.needs_question
        return routing.conversation is not None and not has_question

    def _undo(self, abandoned: Selection) -> None:
        self.release(abandoned.decision.id)

    def bounds_of(self, routing: RoutingRequest) -> Bounds:
        """Return the models that take a request, and the most that it can cost with each under a hard limit."""
        candidates, request, scope = routing.candidates, routing.request, routing.scope
        if scope != OWN:
            self.scope_resolver.open(scope)
        hard = self._run_is_hard or self.router.is_hard(scope)
        self.hard |= hard
        return bounds_of(self.name, request, candidates, self.cap_output_tokens, exact=self.hard, hard=hard)

    def decide(
        self, routing: RoutingRequest, assignment: ContextAssignment, bounds: Bounds, *, may_wait: bool
    ) -> Selection:
        """Decide, and alias the decision; waits for the store where that is shared."""
        candidates, worst_usd, conversation = routing.candidates, bounds.worst_usd, routing.conversation
        terms = {} if conversation is None else conversation.terms(self.router)
        decide, span = self.router.decide, routing.parent_span
        decision = (decide if span is None else below(span, decide))(
            context=assignment.context,
            embedding=assignment.embedding,
            eligible=bounds.models,
            worst_case_usd=worst_usd,
            scope=routing.scope,
            may_wait=may_wait,
            draw_key=self.draw_key(routing, assignment),
            value=routing.value,
            **terms,
        )
        if self.observes:
            self.router.note_side(decision, share_key=routing.share_key)
        keys = keys_of_decision(decision.id, routing.call_id, routing.caller, chosen=routing.chose_id)
        note = None if conversation is None else conversation.note(self.router, decision)
        self.alias(keys if note is None else [*keys, *note.names], decision.id)
        mark = Mark(owner=routing.owner, group=self.name, id=decision.id, keys=keys, caller=routing.caller)
        if self.signals is not None:
            read_request(self, self.signals, routing, mark)
        if note is not None:
            mark |= {TURN_KEY: note.id.request, SESSION_KEYS: note.names}
        if routing.lasting_ids:
            mark["lasting_ids"] = list(routing.lasting_ids)
        ranking, hard = self._ranking(decision, worst_usd), worst_usd is not None
        if self.registry.has_arms:
            candidates = one_arm_each(candidates, ranking)
        copies = ranked(routing.request, candidates, ranking, {DECISION_KEY: mark}, self.cap_output_tokens, hard=hard)
        return Selection(decision, copies, {one.id: one.info.model for one in candidates}, mark, worst_usd, note)

    def draw_key(self, routing: RoutingRequest, assignment: ContextAssignment) -> str | None:
        """Return the key by which the model of a request is drawn; None where it draws for itself."""
        if self.draw_by == "request":
            return None
        return routing.request.draw_key(self.draw_by, routing.caller, assignment.context)

    def _ranking(self, decision: Decision, worst_usd: Mapping[str, float] | None) -> list[str]:
        """Return all models, the chosen one first, and under a hard limit those last that its reservation cannot bear.

        Only retired ones are left out: LiteLLM's later filters, such as those for tags and regions, must see all that
        may serve.
        """
        ranking = self.router.ranking(decision)
        if worst_usd is None:
            return ranking
        borne = [name for name in ranking if is_covered(decision, name, worst_usd)]
        return borne if len(borne) == len(ranking) else borne + [name for name in ranking if name not in borne]


class Attempt:
    """The attempts to decide on one request, bounded once.

    Parameters
    ----------
    group : Group
        Decides.
    routing : RoutingRequest
        The request.
    assignment : ContextAssignment
        The context of its question.
    """

    __slots__ = ("_assignment", "_bounds", "_group", "_routing")

    def __init__(self, group: Group, routing: RoutingRequest, assignment: ContextAssignment) -> None:
        self._group, self._routing, self._assignment = group, routing, assignment
        self._bounds: Bounds | None = None

    def __call__(self, may_wait: bool) -> Selection:
        """Decide and reserve."""
        start_s, metrics = time.perf_counter(), self._group.metrics
        bounds = self._bounds = self._bounds or self._group.bounds_of(self._routing)
        try:
            return self._group.decide(self._routing, self._assignment, bounds, may_wait=may_wait)
        except BudgetExhausted as error:
            if bounds.worst_usd is not None:
                note_fitting_output(error, self._routing.request, self._routing.candidates, bounds.length)
            raise
        finally:
            if metrics is not None:
                metrics.measured(time.perf_counter() - start_s)

    def needed_usd(self) -> float:
        """Return the least worst case of the request; 0 where no limit is hard."""
        models, _, worst_usd = self._bounds = self._bounds or self._group.bounds_of(self._routing)
        return 0.0 if worst_usd is None else min(worst_usd[name] for name in models)
