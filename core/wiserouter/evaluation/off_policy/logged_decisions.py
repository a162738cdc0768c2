"""Logged decisions as arrays: the drawn models, their probabilities, and the outcomes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wiserouter.errors import InvalidInput
from wiserouter.learning.source_scores import SourceScore, evidence, with_event
from wiserouter.planning.envelope import SKIP
from wiserouter.planning.trace import EXPLORING
from wiserouter.routing.shadow import is_observed
from wiserouter.types import FloatArray, IntArray

_SUM = 1e-6
"""Probabilities may miss 1 by this much."""

MAX_MODELS = 1_000
"""Most models of a journal."""


class Decisions(NamedTuple):
    """Logged decisions in chronological order; the last column, index -1 (`SKIP`), is the null action.

    Attributes
    ----------
    models : tuple of str
        All models that were ever in the pool: the K columns.
    context : ndarray of shape (n,)
        Context of each query; `NO_CONTEXT` if it was not assigned to one.
    chosen : ndarray of shape (n,)
        Model drawn.
    logged : ndarray of shape (n, K + 1)
        Probabilities of all models; rows sum to 1.
    cost_usd, reward : ndarray of shape (n,)
        Outcomes; NaN where unknown.
    explored : ndarray of bool, shape (n,)
        True where exploration drew the model, before there was a plan.
    share : dict of int to float
        Frequency of each context, as logged.
    expected_reward, expected_cost_usd : ndarray of shape (n, K)
        Estimates at the time of the decision; NaN without observations.
    left_out : int
        Number of decisions from before the last refit of the contexts.
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
        """Return decisions of another log.

        Parameters
        ----------
        models : tuple of str
            The K models.
        chosen : array-like of shape (n,)
            Model drawn.
        logged : array-like of shape (n, K)
            Probabilities of all models; the remainder to 1 is that of the null action.
        context : array-like of shape (n,), optional
            Context of each query; a single one by default.
        cost_usd, reward : array-like of shape (n,), optional
            Outcomes; NaN where unknown.
        freq : array-like of shape (n_contexts,), default (1,)
            Frequency of each context.
        """
        drawn, probability = np.asarray(chosen, dtype=np.int64), np.asarray(logged, dtype=np.float64)
        unknown = np.full(probability.shape, np.nan)
        cost, score = (unknown[:, 0] if one is None else np.asarray(one, np.float64) for one in (cost_usd, reward))
        return cls(
            models,
            np.zeros_like(drawn) if context is None else np.asarray(context, dtype=np.int64),
            drawn,
            np.column_stack([probability, np.clip(1.0 - probability.sum(axis=1), 0.0, 1.0)]),
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

    def has_outcome(self, outcome: str) -> bool:
        """Return True if any call has this outcome, "reward" or "cost_usd"."""
        known = ~np.isnan(getattr(self, outcome))
        return bool(known[self.chosen != SKIP].any())

    def where(self, kept: NDArray[np.bool_]) -> Decisions:
        """Return the decisions where `kept` is True."""
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
        """Return the same decisions with a column for each of these models; a new model was never drawn."""
        new = [name for name in names if name not in self.models]
        unknown, columns = np.full((self.n, len(new)), np.nan), len(self.models)
        return self._replace(
            models=(*self.models, *new),
            logged=np.insert(self.logged, [columns] * len(new), 0.0, axis=1),
            expected_reward=np.hstack([self.expected_reward, unknown]),
            expected_cost_usd=np.hstack([self.expected_cost_usd, unknown]),
        )


def read_decisions(events: Iterable[dict[str, Any]]) -> Decisions:
    """Return the decisions of a journal with their outcomes.

    Parameters
    ----------
    events : iterable of dict
        The lines of a journal, such as a `JournalReader`.

    Raises
    ------
    InvalidInput
        If there is no decision, one lacks probabilities or another field, or there are more than `MAX_MODELS` models.

    Notes
    -----
    The outcome of a decision belongs to the chosen model, whichever model answered: a retry or a fallback counts for
    the model chosen. Exploration tries the models of a context in rounds, in a random order per round: within a round
    each choice depends on those before it, but over the round all models are equally likely, and this probability is
    used here. After a refit of the contexts only later decisions count, because context numbers change their meaning.
    A run is one decision: the one that chose its model, with the cost of all its calls.
    """
    try:
        return _decisions(*_collected(events))
    except (AttributeError, KeyError, OverflowError, TypeError) as error:
        raise InvalidInput(
            f"an event must have the fields that a journal gives it, each of its type, got one that does not "
            f"({error!r:.200}): leave it out, or read the file with JournalReader"
        ) from error


class _Drawn(NamedTuple):
    """What is kept of the line of a decision.

    Attributes
    ----------
    id, model : str
        Its id, and the model drawn.
    context, share : int, float
        Its context, and the frequency of that.
    explored : bool
        Whether exploration drew it.
    skip : float
        The probability of the null action.
    names : tuple of str
        The models of the pool.
    figures : array of float
        Their probabilities, expected rewards and expected costs, one after the other; NaN where there is none.
    """

    id: str
    model: str
    context: int
    share: float
    explored: bool
    skip: float
    names: tuple[str, ...]
    figures: array[float]


def _drawn_of(event: dict[str, Any], names: dict[Any, Any]) -> _Drawn:
    """Return the part of a decision's line that is kept; `names` holds each name and list of names once."""
    explored, models, context = event["rule"] == "explore", event["models"], event["context"]
    of_models = tuple(names.setdefault(model["name"], model["name"]) for model in models)
    explorable = sum(map(_is_explorable, models)) if explored else 0
    chances = [_is_explorable(one) / max(explorable, 1) if explored else one["probability"] for one in models]
    rewards = (_estimate(one, "expected_reward", "labels", explored=explored) for one in models)
    costs = (_estimate(one, "expected_cost_usd", "calls", explored=explored) for one in models)
    return _Drawn(
        event["id"],
        names.setdefault(event["model"], event["model"]),
        context["id"],
        context["share"],
        explored,
        0.0 if explored else event["skip_probability"],
        names.setdefault(of_models, of_models),
        array("d", [*chances, *rewards, *costs]),
    )


def _estimate(model: dict[str, Any], name: str, count: str, *, explored: bool) -> float:
    """Return an estimate at the time of a decision; NaN where exploration has no observation yet."""
    value = model[name]
    return np.nan if value is None or (explored and not model[count]) else value


def _decisions(drawn: list[_Drawn], outcomes: dict[str, dict[str, float]], left_out: int) -> Decisions:
    if not drawn:
        raise InvalidInput("the journal must hold decisions, got none: keep one with journal_to()")
    pools = dict.fromkeys(one.names for one in drawn)
    names = tuple(dict.fromkeys(name for pool in pools for name in pool))
    if len(names) > MAX_MODELS:
        raise InvalidInput(f"a journal must have at most {MAX_MODELS:,} models, got {len(names):,}", value=len(names))
    column = {name: k for k, name in enumerate(names)} | {"": SKIP}
    outcome = [outcomes.get(one.id, {}) for one in drawn]
    chosen = np.array([column[one.model] for one in drawn], dtype=np.int64)
    chances, rewards, costs = _tables(drawn, {pool: [column[name] for name in pool] for pool in pools}, len(names))
    logged = np.column_stack([np.where(np.isnan(chances), 0.0, chances), [one.skip for one in drawn]])
    _check_probabilities(drawn, logged, chosen)
    return Decisions(
        names,
        np.array([one.context for one in drawn], dtype=np.int64),
        chosen,
        logged,
        np.where(chosen == SKIP, 0.0, _numbers([one.get("cost_usd") for one in outcome])),
        np.where(chosen == SKIP, 0.0, _numbers([one.get("reward") for one in outcome])),
        np.array([one.explored for one in drawn]),
        {one.context: one.share for one in drawn},
        rewards,
        costs,
        left_out,
    )


def _collected(events: Iterable[dict[str, Any]]) -> tuple[list[_Drawn], dict[str, dict[str, float]], int]:
    """Return the decisions since the last refit of the contexts, all outcomes, and the number of earlier decisions."""
    drawn: dict[str, _Drawn] = {}  # by id, so that a line that was copied twice is one decision
    names: dict[Any, Any] = {}
    outcomes: dict[str, dict[str, float]] = {}
    runs: dict[str, str] = {}
    share: dict[int, float] = {}
    scores: dict[str, dict[str, SourceScore]] = {}
    left_out = 0
    for event in events:
        kind = event.get("event")
        if kind == "decision" and event.get("run_id") not in {None, "", event["id"]}:
            runs[event["id"]] = event["run_id"]
        elif kind == "decision" and not is_observed(event["scope"]):
            context = event["context"]
            if share.setdefault(context["id"], context["share"]) != context["share"]:
                left_out, drawn, share = left_out + len(drawn), {}, {context["id"]: context["share"]}
            drawn[event["id"]] = _drawn_of(event, names)
        elif kind == "charge":
            outcomes.setdefault(event["id"], {})["cost_usd"] = event["cost_usd"]
        elif kind == "reward":
            scores[event["id"]] = with_event(scores.get(event["id"], {}), event)
            learned = evidence(scores[event["id"]])
            outcomes.setdefault(event["id"], {})["reward"] = np.nan if learned is None else learned.reward
    return list(drawn.values()), _of_runs(outcomes, runs), left_out


def _of_runs(outcomes: dict[str, dict[str, float]], runs: dict[str, str]) -> dict[str, dict[str, float]]:
    """Return the outcomes with the costs of the later calls of each run added to that of its decision."""
    for call, owner in runs.items():
        for name, value in outcomes.pop(call, {}).items():
            known = outcomes.setdefault(owner, {})
            known[name] = known.get(name, 0.0) + value if name == "cost_usd" else value
    return outcomes


def _tables(drawn: list[_Drawn], columns: dict[tuple[str, ...], list[int]], n_models: int) -> FloatArray:
    """Return the tables of probabilities, rewards and costs; NaN where a decision has none of a model."""
    tables = np.full((3, len(drawn), n_models), np.nan)
    for row, one in enumerate(drawn):
        tables[:, row, columns[one.names]] = np.reshape(one.figures, (3, -1))
    return tables


def _check_probabilities(drawn: list[_Drawn], logged: FloatArray, chosen: IntArray) -> None:
    bad = (np.abs(logged.sum(axis=1) - 1.0) > _SUM) | (logged[np.arange(len(drawn)), chosen] <= 0.0)
    if bad.any():
        at = int(bad.argmax())
        raise InvalidInput(
            f"decision {drawn[at].id!r} must have all its probabilities, got {logged[at].tolist()}: "
            f"the line was not written by WISERouter",
            value=drawn[at].id,
        )


def _is_explorable(model: dict[str, Any]) -> bool:
    return model["excluded_by"] is None or model["excluded_by"].startswith(EXPLORING)


def _numbers(values: list[float | None]) -> FloatArray:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
