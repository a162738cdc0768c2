"""The limits of all scopes while serving, and the estimates of uses that they share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial

import numpy as np

from wiserouter.budgets.funds import Funds
from wiserouter.budgets.limits import InfeasibleLimits, Limits, Measure
from wiserouter.errors import NotStarted
from wiserouter.learning.first_calls import FirstCalls
from wiserouter.learning.resource_estimates import ResourceEstimates
from wiserouter.learning.use_totals import UseTotals
from wiserouter.planning.envelope import SKIP
from wiserouter.planning.limit_constraints import banned_models, budget_constraint, limit_constraints
from wiserouter.planning.limited_plan import limited_plan
from wiserouter.planning.plan import Plan
from wiserouter.planning.policies import Choice
from wiserouter.planning.policy import DrawsFromPlan
from wiserouter.planning.share_caps import ShareCaps
from wiserouter.planning.shift import Shift
from wiserouter.routing.learner import Learner
from wiserouter.routing.scope_limits import ROUNDING, ScopeLimits, shown
from wiserouter.stores.base import Record, Store
from wiserouter.stores.shared.call_sync import CallSync
from wiserouter.stores.shared.meter_sync import Metered, MeterSync
from wiserouter.types import NO_CONTEXT, Decision, FloatArray

Models = set[int]
"""Some models, by their indices."""


class LimitedScopes:
    """The limits of all scopes.

    Parameters
    ----------
    learner : Learner
        Pool, contexts, estimates and policy.
    store : Store
        Where the uses that other workers learn come from, if it outlives the process.
    """

    def __init__(self, learner: Learner, store: Store) -> None:
        self._learner, self._store = learner, store
        self._totals: UseTotals | None = None
        self._sync: CallSync | None = None
        self._exchanged: tuple[int, int] | None = None
        self._terms: dict[str | None, Limits] = {}
        self._scopes: dict[str, ScopeLimits] = {}
        self._uses: dict[Measure, ResourceEstimates] = {}
        self._first = FirstCalls()
        self._shape: tuple[int, int, int] | None = None
        self._meters = MeterSync() if store.durable else None
        if self._meters is not None:
            store.join(self._meters)

    def set(self, limits: Limits | None, scope: str | None) -> None:
        """Set or end the limits of a scope; of all scopes without limits of their own where it is None."""
        if limits is None:
            self._terms.pop(scope, None)
        else:
            self._terms[scope] = limits
            for measure in limits.measures:
                self._uses[measure] = self._known_uses(measure)
        for known in list(self._scopes):
            if known == scope or (scope is None and known not in self._terms):
                del self._scopes[known]

    def terms(self, scope: str) -> Limits | None:
        """Return the limits that a scope is under."""
        return self._terms.get(scope) or self._terms.get(None)

    def check(self, limits: Limits, rate_usd: float | None, horizon: int | None) -> None:
        """Raise `InfeasibleLimits` if no mix keeps all limits, by what is known of the models.

        Parameters
        ----------
        limits : Limits
            The limits.
        rate_usd : float or None, USD per request
            Budget left per request left; None where there is none yet.
        horizon : int or None
            The requests over which a total is spent.
        """
        policy, pool = self._learner.policy, self._learner.pool
        live = policy.live_plan if isinstance(policy, DrawsFromPlan) else None
        unknown = np.zeros((self._n_contexts, len(pool)))
        plan = Plan(self._learner.contexts.freq, unknown, unknown) if live is None else live
        uses = {one: self._known_uses(one) for one in limits.measures}
        known = {one: use.means() for one, use in uses.items() if use.are_known(set(range(len(pool))) - pool.retired)}
        bounds = {one: bound for one in known if (bound := _bound(limits, one, horizon)) is not None}
        banned = banned_models(limits, pool.names, pool.retired)
        planned = live is not None
        constraints = limit_constraints(limits, bounds, known, plan, pool.names, banned, knows_rewards=planned)
        if live is not None and rate_usd is not None:
            constraints = [budget_constraint(plan, rate_usd, banned), *constraints]
        if not constraints:
            return
        solved = limited_plan(plan.freq, plan.reward, constraints, allow_skip=plan.allow_skip, banned=banned)
        loosened = [
            (one.name, shown(one.name, one.most), shown(one.name, bound))
            for one, bound in zip(constraints, solved.bounds, strict=True)
            if bound > one.most + ROUNDING * abs(one.most)
        ]
        if loosened:
            raise InfeasibleLimits({name: most for name, most, _ in loosened}, {name: b for name, _, b in loosened})

    def of(self, scope: str) -> ScopeLimits | None:
        """Return the limits of a scope, where it has some."""
        if scope not in self._scopes and (terms := self.terms(scope)) is not None:
            self._scopes[scope] = ScopeLimits(terms)
        return self._scopes.get(scope)

    def unbanned(self, allowed: Models | None, scope: str) -> Models | None:
        """Return the models that a scope may call by their largest shares, or None for all; never none of them."""
        caps = self._caps_of(scope)
        return allowed if caps is None else caps.unbanned(allowed, len(self._learner.pool))

    def free(self, allowed: Models | None, scope: str, rng: np.random.Generator) -> Models | None:
        """Return the models whose largest shares leave them the next decision of a scope, or None for all."""
        caps = self._caps_of(scope)
        return allowed if caps is None else caps.free(allowed, len(self._learner.pool), NO_CONTEXT, None, 0.0, rng)

    def _caps_of(self, scope: str) -> ShareCaps | None:
        limits = self.of(scope)
        return None if limits is None else limits.share_caps(self._learner.pool)

    def vary(
        self,
        choice: Choice,
        scope: str,
        context: int,
        funds: Funds,
        rng: np.random.Generator,
        allowed: Collection[int] | None,
        shift: Shift | None,
    ) -> Choice:
        """Return a draw from the plan under the limits of a scope in place of that of the policy."""
        limits, learner = self.of(scope), self._learner
        policy = learner.policy
        if limits is None or choice.rule != "plan" or not isinstance(policy, DrawsFromPlan):
            return choice
        plan = policy.live_plan
        if plan is None:
            return choice
        limits.decided += 1
        if limits.has_total:
            self.follow_window(scope, limits)
        mixture = limits.mixture
        if mixture is None or limits.is_due((plan.n_contexts, learner.pool), funds.requests):
            self.follow_window(scope, limits)
            mixture = limits.solve(plan, funds, partial(self.means, limits.terms), learner.pool)
            self._expect(limits)
        return mixture.vary(choice, context, funds, rng, allowed, shift)

    def sent(self, decision: Decision, model: int) -> None:
        """Count a call in the shares of models, and its expected uses until it reports its own."""
        limits = self._scopes.get(decision.scope)
        if limits is None:
            return
        caps = limits.share_caps(self._learner.pool)
        if caps is not None:
            caps.count(model)
        if model != SKIP:
            self._follow()
            if limits.expected_for != self._shape:
                self._expect(limits)
            uses = {
                one: row[model] for one, rows in limits.expected.items() if model in (row := rows[decision.context])
            }
            limits.in_flight.begin(decision.id, uses, decision.decided_at)
            self._first.begin(model)

    def _expect(self, limits: ScopeLimits) -> None:
        """Let the calls of a scope be expected to use what is known now, in the present contexts."""
        freq = self._learner.contexts.freq
        limits.expected = {one: self._uses[one].known_means(freq) for one in limits.terms.measures}
        limits.expected_for = self._shape

    def unsent(self, decision: Decision) -> None:
        """Take back what `sent` has counted for a call that is not sent after all."""
        if decision.scope in self._scopes and decision.model:
            self.ended(decision)
            self._first.take_back(self._learner.pool.index(decision.model))

    def ended(self, decision: Decision) -> None:
        """Expect no uses of a call any more."""
        limits = self._scopes.get(decision.scope)
        if limits is not None:
            limits.in_flight.end(decision.id)

    def record(self, record: Record, context: int, uses: Mapping[str, float], *, learn: bool) -> None:
        """Count the uses of a call in the meters of its scope, and learn from them."""
        self.ended(record.decision)
        self._meter(record.decision.scope, uses)
        if not learn or context == NO_CONTEXT or record.model == SKIP:
            return
        self._follow()
        calls = self._first.weight(record.model, begun_s=record.decision.decided_at, now_s=self._store.now())
        for measure, estimates in self._uses.items():
            if measure.resource in uses:
                use = measure.of(uses[measure.resource])
                estimates.add(context, record.model, use, calls)
                if self._totals is not None and "|" not in measure.label:  # which parts the names of cells
                    self._totals.add(measure.label, context, record.model, use, calls)

    def follow_window(self, scope: str, limits: ScopeLimits) -> None:
        """Let the meters of a scope go on in the present window of its budget."""
        with suppress(NotStarted):
            ledger = self._store.ledger(scope).each[0]
            limits.follow(scope, ledger.epoch_s or ledger.opened_at, self._meters)

    def _meter(self, scope: str, uses: Mapping[str, float]) -> None:
        """Count the uses of a call in the meters of its scope."""
        limits = self.of(scope)
        if limits is None or not uses:
            return
        if limits.window is None:
            self.follow_window(scope, limits)
        for measure, meter in limits.meters.items():
            if measure.resource in uses:
                use = measure.of(uses[measure.resource])
                meter.add(use)
                if self._meters is not None and limits.window is not None:
                    self._meters.add(Metered.of(scope, limits.window, measure.label), use)

    def means(self, limits: Limits, *, wide: bool = False) -> dict[Measure, FloatArray]:
        """Return the mean uses per (context, model) of what some limits bound, at lower confidence bounds."""
        self._follow()
        self._merge()
        return {measure: self._uses[measure].optimistic_means(wide=wide) for measure in limits.measures}

    def _merge(self) -> None:
        """Learn the uses that other workers have learned."""
        if self._sync is not None and self._totals is not None and self._sync.has_news:
            for measure in self._uses:
                self._totals.begin(measure.label)
            self._sync.merge()

    def _take(self, label: str, context: int, model: int, number: float, total: float, square: float) -> None:
        for measure, estimates in self._uses.items():
            if measure.label == label:
                estimates.add_many(context, model, number, total, square)

    def _exchange(self) -> None:
        """Exchange uses with the other workers, about the present contexts and models."""
        if not self._store.durable:
            return
        contexts, names = self._learner.contexts, self._learner.pool.names
        version = (self._learner.version, contexts.n_contexts)
        if self._totals is None or version != self._exchanged:
            self._totals = UseTotals(contexts.n_contexts, len(names), self._take)
            self._sync, self._exchanged = CallSync(contexts, self._totals, "uses"), version
            self._store.join(self._sync)
        self._totals.grow(len(names))
        if self._sync is not None:
            self._sync.set_models(names)

    @property
    def _n_contexts(self) -> int:
        return self._learner.contexts.n_contexts

    def _known_uses(self, measure: Measure) -> ResourceEstimates:
        """Return the estimates of a measure; those of the priors where it is not bounded yet."""
        self._follow()
        return self._uses.get(measure) or ResourceEstimates(self._n_contexts, self._priors(measure))

    def _priors(self, measure: Measure) -> list[float | None]:
        models = self._learner.pool.models
        priors = [model.resources.get(measure.resource) for model in models]
        return [None if prior is None else measure.expected(prior) for prior in priors]

    def _follow(self) -> None:
        """Move the estimates to the present contexts and models."""
        shape = (self._learner.version, self._n_contexts, len(self._learner.pool))
        if shape != self._shape:
            if self._shape is not None:
                for measure, estimates in self._uses.items():
                    self._uses[measure] = estimates.moved_to(self._n_contexts, self._priors(measure))
            self._shape = shape
            self._exchange()


def _bound(limits: Limits, measure: Measure, horizon: int | None) -> float | None:
    """Return the mean that a measure may have from the start."""
    total = limits.total(measure)
    bounds = [limits.most(measure), None if total is None or not horizon else total / horizon]
    return min([bound for bound in bounds if bound is not None], default=None)
