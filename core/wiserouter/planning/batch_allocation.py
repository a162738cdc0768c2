r"""The allocation of a whole batch: one model for each of its queries, under one budget.

All queries are known at once, so each is an item of its own in the linear multiple-choice knapsack

.. math::
    \max_x \sum_{ik} x_{ik} u_{ik}
    \quad\text{s.t.}\quad \sum_{ik} x_{ik} c_{ik} \le B,\quad \sum_k x_{ik} = 1,\quad x \ge 0.

Its dual has one variable, the shadow price: each query takes the best of reward less price x cost. A query changes its
model only at the slopes of its own envelope, so that the slopes of all envelopes, sorted once, hold the optimum of each
budget, found by bisection on the spend. One query is split at most; rounded down, it leaves less unspent than one call
costs, and less reward than that of one query (Sinha and Zoltners 1979).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wiserouter.errors import InfeasibleBudget, InvalidInput
from wiserouter.planning.batch_margin import CostErrors
from wiserouter.types import FloatArray, IntArray
from wiserouter.validation import check_amount

CHUNK_QUERIES = 65_536
"""Queries whose envelopes are found at once: with ten models, some 5 MB per array."""

MARGIN_ROUNDS = 60
"""Bisections of the margin, each of which halves what is left unspent for no reason."""

_ROUNDING = 1e-12  # relative; a budget below the cheapest models' cost by no more than this is that cost


class BatchAllocation(NamedTuple):
    """One model for each query of a batch.

    Attributes
    ----------
    model : ndarray of int of shape (n_queries,)
        The model of each query.
    expected_reward : float
        Sum of the rewards over all queries.
    expected_cost_usd : float, USD
        Sum of the costs; never above the budget less the margin.
    bound : float
        The optimum of the linear program at the same expected cost, where one query may be split.
    shadow_price : float
        Reward that one more USD would buy; 0 where the budget does not bind.
    margin_usd : float, USD
        Held back for errors of the estimates; 0 without `errors`.
    """

    model: IntArray
    expected_reward: float
    expected_cost_usd: float
    bound: float
    shadow_price: float
    margin_usd: float = 0.0


class _Steps(NamedTuple):
    """Steps of envelopes, from a model to the next more expensive one; arrays of shape (n_steps,)."""

    slope: FloatArray
    spend_usd: FloatArray
    gain: FloatArray
    query: IntArray
    to: NDArray[np.int16]


class BatchProgram:
    """The linear program of a batch, solved for all budgets.

    Parameters
    ----------
    reward : array-like of shape (n_queries, n_models)
        Expected rewards.
    cost_usd : array-like of shape (n_queries, n_models)
        Expected costs in USD; infinite where a model cannot take a query.

    Raises
    ------
    InvalidInput
        If shapes differ, a reward is not finite, a cost is negative or NaN, or no model can take a query.

    Attributes
    ----------
    floor_usd : float, USD
        The cost of the batch with the cheapest model of each query.

    Examples
    --------
    >>> program = BatchProgram([[0.2, 0.9], [0.5, 0.6]], [[1, 3], [1, 3]])
    >>> program.allocate(4.5).model
    array([1, 0])
    """

    def __init__(self, reward: ArrayLike, cost_usd: ArrayLike) -> None:
        self.reward, self.cost_usd = checked_batch(reward, cost_usd)
        self._cheapest, self._steps = _envelopes(self.reward, self.cost_usd)
        self._rows = np.arange(len(self.reward))
        self.floor_usd = self._spent(self._cheapest)
        self._spend_usd = np.concatenate(([0.0], np.cumsum(self._steps.spend_usd))) + self.floor_usd
        base = math.fsum(self.reward[self._rows, self._cheapest].tolist())
        self._value = np.concatenate(([0.0], np.cumsum(self._steps.gain))) + base

    def bound(self, budget_usd: float) -> float:
        """Return the optimum of the linear program, which no allocation exceeds."""
        taken = self._taken(budget_usd)
        if taken == len(self._steps.slope):
            return float(self._value[taken])
        share = (budget_usd - self._spend_usd[taken]) / self._steps.spend_usd[taken]
        return float(self._value[taken] + min(max(share, 0.0), 1.0) * self._steps.gain[taken])

    def allocate(self, budget_usd: float, errors: CostErrors | None = None) -> BatchAllocation:
        """Return the best allocation whose expected cost is at most `budget_usd`, less the margin for `errors`.

        Parameters
        ----------
        budget_usd : float, USD
            What the batch may cost.
        errors : CostErrors, optional
            Errors of the costs; the total is then within the budget with their confidence.

        Raises
        ------
        InfeasibleBudget
            If the cheapest models, with their margin, cost more.
        """
        check_amount("budget_usd", budget_usd)
        if errors is None:
            return self._allocated(self._within(self._taken(budget_usd), budget_usd), budget_usd)
        return self._with_margin(budget_usd, errors)

    def _with_margin(self, budget_usd: float, errors: CostErrors) -> BatchAllocation:
        """Bisect the expected cost, so that with the margin of its allocation it just fits."""

        def fits(spend_usd: float) -> bool:
            model = self._models(self._taken(spend_usd))
            total_usd = float(self.cost_usd[self._rows, model].sum())
            return total_usd + errors.margin_usd(model, total_usd) <= budget_usd

        low, high = self.floor_usd, budget_usd
        if not fits(low):
            margin = errors.margin_usd(self._cheapest, low)
            raise InfeasibleBudget(*_per_query(budget_usd, self.floor_usd + margin, len(self._rows)))
        for _ in range(0 if fits(high) else MARGIN_ROUNDS):
            middle = (low + high) / 2.0
            low, high = (middle, high) if fits(middle) else (low, middle)
        spend_usd = high if fits(high) else low
        taken = self._within(self._taken(spend_usd), spend_usd)
        found = self._allocated(taken, spend_usd, fill=False)
        return found._replace(margin_usd=errors.margin_usd(found.model, found.expected_cost_usd))

    def _taken(self, budget_usd: float) -> int:
        """Return the number of steps that the budget pays for whole."""
        taken = int(np.searchsorted(self._spend_usd, budget_usd, side="right")) - 1
        if taken >= 0:
            return taken
        if budget_usd < self.floor_usd * (1.0 - _ROUNDING):
            raise InfeasibleBudget(*_per_query(budget_usd, self.floor_usd, len(self._rows)))
        return 0

    def _within(self, taken: int, budget_usd: float) -> int:
        """Return the number of steps without those that only a rounding error lets in."""
        while taken and self._spent(self._models(taken)) > budget_usd:
            taken -= 1
        return taken

    def _models(self, taken: int) -> IntArray:
        """Return the model of each query after the first steps; later steps of a query overwrite earlier ones."""
        model = self._cheapest.copy()
        model[self._steps.query[:taken]] = self._steps.to[:taken]
        return model

    def _spent(self, model: IntArray) -> float:
        return math.fsum(self.cost_usd[self._rows, model].tolist())

    def _allocated(self, taken: int, budget_usd: float, *, fill: bool = True) -> BatchAllocation:
        steps, model = self._steps, self._models(taken)
        binds = taken < len(steps.slope)
        if fill and binds:
            self._fill(model, int(steps.query[taken]), budget_usd)
        spent = self._spent(model)
        reward = math.fsum(self.reward[self._rows, model].tolist())
        price = float(steps.slope[taken]) if binds else 0.0
        return BatchAllocation(model, reward, spent, max(self.bound(max(budget_usd, spent)), reward), price)

    def _fill(self, model: IntArray, query: int, budget_usd: float) -> None:
        """Give the query that the optimum splits the best model that the money left pays for."""
        left = max(budget_usd - self._spent(model), 0.0)  # below 0 by a rounding error at most
        cost = self.cost_usd[query]
        pays = cost - cost[model[query]] <= left * (1.0 - 1e-9)  # so that no rounding error exceeds the budget
        best = int(np.where(pays, self.reward[query], -np.inf).argmax())
        if self.reward[query, best] > self.reward[query, model[query]]:
            model[query] = best


def checked_batch(reward: ArrayLike, cost_usd: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return both tables as arrays of numbers; raise `InvalidInput` if they do not fit."""
    gain, cost = np.asarray(reward, dtype=np.float64), np.asarray(cost_usd, dtype=np.float64)
    if gain.ndim != 2 or not gain.size or gain.shape != cost.shape:
        raise InvalidInput(
            f"reward and cost_usd must have the same shape (n_queries, n_models), got {gain.shape} and {cost.shape}"
        )
    if not np.isfinite(gain).all():
        raise InvalidInput("reward must be finite, got NaN or infinity: an infinite cost excludes a model")
    if not (cost >= 0).all():
        raise InvalidInput(
            "cost_usd must be at least 0, or infinite where a model cannot take a query, got less or NaN"
        )
    unserved = np.flatnonzero(np.isinf(cost).all(axis=1))
    if unserved.size:
        raise InvalidInput(f"each query needs a model of finite cost, query {unserved[0]} has none: leave it out")
    return gain, cost


def _per_query(budget_usd: float, floor_usd: float, n_queries: int) -> tuple[float, float]:
    return budget_usd / n_queries, floor_usd / n_queries


def _envelopes(reward: FloatArray, cost: FloatArray) -> tuple[IntArray, _Steps]:
    """Return the cheapest model of each query, of equal ones the best, and the steps from it on by falling slope.

    The steps of one query stay in order.
    """
    first: list[IntArray] = []
    parts: list[_Steps] = []
    for start in range(0, len(reward), CHUNK_QUERIES):
        gain, usd = (table[start : start + CHUNK_QUERIES] for table in (reward, cost))
        cheapest = np.where(usd == usd.min(axis=1, keepdims=True), gain, -np.inf).argmax(axis=1)
        first.append(cheapest)
        parts += [part._replace(query=part.query + start) for part in _walk(gain, usd, cheapest)]
    slope, spend, gain, query, to = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(-slope, kind="stable")
    return np.concatenate(first), _Steps(slope[order], spend[order], gain[order], query[order], to[order])


def _walk(reward: FloatArray, cost: FloatArray, cheapest: IntArray) -> Iterator[_Steps]:
    """Yield the first step of each query, then the second, and so on: the gift-wrapping algorithm (Jarvis 1973)."""
    query, at = np.arange(len(reward)), cheapest
    last = np.full(len(reward), np.inf)
    while True:
        gain = reward[query] - reward[query, at][:, None]
        spend = cost[query] - cost[query, at][:, None]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            slope = np.where((gain > 0) & (spend > 0) & np.isfinite(spend), gain / spend, -np.inf)
        steepest = slope.max(axis=1)
        to = np.where(slope == steepest[:, None], spend, -1.0).argmax(axis=1)
        rows = np.flatnonzero(steepest > 0)
        last = np.minimum(steepest, last)[rows]  # no rounding error may let a step overtake the one before
        query, at = query[rows], to[rows]
        yield _Steps(last, spend[rows, at], gain[rows, at], query, at.astype(np.int16))
        if not rows.size:
            return
