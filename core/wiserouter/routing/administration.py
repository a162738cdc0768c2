"""The operator's half of `WiseRouter`: budgets, models, contexts, status and explanations."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, NoReturn

from wiserouter.artifacts.parts import RouterParts
from wiserouter.budgets.budget import Budget
from wiserouter.budgets.funds import BudgetSnapshot
from wiserouter.budgets.nested import Account
from wiserouter.conversations.call_estimates import sums_for_pool
from wiserouter.errors import InvalidInput
from wiserouter.learning.optimistic_estimates import scored_share
from wiserouter.learning.reclustering import Growing
from wiserouter.learning.residuals import QueryResiduals
from wiserouter.parallel.forks import held_at_fork
from wiserouter.planning.policies import ExploreShare, Policy
from wiserouter.planning.ranking import ranked, ranked_by_plan
from wiserouter.pricing.pool import Model, Pool
from wiserouter.prompts.contexts import Contexts
from wiserouter.prompts.encoders import Encoder
from wiserouter.routing.conversation_calls import ConversationCalls
from wiserouter.routing.decider import Decider
from wiserouter.routing.decision_ids import id_of
from wiserouter.routing.label_budget import LabelBudget
from wiserouter.routing.learner import Learner
from wiserouter.routing.ordered_mode import RouterMode
from wiserouter.routing.own_records import has_contexts_of, with_names
from wiserouter.routing.pool_figures import PoolFigures, described, figures_of
from wiserouter.routing.router_knowledge import RouterKnowledge
from wiserouter.routing.score_warnings import score_warnings
from wiserouter.routing.shadow import Shadow
from wiserouter.routing.short_budget import warn_if_short
from wiserouter.routing.status import Status, status_of, status_with_judge
from wiserouter.routing.status_text import html_of_router, text_of_router
from wiserouter.routing.unspent import FIRST_LOGGED, RARE, why_unspent
from wiserouter.stores import Health, Store
from wiserouter.stores.day_buckets import Cells, DayBuckets
from wiserouter.types import Decision, FloatArray
from wiserouter.validation import check_kind

if TYPE_CHECKING:
    from wiserouter.fitting.encoder_selection import EncoderComparison
    from wiserouter.judging.judge import Judge
    from wiserouter.learning.residuals.model_selection import Comparison
    from wiserouter.routing.explanation import Explanation

logger = logging.getLogger("wiserouter")


class RouterAdministration(RouterMode, RouterKnowledge):
    """The methods that an operator calls, and the parts that they show or change.

    Parameters
    ----------
    store : Store
        Where budgets and decisions live.
    learner : Learner
        All that the router knows.
    growing : Growing or None
        Clusters the recent queries again as they come.
    """

    _decider: Decider

    def __init__(self, store: Store, learner: Learner, growing: Growing | None) -> None:
        super().__init__()
        self._store, self._learner, self._growing = store, learner, growing
        store.follow_orders(self._hear_orders)
        self._lock = held_at_fork(RLock())
        describe = partial(described, learner, self._lock)
        self._days = DayBuckets(lambda: learner.pool.names, keeps=not store.durable, describe=describe)
        if store.durable:
            store.join(self._days)
        self.judge: Judge | None = None
        self.comparison: Comparison | None = None
        self.encoders: EncoderComparison | None = None
        self._calls: ConversationCalls | None = None
        self._call_sums: Mapping[str, FloatArray] | None = None
        self._listeners: tuple[Callable[[], object], ...] = ()
        self._unspent_due = FIRST_LOGGED
        self._shadow: Shadow | None = None
        self._has_observed = False
        self._shadow_paused: set[str] = set()
        self.check_new_model: Callable[[Model], None] | None = None
        """Called by `add_model` before anything is changed; an adapter refuses a model that it could not call."""

    def __repr__(self) -> str:
        return text_of_router(self)

    def _repr_html_(self) -> str:
        return html_of_router(self)

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            f"a router must not be copied or pickled, since it holds a store that is open, got {self!r}: pass it on as "
            f"it is, or give save(path) to the other process, and load it there with the URL of a shared store"
        )

    @property
    def pool(self) -> Pool:
        """The models."""
        return self._learner.pool

    @property
    def contexts(self) -> Contexts:
        """The contexts that queries are assigned to."""
        return self._learner.contexts

    @property
    def encoder(self) -> Encoder | None:
        """The encoder of text; None where one context needs none."""
        return self._learner.encoder

    @property
    def policy(self) -> Policy:
        """The policy that chooses a model."""
        return self._learner.policy

    @property
    def residuals(self) -> QueryResiduals | None:
        """The estimators of single queries; None where context means are all."""
        return self._learner.residuals

    @property
    def needs_embedding(self) -> bool:
        """True if a query's embedding bears on its reward in addition to its context: then pass both to `decide`."""
        return self._learner.needs_embedding

    @property
    def labels(self) -> LabelBudget | None:
        """The label budget, which marks the decisions whose feedback is worth asking for."""
        return self._decider.labels

    @labels.setter
    def labels(self, labels: LabelBudget | None) -> None:
        self._decider.labels = labels

    @property
    def explore(self) -> ExploreShare | None:
        """The share of the decisions that is drawn uniformly."""
        return self._decider.explore

    @explore.setter
    def explore(self, explore: ExploreShare | None) -> None:
        self._decider.explore = explore

    @property
    def durable(self) -> bool:
        """True if budgets and decisions outlive the process and are shared with the other workers of the store."""
        return self._store.durable

    def start(
        self, budget: Budget, *, scope: str = "default", parent: str | None = None, restart: bool | None = None
    ) -> None:
        """Start a budget, and those that it is within.

        Parameters
        ----------
        budget : Budget
            The terms.
        scope : str, default "default"
            The team, key or tag that the budget belongs to.
        parent : str, optional
            Another scope, whose running budgets must bear each call as well: the organisation of a team.
        restart : bool, optional
            End the running budget of this scope. The default is True in memory; in a store that outlives the process
            it is False, and the budget goes on with the amount and the horizon given now, so that every worker may
            start it.

        Raises
        ------
        UnknownPrice
            If a hard limit could never bound the cost of some model.
        NotStarted
            If the parent has no budget.
        InvalidInput
            If the scope encloses the parent, or without `restart` the running one differs beyond amount and horizon.
        StoreUnavailable
            If the store cannot be reached.
        """
        if budget.hard:
            self.pool.check_bounded()
        self._read_orders()
        restart = not self._store.durable if restart is None else restart
        self._open(budget, scope, parent, restart=restart)
        self._catch_up()
        for one in budget.each:
            warn_if_short(one, self.plan)
        for listener in self._listeners:
            listener()

    def add_model(self, model: Model, *, reward: float | None = None, cost_usd: float | None = None) -> None:
        """Add a model to the pool of a running router; nothing is refitted.

        Parameters
        ----------
        model : Model
            Its name must be new; a price lets its cost be estimated.
        reward, cost_usd : float, optional
            Your prior: mean score, and USD per call. By default the mean reward of the other models with a score in
            each context, and the others' mean cost in proportion to the list prices.

        Raises
        ------
        InvalidInput
            If the name is taken, or a prior is out of range. Nothing is changed.

        Notes
        -----
        A prior counts as one observation per context.

        Under a hard budget a model without price and `max_cost_usd` takes the calls for which `worst_case_usd` states
        its bound. Any other call that it is eligible for is refused with `UnknownPrice`, until `update_model` gives it
        a bound, or `retire_model` takes it out of service.
        """
        if self.check_new_model is not None:
            self.check_new_model(model)
        with self._lock:
            self._learner.add_model(model, reward, cost_usd)
            self._take_orders(self._orders, waits=False)

    def update_model(self, model: Model) -> None:
        """Change price and limits of a model of the pool, found by its name; raise `UnknownModel` if there is none.

        A new price acts at once: the costs of the model so far are restated at it.
        """
        check_kind("model", model, Model, "Model('small', Price(input=1e-7, output=4e-7))")
        with self._lock:
            self._learner.update_model(model)

    def retire_model(self, name: str) -> None:
        """Send a model no more queries; its estimates are kept, and `update_model` brings it back.

        Raises
        ------
        UnknownModel
            If there is none of this name.
        InvalidInput
            If no other model is in service. Nothing is changed.
        """
        self.update_model(replace(self.pool.models[self.pool.index(name)], retired=True))

    def refit_contexts(self, n_contexts: int | None = None) -> None:
        """Cluster the recent queries into new contexts; observations move with their queries.

        Parameters
        ----------
        n_contexts : int, optional
            Number of contexts; by default as many as `growing` allows.

        Raises
        ------
        InvalidInput
            If the router keeps no queries, or too few. Nothing is changed.
        """
        if self._growing is None:
            raise InvalidInput("refit_contexts needs recent queries: make the router with growing=Growing(...)")
        with self._lock:
            self._learner.refit_contexts(self._growing, n_contexts)

    def save(self, path: str | Path) -> str:
        """Write the fitted and learned parts to one file, and return its hash; running budgets stay in the store.

        Raises
        ------
        ArtifactError
            If the file could not be loaded again. The one at `path` stays as it was.
        """
        from wiserouter.artifacts.save_load import save  # a router that is never saved loads no zip

        return save(self.parts(), path)

    def parts(self) -> RouterParts:
        """Return a copy of the fitted and learned parts, which no longer changes with this router."""
        with self._lock:
            estimates = None if self._calls is None else self._calls.estimates
            sums = sums_for_pool(self._learner.pool.models, estimates, self._call_sums)
            return self._merged().copy()._replace(call_sums=sums)

    def status(self, scope: str = "default") -> Status:
        """Return the state of a scope's budget and what the rest of it will buy; raise `NotStarted` if none runs."""
        account = self._store.ledger(scope)
        with self._lock:
            calls, learner = self._calls, self._merged()
            figures = None if calls is None else calls.counts.figures(calls.settings.unit)
            status = status_of(scope, account, learner.policy.plan, learner.pool.names, figures, learner.estimates)
            return status_with_judge(status, self.judge, learner)

    def health(self) -> Health:
        """Return the state of the store: whether it can be reached, and the age of this worker's view."""
        return self._store.health()

    def budget(self, scope: str = "default") -> Budget:
        """Return the running budget of `scope`; raise `NotStarted` if there is none."""
        return self._store.ledger(scope).budget

    def account(self, scope: str = "default") -> Account:
        """Return the account of `scope` at this moment, to be read only; raise `NotStarted` if none runs."""
        return self._store.ledger(scope)

    def snapshot(self, scope: str = "default") -> BudgetSnapshot:
        """Return the budget of `scope` as a decision reads it at this moment; raise `NotStarted` if none runs."""
        return self._store.snapshot(scope)

    def refresh(self) -> None:
        """Read what other workers have spent and settled, where the store is shared.

        Raises
        ------
        StoreUnavailable, StoreDamaged
            If that fails.
        """
        self._store.refresh()

    def now(self) -> float:
        """Return the store's time, in seconds since 1970."""
        return self._store.now()

    def sums_of_days(self, days: Iterable[int], scope: str | None = None) -> tuple[dict[int, Cells], PoolFigures]:
        """Return the sums of days since 1970, and what is known of the models, for `wiserouter.operating.savings`."""
        cells = self._days.read(self._store, days, scope)
        with self._lock:
            learner = self._merged()
            return cells, figures_of(learner.pool, learner.contexts, learner.estimates)

    def notify(self, listener: Callable[[], object]) -> None:
        """Let `listener` be called after each step that may leave more of a budget, in the thread of that step."""
        self._listeners = (*self._listeners, listener)

    def is_hard(self, scope: str = "default") -> bool:
        """Return True if a budget of `scope` must never be exceeded; raise `NotStarted` if none runs."""
        return self._store.ledger(scope).hard

    def explain(self, decision: Decision | str) -> Explanation:
        """Return why a decision was made, as of that moment; raise `UnknownDecision` if there is no such decision.

        Examples
        --------
        >>> from wiserouter import Budget, Model, Price, WiseRouter
        >>> router = WiseRouter([Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))], seed=0)
        >>> router.start(Budget(amount_usd=1.0, horizon=1_000))
        >>> why = router.explain(router.decide("What is the capital of France?"))
        >>> why.rule, [round(model.probability, 2) for model in why.models]
        ('first', [1.0, 0.0])
        """
        from wiserouter.routing.explanation import explanation_of  # most processes explain nothing

        record = with_names(self._learner, self._store.find(id_of(decision)))
        contexts = self.contexts if self._growing is None and has_contexts_of(self._learner, record) else None
        explanation = explanation_of(record, contexts)
        with self._lock:
            return replace(explanation, warnings=score_warnings(self._learner))

    def ranking(self, decision: Decision) -> list[str]:
        """Return the models for a query, the chosen one first, the others by reward less shadow price x cost.

        Retired ones are left out, unless one was chosen.
        """
        pool, trace = self._learner.pool, self._store.find(decision.id).trace
        figures = None if trace is None else trace.choice.figures
        known = figures is not None and figures.invoked is None and any(figures.calls)
        if figures is not None and known and len(figures.calls) == len(pool.names):
            ranking = ranked(figures, pool.names, decision)
        else:
            with self._lock:
                ranking = ranked_by_plan(self._learner.policy.plan, pool, decision)
        if pool.unrestricted:
            return ranking
        return [name for name in ranking if name == decision.model or not pool.by_name[name].retired]

    def _take_stock(self, decision: Decision) -> None:
        """Count the scores that may still come; after 100 decisions and at each doubling, log why money is left."""
        with self._lock:
            seen = self._learner.estimates
            self._learner.pending.update(seen, decision.decided_at)
            if seen.n_invoked < self._unspent_due:
                return
            if decision.shadow_price > 0.0:  # where more would buy more, all is spent
                return
            plan = self.policy.plan
            if plan is None:
                return
            self._unspent_due = 2 * seen.n_invoked
            level = logging.WARNING if scored_share(seen) < RARE else logging.INFO
            if not logger.isEnabledFor(level):  # the line takes as long as several decisions
                return
            line = why_unspent(plan, decision.rate_usd, self.pool.names, seen)
        if line is not None:
            logger.log(level, "budget of %s: %s", decision.scope, line)

    def close(self) -> None:
        """Send the store what it has not received yet, and close it."""
        self._store.close()
