"""One model group: its router, its budget, and the way from a request to a decision and from a call to its bill."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

from wiserouter import Decision, WiseRouter
from wiserouter.errors import AlreadySettled, UnknownDecision, UnknownPrice
from wiserouter.placing import Placed, Placing
from wiserouter_litellm.bill import Bill
from wiserouter_litellm.errors import unbounded
from wiserouter_litellm.fleet import Berth, Deployment, Fleet, id_of
from wiserouter_litellm.request import Request
from wiserouter_litellm.selection import (
    Length,
    Offer,
    Offered,
    counted,
    fitting,
    fresh_models,
    is_worth_counting,
    ranked,
    uncounted,
    worst_cases_usd,
)

logger = logging.getLogger("wiserouter.litellm")

MARK = "wiserouter_decision"
"""Key of `model_info` under which a deployment's copy carries the decision to the log events of its call."""

_SHORT = 4_000  # characters; the tokens of a shorter text are counted in well under a millisecond


class Selected(NamedTuple):
    """A decision, the deployments for LiteLLM to take the first of, and the model that each one is, by its id."""

    decision: Decision
    deployments: list[dict[str, Any]]
    models: dict[str, str]


@dataclass
class Group:
    """A model group under one budget.

    Attributes
    ----------
    name : str
        The group's name in LiteLLM.
    router : WiseRouter
        Decides, and keeps the budget; started.
    fleet : Fleet
        The deployments seen so far.
    placing : Placing
        Finds the context of a question.
    hard : bool
        Whether the budget must never be exceeded.
    cap_output_tokens : int or None
        The limit of the output where a request names none; it is then sent to the provider as well.
    faults : Counter of str
        What went wrong, by kind.
    """

    name: str
    router: WiseRouter
    fleet: Fleet
    placing: Placing
    hard: bool
    cap_output_tokens: int | None = None
    faults: Counter[str] = field(default_factory=Counter)
    _joining: Lock = field(default_factory=Lock)

    def offer(self, healthy: Sequence[Deployment], failed_ids: set[str]) -> Offer:
        """Return what of the healthy deployments can serve; models never seen before join the pool.

        Raises
        ------
        UnknownPrice
            If none of them has a price.
        """
        self.welcome(self.fleet.take_in(healthy))
        known = [(each, key, self.fleet.find(key)) for each in healthy if (key := id_of(each))]
        offer = [Offered(each, berth, key in failed_ids) for each, key, berth in known if berth is not None]
        if not offer:
            raise UnknownPrice(
                str(healthy[0]["litellm_params"].get("model")), "price, nor has any other that is healthy"
            )
        return offer

    def welcome(self, berths: Iterable[Berth]) -> None:
        """Take the models of new deployments into the pool, unless they are there."""
        for berth in berths:
            with self._joining:
                if berth.model in self.router.pool.names:
                    continue
                self.router.add_model(berth.tariff.model(berth.model))
            logger.info("group %r: new model %r, believed to be as good as the others", self.name, berth.model)

    async def aselect(self, offer: Offer, request: Request, owner: str) -> Selected:
        """Choose a model for a request, with encoding and counting off the event loop."""
        placed = await self.placing.aplace(request.question)
        if not self._counts(request, offer):
            length = uncounted(request)
        elif len(request.counted) < _SHORT:
            length = counted(request, offer)
        else:
            length = await asyncio.to_thread(counted, request, offer)
        return self._select(offer, request, placed, length, owner)

    def select(self, offer: Offer, request: Request, owner: str) -> Selected:
        """Do what `aselect` does, in a thread that may wait."""
        placed = self.placing.place(request.question)
        length = counted(request, offer) if self._counts(request, offer) else uncounted(request)
        return self._select(offer, request, placed, length, owner)

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

    def release(self, decision_id: str) -> None:
        """Give back what a failed call had reserved; several events may tell of one failure."""
        try:
            self.router.release(decision_id)
        except (AlreadySettled, UnknownDecision):
            return

    def fault(self, kind: str, message: str, *, error: BaseException | None = None) -> None:
        """Count a fault, and log the first of its kind in full, with its traceback."""
        self.faults[kind] += 1
        level = logging.ERROR if self.faults[kind] == 1 else logging.DEBUG
        logger.log(level, "group %r: %s", self.name, message, exc_info=error)

    def _counts(self, request: Request, offer: Offer) -> bool:
        return is_worth_counting(request, offer, hard=self.hard)

    def _select(self, offer: Offer, request: Request, placed: Placed, length: Length, owner: str) -> Selected:
        models = fitting(self.name, fresh_models(offer), offer, length)
        worst = worst_cases_usd(request, offer, length, self.cap_output_tokens) if self.hard else None
        if worst is not None and min(worst[name] for name in models) == float("inf"):
            raise unbounded(self.name, models)
        decision = self.router.decide(
            context=placed.context, embedding=placed.embedding, eligible=models, worst_case_usd=worst
        )
        mark = {"owner": owner, "group": self.name, "id": decision.id}
        copies = ranked(offer, self._ranking(decision, worst), self._params(request), {MARK: mark})
        return Selected(decision, copies, {id_of(one.deployment): one.berth.model for one in offer})

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
