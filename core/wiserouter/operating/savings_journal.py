"""The sums of days from a journal, for a report on savings where no store and no proxy can be asked."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from wiserouter.learning.source_scores import Scores, evidence, with_event
from wiserouter.pricing.prices import Price
from wiserouter.routing.pool_figures import SUMS, PoolFigures
from wiserouter.routing.shadow import is_observed
from wiserouter.stores.day_buckets import DAY_S, FIELDS, Cells

_CONTEXTS = "journal"
_TOKENS = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")


class JournalCall(NamedTuple):
    """A call of a journal: when, for whom and among which models it was decided, its charge, its scores by source."""

    decided_at: float
    scope: str
    context: int
    models: tuple[str, ...]
    charge: Mapping[str, Any] | None = None
    scores: Scores = MappingProxyType({})

    @property
    def day(self) -> int:
        """The day of the decision, since 1970."""
        return int(self.decided_at // DAY_S)


def calls_of(events: Iterable[Mapping[str, Any]]) -> list[JournalCall]:
    """Return the calls that a journal tells of; those that shadow mode observed are none of the router's."""
    found: dict[str, JournalCall] = {}
    pools: dict[tuple[str, ...], tuple[str, ...]] = {}  # one object each for all calls
    for event in events:
        kind, call = event.get("event"), found.get(str(event.get("id")))
        if kind == "decision" and isinstance(event.get("decided_at"), int | float) and not is_observed(event["scope"]):
            names = tuple([model["name"] for model in event["models"]])
            models = pools.setdefault(names, names)
            found[event["id"]] = JournalCall(event["decided_at"], event["scope"], event["context"]["id"], models)
        elif call is not None and kind == "charge" and event["model"]:
            found[event["id"]] = call._replace(charge=event)
        elif call is not None and kind == "reward":
            found[event["id"]] = call._replace(scores=with_event(call.scores, event))
    return [call for call in found.values() if call.charge is not None]


def sums_of_journal(
    calls: Sequence[JournalCall], days: Callable[[float], Iterable[int]], scope: str | None, prices: Mapping[str, Price]
) -> tuple[dict[int, Cells], PoolFigures]:
    """Return the sums of days, and what the journal shows of its models.

    Parameters
    ----------
    calls : sequence of JournalCall
        The calls.
    days : callable
        From the time of the last call to the days since 1970.
    scope : str or None
        None for all scopes.
    prices : mapping of str to Price
        The prices of models; the others cost their mean per call.
    """
    latest_s = max((call.decided_at for call in calls), default=0.0)
    cells: dict[int, defaultdict[str, float]] = {day: defaultdict(float) for day in days(latest_s)}
    for call in calls:
        if call.day in cells and scope in (None, call.scope):
            for cell, value in _cells(call).items():
                cells[call.day][cell] += value
    return {day: dict(sums) for day, sums in cells.items()}, _figures(calls, prices)


def _cells(call: JournalCall) -> Cells:
    """Return the additions of one call to the sums of its day."""
    charge: Mapping[str, Any] = call.charge or {}
    figures = dict.fromkeys(FIELDS, 0.0) | {"calls": 1.0, "cost_usd": float(charge["cost_usd"])}
    tokens, learn = charge.get("tokens"), charge.get("learn", True)
    place: Cells = {}
    if not learn:
        figures["set_aside"] = 1.0
    elif isinstance(tokens, Mapping):
        figures |= {"compared": 1.0, "compared_usd": figures["cost_usd"]}
        figures |= {name: float(tokens.get(name, 0)) for name in _TOKENS}
        place = {f"{_CONTEXTS}.{call.context}|{charge['model']}": 1.0}
    figures |= dict(zip(("scores", "score", "score_sq"), _score_sums(call), strict=True))
    return place | {f"{field}|{charge['model']}": value for field, value in figures.items() if value}


def _figures(calls: Sequence[JournalCall], prices: Mapping[str, Price]) -> PoolFigures:
    """Return the figures of the models that the calls of all scopes and days show."""
    names = tuple(dict.fromkeys(name for call in calls for name in call.models))
    contexts = [max(call.context, 0) for call in calls]
    n_contexts = max(contexts, default=0) + 1
    column = {name: k for k, name in enumerate(names)}
    sums = {name: np.zeros((n_contexts, len(names))) for name in SUMS}
    for call, context in zip(calls, contexts, strict=True):
        charge: Mapping[str, Any] = call.charge or {}
        k = column.get(charge["model"])
        if k is not None:
            for name, value in _observed(call, charge).items():
                sums[name][context, k] += value
    counted = Counter(contexts)
    freq = np.array([counted[context] for context in range(n_contexts)], dtype=np.float64)
    return PoolFigures(
        names,
        tuple(prices.get(name) for name in names),
        (True,) * len(names),
        _CONTEXTS,
        freq / max(freq.sum(), 1.0),
        sums,
    )


def _observed(call: JournalCall, charge: Mapping[str, Any]) -> dict[str, float]:
    """Return the additions of one call to the sums of `PoolFigures`."""
    found: dict[str, float] = {}
    tokens = charge.get("tokens")
    if charge.get("learn", True):
        found |= {"calls": 1.0, "cost": float(charge["cost_usd"])}
        if isinstance(tokens, Mapping):
            found |= {"metered": 1.0, "output_tokens": float(tokens.get("output_tokens", 0))}
    return found | dict(zip(("labels", "reward", "reward_sq"), _score_sums(call), strict=True))


def _score_sums(call: JournalCall) -> tuple[float, float, float]:
    """Return the weight of the score that is learned, and what it adds to the sums of scores and of their squares."""
    _, weight, counted = evidence(call.scores) or (0.0, 0.0, 0.0)
    return weight, weight * counted, weight * counted**2
