"""One model group: its router, its budget, and the way from a request to a decision and from a call to its bill."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

from wiserouter import Decision, WiseRouter
from wiserouter.errors import AlreadySettled, StoreError, UnknownDecision, UnknownPrice
from wiserouter.integration.context_lookup import ContextAssignment, ContextLookup
from wiserouter.stores.offload import offload
from wiserouter_litellm.billing import Bill
from wiserouter_litellm.candidates import (
    Candidate,
    Candidates,
    counted,
    fitting,
    fresh_models,
    is_worth_counting,
    ranked,
    uncounted,
    worst_cases_usd,
)
from wiserouter_litellm.deployments import Deployment, DeploymentInfo, DeploymentRegistry, id_of
from wiserouter_litellm.errors import unbounded
from wiserouter_litellm.feedback_keys import feedback_key, keys_to_store
from wiserouter_litellm.request import Request
from wiserouter_litellm.scopes import GroupScope, ScopeResolver

logger = logging.getLogger("wiserouter.litellm")

DECISION_KEY = "wiserouter_decision"
"""Key of `model_info` under which a deployment's copy carries the decision to the log events of its call."""

_SHORT = 4_000  # characters; the tokens of a shorter text are counted in well under a millisecond


class RoutingRequest(NamedTuple):
    """A request on its way to a decision.

    Attributes
    ----------
    offer : Candidates
        What can serve it.
    request : Request
        What it says.
    scope : str
        Whose budget pays.
    call_id, caller : str, str or None
        The id of its call, and the hash of the key that makes it.
    chosen : bool
        Whether the client chose that id.
    owner : str
        Whose log events settle it.
    """

    offer: Candidates
    request: Request
    scope: str
    call_id: str
    caller: str | None
    chosen: bool
    owner: str

    def names(self, decision_id: str) -> list[str]:
        """Return by which names feedback may find the decision."""
        return [*keys_to_store(self.call_id, self.caller, chosen=self.chosen), feedback_key(decision_id, self.caller)]


class Selection(NamedTuple):
    """A decision, the deployments for LiteLLM to take the first of, and the model that each one is, by its id."""

    decision: Decision
    deployments: list[dict[str, Any]]
    models: dict[str, str]


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
        The deployments seen so far.
    lookup : ContextLookup
        Finds the context of a question.
    hard : bool
        Whether a budget must never be exceeded.
    scope_resolver : ScopeResolver
        Say whose budget pays.
    cap_output_tokens : int or None
        The limit of the output where a request names none; it is then sent to the provider as well.
    faults : Counter of str
        What went wrong, by kind.
    """

    name: str
    router: WiseRouter
    registry: DeploymentRegistry
    lookup: ContextLookup
    hard: bool
    scope_resolver: ScopeResolver = field(default_factory=GroupScope)
    cap_output_tokens: int | None = None
    faults: Counter[str] = field(default_factory=Counter)
    _joining: Lock = field(default_factory=Lock)

    def offer(self, healthy: Sequence[Deployment], failed_ids: set[str]) -> Candidates:
        """Return what of the healthy deployments can serve; models never seen before join the pool.

        Raises
        ------
        UnknownPrice
            If none of them has a price.
        """
        self.add_new_models(self.registry.register(healthy))
        known = [(each, key, self.registry.find(key)) for each in healthy if (key := id_of(each))]
        offer = [Candidate(each, info, key in failed_ids) for each, key, info in known if info is not None]
        if not offer:
            raise UnknownPrice(
                str(healthy[0]["litellm_params"].get("model")), "price, nor has any other that is healthy"
            )
        return offer

    def add_new_models(self, infos: Iterable[DeploymentInfo]) -> None:
        """Take the models of new deployments into the pool, unless they are there."""
        for info in infos:
            with self._joining:
                if info.model in self.router.pool.names:
                    continue
                self.router.add_model(info.tariff.model(info.model))
            logger.info("group %r: new model %r, believed to be as good as the others", self.name, info.model)

    async def aselect(self, asked: RoutingRequest) -> Selection:
        """Choose a model for a request, with encoding, counting and the store off the event loop."""
        placed = await self.lookup.alook_up(asked.request.question)
        select = partial(self._select, asked, placed)
        long = len(asked.request.counted) >= _SHORT and self._counts(asked)
        if long or self.router.waits(asked.scope):
            return await offload(select, lambda given_up: self.release(given_up.decision.id))
        return select()

    def select(self, asked: RoutingRequest) -> Selection:
        """Do what `aselect` does, in a thread that may wait."""
        return self._select(asked, self.lookup.look_up(asked.request.question))

    async def offload(self, step: Callable[[], object]) -> None:
        """Settle or release, off the event loop where the store is waited for."""
        if self.router.waits():
            await offload(step)
        else:
            step()

    def settle(self, decision_id: str, bill: Bill) -> None:
        """Charge a call, once; a cached answer costs nothing and teaches nothing."""
        try:
            self.router.charge(decision_id, bill.cost_usd, usage=bill.usage, model=bill.model, learn=not bill.cached)
        except AlreadySettled:
            self.faults["duplicate_events"] += 1
        except UnknownDecision:
            self.fault(
                "lost_decisions", f"the record of {decision_id} is gone: {bill.cost_usd:.6g} USD are not counted"
            )
        except StoreError as error:  # what this worker decided is settled later; this another one did
            self.fault("lost_decisions", f"{bill.cost_usd:.6g} USD of {decision_id} are not counted", error=error)

    def release(self, decision_id: str) -> None:
        """Give back what a failed call had reserved; several events may tell of one failure."""
        try:
            self.router.release(decision_id)
        except (AlreadySettled, UnknownDecision):
            return
        except StoreError as error:  # what is held back for it comes back by itself
            self.fault("store", f"{decision_id} is not released", error=error)

    def rename(self, names: Iterable[str], decision_id: str) -> None:
        """Let feedback find a decision by other names; "" takes them back."""
        try:
            for name in names:
                self.router.alias(name, decision_id)
        except StoreError as error:
            self.fault("store", "an answer cannot be rated", error=error)

    def fault(self, kind: str, message: str, *, error: BaseException | None = None) -> None:
        """Count a fault, and log the first of its kind in full, with its traceback."""
        self.faults[kind] += 1
        level = logging.ERROR if self.faults[kind] == 1 else logging.DEBUG
        logger.log(level, "group %r: %s", self.name, message, exc_info=error)

    def _counts(self, asked: RoutingRequest) -> bool:
        return is_worth_counting(asked.request, asked.offer, hard=self.hard)

    def _select(self, asked: RoutingRequest, placed: ContextAssignment) -> Selection:
        """Decide, and name the decision; waits for the store where that is shared."""
        request, offer, scope = asked.request, asked.offer, asked.scope
        self.scope_resolver.open(scope)
        hard = self.router.is_hard(scope)
        self.hard |= hard
        length = counted(request, offer) if self._counts(asked) else uncounted(request)
        models = fitting(self.name, fresh_models(offer), offer, length)
        worst = worst_cases_usd(request, offer, length, self.cap_output_tokens) if hard else None
        if worst is not None and min(worst[name] for name in models) == float("inf"):
            raise unbounded(self.name, models)
        decision = self.router.decide(
            context=placed.context, embedding=placed.embedding, eligible=models, worst_case_usd=worst, scope=scope
        )
        names = asked.names(decision.id)
        self.rename(names, decision.id)
        mark = {"owner": asked.owner, "group": self.name, "id": decision.id, "names": names}
        copies = ranked(offer, self._ranking(decision, worst), self._params(request), {DECISION_KEY: mark})
        return Selection(decision, copies, {id_of(one.deployment): one.info.model for one in offer})

    def _ranking(self, decision: Decision, worst_usd: Mapping[str, float] | None) -> list[str]:
        """Return all models, the chosen one first.

        Under a hard limit those whose worst case is beyond what is held back are left out: were the first one dropped
        by a later filter of LiteLLM, they could break it.
        """
        ranking = self.router.ranking(decision)
        if worst_usd is None:
            return ranking
        return [
            name for name in ranking if name == decision.model or worst_usd.get(name, math.inf) <= decision.reserved_usd
        ]

    def _params(self, request: Request) -> dict[str, Any]:
        unlimited = request.output_tokens is None and self.cap_output_tokens is not None
        return {request.limit_name: self.cap_output_tokens} if unlimited else {}
