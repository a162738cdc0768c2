"""The methods of `WiseRouter` for limits beside the budget: on resources such as latency, on quality and on shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from wiserouter.budgets.budget import Budget
from wiserouter.budgets.limits import Limits
from wiserouter.errors import InvalidInput, NotStarted
from wiserouter.planning.policy import DrawsFromPlan
from wiserouter.pricing.use_rates import UseRate, checked_rates
from wiserouter.routing.conversation_methods import RouterConversations
from wiserouter.routing.decision_ids import id_of
from wiserouter.routing.own_records import own_record
from wiserouter.routing.status import Status
from wiserouter.stores.base import Record
from wiserouter.types import Decision
from wiserouter.validation import check_kind, check_uses

if TYPE_CHECKING:
    from wiserouter.routing.limited_scopes import LimitedScopes


class RouterLimits(RouterConversations):
    """The methods that set limits, and record what calls use of them.

    Attributes
    ----------
    has_limits : bool
        Whether limits were set for any scope, so that the uses of calls count.
    """

    has_limits = False

    def set_limits(self, limits: Limits | None, *, scope: str | None = None) -> None:
        """Set the limits beside the budget; the plan then keeps them all, at one price each.

        Parameters
        ----------
        limits : Limits or None
            The limits, in place of earlier ones; None ends them.
        scope : str, optional
            The team, key or tag whose calls they limit; by default all scopes without limits of their own, each by
            itself.

        Raises
        ------
        InfeasibleLimits
            If no mix of models keeps them all by what is known of the models, at the running budget. Nothing is
            changed.
        InvalidInput, UnknownModel
            If the policy has no plan, a share names no model of the pool, or the shares leave no model.

        Notes
        -----
        Uses of resources come from `charge(..., resources=...)`, `record_use` or the rates of `set_use_rates`, and
        before the first calls from `Model(resources=...)`. Workers of one store learn uses from each other, and share
        their meters: a total is one of all workers, also after a restart. A mean is kept by each worker for its own
        calls.

        Examples
        --------
        >>> import numpy as np
        >>> from wiserouter import Budget, Estimates, Limit, Limits, Model, WiseRouter
        >>> estimates = Estimates(1, 2)
        >>> estimates.add_table(np.array([0]), [[0.2, 0.9]], [[0.01, 0.03]])
        >>> models = [Model("small", resources={"latency_s": 1.0}), Model("large", resources={"latency_s": 3.0})]
        >>> router = WiseRouter(models, estimates=estimates, seed=0)
        >>> router.start(Budget(amount_usd=30.0, horizon=1_000))
        >>> router.set_limits(Limits({"latency_s": Limit(mean=2.0)}))
        >>> decision = router.decide("What is the capital of France?")
        >>> router.charge(decision, cost_usd=0.01, resources={"latency_s": 1.3})
        >>> [(one.name, one.mean, round(one.price, 2)) for one in router.status().limits]
        [('latency_s', 1.3, 0.35)]
        """
        if limits is not None:
            check_kind("limits", limits, Limits, 'Limits({"latency_s": Limit(mean=2.0)})')
        with self._lock:
            if limits is not None:
                self._check_limits(limits)
            scopes = self._limited_scopes()
            if limits is not None:
                scopes.check(limits, *self._rate_and_horizon("default" if scope is None else scope))
            scopes.set(limits, scope)
            self._decider.limits = scopes
            self.has_limits = True

    def limits(self, scope: str = "default") -> Limits | None:
        """Return the limits of a scope."""
        with self._lock:
            scopes = self._decider.limits
            return None if scopes is None else scopes.terms(scope)

    def start(
        self, budget: Budget, *, scope: str = "default", parent: str | None = None, restart: bool | None = None
    ) -> None:
        """Start a budget as `RouterAdministration.start` does; refuse one under which no mix keeps the limits."""
        check_kind("budget", budget, Budget, "Budget(amount_usd=50, horizon=10_000)")
        scopes = self._decider.limits
        terms = None if scopes is None else scopes.terms(scope)
        if scopes is not None and terms is not None:
            rates = [one.rate_usd for one in budget.each if one.rate_usd is not None]
            with self._lock:
                scopes.check(terms, min(rates, default=None), budget.horizon)
        super().start(budget, scope=scope, parent=parent, restart=restart)

    def set_use_rates(self, rates: Mapping[str, Mapping[str, UseRate]]) -> None:
        """State what calls use, by their tokens, of resources that no one measures, such as energy; for their limits.

        Parameters
        ----------
        rates : mapping of str to mapping of str to UseRate
            The rates of each model, or of all arms of a family, by resource; in place of earlier ones. What `charge` is
            told of a call comes first, and a call whose tokens are unknown uses nothing by them.

        Raises
        ------
        UnknownModel, InvalidInput
            If there is no such model, or a resource has no name such as "energy_wh".

        Examples
        --------
        >>> from wiserouter import Budget, Limit, Limits, Model, Price, UseRate, WiseRouter
        >>> router = WiseRouter([Model("small", Price(1e-6, 2e-6))], seed=0)
        >>> router.start(Budget(amount_usd=1.0, horizon=1_000))
        >>> router.set_use_rates({"small": {"energy_wh": UseRate(output_token=0.0004)}})
        >>> router.set_limits(Limits({"energy_wh": Limit(mean=0.1)}))
        >>> router.charge(router.decide("hello"), usage={"prompt_tokens": 20, "completion_tokens": 200})
        >>> router.status().limits[0].mean
        0.08
        """
        self._use_rates = checked_rates(rates, self.pool.models)

    def record_use(self, decision: Decision | str, resources: Mapping[str, float], *, learn: bool = True) -> None:
        """Record what a call has used of named resources, apart from its charge.

        Parameters
        ----------
        decision : Decision or str
            The decision, its id, or an alias.
        resources : mapping of str to float
            The uses, such as `{"latency_s": 1.7}`; those that no limit names are left out.
        learn : bool, default True
            False if they say nothing about the model, as with a cached answer.

        Raises
        ------
        InvalidInput
            If a use is not a finite number of at least 0.
        UnknownDecision
            If there is no such decision.
        """
        uses = check_uses(resources)
        record = own_record(self._learner, self._store.find(id_of(decision)))
        with self._lock:
            if self._decider.limits is not None:
                self._decider.limits.record(record, self._learner.context_of(record), uses, learn=learn)

    def status(self, scope: str = "default") -> Status:
        """Return the state of a scope's budget and limits, and what the rest of it will buy; raise `NotStarted`."""
        from wiserouter.routing.limit_figures import infeasible_line, limit_figures

        status = super().status(scope)
        with self._lock:
            scopes = self._decider.limits
            limits = None if scopes is None else scopes.of(scope)
            if scopes is None or limits is None:
                return status
            scopes.follow_window(scope, limits)
            status = replace(status, limits=limit_figures(limits))
            nearest, mixture = limits.nearest(), limits.mixture
            if mixture is None:
                return status
            shares = mixture.shares.tolist()
            return replace(
                status,
                shadow_price=mixture.plan.prices[0],
                expected_reward=mixture.plan.value,
                mix=dict(zip(self.pool.names, shares, strict=False)),
                unspent=None,
                warnings=(*status.warnings, *([infeasible_line(nearest)] if nearest else [])),
            )

    def ranking(self, decision: Decision) -> list[str]:
        """Return the models for a query as `RouterAdministration.ranking` does, with banned ones behind all others."""
        ranking, limits = super().ranking(decision), self.limits(decision.scope)
        if limits is None:
            return ranking
        return sorted(ranking, key=lambda name: name != decision.model and limits.max_share.get(name) == 0.0)

    def _note_outcome(self, record: Record, *, released: bool, failed: bool) -> None:
        """Note that a call ended without a bill, so that no use of it is waited for."""
        super()._note_outcome(record, released=released, failed=failed)
        with self._lock:
            if self._decider.limits is not None:
                self._decider.limits.ended(record.decision)

    def _check_limits(self, limits: Limits) -> None:
        """Refuse limits that this router cannot keep."""
        if not isinstance(self.policy, DrawsFromPlan):
            raise InvalidInput(f"limits need a policy that draws from a plan, got {type(self.policy).__name__}")
        for name in (*limits.max_share, *limits.min_share):
            self.pool.index(name)
        left = [one for k, one in enumerate(self.pool.names) if k not in self.pool.retired]
        most = sum([limits.max_share.get(name, 1.0) for name in left])
        if most < 1.0:
            raise InvalidInput(
                f"the largest shares of the models in service must sum to at least 1, got {most:g}: raise max_share",
                value=most,
            )

    def _limited_scopes(self) -> LimitedScopes:
        from wiserouter.routing.limited_scopes import LimitedScopes  # routers without limits do not need it

        return self._decider.limits or LimitedScopes(self._learner, self._store)

    def _rate_and_horizon(self, scope: str) -> tuple[float | None, int | None]:
        """Return rate and horizon of the running budget of a scope; None where none runs."""
        try:
            ledger = self._store.ledger(scope).tightest
        except NotStarted:
            return None, None
        return ledger.rate_usd, ledger.horizon
