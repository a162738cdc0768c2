"""The calls of a journal in shadow mode: what ran and what it cost, and what the router would have chosen."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wiserouter.errors import InvalidInput
from wiserouter.evaluation.off_policy.logged_decisions import MAX_MODELS
from wiserouter.learning.source_scores import SourceScore, evidence, with_event
from wiserouter.types import FloatArray, IntArray

UNNAMED = -1
"""The incumbent of a call where none was named."""


class ShadowCalls(NamedTuple):
    """The calls whose model is known, in chronological order.

    Attributes
    ----------
    models : tuple of str
        The K models.
    context : ndarray of shape (n,)
        The context of each call.
    ran : ndarray of shape (n,)
        The model that ran.
    incumbent : ndarray of shape (n,)
        The model that would have run without the router; `UNNAMED` where that was left to chance.
    acted : ndarray of bool, shape (n,)
        True where the router acted.
    share : ndarray of shape (n,)
        The share of the calls on which it acted at that time.
    would_be : ndarray of shape (n, K)
        The probabilities of the router's choice.
    cost_usd, reward : ndarray of shape (n,)
        Outcomes of what ran; NaN where unknown.
    expected_reward, expected_cost_usd : ndarray of shape (n, K)
        The router's estimates at the time of the decision; NaN where it had none.
    unit : ndarray of shape (n,)
        The calls that were on one side of the share together, such as those of a conversation, numbered from 0.
    """

    models: tuple[str, ...]
    context: IntArray
    ran: IntArray
    incumbent: IntArray
    acted: NDArray[np.bool_]
    share: FloatArray
    would_be: FloatArray
    cost_usd: FloatArray
    reward: FloatArray
    expected_reward: FloatArray
    expected_cost_usd: FloatArray
    unit: IntArray

    @property
    def n(self) -> int:
        """Number of calls."""
        return len(self.ran)


def read_shadow_calls(events: Iterable[dict[str, Any]]) -> ShadowCalls:
    """Return the calls of a journal that were decided in shadow mode and have ended.

    Parameters
    ----------
    events : iterable of dict
        The lines of the journal, such as a `JournalReader`.

    Raises
    ------
    InvalidInput
        If no such call was charged, or the journal has too many models.
    """
    calls: dict[str, _Call] = {}
    texts: dict[Any, Any] = {}  # each name and list of names once, however many lines have it
    scores: dict[str, dict[str, SourceScore]] = {}
    for event in events:
        kind = event.get("event")
        if kind == "reward":
            scores[event["id"]] = with_event(scores.get(event["id"], {}), event)
        elif kind in {"decision", "shadow", "charge"}:
            calls.setdefault(event["id"], _Call()).take(event, texts)
    kept = {id_: call for id_, call in calls.items() if call.side and call.names and call.ran}
    if not kept:
        raise InvalidInput(
            "the journal must hold calls of shadow mode with their costs, got none: decide them with observe(), or "
            "mode: shadow, and keep a journal"
        )
    rows, sides = list(kept.values()), [call.side for call in kept.values() if call.side]
    incumbents = [side.incumbent for side in sides]
    names = dict.fromkeys(name for one in dict.fromkeys(call.names for call in rows) for name in one)
    names |= dict.fromkeys([call.ran for call in rows]) | dict.fromkeys(one for one in incumbents if one is not None)
    if len(names) > MAX_MODELS:
        raise InvalidInput(f"a journal must have at most {MAX_MODELS:,} models, got {len(names):,}", value=len(names))
    column: dict[Any, int] = {name: k for k, name in enumerate(names)} | {None: UNNAMED}
    return ShadowCalls(
        tuple(names),
        np.array([call.context for call in rows], dtype=np.int64),
        np.array([column[call.ran] for call in rows], dtype=np.int64),
        np.array([column[one] for one in incumbents], dtype=np.int64),
        np.array([side.acts for side in sides], dtype=bool),
        np.array([side.share for side in sides], dtype=np.float64),
        _would_be(rows, sides, column),
        np.array([call.cost_usd for call in rows], dtype=np.float64),
        np.array([_NO_SCORE if (one := evidence(scores.get(id_, {}))) is None else one.reward for id_ in kept]),
        _columns(rows, column, 1, np.nan),
        _columns(rows, column, 2, np.nan),
        _units(kept, sides),
    )


class _Side(NamedTuple):
    """What the line of shadow mode says of a call."""

    acts: bool
    share: float
    incumbent: str | None
    would_be: str
    unit: str | None


@dataclass(slots=True)
class _Call:
    """What is kept of the lines of a call, a tenth of them: a journal of days is long.

    Attributes
    ----------
    context : int
        Its context.
    names : tuple of str
        The models of its decision.
    figures : array of float
        Their probabilities, expected rewards and expected costs, one after the other; NaN where there is none.
    side : _Side or None
        What the line of shadow mode says.
    ran : str
        The model that ran.
    cost_usd : float, USD
        Its cost.
    """

    context: int = 0
    names: tuple[str, ...] = ()
    figures: array[float] = field(default_factory=lambda: array("d"))
    side: _Side | None = None
    ran: str = ""
    cost_usd: float = 0.0

    def take(self, event: dict[str, Any], texts: dict[Any, Any]) -> None:
        """Keep what a line says; a later line of its kind replaces an earlier one."""
        kind = event["event"]
        if kind == "charge":
            self.ran, self.cost_usd = texts.setdefault(event["model"], event["model"]), event["cost_usd"]
        elif kind == "shadow":
            model, incumbent = (texts.setdefault(event[name], event[name]) for name in ("would_be", "incumbent"))
            self.side = _Side(event["acts"], event["share"], incumbent, model, event.get("unit"))
        else:
            names = tuple(model["name"] for model in event["models"])
            self.context, self.names = event["context"]["id"], texts.setdefault(names, names)
            self.figures = array("d", [_number(model[name]) for name in _FIGURES for model in event["models"]])


_FIGURES = ("probability", "expected_reward", "expected_cost_usd")


_NO_SCORE = float("nan")


def _number(value: float | None) -> float:
    return _NO_SCORE if value is None else value


def _would_be(rows: list[_Call], sides: list[_Side], column: dict[Any, int]) -> FloatArray:
    """Return the probabilities of the router's choice; of one that was not drawn from a plan, the choice itself."""
    chances = _columns(rows, column, 0, 0.0)
    for chance, side in zip(chances, sides, strict=True):
        if not chance.any() and side.would_be in column:
            chance[column[side.would_be]] = 1.0
    return chances


def _units(ids: Iterable[str], sides: list[_Side]) -> IntArray:
    """Return the number of the unit of each call; a call without one is a unit of its own."""
    number: dict[tuple[str, str], int] = {}
    names = [("unit", side.unit) if side.unit else ("id", id_) for id_, side in zip(ids, sides, strict=True)]
    return np.array([number.setdefault(name, len(number)) for name in names], dtype=np.int64)


def _columns(rows: list[_Call], column: dict[Any, int], figure: int, missing: float) -> FloatArray:
    table = np.full((len(rows), len(column) - 1), missing)
    places = {names: np.array([column[name] for name in names]) for names in {call.names for call in rows}}
    for row, call in zip(table, rows, strict=True):
        n = len(call.names)
        row[places[call.names]] = call.figures[figure * n : (figure + 1) * n]
    return np.where(np.isnan(table), missing, table)
