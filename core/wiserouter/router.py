"""The router: the one place that knows all steps of a request.

`decide` turns a query into a model and a reservation, `charge` settles the true cost of the call, `reward` takes a
score if and when somebody judges. The steps never call one another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.budgets.budget import Budget
from wiserouter.budgets.funds import Funds
from wiserouter.budgets.nested import Account
from wiserouter.errors import BudgetExhausted, InvalidInput, QuerySkipped
from wiserouter.learning.cost_prior import price_change
from wiserouter.learning.drift import Watch
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.new_model import new_model_prior
from wiserouter.learning.reclustering import Growing
from wiserouter.learning.residuals import QueryFeatures, QueryResiduals
from wiserouter.planning.plan import SKIP, Plan
from wiserouter.planning.policies import Choice, ExploreShare, Offline, Optimistic, Policy
from wiserouter.planning.policy import by_worth, cheapest_choice
from wiserouter.planning.trace import DecisionTrace
from wiserouter.pricing.pool import Model, Pool
from wiserouter.pricing.prices import Usage
from wiserouter.prompts.contexts import Contexts
from wiserouter.prompts.encoders import Encoder, EncoderLike, open_encoder
from wiserouter.prompts.query import Query, QueryReader
from wiserouter.routing.label_budget import LabelBudget
from wiserouter.routing.learner import Learner
from wiserouter.routing.status import Status, status_of
from wiserouter.stores import Health, Record, Store, open_store
from wiserouter.stores.ids import fresh_id
from wiserouter.stores.shared.estimate_sync import EstimateSync
from wiserouter.types import NO_CONTEXT, Decision, Embedding
from wiserouter.validation import check_amount, check_count, check_reward

if TYPE_CHECKING:
    from wiserouter.artifacts.merge import Part
    from wiserouter.fitting.fit import Progress
    from wiserouter.fitting.log import RoutingLog
    from wiserouter.learning.residuals.model_selection import Comparison
    from wiserouter.routing.explanation import Explanation
    from wiserouter.routing.journal import Journal

logger = logging.getLogger("wiserouter")

T = TypeVar("T")

CUSHION_DECAY = 0.999
"""Per request: what a hard budget holds back for its last one is the dearest cheapest call of about the last 1,000."""


class WiseRouter:
    """Sends each query to the model that the workload's budget is best spent on.

    Parameters
    ----------
    models : sequence of Model
        The pool.
    contexts : Contexts, optional
        How queries are told apart; one context by default, which needs no encoder.
    encoder : str, Encoder or callable, optional
        Turns text into an embedding; needed where `decide` is given text and there are several contexts.
    policy : Policy, optional
        `Offline` where `estimates` are given, else `Optimistic`.
    estimates : Estimates, optional
        What is known of each (context, model).
    finer : QueryResiduals, optional
        What judges queries one by one, beyond their context; `fit` makes it.
    store : str or Store, default "memory://"
        Where budgets and decisions live.
    watch : Watch or None, default "auto"
        How what was learned fades and what has changed is noticed; "auto" is `Watch()` for `Optimistic`, else None:
        nothing fades.
    seed : int, optional
        Seeds the draws of the policy.
    labels : LabelBudget, optional
        Marks the decisions whose feedback is worth asking for.
    explore : ExploreShare, optional
        Draws a share of the models uniformly, so that the journal can tell what others would have bought.

    Attributes
    ----------
    comparison : Comparison or None
        How the estimators did, where `fit` chose one.

    Raises
    ------
    InvalidInput
        If names repeat or shapes do not match.

    Notes
    -----
    Safe to share between threads; a decision holds one lock for some microseconds.

    Examples
    --------
    >>> from wiserouter import Budget, Model, Price
    >>> router = WiseRouter([Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))], seed=0)
    >>> router.start(Budget(amount_usd=1.0, horizon=1_000))
    >>> decision = router.decide("What is the capital of France?")
    >>> router.charge(decision, usage=Usage(input_tokens=9, output_tokens=5))
    >>> replaced = router.reward(decision, 1.0)
    >>> router.status().charged
    1
    """

    def __init__(
        self,
        models: Sequence[Model],
        contexts: Contexts | None = None,
        *,
        encoder: EncoderLike | None = None,
        policy: Policy | None = None,
        estimates: Estimates | None = None,
        finer: QueryResiduals | None = None,
        store: str | Store = "memory://",
        watch: Watch | Literal["auto"] | None = "auto",
        growing: Growing | None = None,
        seed: int | None = None,
        labels: LabelBudget | None = None,
        explore: ExploreShare | None = None,
    ) -> None:
        self.pool = Pool(models)
        self.contexts = contexts or Contexts.single()
        self.encoder: Encoder | None = None if encoder is None else open_encoder(encoder)
        if finer is not None and growing is not None:
            raise InvalidInput("finer estimates belong to fixed contexts: give finer or growing, not both")
        self.finer, self._growing = finer, growing
        self.comparison: Comparison | None = None
        self._reader = QueryReader(self.contexts, self.encoder, self.pool, finer, grows=growing is not None)
        self.policy: Policy = policy or (Optimistic() if estimates is None else Offline())
        self.estimates = estimates or Estimates(self.contexts.n_contexts, len(self.pool))
        if self.estimates.shape != (self.contexts.n_contexts, len(self.pool)):
            raise InvalidInput(
                f"estimates must have one row per context ({self.contexts.n_contexts}) and one column per model "
                f"({len(self.pool)}), got {self.estimates.shape}"
            )
        self._store = open_store(store)
        if growing is not None and self._store.durable:
            raise InvalidInput(
                "contexts that grow are known to one process only, got growing= with a store that several share: "
                "fit an artifact and load it in each, or use memory://"
            )
        self._rng = np.random.default_rng(seed)
        self._cushion_usd = 0.0
        self._lock = RLock()
        if watch == "auto":
            watch = Watch() if isinstance(self.policy, Optimistic) else None
        self._watch = watch
        self._sharing = self._shared()
        self.labels = labels
        self.explore = explore
        self.journal: Journal | None = None
        self._learn_from_now()

    @classmethod
    def fit(
        cls,
        log: RoutingLog | str | Path,
        *,
        encoder: EncoderLike = "tfidf",
        n_contexts: int = 16,
        contexts: Contexts | None = None,
        models: Sequence[Model] | None = None,
        policy: Policy | None = None,
        estimator: str = "means",
        token_cost: bool | None = None,
        rate_usd: float | None = None,
        store: str | Store = "memory://",
        seed: int = 0,
        progress: Progress | None = None,
    ) -> WiseRouter:
        """Fit a router on a log of past calls (paper, Algorithm 1).

        Parameters
        ----------
        log : RoutingLog, str or Path
            Past calls: prompt, model, reward, cost; or the file that holds them.
        encoder : str, Encoder or callable, default "tfidf"
            "tfidf", "minilm", or anything that maps a list of texts to an array.
        n_contexts : int, default 16
            Number of clusters J.
        contexts : Contexts, optional
            Those of another router, with `encoder` its encoder: nothing is clustered, the log is counted in them. What
            is fitted so on parts of a log can be merged.
        models : sequence of Model, optional
            Prices and limits of the log's models, in any order.
        policy : Policy, optional
            `Offline()` by default.
        estimator : {"means", "ridge", "neighbours", "auto"}, default "means"
            Add to the means of a query's context what its embedding says of its rewards. "auto" compares them on
            held-out queries at `rate_usd`, and keeps to means where none gains more than a standard error.
        token_cost : bool, optional
            Let costs follow the length of the query; by default no, or as "auto" finds better.
        rate_usd : float, optional
            The budget per query to compare at; midway between the cheapest and the dearest useful one by default.
        store : str or Store, default "memory://"
            Where budgets and decisions live.
        seed : int, default 0
            Seeds sample, clusters and draws.
        progress : callable, optional
            Called with what is being done and the rows just done.

        Returns
        -------
        WiseRouter
            Ready for `start`. A model without a bound on the cost of a call takes its dearest call in the log.

        Raises
        ------
        InvalidInput
            If there are fewer queries than contexts, or a model was never observed.
        LogError
            If a row cannot be read.
        """
        from wiserouter.fitting.fit import ResidualTerms, fit_log  # a router that is never fitted reads no log
        from wiserouter.fitting.log import RoutingLog

        log = log if isinstance(log, RoutingLog) else RoutingLog.read(log)
        known = {model.name: model for model in models or ()}
        for name in known.keys() - set(log.models):
            raise InvalidInput(f"models must be in the log ({', '.join(log.models)}), got {name!r}", value=name)
        prices = [known[name].price if name in known else None for name in log.models]
        terms = ResidualTerms(
            estimator, token_cost, rate_usd, [0.0 if price is None else price.input for price in prices]
        )
        fitted = fit_log(
            log,
            open_encoder(encoder),
            n_contexts,
            seed=seed,
            progress=progress or _silent,
            terms=terms,
            contexts=contexts,
        )
        pool = [
            _bounded(known.get(name, Model(name)), float(dearest))
            for name, dearest in zip(log.models, fitted.dearest_usd, strict=True)
        ]
        router = cls(
            pool,
            fitted.contexts,
            encoder=fitted.encoder,
            policy=policy or Offline(),
            estimates=fitted.estimates,
            finer=fitted.finer,
            store=store,
            seed=seed,
        )
        router.comparison = fitted.comparison
        return router

    def save(self, path: str | Path) -> str:
        """Write what was fitted and learned to one file, and return its hash; running budgets stay in the store."""
        from wiserouter.artifacts import save_load as saving  # a router that is never saved loads no zip

        with self._lock:
            estimates = self.estimates.copy()
            finer = None if self.finer is None else self.finer.copy()
        return saving.save_router(self, estimates, finer, path)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        store: str | Store = "memory://",
        encoder: EncoderLike | None = None,
        seed: int | None = None,
    ) -> WiseRouter:
        """Read a router that `save` wrote.

        Parameters
        ----------
        path : str or Path
            The artifact.
        store : str or Store, default "memory://"
            Where budgets and decisions live.
        encoder : Encoder or callable, optional
            Needed where the router was fitted with a callable of your own, which no file can hold.
        seed : int, optional
            Seeds the draws of the policy.

        Raises
        ------
        ArtifactError
            If the file is not an artifact, is damaged, or comes from a newer version.
        """
        from wiserouter.artifacts import save_load as saving

        parts = saving.load_parts(path, encoder)
        return cls(**parts, store=store, seed=seed)

    @classmethod
    def merge(
        cls,
        routers: Sequence[WiseRouter | str | Path],
        *,
        prices_from: WiseRouter | str | Path | None = None,
        policy: Policy | None = None,
        store: str | Store = "memory://",
        seed: int | None = None,
    ) -> WiseRouter:
        """Add up routers that were fitted on parts of a log in the same contexts, as if on the whole of it.

        Parameters
        ----------
        routers : sequence of WiseRouter, str or Path
            At least two routers, or artifacts of some. A model that only some know is kept.
        prices_from : WiseRouter, str or Path, optional
            Where prices or limits of a model differ, this one's hold; the costs that were paid stay as they are.
        policy : Policy, optional
            By default that of all of them.
        store : str or Store, default "memory://"
            Where budgets and decisions live.
        seed : int, optional
            Seeds the draws of the policy.

        Raises
        ------
        NotMergeable
            If contexts, encoders, prices, limits or policies differ, or queries are judged one by one; the error says
            which and what to do.
        ArtifactError
            If a file is not an artifact, or is damaged.

        Examples
        --------
        >>> from wiserouter import RoutingLog
        >>> logs = [RoutingLog.from_arrays([text] * 2, [[1.0]] * 2, [[0.1]] * 2, ["small"]) for text in ("hi", "bye")]
        >>> first = WiseRouter.fit(logs[0], n_contexts=1)
        >>> second = WiseRouter.fit(logs[1], encoder=first.encoder, contexts=first.contexts)
        >>> WiseRouter.merge([first, second]).contexts.n_queries
        4
        """
        from wiserouter.artifacts import merge as merging  # few routers are merged

        merging.check_distinct(one for one in routers if not isinstance(one, WiseRouter))
        parts = [_part(one, f"router {i}") for i, one in enumerate(routers, start=1)]
        terms = None if prices_from is None else _part(prices_from, "prices_from")
        return cls(**merging.merge(parts, terms, policy).settings(), store=store, seed=seed)

    @property
    def plan(self) -> Plan | None:
        """The linear program at the current estimates; None before anything is known."""
        with self._lock:
            return self.policy.plan

    @property
    def needs_embedding(self) -> bool:
        """Whether a query's embedding bears on its reward, beyond its context: then pass it to `decide` with that."""
        return self._growing is not None or (self.finer is not None and self.finer.residual is not None)

    def start(
        self, budget: Budget, *, scope: str = "default", parent: str | None = None, restart: bool | None = None
    ) -> None:
        """Start a budget, and those that it is within.

        Parameters
        ----------
        budget : Budget
            The terms.
        scope : str, default "default"
            Whose budget it is.
        parent : str, optional
            Another scope, whose running budgets must bear each call as well: the organisation of a team.
        restart : bool, optional
            End the budget of this scope that runs. By default so in memory; in a store that outlives the process it
            goes on, with the amount and the horizon given now, so that every worker may start it.

        Raises
        ------
        UnknownPrice
            If a hard limit could never bound the cost of some model.
        NotStarted
            If the parent has no budget.
        InvalidInput
            If the one that runs renews otherwise, has another limit or another parent, and `restart` is not said.
        StoreUnavailable
            If the store cannot be reached.
        """
        if budget.hard:
            self.pool.check_bounded()
        self._store.open(scope, budget, parent=parent, restart=not self._store.durable if restart is None else restart)
        for one in budget.each:
            self._warn_if_short(one)

    def _warn_if_short(self, budget: Budget) -> None:
        plan = self.plan
        if plan is not None and budget.rate_usd is not None and budget.rate_usd < plan.floor_usd:
            logger.warning(
                "the budget gives %.3g USD per request, the cheapest models cost %.3g: it will last for about %d of %d",
                budget.rate_usd,
                plan.floor_usd,
                int(budget.amount_usd / plan.floor_usd),
                budget.horizon,
            )

    def set_budget(
        self,
        *,
        amount_usd: float | None = None,
        horizon: int | None = None,
        every: str | None = None,
        scope: str = "default",
    ) -> None:
        """Change the running budget; amount and horizon count from its start. Nothing is refitted.

        Where there are several, `every` says which: how often it renews, or "never".
        """
        if amount_usd is None and horizon is None:
            raise InvalidInput("set_budget needs amount_usd, horizon or both, got neither")
        self._store.amend(scope, amount_usd=amount_usd, horizon=horizon, every=every)

    def add_model(self, model: Model, *, reward: float | None = None, cost_usd: float | None = None) -> None:
        """Take a model into the pool of a running router; nothing is refitted.

        Parameters
        ----------
        model : Model
            With a name of its own, and a price where its cost is to be guessed.
        reward, cost_usd : float, optional
            What you believe of it: mean score, and USD per call. By default the mean reward of the others in each
            context, and their mean cost in proportion to the list prices.

        Raises
        ------
        InvalidInput
            If the name is taken, or a belief is out of range. Nothing is changed.

        Notes
        -----
        A belief counts as one observation per context.
        """
        with self._lock:
            pool = Pool([*self.pool.models, model])
            belief = new_model_prior(self.estimates, pool, reward, cost_usd)
            self.estimates.add_model(*belief)
            if self.finer is not None:
                self.finer.add_model(0.0 if model.price is None else model.price.input)
            self._swap(pool)
            self._learn_from_now()

    def refit_contexts(self, n_contexts: int | None = None) -> None:
        """Fit contexts on the recent queries; what was learned is carried over.

        Parameters
        ----------
        n_contexts : int, optional
            How many; by default as many as `growing` allows.

        Raises
        ------
        InvalidInput
            If the router keeps no queries, or too few. Nothing is changed.
        """
        growing = self._growing
        if growing is None:
            raise InvalidInput("refit_contexts needs recent queries: make the router with growing=Growing(...)")
        with self._lock:
            self._move_to(
                growing, growing.fit(growing.n_contexts_now(len(self.pool)) if n_contexts is None else n_contexts)
            )

    def update_model(self, model: Model) -> None:
        """Change price and limits of a model of the pool, known by its name; raises `UnknownModel`.

        A new price acts at once: what the model has cost so far is restated at it.
        """
        with self._lock:
            models = list(self.pool.models)
            k = self.pool.index(model.name)
            former, models[k] = models[k], model
            self._swap(Pool(models))
            if former.price is not None and model.price is not None and former.price != model.price:
                ratio = price_change(self.estimates, former.price, model.price)
                self._learning.reprice(k, ratio)
            self._bind()

    def retire_model(self, name: str) -> None:
        """Send a model no more queries; what is known of it is kept, and `update_model` takes it back.

        Raises
        ------
        UnknownModel
            If there is none of this name.
        InvalidInput
            If no other model is in service. Nothing is changed.
        """
        self.update_model(replace(self.pool.models[self.pool.index(name)], retired=True))

    def decide(
        self,
        text: str | None = None,
        *,
        embedding: ArrayLike | None = None,
        context: int | None = None,
        eligible: Iterable[str] | None = None,
        input_tokens: int | None = None,
        max_output_tokens: int | None = None,
        worst_case_usd: Mapping[str, float] | None = None,
        scope: str = "default",
    ) -> Decision:
        """Choose the model for one query and hold back its cost.

        Parameters
        ----------
        text : str, optional
            The query.
        embedding : array-like of shape (dim,), optional
            Its embedding, instead of encoding `text`.
        context : int, optional
            Its context, where it is known; `NO_CONTEXT` decides by what is known of all contexts together.
        eligible : iterable of str, optional
            The models that may take it; all by default.
        input_tokens : int, optional
            Its length; counted from `text` where limits, prices or costs by length need it.
        max_output_tokens : int, optional
            The most tokens that this call may return.
        worst_case_usd : mapping of str to float, optional
            The most that this call can cost with each eligible model, where you know better than prices x tokens.
        scope : str, default "default"
            The budget that pays.

        Returns
        -------
        Decision
            Charge it, or release it if the call fails.

        Raises
        ------
        NotStarted, BudgetExhausted, HorizonExhausted
            If nothing pays for it.
        NoEligibleModel, UnknownModel, InvalidInput, EncoderError, UnknownPrice
            If the query or the restriction is at fault. Nothing is changed.
        """
        hard = text is not None and self.is_hard(scope)
        query = self._reader.read(text, embedding, input_tokens, context, hard=hard)
        return self._decide(query, eligible, max_output_tokens, worst_case_usd, scope)

    async def adecide(
        self,
        text: str | None = None,
        *,
        embedding: ArrayLike | None = None,
        context: int | None = None,
        eligible: Iterable[str] | None = None,
        input_tokens: int | None = None,
        max_output_tokens: int | None = None,
        worst_case_usd: Mapping[str, float] | None = None,
        scope: str = "default",
    ) -> Decision:
        """Do what `decide` does, with encoding and token counting off the event loop."""
        import asyncio  # 25 ms that callers without an event loop need not pay

        decide = partial(
            self.decide,
            text,
            embedding=embedding,
            context=context,
            eligible=eligible,
            input_tokens=input_tokens,
            max_output_tokens=max_output_tokens,
            worst_case_usd=worst_case_usd,
            scope=scope,
        )
        if self._store.waits(scope):
            from wiserouter.stores.offload import offload

            return await offload(decide, self.release)
        if self._reader.is_quick(text):
            return decide()
        hard = text is not None and self.is_hard(scope)
        query = await asyncio.to_thread(self._reader.read, text, embedding, input_tokens, context, hard=hard)
        return self._decide(query, eligible, max_output_tokens, worst_case_usd, scope)

    def charge(
        self,
        decision: Decision | str,
        cost_usd: float | None = None,
        *,
        usage: Usage | None = None,
        model: str | None = None,
        learn: bool = True,
    ) -> None:
        """Settle the true cost of a call, given in USD or as tokens.

        Parameters
        ----------
        decision : Decision or str
            The decision, or its id. One that was released can still be charged: the money is gone.
        cost_usd : float, USD, optional
            What the call cost.
        usage : Usage, optional
            Its tokens: the cost at the model's price where `cost_usd` is not given, and in any case what the lengths of
            questions and answers are learned from.
        model : str, optional
            The model that answered, where a retry or fallback made it another one than was decided.
        learn : bool, default True
            Whether the cost tells something about the model; a cached answer does not.

        Raises
        ------
        UnknownDecision, AlreadySettled
            If there is no such decision, or it was charged before; nothing is charged twice.
        InvalidInput, UnknownModel, UnknownPrice
            If the cost is not a finite number of at least 0, or the model is unknown or has no price. Nothing is
            changed.
        """
        decision_id = _id(decision)
        served = None if model is None else self.pool.index(model)
        cost = self._cost(decision_id, served, cost_usd, usage)
        record = self._store.settle(decision_id, cost, served)
        if learn:
            with self._lock:
                self._learning.add_cost(record, cost, usage)
                self._turn()
        if self.journal is not None:
            self._note("charge", decision_id, cost_usd=cost, model=self.pool.names[record.model], learn=learn)
        if cost > record.decision.reserved_usd and self.is_hard(record.decision.scope):
            logger.warning(
                "a call of %s cost %.6g USD, more than its worst case of %.6g: the hard limit may not hold",
                self.pool.names[record.model],
                cost,
                record.decision.reserved_usd,
            )

    async def acharge(
        self,
        decision: Decision | str,
        cost_usd: float | None = None,
        *,
        usage: Usage | None = None,
        model: str | None = None,
        learn: bool = True,
    ) -> None:
        """Do what `charge` does, off the event loop where the store is waited for."""
        step = partial(self.charge, decision, cost_usd, usage=usage, model=model, learn=learn)
        await self._offload(_scope(decision), step, _id(decision))

    def spend(self, cost_usd: float, *, scope: str = "default") -> None:
        """Pay for something that is no call of the pool, such as an embedding, out of the same budget.

        A hard limit refuses what does not fit, so pay an upper bound beforehand and give the rest back with a negative
        amount.

        Raises
        ------
        NotStarted, BudgetExhausted
            If nothing pays for it. Nothing is changed.
        InvalidInput
            If the cost is not a finite number. Nothing is changed.
        """
        check_amount("the size of cost_usd", abs(cost_usd))
        self._store.spend(scope, cost_usd)

    async def aspend(self, cost_usd: float, *, scope: str = "default") -> None:
        """Do what `spend` does, off the event loop where the store is waited for."""
        await self._offload(scope, partial(self.spend, cost_usd, scope=scope))

    def decision(self, decision_id: str) -> Decision:
        """Return what was decided; raises `UnknownDecision`."""
        return self._store.find(decision_id).decision

    def explain(self, decision: Decision | str) -> Explanation:
        """Return why a decision fell as it did, as of the moment when it was made; raises `UnknownDecision`.

        Examples
        --------
        >>> from wiserouter import Budget, Model, Price
        >>> router = WiseRouter([Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))], seed=0)
        >>> router.start(Budget(amount_usd=1.0, horizon=1_000))
        >>> why = router.explain(router.decide("What is the capital of France?"))
        >>> why.rule, [model.probability for model in why.models]
        ('plan', [1.0, 0.0])
        """
        from wiserouter.routing.explanation import explanation_of  # many processes explain nothing

        contexts = self.contexts if self._growing is None else None
        return explanation_of(self._store.find(_id(decision)), self.pool.names, contexts)

    def journal_to(self, path: str | Path) -> Journal:
        """Append every decision, charge, release and reward from now on to a file of JSON lines; nobody waits for it.

        Raises
        ------
        OSError
            If the file cannot be opened.
        """
        from wiserouter.routing.journal import Journal

        self.journal = Journal(path)
        return self.journal

    def ranking(self, decision: Decision) -> list[str]:
        """Return all models for a query, the chosen one first, the others by reward less shadow price x cost."""
        with self._lock:
            first = self.pool.index(decision.model)
            plan, context = self.policy.plan, decision.context
            if plan is None:
                order = sorted(range(len(self.pool)), key=self.pool.list_price_usd)
            else:
                at = (plan.without_context(), 0) if context == NO_CONTEXT else (plan, context)
                order = by_worth(*at, decision.shadow_price)
            return [self.pool.names[k] for k in sorted(order, key=lambda k: k != first)]

    def release(self, decision: Decision | str) -> None:
        """Give back the reservation of a call that failed and costs nothing; raises as `charge` does."""
        record = self._store.release(_id(decision))
        with self._lock:
            self._learning.take_back(record)
        self._note("release", record.decision.id)

    def reward(self, decision: Decision | str, reward: float, *, comment: str | None = None) -> bool:
        """Take a score in [0, 1] for a decision, instead of an earlier one of the same decision.

        Parameters
        ----------
        decision : Decision or str
            The decision, its id, or an alias.
        reward : float
            The score.
        comment : str, optional
            Kept in the journal, where there is one.

        Returns
        -------
        bool
            Whether there was an earlier one.

        Raises
        ------
        InvalidInput
            If the score is outside [0, 1].
        UnknownDecision, AlreadySettled
            If there is no such decision, or its call was released. Nothing is changed.
        """
        score = check_reward(reward)
        record, replaced = self._store.reward(_id(decision), score)
        with self._lock:
            self._learning.add_reward(record, score, replaced)
        self._note("reward", record.decision.id, reward=score, **({} if comment is None else {"comment": comment}))
        return replaced is not None

    async def arelease(self, decision: Decision | str) -> None:
        """Do what `release` does, off the event loop where the store is waited for."""
        await self._offload(_scope(decision), partial(self.release, decision), _id(decision))

    async def areward(self, decision: Decision | str, reward: float, *, comment: str | None = None) -> bool:
        """Do what `reward` does, off the event loop where the store is waited for."""
        return await self._offload("", partial(self.reward, decision, reward, comment=comment))

    def alias(self, alias: str, decision: Decision | str) -> None:
        """Let a decision be charged, rewarded and found by another name as well, such as the id of its call.

        An alias given before goes to the later decision; one of "" is of none any more.
        """
        self._store.alias(alias, _id(decision))

    @property
    def durable(self) -> bool:
        """Whether budgets and decisions outlive the process and are shared with the other workers of the store."""
        return self._store.durable

    def waits(self, scope: str | None = None) -> bool:
        """Return whether a step may wait for the store: then keep it off the event loop, as the a-methods do.

        Parameters
        ----------
        scope : str, optional
            Whose budget is to be decided on; None for a step that knows a decision by its id alone.
        """
        return self._store.waits("" if scope is None else scope)

    def is_hard(self, scope: str = "default") -> bool:
        """Return whether a budget that `scope` is under must never be exceeded; raises `NotStarted`."""
        return self._store.ledger(scope).hard

    def status(self, scope: str = "default") -> Status:
        """Return where the budget of `scope` stands and what the rest of it will buy; raises `NotStarted`."""
        account = self._store.ledger(scope)
        with self._lock:
            return status_of(scope, account, self.policy.plan, self.pool.names)

    def health(self) -> Health:
        """Return how the store is doing: whether it can be reached, and how old the view is that decisions rest on."""
        return self._store.health()

    def close(self) -> None:
        """Tell the store what it has not heard of, and let go of it."""
        self._store.close()

    def budget(self, scope: str = "default") -> Budget:
        """Return the running budget of `scope`; raises `NotStarted`."""
        return self._store.ledger(scope).budget

    def _learn_from_now(self) -> None:
        """Begin anew to watch the estimates, as when their shape has changed."""
        if self._sharing is not None:
            self._sharing.name(self.pool.names)
        self._learning = Learner(self.estimates, self._watch, self.finer, self._growing, self._sharing)
        self._learning.follow(self._store.now())
        self._bind()

    def _shared(self) -> EstimateSync | None:
        """Return what tells other workers of the same store what this one observes."""
        if not self._store.durable:
            return None
        sharing = EstimateSync(self.contexts)
        sharing.name(self.pool.names)
        self._store.join(sharing)
        return sharing

    async def _offload(self, scope: str, step: Callable[[], T], decision_id: str | None = None) -> T:
        """Do a step, off the event loop where the store is waited for."""
        if not self._store.waits(scope, decision_id):
            return step()
        from wiserouter.stores.offload import offload  # who has no event loop need not pay for asyncio

        return await offload(step)

    def _move_to(self, growing: Growing, contexts: Contexts) -> None:
        """Go on with other contexts; what was learned goes with the queries."""
        self.estimates = growing.move(self.estimates, contexts, self._store.now())
        logger.info("%d contexts take the place of %d", contexts.n_contexts, self.contexts.n_contexts)
        self.contexts = contexts
        self._swap(self.pool)
        self._learn_from_now()

    def _bind(self) -> None:
        """Hand the policy what it plans with."""
        self.policy.bind(self.contexts.freq, self.estimates, self.pool.models)

    def _turn(self) -> None:
        """Notice what has changed, where it is time to look."""
        if self._learning.turn(self.pool.names, self._store.now()):
            self._bind()

    def _swap(self, pool: Pool) -> None:
        self.pool = pool
        self._reader = QueryReader(self.contexts, self.encoder, pool, self.finer, grows=self._growing is not None)

    def _decide(
        self,
        query: Query,
        names: Iterable[str] | None,
        max_output_tokens: int | None,
        worst_case_usd: Mapping[str, float] | None,
        scope: str,
    ) -> Decision:
        if max_output_tokens is not None:
            check_count("max_output_tokens", max_output_tokens, least=1)
        eligible = self.pool.eligible(names, query.input_tokens)
        record = self._picked(query, eligible, max_output_tokens, worst_case_usd, scope)
        try:
            self._store.reserve(record)
        except BudgetExhausted:  # somebody else was faster
            record = self._picked(query, eligible, max_output_tokens, worst_case_usd, scope)
            self._store.reserve(record)
        decision, model = record.decision, record.model
        if self.journal is not None and record.facts is not None:
            self._note_decision(self.journal, decision, record.facts)
        if model == SKIP:
            self._store.settle(decision.id, 0.0)
            self._note("charge", decision.id, cost_usd=0.0, model="", learn=False)
            raise QuerySkipped(decision.context, decision.rate_usd)
        with self._lock:
            self._learning.add_invoked(decision.context, model)
            if self._growing is not None and query.embedding is not None:
                self._grow(self._growing, decision, query.embedding, model)
        return decision

    def _picked(
        self,
        query: Query,
        eligible: set[int] | None,
        max_output_tokens: int | None,
        worst_case_usd: Mapping[str, float] | None,
        scope: str,
    ) -> Record:
        """Return the decision that is best as things stand; nothing is held back yet."""
        context, tokens, embedding, length = query
        ledger = self._store.ledger(scope)
        with self._lock:
            if self._sharing is not None and self._sharing.heard:
                self._learning.hear()
            funds = ledger.funds()
            worst_usd, room_usd, allowed = None, None, eligible
            if ledger.hard:
                worst_usd = self._worst_usd(tokens, max_output_tokens, worst_case_usd)
                room_usd = ledger.room_usd()
                allowed = _affordable(ledger, room_usd, eligible, worst_usd)
                self._cushion_usd = max(min(worst_usd), CUSHION_DECAY * self._cushion_usd)
                left_usd, requests, each, _, share = funds
                funds = Funds(left_usd, requests, each, self._cushion_usd + ledger.margin_usd(), share)
            finer = self.finer
            own = None if finer is None else finer.features(context, embedding, length, funds.rate_usd)
            choice = self._choose(ledger, funds, context, allowed, own)
            decision = self._decision(choice, context, funds, worst_usd, scope)
            if self.labels is not None:
                decision = decision._replace(ask_feedback=self._asks(self.labels, choice, context))
            shift = None if own is None else own.shift
            facts = DecisionTrace(self.pool, self.contexts, choice, funds, eligible, tokens, worst_usd, room_usd, shift)
            return Record(decision, choice.model, choice.debit, "in flight", None, None, facts, own)

    def _grow(self, growing: Growing, decision: Decision, embedding: Embedding, model: int) -> None:
        """Keep a query, and take over new contexts if they are ready."""
        growing.add(decision, embedding, model)
        fitted = growing.advance(len(self.pool))
        if fitted is not None:
            self._move_to(growing, fitted)

    def _worst_usd(
        self, tokens: int | None, max_output_tokens: int | None, told_usd: Mapping[str, float] | None
    ) -> list[float]:
        if told_usd is not None:
            return [_bound(told_usd.get(name, float("inf"))) for name in self.pool.names]
        return self.pool.worst_cases_usd(tokens, max_output_tokens)

    def _choose(
        self, ledger: Account, funds: Funds, context: int, allowed: set[int] | None, query: QueryFeatures | None
    ) -> Choice:
        needed_usd = 0.0
        if funds.requests > 0 and funds.left_usd > 0:
            own = () if query is None else (query.shift,)
            choice = self.policy.choose(context, funds, self._rng, allowed, *own)
            if self.explore is not None:
                choice = self.explore.vary(choice, funds, self._rng, allowed, *own)
            if choice.debit == "paper" or ledger.bears(choice.expected_cost_usd):
                return choice
            needed_usd = choice.expected_cost_usd
        refusal = ledger.refusal(needed_usd)
        if refusal is not None:
            raise refusal
        models = range(len(self.pool)) if allowed is None else allowed
        return cheapest_choice(self.policy.plan, context, models, self.pool.list_price_usd)

    def _decision(
        self, choice: Choice, context: int, funds: Funds, worst_usd: list[float] | None, scope: str
    ) -> Decision:
        model, expected_usd = choice.model, choice.expected_cost_usd
        served = model != SKIP
        held_usd = expected_usd if worst_usd is None or not served else worst_usd[model]
        return Decision(
            fresh_id(),
            self.pool.names[model] if served else "",
            context,
            choice.probability,
            funds.rate_usd,
            choice.shadow_price,
            expected_usd if expected_usd < held_usd else held_usd,
            choice.expected_reward,
            held_usd,
            scope,
            self._store.now(),
        )

    def _asks(self, labels: LabelBudget, choice: Choice, context: int) -> bool:
        if context == NO_CONTEXT or choice.model == SKIP:  # there is nothing to learn
            return False
        known = float(self.estimates.labels[context, choice.model])
        return labels.ask(choice, known, float(self.contexts.freq[context]))

    def _note_decision(self, journal: Journal, decision: Decision, facts: DecisionTrace) -> None:
        from wiserouter.routing.explanation import facts_of_decision

        journal.note(lambda: {"event": "decision", **facts_of_decision(decision, facts)})

    def _note(self, event: str, decision_id: str, **told: object) -> None:
        if self.journal is not None:
            line = {"event": event, "id": decision_id, "at": self._store.now(), **told}
            self.journal.note(lambda: line)

    def _cost(self, decision_id: str, served: int | None, cost_usd: float | None, usage: Usage | None) -> float:
        if cost_usd is not None:
            return check_amount("cost_usd", cost_usd)
        if usage is None:
            raise InvalidInput("charge needs cost_usd or usage, got neither")
        return self.pool.cost_usd(self._store.find(decision_id).model if served is None else served, usage)


def _part(router: WiseRouter | str | Path, name: str) -> Part:
    """Return what is merged of a router, or of an artifact."""
    from wiserouter.artifacts import merge as merging  # few routers are merged

    if not isinstance(router, WiseRouter):
        return merging.read_part(router)
    with router._lock:
        learned = router.estimates.copy()
    return merging.Part(name, router.pool.models, router.contexts, router.encoder, router.policy, learned, router.finer)


def _affordable(ledger: Account, room: float, eligible: set[int] | None, worst_usd: list[float]) -> set[int] | None:
    """Return the models whose worst case a hard limit still admits, or None for all."""
    if eligible is None and max(worst_usd) <= room:
        return None
    models = range(len(worst_usd)) if eligible is None else eligible
    fitting = {k for k in models if worst_usd[k] <= room}
    if not fitting:
        raise ledger.exhausted(min(worst_usd[k] for k in models))
    return fitting


def _bounded(model: Model, dearest_usd: float) -> Model:
    known = model.max_cost_usd is not None or np.isnan(dearest_usd)
    return model if known else replace(model, max_cost_usd=dearest_usd)


def _bound(worst_usd: float) -> float:
    return worst_usd if worst_usd == float("inf") else check_amount("worst_case_usd", worst_usd)


def _id(decision: Decision | str) -> str:
    return decision if isinstance(decision, str) else decision.id


def _scope(decision: Decision | str) -> str:
    return "" if isinstance(decision, str) else decision.scope


def _silent(step: str, rows: int) -> None:
    """Report no progress."""
