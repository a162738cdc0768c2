"""What a router learns from decisions, charges and rewards: means, what has changed, what single queries add."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from wiserouter.learning.drift import Watch
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.reclustering import Growing, Seen
from wiserouter.learning.residuals import QueryResiduals
from wiserouter.pricing.prices import Usage
from wiserouter.stores import Record
from wiserouter.stores.shared.estimate_sync import EstimateSync
from wiserouter.types import NO_CONTEXT, FloatArray

logger = logging.getLogger("wiserouter")


class Learner:
    """Hands each observation to all who learn from it; those of a query without a context teach nothing.

    Parameters
    ----------
    estimates : Estimates
        Sums per (context, model).
    watch : Watch or None
        Notices what has changed.
    finer : QueryResiduals or None
        Judges queries one by one.
    growing : Growing or None
        Keeps recent queries, to fit contexts on.
    sharing : EstimateSync or None
        Tells other workers, and brings what they have observed.
    """

    def __init__(
        self,
        estimates: Estimates,
        watch: Watch | None,
        finer: QueryResiduals | None,
        growing: Growing | None = None,
        sharing: EstimateSync | None = None,
    ) -> None:
        self._estimates, self._watch, self._finer, self._growing = estimates, watch, finer, growing
        self._sharing = sharing
        self._sums: list[Estimates | Watch | EstimateSync] = [
            sums for sums in (estimates, watch, sharing) if sums is not None
        ]

    def follow(self, now_s: float) -> None:
        """Begin a new bucket, as when a model joins."""
        if self._watch is not None:
            self._watch.follow(self._estimates, now_s)

    def add_invoked(self, context: int, model: int) -> None:
        """Count a decision."""
        if context != NO_CONTEXT:
            for seen in self._sums:
                seen.add_invoked(context, model)

    def take_back(self, record: Record) -> None:
        """Forget a decision whose call failed."""
        context = self._context(record)
        if context != NO_CONTEXT:
            for seen in self._sums:
                seen.add_invoked(context, record.model, -1)
        if self._growing is not None:
            self._growing.drop(record.decision.id)

    def add_cost(self, record: Record, cost_usd: float, usage: Usage | None) -> None:
        """Learn what a call has cost."""
        context, model, query = self._context(record), record.model, record.query
        if context == NO_CONTEXT:
            return
        plain_usd = cost_usd if query is None else query.plain_cost_usd(model, cost_usd)
        for seen in self._sums:
            seen.add_cost(context, model, plain_usd, usage)
        if self._finer is not None and query is not None:
            self._finer.learn_cost(query, context, model, cost_usd)
        kept = self._kept(record)
        if kept is not None:
            kept.cost_usd, kept.usage = cost_usd, usage

    def add_reward(self, record: Record, score: float, replaced: float | None) -> None:
        """Learn what a call was worth, instead of an earlier score of the same call where `replaced` is given."""
        context, model, query = self._context(record), record.model, record.query
        if context == NO_CONTEXT:
            return
        plain = score if query is None else query.plain_reward(model, score)
        former = replaced if replaced is None or query is None else query.plain_reward(model, replaced)
        self._estimates.add_reward(context, model, plain, replacing=former)
        if self._sharing is not None:
            self._sharing.add_reward(context, model, plain, former)
        if self._watch is not None and replaced is None:
            self._watch.add_reward(context, model, plain)
        kept = self._kept(record)
        if kept is not None:
            kept.reward = score
        if self._finer is None or query is None:
            return
        if replaced is not None:
            self._finer.amend_reward(query, context, model, score - replaced)
            return
        mean = self._estimates.reward[context, model] / self._estimates.labels[context, model]
        self._finer.learn_reward(query, context, model, score - float(mean))

    def reprice(self, model: int, factor: FloatArray) -> None:
        """Restate what a model has cost at a new price."""
        for seen in self._sums:
            seen.reprice(model, factor)

    def hear(self) -> bool:
        """Take over what other workers have observed, and return whether there was anything."""
        news = [] if self._sharing is None else self._sharing.news()
        half_life_s = None if self._watch is None else self._watch.half_life_s
        for one in news:
            if half_life_s is not None and one.age_s:
                one.sums.fade(0.5 ** (one.age_s / half_life_s))
            self._estimates.merge(one.sums)
            if self._watch is not None and not one.age_s:
                self._watch.add(one.sums)
        return bool(news)

    def turn(self, names: Sequence[str], now_s: float) -> bool:
        """Let observations fade where it is time to, and return whether that was done."""
        changes = None if self._watch is None else self._watch.turn(now_s)
        if changes is None:
            return False
        for line in changes.describe(names):
            logger.info("%s: the old observations count little from now on", line)
        return True

    def _context(self, record: Record) -> int:
        """Return where the query of a decision belongs now."""
        return record.decision.context if self._growing is None else self._growing.context_of(record.decision)

    def _kept(self, record: Record) -> Seen | None:
        """Return what is kept of a query, where the model that answered is the one that was chosen."""
        kept = None if self._growing is None else self._growing.seen(record.decision.id)
        return kept if kept is not None and kept.model == record.model else None
