"""What a router saves: its real cost beside that of always the best model, always the cheapest, and as before.

Everything is computed from sums per day (`wiserouter.stores.day_buckets`): costs by `savings_costs`, quality by
`savings_quality`. Calls that cannot be compared stand on neither side of a difference; they are listed as coverage.
What the router itself spends, on embeddings and judges, counts against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wiserouter.budgets.ledger import Ledger
from wiserouter.budgets.nested import Account
from wiserouter.errors import NotStarted, UnknownModel, UnknownPrice
from wiserouter.operating.savings_costs import CallTable, Lengths, call_table, costs_usd, lengths_of
from wiserouter.operating.savings_quality import Quality, ScoreModel
from wiserouter.operating.savings_report import (
    ActualCalls,
    Alternative,
    Coverage,
    DayCalls,
    ModelCalls,
    PresumedCalls,
    Savings,
)
from wiserouter.operating.savings_terms import days_of, iso_date, read_shares
from wiserouter.routing.pool_figures import PoolFigures
from wiserouter.stores.day_buckets import DAY_S, Cells
from wiserouter.types import FloatArray

if TYPE_CHECKING:
    from wiserouter.router import WiseRouter


def savings(
    router: WiseRouter, since: str = "30d", *, scope: str | None = None, before: str | Mapping[str, float] | None = None
) -> Savings:
    """Return the savings of a router over a period.

    Parameters
    ----------
    router : WiseRouter
        The router; of several workers of a store, any.
    since : str, default "30d"
        The first day, as YYYY-MM-DD, or a number of days, weeks or months of 30 days: "30d", "4w", "1m". Days are those
        of UTC, and today is the last one.
    scope : str, optional
        Only calls that were decided for this scope, such as a team.
    before : str or mapping of str to float, optional
        The traffic before the router: a model, or shares of models, also as text: "large=0.7,small=0.3".

    Raises
    ------
    InvalidInput, UnknownModel
        If the period or the shares cannot be read, or a model is not in the pool.
    StoreUnavailable, StoreDamaged
        If the store cannot be read.

    Examples
    --------
    >>> from wiserouter import Budget, Model, Price, Usage, WiseRouter
    >>> router = WiseRouter([Model("small", Price(1e-6, 4e-6)), Model("large", Price(3e-6, 1.2e-5))], seed=0)
    >>> router.start(Budget(amount_usd=1.0, horizon=1_000))
    >>> decision = router.decide("What is the capital of France?", eligible=["small"])
    >>> router.charge(decision, usage=Usage(input_tokens=1_000, output_tokens=0))
    >>> large = savings(router).models["large"]
    >>> round(large.cost_usd, 6), round(large.saved_usd, 6)
    (0.003, 0.002)
    """
    days = days_of(since, router.now())
    shares = None if before is None else read_shares(before)
    cells, figures = router.sums_of_days(days, scope)
    try:
        presumed = presumed_calls(router.account(scope or "default"), whole=scope is None)
    except NotStarted:
        presumed = None
    return savings_of(cells, figures, scope=scope, before=shares, presumed=presumed)


def presumed_calls(account: Account, *, whole: bool) -> PresumedCalls:
    """Return the presumed calls of an account: of its longest window if it is that of the whole, else of its own."""
    ledger = min(account.each, key=_begins_s) if whole else account.each[0]
    since = iso_date(int(_begins_s(ledger) // DAY_S))
    return PresumedCalls(calls=ledger.presumed, cost_usd=ledger.presumed_usd, since=since)


def savings_of(
    cells: Mapping[int, Cells],
    figures: PoolFigures,
    *,
    scope: str | None = None,
    before: Mapping[str, float] | None = None,
    presumed: PresumedCalls | None = None,
) -> Savings:
    """Return the report on the sums of days, with what is known of the models."""
    table = call_table(cells, figures)
    lengths = lengths_of(figures, table)
    daily_usd = costs_usd(table, figures, lengths)
    compared = _Compared(table, figures, lengths, daily_usd, ScoreModel(figures))
    each, known = np.eye(len(figures.names)), np.isfinite(daily_usd.sum(axis=0))
    always = {name: each[k] for k, name in enumerate(figures.names) if known[k] and figures.in_service[k]}
    shares = compared.baselines(list(always.values()))
    if before is not None:
        shares["before"] = _before(before, figures.names, known)
    return Savings(
        since=iso_date(table.days[0]),
        until=iso_date(table.days[-1]),
        scope=scope,
        days=tuple(
            _day(table, row, {name: _weighted(daily_usd, one) for name, one in shares.items()})
            for row in range(len(table.days))
        ),
        actual=compared.actual(),
        against={name: compared.alternative(one) for name, one in shares.items()},
        models={name: compared.alternative(one) for name, one in always.items()},
        coverage=_coverage(table, figures, presumed),
    )


class _Compared:
    """The calls that can be compared, and what they would have cost and gained."""

    def __init__(
        self, table: CallTable, figures: PoolFigures, lengths: Lengths, daily_usd: FloatArray, scores: ScoreModel
    ) -> None:
        self._table, self._figures, self._lengths, self._scores = table, figures, lengths, scores
        self._always_usd: FloatArray = daily_usd.sum(axis=0)
        self._sums = {field: values.sum(axis=0) for field, values in table.sums.items()}
        calls = table.compared.sum(axis=0)
        n = calls.sum()
        self._contexts: FloatArray = calls.sum(axis=1) / n if n else np.append(figures.freq, 0.0)
        self._shares: FloatArray = (calls / n if n else calls)[:, : len(figures.names)]

    def baselines(self, always: Sequence[FloatArray]) -> dict[str, FloatArray]:
        """Return the shares of always the best and always the cheapest model."""
        if not always:
            return {}
        return {"best": max(always, key=self._rank), "cheapest": min(always, key=self._cheapness)}

    def actual(self) -> ActualCalls:
        """Return the calls as they were charged."""
        sums, names = self._sums, self._table.names
        models_usd, other_usd = float(sums["cost_usd"][:-1].sum()), float(sums["cost_usd"][-1])
        scores, prompt = float(sums["scores"].sum()), float(sums["input_tokens"].sum())
        return ActualCalls(
            calls=round(sums["calls"].sum()),
            cost_usd=models_usd + other_usd,
            models_usd=models_usd,
            other_usd=other_usd,
            by_model=_by_model(names, sums["calls"], sums["cost_usd"]),
            **_quality_fields(self._scores.mean_of(self._shares) if self._shares.any() else None),
            scores=max(round(scores), 0),
            mean_score=float(sums["score"].sum()) / scores if scores > 0.0 else None,
            cached_share=float(sums["cache_read_tokens"].sum()) / prompt if prompt else None,
        )

    def alternative(self, shares: FloatArray) -> Alternative:
        """Return the cost and the quality of the calls with shares of models."""
        mix = np.outer(self._contexts, shares)
        cost_usd = self._cost_usd(shares)
        spent_usd = float(self._sums["compared_usd"].sum() + self._sums["cost_usd"][-1])
        saved_usd = cost_usd - spent_usd
        difference = self._scores.mean_of(self._shares - mix, bounded=False) if self._shares.any() else None
        return Alternative(
            models={name: float(share) for name, share in zip(self._figures.names, shares, strict=True) if share},
            cost_usd=cost_usd,
            saved_usd=saved_usd,
            saved_share=saved_usd / cost_usd if cost_usd > 0.0 else None,
            **_quality_fields(self._scores.mean_of(mix)),
            quality_difference=None if difference is None else difference.mean,
            quality_difference_interval=None if difference is None else (difference.low, difference.high),
            length_calls=round(self._lengths.calls[shares > 0.0].sum()),
        )

    def _cost_usd(self, shares: FloatArray) -> float:
        used = shares > 0.0
        return float(self._always_usd[used] @ shares[used])

    def _cheapness(self, shares: FloatArray) -> tuple[float, float]:
        """Return the order of models by cost: that of the calls, then their list price, as where no call compares."""
        return self._cost_usd(shares), self._listed(shares)

    def _listed(self, shares: FloatArray) -> float:
        price = self._figures.prices[int(shares.argmax())]
        return 0.0 if price is None else price.input + price.output

    def _rank(self, shares: FloatArray) -> tuple[bool, float, float]:
        """Return the order of models by quality: those with scores first, then by their list price."""
        quality = self._scores.mean_of(np.outer(self._contexts, shares))
        return quality is not None, 0.0 if quality is None else quality.mean, self._listed(shares)


def _weighted(daily_usd: FloatArray, shares: FloatArray) -> FloatArray:
    """Return the cost of each day at shares of models, whatever the cost of the others is."""
    used = shares > 0.0
    cost_usd: FloatArray = daily_usd[:, used] @ shares[used]
    return cost_usd


def _quality_fields(quality: Quality | None) -> dict[str, Any]:
    if quality is None:
        return {"quality": None, "quality_interval": None, "quality_scores": 0}
    return {
        "quality": quality.mean,
        "quality_interval": (quality.low, quality.high),
        "quality_scores": quality.scores,
    }


def _day(table: CallTable, row: int, against_usd: Mapping[str, FloatArray]) -> DayCalls:
    sums = {field: values[row] for field, values in table.sums.items()}
    return DayCalls(
        date=iso_date(table.days[row]),
        calls=round(sums["calls"].sum()),
        cost_usd=float(sums["cost_usd"][:-1].sum()),
        other_usd=float(sums["cost_usd"][-1]),
        by_model=_by_model(table.names, sums["calls"], sums["cost_usd"]),
        compared_usd=float(sums["compared_usd"].sum()),
        against_usd={name: float(one[row]) for name, one in against_usd.items()},
    )


def _by_model(names: tuple[str, ...], calls: FloatArray, cost_usd: FloatArray) -> dict[str, ModelCalls]:
    return {
        name: ModelCalls(calls=round(calls[at]), cost_usd=float(cost_usd[at]))
        for at, name in enumerate(names)
        if name and calls[at]
    }


def _begins_s(ledger: Ledger) -> float:
    """Return the time from which a ledger counts."""
    return ledger.opened_at if ledger.window is None else max(ledger.window.start_s, ledger.opened_at)


def _coverage(table: CallTable, figures: PoolFigures, presumed: PresumedCalls | None) -> Coverage:
    sums = {field: float(values.sum()) for field, values in table.sums.items()}
    calls, compared, aside = sums["calls"], sums["compared"], sums["set_aside"]
    return Coverage(
        calls=round(calls),
        compared_calls=round(compared),
        compared_share=compared / calls if calls else None,
        compared_usd=sums["compared_usd"],
        without_tokens=round(calls - compared - aside),
        set_aside=round(aside),
        in_other_contexts=round(table.compared[:, -1].sum()),
        presumed=presumed,
        without_price=tuple(name for name, price in zip(figures.names, figures.prices, strict=True) if price is None),
    )


def _before(shares: Mapping[str, float], names: tuple[str, ...], known: NDArray[np.bool_]) -> FloatArray:
    """Return the shares of before in the order of the pool."""
    for name, share in shares.items():
        if name not in names:
            raise UnknownModel(name, names)
        if share and not known[names.index(name)]:
            raise UnknownPrice(name, "price, and no call was charged: give Model(price=Price(input=..., output=...))")
    return np.array([shares.get(name, 0.0) for name in names])
