"""The router: `decide`, `charge` and `reward`, the three events of a request.

`decide` turns a query into a model and a reservation, `charge` settles the true cost of the call, `reward` takes a
score if and when the caller has one. Reading, deciding, storing and learning never call one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from numpy.typing import ArrayLike

from wiserouter.artifacts.parts import RouterParts
from wiserouter.budgets.funds import BudgetSnapshot
from wiserouter.conversations.settings import Conversations
from wiserouter.errors import BudgetExhausted
from wiserouter.learning.drift import Watch
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.residuals import QueryResiduals
from wiserouter.planning.envelope import SKIP
from wiserouter.planning.policies import ExploreShare, Offline, Optimistic, Policy
from wiserouter.pricing.pool import Model, Pool
from wiserouter.prompts.contexts import Contexts
from wiserouter.prompts.encoders import EncoderLike, open_encoder
from wiserouter.prompts.query import Query
from wiserouter.routing.batch_methods import RouterBatches
from wiserouter.routing.conversation_methods import CallQuestion, check_restrictions
from wiserouter.routing.decider import Decider
from wiserouter.routing.growth import GrowingOrAuto, growth
from wiserouter.routing.judging_methods import RouterJudging
from wiserouter.routing.keyed_draws import KeyedDraws
from wiserouter.routing.label_budget import LabelBudget
from wiserouter.routing.learner import Learner
from wiserouter.routing.limit_methods import RouterLimits
from wiserouter.stores import Store, open_store
from wiserouter.stores.base import Record
from wiserouter.stores.shared.context_sync import ContextSync
from wiserouter.stores.shared.estimate_sync import EstimateSync
from wiserouter.types import Decision
from wiserouter.validation import checked_names, seeded

if TYPE_CHECKING:
    from wiserouter.fitting.fit import Progress
    from wiserouter.fitting.log import RoutingLog
    from wiserouter.fitting.log.data_frames import DataFrame


class WiseRouter(RouterBatches, RouterLimits, RouterJudging):
    """A budget-aware router: sends each query to the model that the budget of the workload is best spent on.

    Parameters
    ----------
    models : sequence of Model
        The pool.
    contexts : Contexts, optional
        How queries are told apart; by default one context, and more as queries come (see `growing`).
    encoder : str, Encoder or callable, optional
        Turns text into an embedding; by default "hashing" where contexts grow.
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
    growing : Growing or None, default "auto"
        Clusters the recent queries as they come. "auto" is `Growing()` for a router that learns with `Optimistic` and
        starts without contexts, or was saved while they grew. Workers of a store share them. Not with `residuals`.
    seed : int, optional
        Seeds the draws of the policy; workers with equal seeds, or without one, agree on the draws of a `draw_key`.
    labels : LabelBudget, optional
        Marks the decisions whose feedback is worth asking for.
    explore : ExploreShare, optional
        Draws a share of the models uniformly, so that the journal supports off-policy evaluation.
    conversations : Conversations, optional
        The unit of decision for calls that name their conversation: each call priced with what is cached, or one
        decision per run. By default each call is decided alone.

    Attributes
    ----------
    comparison, encoders : Comparison and EncoderComparison, or None
        The comparisons of estimators and of encoders, if `fit` chose one.

    Raises
    ------
    InvalidInput
        If names repeat, shapes do not match, or parameters exclude each other.

    Notes
    -----
    Safe to share between threads; a decision holds one lock for some microseconds.

    Examples
    --------
    >>> from wiserouter import Budget, Model, Price, Usage
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
        growing: GrowingOrAuto = "auto",
        seed: int | None = None,
        labels: LabelBudget | None = None,
        explore: ExploreShare | None = None,
        conversations: Conversations | None = None,
    ) -> None:
        policy = policy or (Optimistic() if estimates is None else Offline())
        opened, store = None if encoder is None else open_encoder(encoder), open_store(store)
        growing, opened = growth(growing, opened, contexts, policy, fixed=residuals is not None)
        pool, contexts = Pool(models), contexts or Contexts.single()
        estimates = estimates or Estimates(contexts.n_contexts, len(pool))
        if watch == "auto":
            watch = Watch() if getattr(policy, "watches_by_default", False) else None
        sync = (
            None if not store.durable else EstimateSync(contexts) if growing is None else ContextSync(contexts, opened)
        )
        parts = RouterParts(pool.models, contexts, opened, policy, estimates, residuals)
        learner = Learner(parts, store.now, watch=watch, growing=growing, sync=sync)
        if sync is not None:
            store.join(sync)
        super().__init__(store, learner, growing)
        self._decider = Decider(learner, seeded(seed), store.now, labels, explore, KeyedDraws(seed), store.payers)
        if conversations is not None:
            self.keep_conversations(conversations)

    @classmethod
    def fit(
        cls,
        log: RoutingLog | DataFrame | str | Path,
        *,
        encoder: EncoderLike = "tfidf",
        n_contexts: int = 16,
        contexts: Contexts | None = None,
        models: Sequence[Model] | None = None,
        policy: Policy | None = None,
        estimator: str = "smoothed",
        rate_usd: float | None = None,
        store: str | Store = "memory://",
        seed: int = 0,
        progress: Progress | None = None,
        n_jobs: int | None = None,
    ) -> WiseRouter:
        """Fit a router on a log of past calls (paper, Algorithm 1).

        Parameters
        ----------
        log : RoutingLog, str, Path, or data frame of polars or pandas
            Past calls: prompt, model, reward, cost; or the files that hold them.
        encoder : str, Encoder or callable, default "tfidf"
            "tfidf", "minilm", another name of `open_encoder`, or what maps a list of texts to an array; "column", the
            log's own `embedding`; or "auto", the best of the built-in ones on held-out queries at `rate_usd`.
        n_contexts : int, default 16
            Number of clusters J; fewer, with a warning, where the log has fewer different prompts.
        contexts : Contexts, optional
            Those of another router, with its encoder: the log is only counted in them, so that the two can be merged.
        models : sequence of Model, optional
            Prices and limits of the log's models, in any order.
        policy : Policy, optional
            By default `Offline()`, or `Optimistic()` where a model has no score in the log: its quality is then taken
            from `Model(score=...)` and the prices, and learned.
        estimator : {"smoothed", "means", "ridge", "auto"}, default "smoothed"
            "means" are the mean rewards of contexts; "smoothed" lets these borrow from other models, other contexts and
            a regression on the embeddings, where contexts are found here. "ridge" tells the queries of a context apart;
            "auto" does where that gains over a standard error, held out, and is "smoothed" elsewhere.
        rate_usd : float, optional
            The budget per query to compare at; by default midway between the lowest and the highest useful one.
        store : str or Store, default "memory://"
            Where budgets and decisions live.
        seed : int, default 0
            Seeds sample, clusters and draws.
        progress : callable, optional
            Called with the name of the step and the number of rows just read.
        n_jobs : int, optional
            Number of workers, -1 for all; by default that of `joblib.parallel_config`, else 1. It changes no figure.

        Returns
        -------
        WiseRouter
            Ready for `start`. The most expensive call of a model in the log bounds its cost, where nothing else does.

        Raises
        ------
        InvalidInput
            If no call of a model has a cost, the log is no log, or a row cannot be read (`LogError`).
        """
        from wiserouter.fitting.fit import fit_parts  # a router that is never fitted reads no log

        fitted = fit_parts(
            log,
            encoder=encoder,
            n_contexts=n_contexts,
            contexts=contexts,
            models=models,
            estimator=estimator,
            rate_usd=rate_usd,
            seed=seed,
            progress=progress,
            n_jobs=n_jobs,
        )
        all_scored = bool(fitted.estimates.labels.sum(axis=0).all())
        router = cls(
            fitted.models,
            fitted.contexts,
            encoder=fitted.encoder,
            policy=policy or (Offline() if all_scored or contexts is not None else Optimistic()),
            estimates=fitted.estimates,
            residuals=fitted.residuals,
            store=store,
            seed=seed,
        )
        router.comparison, router.encoders = fitted.comparison, fitted.encoders
        return router

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        store: str | Store = "memory://",
        encoder: EncoderLike | None = None,
        seed: int | None = None,
    ) -> WiseRouter:
        """Load a router that `save` wrote.

        Parameters
        ----------
        path : str or Path
            The artifact.
        store : str or Store, default "memory://"
            Where budgets and decisions live. A file saved by one of its workers counts twice what they have learned.
        encoder : Encoder or callable, optional
            Needed if the router was fitted with a callable of yours, which no file can hold.
        seed : int, optional
            Seeds the draws of the policy.

        Raises
        ------
        ArtifactError
            If the file is not an artifact, is damaged, or comes from a newer version.
        """
        from wiserouter.artifacts.save_load import load

        return cls._of_parts(load(path, encoder), store, seed)

    @classmethod
    def _of_parts(cls, parts: RouterParts, store: str | Store, seed: int | None) -> WiseRouter:
        router = cls(**parts.settings(), store=store, seed=seed)
        router._call_sums = parts.call_sums
        router._learner.take_agreements(parts.agreements)
        return router

    @classmethod
    def merge(
        cls,
        routers: Sequence[WiseRouter | str | Path],
        *,
        prices_from: WiseRouter | str | Path | None = None,
        policy: Policy | None = None,
        means_only: bool = False,
        store: str | Store = "memory://",
        seed: int | None = None,
    ) -> WiseRouter:
        """Merge routers that were fitted on parts of a log in the same contexts, as if fitted on the whole log.

        Parameters
        ----------
        routers : sequence of WiseRouter, str or Path
            At least two different routers or artifacts. A model that only some of them know is kept.
        prices_from : WiseRouter, str or Path, optional
            The source of prices and limits where they differ; costs that were paid stay as they are.
        policy : Policy, optional
            By default the policy of all of them.
        means_only : bool, default False
            Leave out estimates of single queries, which do not add: the result is that of `fit(estimator="means")`.
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

        merging.check_distinct(routers)
        each = enumerate(routers, start=1)
        named = [(f"router {i}" if isinstance(one, WiseRouter) else str(one), parts(one)) for i, one in each]
        terms = None if prices_from is None else parts(prices_from)
        return cls._of_parts(merging.merge(named, terms, policy, means_only=means_only), store, seed)

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
        may_wait: bool = False,
        draw_key: str | None = None,
        value: float | None = None,
        conversation: str | None = None,
        caller: str = "",
        parent: str | None = None,
    ) -> Decision:
        """Choose the model for one query and hold back its cost.

        Parameters
        ----------
        text : str, optional
            The query.
        embedding : array-like of shape (dim,), optional
            Its embedding, instead of encoding `text`.
        context : int, optional
            Its context, if known; with `NO_CONTEXT` the estimates of all contexts together decide.
        eligible : iterable of str, optional
            The models that may take it; all by default.
        input_tokens : int, optional
            Its length; counted from `text` if limits or prices need it.
        max_output_tokens : int, optional
            The most tokens that this call may return.
        worst_case_usd : mapping of str to float, optional
            Your own bound on the cost of this call with each eligible model, in place of prices x tokens.
        scope : str, default "default"
            The team, key or tag whose budget pays.
        may_wait : bool, default False
            Whether the caller tries again after a settlement, where `BudgetExhausted.is_only_held`: a model whose worst
            case fits only then is not replaced by a cheaper one.
        draw_key : str, optional
            What calls that are to get the same model where the plan mixes two have in common, such as the id of a
            conversation; by default each call draws for itself.
        value : float, optional
            The value of its reward relative to other requests, from 0.001 to 1,000; 1 by default. The budget is spent
            where value x reward gains most.
        conversation : str, optional
            Your id of the conversation or run that the call belongs to; only a hash of it is kept. A call without text,
            or with a short answer such as "yes, go on", goes on in the context of its conversation.
        caller : str, optional
            Tells equal ids of different callers apart.
        parent : str, optional
            The id of the run that this one is a part of, and whose budget it draws on: that of an agent, for its
            sub-agents.

        Returns
        -------
        Decision
            To be charged, or released if the call fails.

        Raises
        ------
        NotStarted, BudgetExhausted, HorizonExhausted
            If no budget pays for it.
        NoEligibleModel, UnknownModel, InvalidInput, EncoderError, UnknownPrice
            If the query or a restriction is wrong. Nothing is changed.
        """
        if conversation is not None:
            check_restrictions(max_output_tokens, draw_key, value)
            eligible = None if eligible is None else checked_names("eligible", eligible)
            question = (text, embedding, context, eligible, input_tokens, max_output_tokens)
            call = CallQuestion(*question, worst_case_usd, scope, may_wait, draw_key, value)
            return self._recorded(*self._decided_in(call, conversation, caller, parent))
        reader = self._learner.reader
        budget = self._store.snapshot(scope)
        query = reader.read(text, embedding, input_tokens, context, hard=budget.hard)
        encodes = text is not None and embedding is None and context is None
        if encodes and not reader.is_quick(text):  # other calls may have been decided meanwhile
            budget = self._store.snapshot(scope)
        terms = (worst_case_usd, max_output_tokens, scope, may_wait, draw_key, None, value)
        return self._decide(query, budget, eligible, terms)

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
        may_wait: bool = False,
        draw_key: str | None = None,
        value: float | None = None,
        conversation: str | None = None,
        caller: str = "",
        parent: str | None = None,
    ) -> Decision:
        """Decide like `decide`, with encoding and token counting off the event loop."""
        import asyncio  # 25 ms that callers without an event loop need not pay

        from wiserouter.stores.offload import offload

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
            may_wait=may_wait,
            draw_key=draw_key,
            value=value,
            conversation=conversation,
            caller=caller,
            parent=parent,
        )
        reader = self._learner.reader
        is_quick = reader.is_quick(text)
        if self._store.waits(scope) or (conversation is not None and (self._store.durable or not is_quick)):
            return await offload(decide, self.release)
        if is_quick:
            return decide()
        hard = self._store.snapshot(scope).hard
        query = await asyncio.to_thread(reader.read, text, embedding, input_tokens, context, hard=hard)
        budget = self._store.snapshot(scope)
        terms = (worst_case_usd, max_output_tokens, scope, may_wait, draw_key, None, value)
        return self._decide(query, budget, eligible, terms)

    def _decide(
        self,
        query: Query,
        budget: BudgetSnapshot,
        eligible: Iterable[str] | None,
        terms: tuple[Mapping[str, float] | None, int | None, str, bool, str | None, None, float | None],
    ) -> Decision:
        """Decide and reserve the cost of a call of its own; `terms` are the last arguments of `Decider.decide`."""
        _, max_output_tokens, scope, _, draw_key, _, value = terms
        if max_output_tokens is not None or draw_key is not None or value is not None:
            check_restrictions(max_output_tokens, draw_key, value)
        eligible = None if eligible is None else checked_names("eligible", eligible)
        learner, store, decide = self._learner, self._store, self._decider.decide
        with self._lock:
            if store.durable:
                learner.merge_remote()
            if query.version != learner.reader.version:
                query = learner.present_query(query)
            record = decide(query, budget, eligible, *terms)
        try:
            self._reserve(record)
        except BudgetExhausted:  # another call was faster
            budget = store.snapshot(scope)
            with self._lock:
                query = learner.present_query(query)
                record = decide(query, budget, eligible, *terms)
            self._reserve(record)
        return self._recorded(record, query)

    def _recorded(self, record: Record, query: Query) -> Decision:
        """Record and count a reserved decision, and return it."""
        decision, learner = record.decision, self._learner
        for observer in self._observers:
            observer.decision(decision, record.trace)
        if record.model == SKIP:
            self._settle_skipped(decision)
        if record.counts:
            with self._lock:
                present = record.contexts_version == learner.reader.version
                learner.add_invoked(decision.context if present else learner.context_of(record), record.model)
                if query.embedding is not None:
                    learner.keep_query(record, query.embedding)
            if learner.estimates.n_invoked >= learner.pending.due:
                self._take_stock(decision)
        return decision
