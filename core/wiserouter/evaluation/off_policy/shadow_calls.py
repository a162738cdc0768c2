"""The calls of a journal in shadow mode: what ran and what it cost, and what the router would have chosen."""

from __future__ import annotations

from collections.abc import Iterable
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
    by_kind: dict[str, dict[str, dict[str, Any]]] = {"decision": {}, "shadow": {}, "charge": {}}
    scores: dict[str, dict[str, SourceScore]] = {}
    for event in events:
        kept = by_kind.get(event.get("event") or "")
        if kept is not None:
            kept[event["id"]] = event
        elif event.get("event") == "reward":
            scores[event["id"]] = with_event(scores.get(event["id"], {}), event)
    decisions, sides, charges = by_kind.values()
    ids = [id_ for id_ in sides if id_ in decisions and id_ in charges and charges[id_]["model"]]
    if not ids:
        raise InvalidInput(
            "the journal must hold calls of shadow mode with their costs, got none: decide them with observe(), or "
            "mode: shadow, and keep a journal"
        )
    lines, taken, run = [decisions[id_] for id_ in ids], [sides[id_] for id_ in ids], [charges[id_] for id_ in ids]
    names = tuple(dict.fromkeys(model["name"] for line in lines for model in line["models"]))
    names = _with(names, run, taken)
    if len(names) > MAX_MODELS:
        raise InvalidInput(f"a journal must have at most {MAX_MODELS:,} models, got {len(names):,}", value=len(names))
    column: dict[Any, int] = {name: k for k, name in enumerate(names)} | {None: UNNAMED}
    return ShadowCalls(
        names,
        np.array([line["context"]["id"] for line in lines], dtype=np.int64),
        np.array([column[one["model"]] for one in run], dtype=np.int64),
        np.array([column[one["incumbent"]] for one in taken], dtype=np.int64),
        np.array([one["acts"] for one in taken], dtype=bool),
        np.array([one["share"] for one in taken], dtype=np.float64),
        _would_be(lines, taken, column),
        np.array([one["cost_usd"] for one in run], dtype=np.float64),
        np.array([_NO_SCORE if (one := evidence(scores.get(id_, {}))) is None else one.reward for id_ in ids]),
        _columns(lines, column, "expected_reward", np.nan),
        _columns(lines, column, "expected_cost_usd", np.nan),
        _units(taken),
    )


_NO_SCORE = float("nan")


def _with(names: tuple[str, ...], run: list[dict[str, Any]], taken: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the models of the pool, and those that ran or were named beside it."""
    others = [one["model"] for one in run] + [one["incumbent"] for one in taken if one["incumbent"] is not None]
    return tuple(dict.fromkeys([*names, *others]))


def _would_be(lines: list[dict[str, Any]], taken: list[dict[str, Any]], column: dict[Any, int]) -> FloatArray:
    """Return the probabilities of the router's choice; of one that was not drawn from a plan, the choice itself."""
    chances = _columns(lines, column, "probability", 0.0)
    for row, side in zip(chances, taken, strict=True):
        if not row.any() and side["would_be"] in column:
            row[column[side["would_be"]]] = 1.0
    return chances


def _units(taken: list[dict[str, Any]]) -> IntArray:
    """Return the number of the unit of each call; a call without one is a unit of its own."""
    number: dict[tuple[str, str], int] = {}
    names = [("unit", one["unit"]) if one.get("unit") else ("id", one["id"]) for one in taken]
    return np.array([number.setdefault(name, len(number)) for name in names], dtype=np.int64)


def _columns(lines: list[dict[str, Any]], column: dict[Any, int], name: str, missing: float) -> FloatArray:
    table = np.full((len(lines), len(column) - 1), missing)
    for row, line in zip(table, lines, strict=True):
        for model in line["models"]:
            if model[name] is not None:
                row[column[model["name"]]] = model[name]
    return table
