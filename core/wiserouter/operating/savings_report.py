"""A report on savings over a period, as `wiserouter.operating.savings` makes it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalls:
    """The calls of one model that were charged, and their cost."""

    calls: int
    cost_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DayCalls:
    """The calls of one day.

    Attributes
    ----------
    date : str
        The day in UTC, as YYYY-MM-DD.
    calls : int
        Charged calls that were decided on that day.
    cost_usd, other_usd : float, USD
        Their cost, and what was spent otherwise, such as on embeddings and judges.
    by_model : dict of str to ModelCalls
        The models that were called.
    compared_usd : float, USD
        The cost of the calls that can be compared.
    against_usd : dict of str to float
        What these would have cost, by the names in `Savings.against`.
    """

    date: str
    calls: int
    cost_usd: float
    other_usd: float
    by_model: dict[str, ModelCalls]
    compared_usd: float
    against_usd: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActualCalls:
    """What was really charged.

    Attributes
    ----------
    calls : int
        Number of charged calls.
    cost_usd : float, USD
        Everything that was charged: `models_usd` and `other_usd`.
    models_usd, other_usd : float, USD
        The cost of the calls, and what was spent otherwise.
    by_model : dict of str to ModelCalls
        The models that were called.
    quality : float or None
        The estimated mean score of the compared calls; None before anything was scored.
    quality_interval : tuple of float or None
        Its 95 % interval.
    quality_scores : int
        Number of scores that it rests on.
    scores : int
        Number of scores of calls of the period.
    mean_score : float or None
        Their mean, which tells of the calls that were scored only.
    cached_share : float or None
        Share of the prompt tokens of the compared calls that was read from the provider's cache.
    """

    calls: int
    cost_usd: float
    models_usd: float
    other_usd: float
    by_model: dict[str, ModelCalls]
    quality: float | None
    quality_interval: tuple[float, float] | None
    quality_scores: int
    scores: int
    mean_score: float | None
    cached_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """What the compared calls would have cost and gained with other models.

    Attributes
    ----------
    models : dict of str to float
        The share of the calls of each model; one of them has all, or several have the traffic of before.
    cost_usd : float, USD
        The cost of the compared calls.
    saved_usd : float, USD
        That cost less what the compared calls were charged and what was spent otherwise; negative where the router cost
        more.
    saved_share : float or None
        The same as a share of `cost_usd`.
    quality, quality_interval, quality_scores
        As of `ActualCalls`.
    quality_difference : float or None
        Quality of the router's calls less this one; positive where the router is better.
    quality_difference_interval : tuple of float or None
        Its 95 % interval.
    length_calls : int
        Number of calls that the lengths of the answers are learned from; 0 where they are taken as they were.
    """

    models: dict[str, float]
    cost_usd: float
    saved_usd: float
    saved_share: float | None
    quality: float | None
    quality_interval: tuple[float, float] | None
    quality_scores: int
    quality_difference: float | None
    quality_difference_interval: tuple[float, float] | None
    length_calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PresumedCalls:
    """Calls whose outcome is unknown, and what the running budget counts as spent for them.

    Attributes
    ----------
    calls : int
        Their number.
    cost_usd : float, USD
        Their presumed cost, with unused leases that are presumed.
    since : str
        The first day of the window of the budget that they count in.
    """

    calls: int
    cost_usd: float
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How much of the traffic the comparison is about.

    Attributes
    ----------
    calls : int
        Charged calls.
    compared_calls : int
        Those that are compared: with tokens.
    compared_share : float or None
        The same as a share of `calls`.
    compared_usd : float, USD
        Their cost.
    without_tokens : int
        Calls whose tokens are not known.
    set_aside : int
        Calls that say nothing about a model, such as answers from a response cache, which cost nothing anywhere.
    in_other_contexts : int
        Compared calls that were decided in other contexts than the present ones; they count like the usual mix.
    presumed : PresumedCalls or None
        The calls whose bill has not come; they are not in `calls`. None where no budget runs, or a journal was
        read.
    without_price : tuple of str
        Models without a price, whose mean cost per call is taken.
    """

    calls: int
    compared_calls: int
    compared_share: float | None
    compared_usd: float
    without_tokens: int
    set_aside: int
    in_other_contexts: int
    presumed: PresumedCalls | None
    without_price: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """A report on savings.

    Attributes
    ----------
    since, until : str
        The first and the last day, in UTC, as YYYY-MM-DD.
    scope : str or None
        The scope that it is about; None for all.
    days : tuple of DayCalls
        Every day of the period.
    actual : ActualCalls
        What was charged.
    against : dict of str to Alternative
        "best": always the model of the highest estimated quality, or of the highest price before anything was scored;
        "cheapest": always the model that would have cost least; "before", where it is named: the traffic of before.
    models : dict of str to Alternative
        Always each model in service.
    coverage : Coverage
        How much of the traffic is compared.
    """

    since: str
    until: str
    scope: str | None
    days: tuple[DayCalls, ...]
    actual: ActualCalls
    against: dict[str, Alternative]
    models: dict[str, Alternative]
    coverage: Coverage

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary, for JSON."""
        return asdict(self)
