"""The router: `decide`, `charge` and `reward`, the three events of a request.

`decide` turns a query into a model and a reservation, `charge` settles the true cost of the call, `reward` takes a
score if and when the caller has one. Reading, deciding, storing and learning never call one another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.artifacts.parts import RouterParts
from wiserouter.budgets.funds import BudgetSnapshot
from wiserouter.errors import BudgetExhausted, InvalidInput, QuerySkipped
from wiserouter.learning.drift import Watch
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.reclustering import Growing
from wiserouter.learning.residuals import QueryResiduals
from wiserouter.planning.envelope import SKIP
from wiserouter.planning.policies import ExploreShare, Offline, Optimistic, Policy
from wiserouter.planning.ranking import ranked
from wiserouter.pricing.pool import Model, Pool
from wiserouter.pricing.prices import Usage
from wiserouter.prompts.contexts import Contexts
from wiserouter.prompts.encoders import EncoderLike, open_encoder
from wiserouter.prompts.query import Query
from wiserouter.routing.administration import RouterAdministration
from wiserouter.routing.decider import Decider
from wiserouter.routing.label_budget import LabelBudget
from wiserouter.routing.learner import Learner
from wiserouter.stores import Store, open_store
from wiserouter.stores.shared.estimate_sync import EstimateSync
from wiserouter.types import Decision
from wiserouter.validation import check_amount, check_count, check_reward

if TYPE_CHECKING:
    from wiserouter.fitting.fit import Progress
    from wiserouter.fitting.log import RoutingLog
    from wiserouter.learning.residuals.model_selection import Comparison

logger = logging.getLogger("wiserouter")

T = TypeVar("T")


class WiseRouter(RouterAdministration):
    """A budget-aware router: sends each query to the model that the budget of the workload is best spent on.

    Parameters
    ----------
    models : sequence of Model
        The pool.
    contexts : Contexts, optional
        How queries are told apart; one context by default, which needs no encoder.
    encoder : str, Encoder or callable, optional
        Turns text into an embedding; needed if `decide` is given text and there are several contexts.
    policy : Policy, optional
        `Offline` if `estimates` are given, else `Optimistic`.
    estimates : Estimates, optional
        Sums per (context, model); none by default.
    residuals : QueryResiduals, optional
        Estimators of how single queries deviate from their context; made by `fit`.
    store : str or Store, default "memory://"
        Where budgets and decisions live.
    watch : Watch or None, default "auto"
        Fades old observations and detects drift; "auto" is `Watch()` for policies that ask for it, such as
        `Optimistic`, and None for the others: nothing fades.
    growing : Growing, optional
        Clusters the recent queries again as they come, so that the number of contexts grows with the traffic. Not with
        `residuals`, nor with a store that several processes share.
    seed : int, optional
        Seeds the draws of the policy.
    labels : LabelBudget, optional
        Marks the decisions whose feedback is worth asking for.
    explore : ExploreShare, optional
        Draws a share of the models uniformly, so that the journal supports off-policy evaluation.

    Attributes
    ----------
    comparison : Comparison or None
        The comparison of the estimators, if `fit` chose one.

    Raises
    ------
    InvalidInput
        If names repeat, shapes do not match, or parameters exclude each other.

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
        residuals: QueryResiduals | None = None,
        store: str | Store = "memory://",
        watch: Watch | Literal["auto"] | None = "auto",
        growing: Growing | None = None,
        seed: int | None = None,
        labels: LabelBudget | None = None,
        explore: ExploreShare | None = None,
    ) -> None:
        if residuals is not None and growing is not None:
            raise InvalidInput("residuals belong to fixed contexts: give residuals or growing, not both")
        pool, contexts = Pool(models), contexts or Contexts.single()
        policy = policy or (Optimistic() if estimates is None else Offline())
        estimates = estimates or Estimates(contexts.n_contexts, len(pool))
        opened = None if encoder is None else open_encoder(encoder)
        store = open_store(store)
        if growing is not None and store.durable:
            raise InvalidInput(
                "contexts that grow are known to one process only, got growing= with a store that several share: "
                "fit an artifact and load it in each, or use memory://"
            )
        if watch == "auto":
            watch = Watch() if getattr(policy, "watches_by_default", False) else None
        sync = EstimateSync(contexts) if store.durable else None
        parts = RouterParts(pool.models, contexts, opened, policy, estimates, residuals)
        learner = Learner(parts, store.now, watch=watch, growing=growing, sync=sync)
        if sync is not None:
            store.join(sync)
        super().__init__(store, learner, growing)
        self._decider = Decider(learner, np.random.default_rng(seed), store.now, labels, explore)
        self.comparison: Comparison | None = None

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
            residuals=fitted.finer,
            store=store,
            seed=seed,
        )
        router.comparison = fitted.comparison
        return router

    def save(self, path: str | Path) -> str:
        """Write the fitted and learned parts to one file, and return its hash; running budgets stay in the store."""
        from wiserouter.artifacts.save_load import save  # a router that is never saved loads no zip

        return save(self.parts(), path)

    def parts(self) -> RouterParts:
        """Return a copy of the fitted and learned parts, which no longer changes with this router."""
        with self._lock:
            return self._learner.copy()

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
        from wiserouter.artifacts.save_load import load

        return cls(**load(path, encoder)._asdict(), store=store, seed=seed)

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
            If contexts, encoders, prices, limits or policies differ, or estimates of single queries were fitted; the
            error says which and what to do.
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
        from wiserouter.artifacts.save_load import load

        def parts(one: WiseRouter | str | Path) -> RouterParts:
            return one.parts() if isinstance(one, WiseRouter) else load(one)

        merging.check_distinct(one for one in routers if not isinstance(one, WiseRouter))
        named = [
            (f"router {i}" if isinstance(one, WiseRouter) else str(one), parts(one))
            for i, one in enumerate(routers, start=1)
        ]
        terms = None if prices_from is None else parts(prices_from)
        return cls(**merging.merge(named, terms, policy)._asdict(), store=store, seed=seed)

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
        reader = self._learner.reader
        budget = self._store.snapshot(scope)
        query = reader.read(text, embedding, input_tokens, context, hard=budget.hard)
        if text is not None and not reader.is_quick(text):  # other calls may have been decided meanwhile
            budget = self._store.snapshot(scope)
        return self._decide(query, budget, eligible, max_output_tokens, worst_case_usd, scope)

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
        reader = self._learner.reader
        if reader.is_quick(text):
            return decide()
        hard = self._store.snapshot(scope).hard
        query = await asyncio.to_thread(reader.read, text, embedding, input_tokens, context, hard=hard)
        return self._decide(query, self._store.snapshot(scope), eligible, max_output_tokens, worst_case_usd, scope)

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
        cost = self._cost_usd(decision_id, served, cost_usd, usage)
        record = self._store.settle(decision_id, cost, served)
        if learn:
            with self._lock:
                self._learner.add_cost(record, cost, usage)
        name = self._learner.pool.names[record.model]
        self._journal.event("charge", decision_id, self._store.now(), cost_usd=cost, model=name, learn=learn)
        if cost > record.decision.reserved_usd and self.is_hard(record.decision.scope):
            logger.warning(
                "a call of %s cost %.6g USD, more than its worst case of %.6g: the hard limit may not hold",
                name,
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

    def ranking(self, decision: Decision) -> list[str]:
        """Return all models for a query, the chosen one first, the others by reward less shadow price x cost."""
        with self._lock:
            return ranked(self.policy.plan, self.pool, decision)

    def release(self, decision: Decision | str) -> None:
        """Give back the reservation of a call that failed and costs nothing; raises as `charge` does."""
        record = self._store.release(_id(decision))
        with self._lock:
            self._learner.take_back(record)
        self._journal.event("release", record.decision.id, self._store.now())

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
            self._learner.add_reward(record, score, replaced)
        figures = {"reward": score} if comment is None else {"reward": score, "comment": comment}
        self._journal.event("reward", record.decision.id, self._store.now(), **figures)
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

    def waits(self, scope: str | None = None) -> bool:
        """Return whether a step may wait for the store: then keep it off the event loop, as the a-methods do.

        Parameters
        ----------
        scope : str, optional
            Whose budget is to be decided on; None for a step that knows a decision by its id alone.
        """
        return self._store.waits("" if scope is None else scope)

    def _decide(
        self,
        query: Query,
        budget: BudgetSnapshot,
        eligible: Iterable[str] | None,
        max_output_tokens: int | None,
        worst_case_usd: Mapping[str, float] | None,
        scope: str,
    ) -> Decision:
        """Decide, hold the cost back, record the decision and count it."""
        if max_output_tokens is not None:
            check_count("max_output_tokens", max_output_tokens, least=1)
        eligible = None if eligible is None else tuple(eligible)
        terms = (eligible, worst_case_usd, max_output_tokens, scope)
        learner, store = self._learner, self._store
        with self._lock:
            if store.durable:
                learner.merge_remote()
            record = self._decider.decide(query, budget, *terms)
        try:
            store.reserve(record)
        except BudgetExhausted:  # another call was faster
            budget = store.snapshot(scope)
            with self._lock:
                record = self._decider.decide(query, budget, *terms)
            store.reserve(record)
        decision = record.decision
        self._journal.decision(decision, record.facts)
        if record.model == SKIP:
            self._settle_skipped(decision)
        with self._lock:
            learner.add_decision(record, query)
        return decision

    def _settle_skipped(self, decision: Decision) -> NoReturn:
        """Charge nothing for a query that is not served, and raise `QuerySkipped`."""
        self._store.settle(decision.id, 0.0)
        self._journal.event("charge", decision.id, self._store.now(), cost_usd=0.0, model="", learn=False)
        raise QuerySkipped(decision.context, decision.rate_usd)

    async def _offload(self, scope: str, step: Callable[[], T], decision_id: str | None = None) -> T:
        """Run a step, off the event loop if the store may have to be waited for."""
        if not self._store.waits(scope, decision_id):
            return step()
        from wiserouter.stores.offload import offload  # callers without an event loop do not pay for asyncio

        return await offload(step)

    def _cost_usd(self, decision_id: str, served: int | None, cost_usd: float | None, usage: Usage | None) -> float:
        """Return the cost of a call, given in USD or as tokens."""
        if cost_usd is not None:
            return check_amount("cost_usd", cost_usd)
        if usage is None:
            raise InvalidInput("charge needs cost_usd or usage, got neither")
        return self.pool.cost_usd(self._store.find(decision_id).model if served is None else served, usage)


def _bounded(model: Model, dearest_usd: float) -> Model:
    known = model.max_cost_usd is not None or np.isnan(dearest_usd)
    return model if known else replace(model, max_cost_usd=dearest_usd)


def _id(decision: Decision | str) -> str:
    return decision if isinstance(decision, str) else decision.id


def _scope(decision: Decision | str) -> str:
    return "" if isinstance(decision, str) else decision.scope


def _silent(step: str, rows: int) -> None:
    """Report no progress."""
