"""The learning half of a router: its models, contexts, estimates and policy, and how observations change them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from wiserouter.artifacts.parts import RouterParts, check_shape
from wiserouter.judging.agreement import places_of, rise_of
from wiserouter.judging.agreements import Agreements
from wiserouter.learning.cost_prior import price_change, unlisted_usd
from wiserouter.learning.drift import Watch
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.fading import ALL_LEFT, Left
from wiserouter.learning.new_model import new_model_prior
from wiserouter.learning.pending_scores import PendingScores
from wiserouter.learning.reclustering import FittedContexts, Growing, Moved, Seen
from wiserouter.learning.run_prices import RunPrices
from wiserouter.learning.source_scores import HUMAN, Scores, SourceScore, evidence
from wiserouter.planning.envelope import SKIP
from wiserouter.planning.policy import PlansAhead
from wiserouter.pricing.pool import Model, Pool
from wiserouter.pricing.prices import Usage
from wiserouter.prompts.query import Query, QueryReader
from wiserouter.routing.own_records import context_names
from wiserouter.stores.base import Record
from wiserouter.stores.shared.context_sync import ContextSync
from wiserouter.stores.shared.estimate_sync import EstimateSync, RemoteObservations
from wiserouter.stores.shared.shared_contexts import SharedContexts
from wiserouter.types import NO_CONTEXT, Embedding

logger = logging.getLogger("wiserouter")


class Learner:
    """Owns what a router knows and hands every observation to all that learn from it.

    A query without a context teaches nothing.

    Parameters
    ----------
    parts : RouterParts
        Pool, contexts, encoder, policy, estimates and residuals.
    now : callable returning float
        Seconds of the store's clock.
    watch : Watch, optional
        Fades old observations and detects drift.
    growing : Growing, optional
        Keeps recent queries, and clusters them again as they come.
    sync : EstimateSync or ContextSync, optional
        Shares observations with other workers, and where contexts grow, these as well.

    Raises
    ------
    InvalidInput
        If names repeat or shapes do not match.
    """

    def __init__(
        self,
        parts: RouterParts,
        now: Callable[[], float],
        *,
        watch: Watch | None = None,
        growing: Growing | None = None,
        sync: EstimateSync | ContextSync | None = None,
    ) -> None:
        models, self.contexts, self.encoder, self.policy, estimates, self.residuals, *_ = parts
        self.pool = Pool(models)
        self._planner = self.policy if isinstance(self.policy, PlansAhead) else None
        self.estimates = check_shape(estimates, self.contexts.n_contexts, len(self.pool))
        self._now, self._watch, self._growing, self._sync = now, watch, growing, sync
        self.pending = PendingScores(estimates.n_invoked)
        self.agreements, self._run_prices = Agreements(), RunPrices()
        self.news: Callable[[], object] | None = None
        self.context_names = context_names(self.contexts, self.encoder, grow=growing is not None)
        if growing is not None:
            growing.start(self.contexts, len(self.pool))
        self._restart()

    @property
    def needs_embedding(self) -> bool:
        """True if a query's embedding bears on its reward in addition to its context."""
        return self._growing is not None or self.residuals is not None

    @property
    def version(self) -> int:
        """Number of the present contexts; 0 for those that the router began with."""
        return 0 if self._growing is None else self._growing.version

    @property
    def is_behind(self) -> bool:
        """True while other workers may have learned what this one has not read since it started."""
        return self._sync is not None and self._sync.is_behind

    def add_model(self, model: Model, reward: float | None, cost_usd: float | None) -> None:
        """Take a model into the pool, at its prior; raise `InvalidInput` before anything changes."""
        pool = Pool([*self.pool.models, model])
        prior = new_model_prior(self.estimates, pool, reward, cost_usd)
        self.estimates.add_model(*prior)
        if self.residuals is not None:
            self.residuals.add_model()
        self.pool = pool
        self._restart()

    def update_model(self, model: Model) -> None:
        """Change price and limits of a model, and restate its costs so far at the new price."""
        models = list(self.pool.models)
        k = self.pool.index(model.name)
        former, models[k] = models[k], model
        self.pool = Pool(models)
        self._read_with(self.pool)
        if former.price is not None and model.price is not None and former.price != model.price:
            factor = price_change(self.estimates, former.price, model.price)
            new_usd = unlisted_usd(self.estimates, k, former.price, model.price)
            for sums in self._own_sums:  # other workers restate theirs when their own prices change
                sums.reprice(k, factor, new_usd)
            self._run_prices.changed(k, factor, self._now())
            if self.residuals is not None:
                self.residuals.prices = None  # the spend at each price was measured at the former one
        self._bind()

    def refit_contexts(self, growing: Growing, n_contexts: int | None = None) -> None:
        """Cluster the recent queries; by default into as many contexts as they can fill."""
        n_contexts = growing.n_contexts_now(len(self.pool)) if n_contexts is None else n_contexts
        self._go_on_with(growing, growing.fit(n_contexts, self.encoder))

    def present_context(self, decision_id: str, context: int, version: int) -> int:
        """Return the context that a query belongs to now, which was decided in the contexts of `version`."""
        return context if self._growing is None else self._growing.context_of(decision_id, context, version)

    def present_query(self, query: Query) -> Query:
        """Return a query that was read while the contexts were others, as it is read now."""
        return query if query.version == self.reader.version else self.reader.read_again(query)

    def context_of(self, record: Record) -> int:
        """Return the present context of a decision's query."""
        decision = record.decision
        if self._growing is None:
            return decision.context
        return self._growing.context_of(decision.id, decision.context, record.contexts_version)

    def keep_query(self, record: Record, embedding: Embedding) -> None:
        """Keep the query of a decision where contexts grow, and fit them where that is due."""
        growing = self._growing
        if growing is None:
            return
        context = self.context_of(record)
        if context == NO_CONTEXT:
            return
        growing.add(record.decision.id, embedding, context, record.model)
        if isinstance(self._sync, ContextSync) and self._sync.offered is not None:
            return
        fitted = growing.advance(self.encoder, self.contexts.n_contexts, len(self.pool))
        if fitted is not None and fitted.contexts.n_contexts > 1:
            self._go_on_with(growing, fitted)

    def add_invoked(self, context: int, model: int) -> None:
        """Count a decision."""
        if context != NO_CONTEXT:
            for sums in self._all_sums:
                sums.add_invoked(context, model)

    def take_back(self, record: Record) -> None:
        """Forget a decision whose call failed."""
        context, model = self.context_of(record), record.model
        if context != NO_CONTEXT:
            left = self._left_of(record, context)
            for sums in self._sums_of(record):
                sums.take_back(context, model, left)
        if self._growing is not None:
            self._growing.drop(record.decision.id)

    def add_cost(self, record: Record, cost_usd: float, usage: Usage | None) -> int:
        """Learn the cost of a call, and test for drift where a bucket has ended; return its present context."""
        context, model, predicted = self.context_of(record), record.model, record.deviations
        if context != NO_CONTEXT:
            plain_usd = cost_usd if predicted is None else predicted.plain_cost_usd(model, cost_usd)
            for sums in self._all_sums:
                sums.add_cost(context, model, plain_usd, usage)
            kept = None if self._growing is None else self._kept(record)
            if kept is not None:
                kept.cost_usd, kept.usage = plain_usd, usage
        self.check_drift()
        self._plan_ahead(context)
        return context

    def amend_cost(self, record: Record, cost_usd: float, replacing_usd: float, *, spent_usd: float) -> None:
        """Replace the cost of a run by what it has come to; of the former one, `spent_usd` was spent already."""
        context, model = self.context_of(record), record.model
        if context == NO_CONTEXT:
            return
        replacing_usd, less_usd = self._run_prices.restated(record.decision, model, replacing_usd, spent_usd)
        cost_usd -= less_usd
        left = self._left_of(record, context).costs
        for sums in self._sums_of(record):
            sums.amend_cost(context, model, cost_usd, replacing=replacing_usd, left=left)
        kept = self._kept(record)
        if kept is not None:
            kept.cost_usd = cost_usd

    def take_agreements(self, sums: Mapping[str, Mapping[str, Sequence[float]]] | None) -> None:
        """Go on from the pairs of scores that a saved router had counted."""
        self.agreements = Agreements(sums)
        self._bind()

    def corrected(self, source: str, model: int, reward: float) -> float:
        """Return a judge's score of a model as it is learned."""
        return self.agreements.corrected(source, self.pool.names[model], reward) if model != SKIP else reward

    def note_pairs(self, record: Record, before: Scores, source: str, score: SourceScore) -> None:
        """Count the pairs of a judge's and a person's score that a new score of a call makes."""
        if record.model != SKIP and (before or source != HUMAN):
            self.agreements.note(self.pool.names[record.model], before, source, score)

    def take_score(self, record: Record, score: SourceScore | None, former: SourceScore | None) -> None:
        """Learn what the scores of a call come to, in place of what they came to before."""
        _, weight, counted = score or (0.0, 0.0, 0.0)
        if former is None:
            self.add_reward(record, counted, None, weight=weight)
        else:
            self.add_reward(record, counted, former.counted, weight=weight, replaced_weight=former.weight)

    def move_score(
        self, record: Record, chosen: int, counted: Callable[[Record, SourceScore | None, SourceScore | None], object]
    ) -> None:
        """Let the score that a call of `chosen` had before its charge count for what answered, also by `counted`."""
        learned = evidence(record.scores)
        if chosen in (SKIP, record.model) or learned is None:
            return
        for one, score, former in ((replace(record, model=chosen), None, learned), (record, learned, None)):
            self.take_score(one, score, former)
            counted(one, score, former)

    def add_reward(
        self,
        record: Record,
        score: float,
        replaced: float | None,
        *,
        weight: float = 1.0,
        replaced_weight: float = 1.0,
    ) -> None:
        """Learn the reward of a call, in place of an earlier one of the same call where `replaced` is given."""
        context, model, predicted = self.context_of(record), record.model, record.deviations
        if context == NO_CONTEXT or (replaced is None and not weight):
            return
        plain = score if predicted is None else predicted.plain_reward(model, score)
        delay_s = self._now() - record.decision.decided_at
        if replaced is None:
            for sums in self._all_sums:
                sums.add_reward(context, model, plain, weight=weight, delay_s=delay_s)
        else:
            former = replaced if predicted is None else predicted.plain_reward(model, replaced)
            delay_s = delay_s if weight >= replaced_weight else _mean_delay_s(self.estimates, context, model)
            left, weights = self._left_of(record, context), {"weight": weight, "replaced_weight": replaced_weight}
            for sums in self._lasting_sums:  # drift is tested on first scores
                sums.add_reward(context, model, plain, replacing=former, delay_s=delay_s, left=left, **weights)
        if (kept := self._kept(record)) is not None:
            kept.reward, kept.reward_weight = score, weight
        self._plan_ahead(context)

    def merge_remote(self) -> bool:
        """Merge the observations of other workers; return True if there were any. What was ordered meanwhile holds."""
        if self.news is not None:
            news, self.news = self.news, None
            news()
        if self._sync is None:
            return False
        if isinstance(self._sync, ContextSync) and self._sync.offered is not None:
            self._take_over(self._sync, self._sync.offered)
        if not self._sync.has_news:
            return False
        observations = self._sync.remote_observations()
        for one in observations:
            self._merge(one)
        return bool(observations)

    def _merge(self, one: RemoteObservations) -> None:
        """Merge observations of other workers."""
        age_s, sums, corrects = one
        if self._watch is not None and self._watch.half_life_s is not None and age_s:
            sums.fade(0.5 ** (age_s / self._watch.half_life_s))
        self.estimates.merge(sums)
        if corrects:  # sums that have faded here hold less than the others move
            self.estimates.forgive()
            return
        if self._watch is not None and not age_s:
            self._watch.bucket.merge(sums)
        if self._growing is not None:
            self._growing.add_elsewhere(sums.n_invoked)

    def check_drift(self) -> None:
        """Fade old observations and test for drift, where a bucket has ended; then plan again."""
        watch, now_s = self._watch, self._now()
        if watch is None or (now_s < watch.due_s and watch.bucket.n_invoked < watch.next_test):
            return  # as almost always, without a call of the detector
        changes = watch.check_drift(now_s)
        if changes is None:
            return
        for line in changes.describe(self.pool.names):
            logger.info("%s: the old observations count little from now on", line)
        self._follow_sums()
        self._bind()

    def copy(self) -> RouterParts:
        """Return the parts as they are now, which no longer change with these."""
        residuals = None if self.residuals is None else self.residuals.copy()
        parts = self.pool.models, self.contexts, self.encoder, self.policy, self.estimates.copy(), residuals
        return RouterParts(*parts)._replace(agreements=self.agreements.sums() or None)

    def _go_on_with(self, growing: Growing, fitted: FittedContexts) -> None:
        """Go on with other contexts, or offer them to all workers of a shared store, this one included."""
        sync = self._sync
        if not isinstance(sync, ContextSync):
            self._move_to(growing.move(self.estimates, fitted, self.encoder), fitted)
        elif sync.offered is None:  # else others were faster
            spread = growing.spread_to(fitted, self.encoder, self.contexts.n_contexts)
            sync.publish(fitted.contexts, fitted.encoder, spread, fitted.n_seen, own=fitted.encoder is self.encoder)

    def _take_over(self, sync: ContextSync, shared: SharedContexts) -> None:
        """Go on with contexts that some worker has published, once the kept queries are placed in them."""
        growing = self._growing
        encoder = shared.encoder if shared.refits_encoder else self.encoder
        fitted = None if growing is None else growing.prepare(shared.contexts, encoder, shared.n_seen, self.encoder)
        if growing is None or fitted is None:
            return
        moved = growing.take_over(self.estimates, fitted, [move.spread for move in shared.moves], self.encoder)
        sync.advance(shared, moved.corrected)
        self._move_to(moved, fitted)

    def _move_to(self, moved: Moved, fitted: FittedContexts) -> None:
        """Go on with other contexts; the observations move with their queries."""
        self.estimates = moved.estimates
        logger.info("%d contexts replace the %d so far", fitted.contexts.n_contexts, self.contexts.n_contexts)
        self.contexts, self.encoder = fitted.contexts, fitted.encoder
        self._restart()

    def _restart(self) -> None:
        """Follow estimates whose shape is new."""
        if self._sync is not None:
            self._sync.set_models(self.pool.names)
        if self._watch is not None:
            self._watch.follow(self.estimates, self._now())
        self._follow_sums()
        self._read_with(self.pool)
        self._bind()

    def _follow_sums(self) -> None:
        """List the sums that count each observation: the estimates, the bucket of drift detection, the shared sums."""
        shared = self._sync.sums if isinstance(self._sync, ContextSync) else self._sync
        self._shared = [] if shared is None else [shared]
        self._own_sums = [self.estimates] if self._watch is None else [self.estimates, self._watch.bucket]
        self._lasting_sums: list[Estimates | EstimateSync] = [self.estimates, *self._shared]
        self._all_sums: list[Estimates | EstimateSync] = [*self._own_sums, *self._shared]

    def _read_with(self, pool: Pool) -> None:
        """Read queries with the limits and prices of a pool, and keep of them what is learned from."""
        self.reader = QueryReader(
            self.contexts,
            self.encoder,
            pool,
            keeps_embedding=self.needs_embedding,
            reassigns=self._growing is not None,
            version=self.version,
        )

    def _bind(self) -> None:
        """Hand the policy what it plans with."""
        self.policy.bind(self.contexts.freq, self.estimates, self.pool.models)
        prices = {name: self.pool.list_price_usd(k) for k, name in enumerate(self.pool.names)}
        self.agreements.place(places_of(prices), rise_of(prices))

    def _sums_of(self, record: Record) -> list[Estimates | EstimateSync]:
        """Return the sums that hold the observations of a decision."""
        own = [self.estimates] if self._watch is None else self._watch.sums_since(record.decision.decided_at)
        return [*own, *self._shared]

    def _left_of(self, record: Record, context: int) -> Left:
        """Return the shares that are left of the observations of a decision."""
        if self._watch is None:
            return ALL_LEFT
        return self._watch.left_of(record.decision.decided_at, context, record.model)

    def _plan_ahead(self, context: int) -> None:
        """Let the policy plan again while no request waits for it."""
        if self._planner is not None:
            self._planner.learned(context)

    def _kept(self, record: Record) -> Seen | None:
        """Return the kept query of a decision, if the model that answered is the one that was chosen."""
        kept = None if self._growing is None else self._growing.seen(record.decision.id)
        return kept if kept is not None and kept.model == record.model else None


def _mean_delay_s(estimates: Estimates, context: int, model: int) -> float:
    """Return the mean time from decision to score of a model in a context; 0 without a score."""
    scored = float(estimates.scored[context, model])
    return float(estimates.delay_s[context, model]) / scored if scored > 0.0 else 0.0
