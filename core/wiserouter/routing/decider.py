"""The choice of a model for one query, and of the amount that is held back for it: no store, no lock, no clock.

A decision passes five filters: the models that the caller and their context windows admit, those whose worst case a
hard limit still admits, those whose largest shares leave them the decision, those that the reserve rule of the policy
permits, and the draw from the plan's mix at the rate of the budget that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from wiserouter.budgets.funds import BudgetSnapshot, Funds
from wiserouter.learning.memory import MEMORY
from wiserouter.planning.envelope import SKIP
from wiserouter.planning.mixture import cheapest_choice
from wiserouter.planning.policies import Choice, ExploreShare
from wiserouter.planning.share_caps import ShareCaps
from wiserouter.planning.shift import Shift
from wiserouter.planning.trace import DecisionTrace
from wiserouter.prompts.query import Query
from wiserouter.routing.conversation_terms import ConversationTerms
from wiserouter.routing.keyed_draws import KeyedDraws
from wiserouter.routing.label_budget import LabelBudget
from wiserouter.routing.learner import Learner
from wiserouter.routing.request_values import RequestValues
from wiserouter.stores.base import Record
from wiserouter.stores.ids import fresh_id
from wiserouter.types import NO_CONTEXT, Decision
from wiserouter.validation import check_amount, check_kind, check_mapping

if TYPE_CHECKING:
    from wiserouter.routing.limited_scopes import LimitedScopes

_NO_CONVERSATION = ("", "", "", "", 1.0)
"""The last fields of the decision of a call of its own: conversation, visit, run, would-be model and value."""


class Decider:
    """Chooses the model of each query by what the learner knows and the budget bears.

    Parameters
    ----------
    learner : Learner
        Pool, contexts, estimates and policy.
    rng : numpy Generator
        Draws from the plan's mix.
    now : callable returning float
        Seconds of the store's clock.
    labels : LabelBudget, optional
        Marks the decisions whose feedback is worth asking for.
    explore : ExploreShare, optional
        Draws a share of the models uniformly.
    keyed : KeyedDraws, optional
        Draws for the calls that have a key; those of no seed by default.
    payers : callable, optional
        Returns the scopes of the budgets that pay for a scope, as `Store.payers` does; by default the scope alone.

    Attributes
    ----------
    caps : ShareCaps or None
        The largest shares of some models.
    limits : LimitedScopes or None
        The limits of scopes beside their budgets.
    share_left : float
        The share of its horizon that the budget of the latest decision had still to come; 1 before the first one.
    """

    def __init__(
        self,
        learner: Learner,
        rng: np.random.Generator,
        now: Callable[[], float],
        labels: LabelBudget | None = None,
        explore: ExploreShare | None = None,
        keyed: KeyedDraws | None = None,
        payers: Callable[[str], Sequence[str]] | None = None,
    ) -> None:
        self._learner, self._rng, self._now = learner, rng, now
        self._keyed = keyed or KeyedDraws()
        self.labels, self.explore = labels, explore
        self.caps: ShareCaps | None = None
        self.limits: LimitedScopes | None = None
        self.share_left = 1.0
        self._cushion_usd = 0.0
        self._payers = payers or (lambda scope: (scope,))
        self._values: RequestValues | None = None

    @property
    def labels(self) -> LabelBudget | None:
        """The label budget; `InvalidInput` if it is set to something else."""
        return self._labels

    @labels.setter
    def labels(self, labels: LabelBudget | None) -> None:
        if labels is not None:
            check_kind("labels", labels, LabelBudget, "LabelBudget(share=0.1)")
        self._labels = labels

    @property
    def explore(self) -> ExploreShare | None:
        """The share that is drawn uniformly; `InvalidInput` if it is set to something else."""
        return self._explore

    @explore.setter
    def explore(self, explore: ExploreShare | None) -> None:
        if explore is not None:
            check_kind("explore", explore, ExploreShare, "ExploreShare(0.05)")
        self._explore = explore

    def decide(
        self,
        query: Query,
        budget: BudgetSnapshot,
        eligible: Iterable[str] | None = None,
        worst_case_usd: Mapping[str, float] | None = None,
        max_output_tokens: int | None = None,
        scope: str = "default",
        may_wait: bool = False,
        draw_key: str | None = None,
        terms: ConversationTerms | None = None,
        value: float | None = None,
    ) -> Record:
        """Return the best decision for a query as the budget stands, with its trace; nothing is held back yet.

        Parameters
        ----------
        query : Query
            Context and length, and the embedding where single queries are estimated.
        budget : BudgetSnapshot
            The budget at this moment.
        eligible, worst_case_usd, max_output_tokens, scope, may_wait, draw_key
            As in `WiseRouter.decide`.
        terms : ConversationTerms, optional
            The terms of the conversation that the call belongs to.
        value : float, optional
            The value of the request, 1 by default.

        Raises
        ------
        BudgetExhausted, HorizonExhausted
            If the budget does not bear any model.
        NoEligibleModel, UnknownModel, UnknownPrice, InvalidInput
            If no model can take the query, or a restriction or a bound is wrong.
        """
        learner, funds = self._learner, budget.funds
        self.share_left = funds.share
        pool = learner.pool
        context, tokens, embedding, version = query
        candidates = None if eligible is None and pool.unrestricted else pool.eligible(eligible, tokens)
        allowed = candidates
        worst_usd, room_usd = None, None
        if budget.hard:
            worst_usd = self._worst_usd(tokens, max_output_tokens, worst_case_usd, candidates)
            room_usd = budget.room_usd
            allowed = _affordable(budget, candidates, worst_usd, may_wait=may_wait)
            funds = self._cushioned(budget, worst_usd, 0.0 if may_wait else budget.margin_usd)
        allowed = allowed if self.limits is None else self.limits.unbanned(allowed, scope)
        residuals = learner.residuals
        predicted, shift = None if residuals is None else residuals.deviations(context, embedding), None
        if residuals is not None and predicted is not None:
            shift = Shift(predicted.reward, residuals.price(budget.rate_usd))
        rng = self._rng if draw_key is None else self._keyed_rng(draw_key, scope, budget, terms)
        if value is not None or self._values is not None:
            shift = self._valued(shift, value, scope, funds, terms)
        if terms is None:
            choice = self._choose(budget, funds, context, allowed, shift, rng, scope)
        else:
            predicted, shift = terms.learned_from(predicted), terms.weighed(shift)
            choice = self._choose_in(terms, budget, funds, context, allowed, shift, rng, scope)
        if may_wait and worst_usd is not None and max(worst_usd) > budget.room_usd:
            _check_room(budget, choice, worst_usd)
        inputs = (pool, learner.contexts, choice, funds, candidates, tokens, worst_usd, room_usd, shift)
        trace = tuple.__new__(DecisionTrace, inputs)  # in half the time of a call
        decision = self._decision(choice, context, budget.rate_usd, worst_usd, scope, terms)
        if value is not None:
            decision = decision._replace(value=float(value))
        caps, counts = ((), True) if terms is None else (terms.caps, terms.counts)
        record = Record(decision, choice.model, choice.debit, "in flight", None, None, trace, predicted, caps, counts)
        record.contexts_version, record.contexts = version, learner.context_names.of(version)
        return record

    def _valued(
        self, shift: Shift | None, value: float | None, scope: str, funds: Funds, terms: ConversationTerms | None
    ) -> Shift | None:
        """Return the deviation of a query together with its value among the others that its budget pays for."""
        values = self._values
        if values is None:
            if value is None or value == 1.0:
                return shift
            values = self._values = RequestValues(self._payers)
        counts = terms is None or terms.counts
        valued = values.weighed(1.0 if value is None else value, scope, funds, counts=counts)
        if valued is None:
            return shift
        if shift is None:
            return Shift(valued=valued)
        residuals, price = self._learner.residuals, shift.shadow_price
        if price is not None and residuals is not None and residuals.prices is not None:
            price = valued.shadow_price(residuals.prices, funds.rate_usd)
        return shift._replace(valued=valued, shadow_price=price)

    def _keyed_rng(
        self, draw_key: str, scope: str, budget: BudgetSnapshot, terms: ConversationTerms | None
    ) -> np.random.Generator:
        """Return the generator of a key; the decider's own for a run that its model holds."""
        if terms is not None and terms.held is not None:
            return self._rng
        return self._keyed.generator(draw_key, scope, budget.account.epoch_s)

    def _worst_usd(
        self,
        tokens: int | None,
        max_output_tokens: int | None,
        given_usd: Mapping[str, float] | None,
        candidates: set[int] | None,
    ) -> list[float]:
        """Return the most that a call of each model can cost: the caller's bound, else prices x tokens."""
        pool = self._learner.pool
        if given_usd is None:
            return pool.worst_cases_usd(tokens, max_output_tokens, candidates)
        check_mapping("worst_case_usd", given_usd)
        return [_bound(given_usd.get(name, float("inf"))) for name in pool.names]

    def _cushioned(self, budget: BudgetSnapshot, worst_usd: list[float], margin_usd: float) -> Funds:
        """Return the funds under a hard limit: its last request must find the worst case of the cheapest model.

        That is taken to be the largest one of about the last 5,000 requests.
        """
        least_usd, decayed_usd = min(worst_usd), MEMORY * self._cushion_usd
        self._cushion_usd = cushion_usd = least_usd if least_usd > decayed_usd else decayed_usd
        left_usd, requests, each, _, share = budget.funds
        return tuple.__new__(Funds, (left_usd, requests, each, cushion_usd + margin_usd, share))

    def _choose(
        self,
        budget: BudgetSnapshot,
        funds: Funds,
        context: int,
        allowed: set[int] | None,
        shift: Shift | None,
        rng: np.random.Generator,
        scope: str,
    ) -> Choice:
        """Return the policy's choice; the cheapest model if the budget is used up and goes on with that."""
        policy, needed_usd = self._learner.policy, 0.0
        if self.caps is not None:
            n_models = len(self._learner.pool)
            allowed = self.caps.free(allowed, n_models, context, policy.plan, budget.rate_usd, self._rng)
        allowed = allowed if self.limits is None else self.limits.free(allowed, scope, rng)
        if funds.requests > 0 and funds.left_usd > 0:
            choice = policy.choose(context, funds, rng, allowed, shift)
            if self.limits is not None:
                choice = self.limits.vary(choice, scope, context, funds, rng, allowed, shift)
            if self.explore is not None:
                rng = rng if rng is self._rng else self._keyed.exploring()
                choice = self.explore.vary(choice, funds, rng, allowed, shift)
            needed_usd = choice.expected_cost_usd
            if needed_usd <= budget.bearable_usd or choice.debit == "paper":
                return choice
        refusal = budget.account.refusal(needed_usd)
        if refusal is not None:
            raise refusal
        pool = self._learner.pool
        models = range(len(pool)) if allowed is None else allowed
        return cheapest_choice(policy.plan, context, models, pool.list_price_usd)

    def _choose_in(
        self,
        terms: ConversationTerms,
        budget: BudgetSnapshot,
        funds: Funds,
        context: int,
        allowed: set[int] | None,
        shift: Shift | None,
        rng: np.random.Generator,
        scope: str,
    ) -> Choice:
        """Return the model that holds the conversation, if it can go on; else the policy's choice.

        The expected cost of the choice is that of this call: what a run costs in all is for the plan alone.
        """
        held = terms.held
        may_go_on = held is not None and (allowed is None or held.model in allowed)
        if held is not None and may_go_on and held.expected_cost_usd <= budget.bearable_usd + terms.rest_usd:
            return held
        choice = self._choose(budget, funds, context, allowed, shift, rng, scope)
        if choice.model == SKIP:
            return choice
        call_usd = terms.call_usd(choice.model, choice.expected_cost_usd)
        model, probability, price, _, *others = choice
        return tuple.__new__(Choice, (model, probability, price, call_usd, *others))  # in half the time of `_replace`

    def _decision(
        self,
        choice: Choice,
        context: int,
        rate_usd: float,
        worst_usd: list[float] | None,
        scope: str,
        terms: ConversationTerms | None,
    ) -> Decision:
        """Return the decision, which holds back the worst case under a hard limit and the expected cost otherwise."""
        model, expected_usd = choice.model, choice.expected_cost_usd
        if self.caps is not None:
            self.caps.count(model)
        served = model != SKIP
        held_usd = expected_usd if worst_usd is None or not served else worst_usd[model]
        decision_id, name = fresh_id(), self._learner.pool.names[model] if served else ""
        figures = (
            decision_id,
            name,
            context,
            choice.probability,
            rate_usd,
            choice.shadow_price,
            expected_usd if expected_usd < held_usd else held_usd,
            choice.expected_reward,
            held_usd,
            scope,
            self._now(),
            self.labels is not None and self._asks(self.labels, choice, context),
        )
        last = _NO_CONVERSATION if terms is None else terms.of_decision(decision_id, name)
        decision: Decision = tuple.__new__(Decision, figures + last)  # in half the time of a call
        if self.limits is not None:
            self.limits.sent(decision, model)
        return decision

    def _asks(self, labels: LabelBudget, choice: Choice, context: int) -> bool:
        """Return True if a score of this decision is worth asking for."""
        if context == NO_CONTEXT or choice.model == SKIP:  # there is nothing to learn
            return False
        known = float(self._learner.estimates.labels[context, choice.model])
        return labels.ask(choice, known, float(self._learner.contexts.freq[context]))


def _affordable(
    budget: BudgetSnapshot, eligible: set[int] | None, worst_usd: list[float], *, may_wait: bool
) -> set[int] | None:
    """Return the models whose worst case a hard limit admits, now or once calls in flight are settled; None for all."""
    room_usd = budget.room_usd
    if eligible is None and max(worst_usd) <= room_usd:
        return None
    if may_wait:
        room_usd = max(room_usd, budget.account.reachable_usd())
    models = range(len(worst_usd)) if eligible is None else eligible
    fitting = {k for k in models if worst_usd[k] <= room_usd}
    if not fitting:
        raise budget.account.exhausted(min(worst_usd[k] for k in models))
    return fitting


def _check_room(budget: BudgetSnapshot, choice: Choice, worst_usd: list[float]) -> None:
    """Raise `BudgetExhausted` if any model of the mix does not fit yet.

    All of the mix counts: a request that is decided again after each settlement would otherwise take the first cheap
    model that it draws.
    """
    needed_usd = max([worst_usd[k] for k, _ in choice.mix if k != SKIP], default=0.0)
    if needed_usd > budget.room_usd:
        raise budget.account.exhausted(needed_usd)


def _bound(worst_usd: float) -> float:
    is_unknown = isinstance(worst_usd, float) and worst_usd == float("inf")
    return worst_usd if is_unknown else check_amount("worst_case_usd", worst_usd)
