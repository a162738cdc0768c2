"""The decisions of a journal as arrays: what was drawn, with which probabilities, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wiserouter.errors import InvalidInput
from wiserouter.planning.envelope import SKIP
from wiserouter.planning.trace import EXPLORING
from wiserouter.types import FloatArray, IntArray

_SUM = 1e-6
"""Probabilities may miss 1 by this much."""


class Decisions(NamedTuple):
    """Logged decisions in the order in which they were made; the last column, index -1 (`SKIP`), is the null action.

    Attributes
    ----------
    models : tuple of str
        Every model that was ever in the pool: the K columns.
    context : ndarray of shape (n,)
        Where each query fell; `NO_CONTEXT` where it was not placed.
    chosen : ndarray of shape (n,)
        Which model was drawn.
    logged : ndarray of shape (n, K + 1)
        The probabilities with which it was drawn; rows sum to 1.
    cost_usd, reward : ndarray of shape (n,)
        What came of it; NaN where that is not known.
    explored : ndarray of bool, shape (n,)
        Whether exploration drew it, before there was a plan.
    share : dict of int to float
        How often each context was said to occur.
    expected_reward, expected_cost_usd : ndarray of shape (n, K)
        The estimates of that moment; NaN where nothing was known.
    left_out : int
        Decisions that were made before contexts were last fitted anew.
    """

    models: tuple[str, ...]
    context: IntArray
    chosen: IntArray
    logged: FloatArray
    cost_usd: FloatArray
    reward: FloatArray
    explored: NDArray[np.bool_]
    share: dict[int, float]
    expected_reward: FloatArray
    expected_cost_usd: FloatArray
    left_out: int = 0

    @classmethod
    def of_arrays(
        cls,
        models: tuple[str, ...],
        chosen: ArrayLike,
        logged: ArrayLike,
        *,
        context: ArrayLike | None = None,
        cost_usd: ArrayLike | None = None,
        reward: ArrayLike | None = None,
        freq: ArrayLike = (1.0,),
    ) -> Decisions:
        """Return decisions that another log tells of.

        Parameters
        ----------
        models : tuple of str
            The K models.
        chosen : array-like of shape (n,)
            Which one was drawn.
        logged : array-like of shape (n, K)
            The probabilities with which it was drawn; what is missing to 1 is that of the null action.
        context : array-like of shape (n,), optional
            Where each query fell; all in one by default.
        cost_usd, reward : array-like of shape (n,), optional
            What came of it; NaN where that is not known.
        freq : array-like of shape (n_contexts,), default (1,)
            How often each context occurs.
        """
        drawn, chances = np.asarray(chosen, dtype=np.int64), np.asarray(logged, dtype=np.float64)
        unknown = np.full(chances.shape, np.nan)
        cost, score = (unknown[:, 0] if one is None else np.asarray(one, np.float64) for one in (cost_usd, reward))
        return cls(
            models,
            np.zeros_like(drawn) if context is None else np.asarray(context, dtype=np.int64),
            drawn,
            np.column_stack([chances, np.clip(1.0 - chances.sum(axis=1), 0.0, 1.0)]),
            np.where(drawn == SKIP, 0.0, cost),
            np.where(drawn == SKIP, 0.0, score),
            np.zeros(len(drawn), dtype=bool),
            dict(enumerate(np.asarray(freq, dtype=np.float64).tolist())),
            unknown,
            unknown,
        )

    @property
    def n(self) -> int:
        """Number of decisions."""
        return len(self.chosen)

    def tells(self, outcome: str) -> bool:
        """Return whether any call has this outcome, "reward" or "cost_usd"."""
        known = ~np.isnan(getattr(self, outcome))
        return bool(known[self.chosen != SKIP].any())

    def where(self, kept: NDArray[np.bool_]) -> Decisions:
        """Return some of the decisions."""
        return self._replace(
            context=self.context[kept],
            chosen=self.chosen[kept],
            logged=self.logged[kept],
            cost_usd=self.cost_usd[kept],
            reward=self.reward[kept],
            explored=self.explored[kept],
            expected_reward=self.expected_reward[kept],
            expected_cost_usd=self.expected_cost_usd[kept],
        )

    def with_models(self, names: Iterable[str]) -> Decisions:
        """Return the same decisions with a column for each of these models too; a new one was never drawn."""
        new = [name for name in names if name not in self.models]
        unknown, columns = np.full((self.n, len(new)), np.nan), len(self.models)
        return self._replace(
            models=(*self.models, *new),
            logged=np.insert(self.logged, [columns] * len(new), 0.0, axis=1),
            expected_reward=np.hstack([self.expected_reward, unknown]),
            expected_cost_usd=np.hstack([self.expected_cost_usd, unknown]),
        )


def read_decisions(events: Iterable[dict[str, Any]]) -> Decisions:
    """Return the decisions of a journal, each with what became of it.

    Parameters
    ----------
    events : iterable of dict
        The lines of a journal, such as a `JournalReader`.

    Raises
    ------
    InvalidInput
        If there is no decision, or one without all its probabilities.

    Notes
    -----
    The outcome of a decision is what came of it, whoever answered: a retry or fallback counts for the model that was
    chosen. Exploration tries the models of a context in turn, in an order drawn anew each round: which of them is tried
    at one moment follows from those before it, but over the round each has the same chance, and that is what is taken
    here. Where contexts were fitted anew, only the decisions since then count: before it, the same number meant another
    context.
    """
    drawn, outcomes, left_out = _collected(events)
    if not drawn:
        raise InvalidInput("the journal must hold decisions, got none: keep one with journal_to()")
    names = tuple(dict.fromkeys(model["name"] for line in drawn for model in line["models"]))
    column = {name: k for k, name in enumerate(names)} | {"": SKIP}
    found = [outcomes.get(line["id"], {}) for line in drawn]
    chosen = np.array([column[line["model"]] for line in drawn], dtype=np.int64)
    return Decisions(
        names,
        np.array([line["context"]["id"] for line in drawn], dtype=np.int64),
        chosen,
        _probabilities(drawn, column, chosen),
        np.where(chosen == SKIP, 0.0, _numbers([one.get("cost_usd") for one in found])),
        np.where(chosen == SKIP, 0.0, _numbers([one.get("reward") for one in found])),
        np.array([line["rule"] == "explore" for line in drawn]),
        {line["context"]["id"]: line["context"]["share"] for line in drawn},
        _estimates(drawn, column, "expected_reward", "labels"),
        _estimates(drawn, column, "expected_cost_usd", "calls"),
        left_out,
    )


def _collected(events: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, dict[str, float]], int]:
    """Return the decisions since contexts were last fitted anew, what became of all, and how many came before."""
    drawn: list[dict[str, Any]] = []
    outcomes: dict[str, dict[str, float]] = {}
    share: dict[int, float] = {}
    left_out = 0
    for event in events:
        told = event.get("event")
        if told == "decision":
            context = event["context"]
            if share.setdefault(context["id"], context["share"]) != context["share"]:
                left_out, drawn, share = left_out + len(drawn), [], {context["id"]: context["share"]}
            drawn.append(event)
        elif told in _TOLD:
            name = _TOLD[told]
            outcomes.setdefault(event["id"], {})[name] = event[name]
    return drawn, outcomes, left_out


_TOLD = {"charge": "cost_usd", "reward": "reward"}


def _probabilities(drawn: list[dict[str, Any]], column: dict[str, int], chosen: IntArray) -> FloatArray:
    logged = np.zeros((len(drawn), len(column)))
    for row, line in zip(logged, drawn, strict=True):
        if line["rule"] == "explore":
            turns = [column[model["name"]] for model in line["models"] if _has_its_turn(model)]
            row[turns] = 1.0 / len(turns)
        else:
            row[SKIP] = line["skip_probability"]
            for model in line["models"]:
                row[column[model["name"]]] = model["probability"]
    bad = (np.abs(logged.sum(axis=1) - 1.0) > _SUM) | (logged[np.arange(len(drawn)), chosen] <= 0.0)
    if bad.any():
        at = int(bad.argmax())
        raise InvalidInput(
            f"decision {drawn[at]['id']!r} must tell all its probabilities, got {logged[at].tolist()}: "
            f"the line was not written by WISERouter",
            value=drawn[at]["id"],
        )
    return logged


def _has_its_turn(model: dict[str, Any]) -> bool:
    return model["excluded_by"] is None or model["excluded_by"].startswith(EXPLORING)


def _estimates(drawn: list[dict[str, Any]], column: dict[str, int], name: str, count: str) -> FloatArray:
    """Return the estimates of each moment; what exploration has not seen yet is not known."""
    known = np.full((len(drawn), len(column) - 1), np.nan)
    for row, line in zip(known, drawn, strict=True):
        for model in line["models"]:
            if model[name] is not None and (line["rule"] != "explore" or model[count]):
                row[column[model["name"]]] = model[name]
    return known


def _numbers(values: list[float | None]) -> FloatArray:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
