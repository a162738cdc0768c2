r"""The allocation of a batch whose models take a limited number of queries each.

To the budget of `batch_allocation` come the capacities

.. math::
    \sum_i x_{ik} \le n_k \quad\text{for each model } k.

Without the budget this is a transport problem, whose vertices are whole. With it, an optimal vertex lies on an edge
between two of them, so that the queries that it splits form one exchange between models; of the two ends, the cheaper
one keeps to the budget.

Queries with equal figures are one row of the program. Of many rows, a quarter is solved first: its prices of money and
of capacity decide all queries but those that hardly prefer a model. These are solved exactly, and the result is optimal
as soon as no other query prefers another model at the prices found (sifting, Bixby et al. 1992).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wiserouter.errors import InfeasibleBudget, InvalidInput
from wiserouter.planning.batch_allocation import MARGIN_ROUNDS, BatchAllocation, checked_batch
from wiserouter.planning.batch_margin import CostErrors
from wiserouter.types import FloatArray, IntArray
from wiserouter.validation import check_amount, check_count

DIRECT_ROWS = 400
"""Rows that are solved at once: some tenths of a second, which grow with their square."""

_WHOLE = 1e-6  # a share of a query closer than this to a whole number is that number
_TIE = 1e-9  # a model that is better by no more than the solver's own error
_STEPS = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5)  # of the budget that is left out; from more than the solver's error to `_WHOLE`
_EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


class _Program(NamedTuple):
    """Rows of equal queries: rewards and costs of shape (n_rows, n_models), and the number of queries of each."""

    reward: FloatArray
    cost: FloatArray
    queries: FloatArray
    budget: float
    capacity: FloatArray

    def part(self, rows: NDArray[np.bool_] | slice, budget: float, capacity: FloatArray) -> _Program:
        return _Program(self.reward[rows], self.cost[rows], self.queries[rows], budget, capacity)


class _Optimum(NamedTuple):
    """Queries of each row and model, the price of money, and that of the capacity of each model."""

    queries: FloatArray
    price: float
    rent: FloatArray


class CapacityProgram:
    """The linear program of a batch with capacities.

    Parameters
    ----------
    reward, cost_usd : array-like of shape (n_queries, n_models)
        As of `BatchProgram`.
    capacity : sequence of int or None
        The most queries that each model takes; None for any number.

    Raises
    ------
    InvalidInput
        If a table is wrong, or the models cannot take all queries.

    Attributes
    ----------
    floor_usd : float, USD
        The least that the batch costs within the capacities.

    Examples
    --------
    >>> program = CapacityProgram([[0.2, 0.9]] * 3, [[1, 3]] * 3, [None, 1])
    >>> program.allocate(9.0).model
    array([0, 0, 1])
    """

    def __init__(self, reward: ArrayLike, cost_usd: ArrayLike, capacity: Sequence[int | None]) -> None:
        self.reward, self.cost_usd = checked_batch(reward, cost_usd)
        n_queries, n_models = self.reward.shape
        if len(capacity) != n_models:
            raise InvalidInput(f"capacity must have one entry per model ({n_models}), got {len(capacity)}")
        most = [n_queries if one is None else check_count("capacity", one) for one in capacity]
        self._capacity = np.minimum(np.array(most, dtype=np.float64), n_queries)
        both = np.hstack((self.reward, self.cost_usd))
        distinct, row, count = np.unique(both, axis=0, return_inverse=True, return_counts=True)
        self._order = np.argsort(row.ravel(), kind="stable")
        self._parts = distinct[:, :n_models], distinct[:, n_models:], count.astype(np.float64)
        cost = self._parts[1]
        cheapest = _solved(
            _Program(-np.where(np.isfinite(cost), cost, 0.0), *self._parts[1:], math.inf, self._capacity)
        )
        if cheapest is None:
            in_all = int(np.isfinite(cost).any(axis=0) @ np.array(most))  # without models that take none of them
            raise InvalidInput(
                f"the capacities must let each of {n_queries:,} queries have a model, got {in_all:,} in all: "
                f"raise them, or leave queries out"
            )
        self._cheapest = self._rounded(cheapest)
        self.floor_usd = self._spend(self._cheapest)

    def allocate(self, budget_usd: float, errors: CostErrors | None = None) -> BatchAllocation:
        """Return the best allocation within budget and capacities, less the margin for `errors`.

        It is an optimum of the linear program but for one exchange, which changes one query of each model at most.

        Raises
        ------
        InfeasibleBudget
            If the cheapest models that have capacity, with their margin, cost more.
        """
        check_amount("budget_usd", budget_usd)
        if errors is None:
            return self._allocated(budget_usd)
        low, high = self.floor_usd, budget_usd
        best = self._fitting(low, budget_usd, errors)
        if best is None:
            margin = errors.margin_usd(self._allocated(low).model, low)
            raise InfeasibleBudget(budget_usd / len(self.reward), (low + margin) / len(self.reward))
        for _ in range(MARGIN_ROUNDS // 3):  # each solves the program
            middle = (low + high) / 2.0
            found = self._fitting(middle, budget_usd, errors)
            low, high, best = (low, middle, best) if found is None else (middle, high, found)
        return best

    def _fitting(self, spend_usd: float, budget_usd: float, errors: CostErrors) -> BatchAllocation | None:
        """Return the allocation of an expected cost; None if its margin does not fit."""
        found = self._allocated(max(spend_usd, self.floor_usd))
        margin = errors.margin_usd(found.model, found.expected_cost_usd)
        return found._replace(margin_usd=margin) if found.expected_cost_usd + margin <= budget_usd else None

    def _allocated(self, budget_usd: float) -> BatchAllocation:
        if budget_usd < self.floor_usd * (1.0 - 1e-12):
            raise InfeasibleBudget(budget_usd / len(self.reward), self.floor_usd / len(self.reward))
        optimum = self._optimum(budget_usd)
        model = self._whole(optimum, budget_usd)
        reward = math.fsum(self.reward[np.arange(len(model)), model].tolist())
        bound = reward if optimum is None else max(float((optimum.queries * self._parts[0]).sum()), reward)
        return BatchAllocation(model, reward, self._spend(model), bound, 0.0 if optimum is None else optimum.price)

    def _optimum(self, budget_usd: float) -> _Optimum | None:
        return _solved(_Program(*self._parts, budget_usd, self._capacity))

    def _whole(self, optimum: _Optimum | None, budget_usd: float) -> IntArray:
        """Return the models at an optimum; where a rounding error exceeds the budget, at one for a little less."""
        most_usd, within = max(budget_usd, self.floor_usd), budget_usd
        for step in _STEPS:
            if optimum is None:
                break
            model = self._rounded(optimum)
            excess_usd = self._spend(model) - most_usd
            if excess_usd <= 0.0:
                return model
            within -= max(2.0 * excess_usd, step * budget_usd)
            optimum = self._optimum(within)
        return self._cheapest  # where the budget leaves no other allocation, the solver may see none

    def _spend(self, model: IntArray) -> float:
        return math.fsum(self.cost_usd[np.arange(len(model)), model].tolist())

    def _rounded(self, optimum: _Optimum) -> IntArray:
        """Return the model of each query at the cheaper end of the edge that the optimum is on."""
        whole = np.floor(optimum.queries + _WHOLE)
        split = optimum.queries - whole > _WHOLE
        left = self._parts[2] - whole.sum(axis=1)
        rows = np.flatnonzero(left > 0.5)
        if rows.size:
            cost = np.where(split[rows], self._parts[1][rows], np.inf)
            room = self._capacity - whole.sum(axis=0)
            reward = -np.where(np.isfinite(cost), cost, 0.0)
            end = _direct(_Program(reward, cost, left[rows], math.inf, room))
            if end is not None:
                whole[rows] += np.round(end.queries)
        model = np.empty(len(self.reward), dtype=np.int64)
        model[self._order] = np.repeat(np.tile(np.arange(whole.shape[1]), len(whole)), whole.ravel().astype(np.int64))
        return model


def _solved(program: _Program) -> _Optimum | None:
    """Return the optimum of a program, or None if it has none: a quarter of its rows first, then those near a tie."""
    n_rows = len(program.queries)
    if n_rows <= DIRECT_ROWS:
        return _direct(program)
    quarter = slice(None, None, 4)
    share = program.queries[quarter].sum() / program.queries.sum()
    guess = _solved(program.part(quarter, program.budget * share, program.capacity * share))
    price, rent = (guess.price, guess.rent) if guess else (0.0, np.zeros(len(program.capacity)))
    net = _net(program, price, rent)
    behind = net.max(axis=1, keepdims=True) - net
    lead = np.partition(behind, min(1, net.shape[1] - 1), axis=1)[:, min(1, net.shape[1] - 1)]
    taken = max(DIRECT_ROWS, 2 * math.isqrt(n_rows))
    while taken < n_rows:
        kept = behind <= np.partition(lead, taken)[taken]
        found = _over(program, kept)
        if found is not None:
            net = _net(program, found.price, found.rent)
            missed = net.max(axis=1) - np.where(kept, net, -np.inf).max(axis=1)
            if missed.max() <= _TIE * max(1.0, float(np.abs(program.reward).max())):
                return found
        taken *= 2
    return _direct(program)


def _net(program: _Program, price: float, rent: FloatArray) -> FloatArray:
    """Return the reward of each row and model less what its money and its capacity are worth."""
    usable = np.isfinite(program.cost)
    net: FloatArray = np.where(usable, program.reward - price * np.where(usable, program.cost, 0.0) - rent, -np.inf)
    return net


def _over(program: _Program, kept: NDArray[np.bool_]) -> _Optimum | None:
    """Return the optimum over some models of each row; a row with one of them is fixed."""
    fixed = kept.sum(axis=1) == 1
    rows, best = np.flatnonzero(fixed), kept[fixed].argmax(axis=1)
    used = np.bincount(best, program.queries[rows], len(program.capacity))
    spent = float((program.queries[rows] * program.cost[rows, best]).sum())
    if (used > program.capacity).any() or spent > program.budget:
        return None
    rest = program.part(~fixed, program.budget - spent, program.capacity - used)
    found = _direct(rest._replace(cost=np.where(kept[~fixed], rest.cost, np.inf)))
    if found is None:
        return None
    queries = np.zeros_like(program.reward)
    queries[rows, best] = program.queries[rows]
    queries[~fixed] = found.queries
    return found._replace(queries=queries)


def _direct(program: _Program) -> _Optimum | None:
    """Return an optimal vertex of a program that HiGHS finds; None if there is none."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    n_rows, n_models = program.reward.shape
    row, model = np.nonzero(np.isfinite(program.cost))
    column, ones = np.arange(len(row)), np.ones(len(row))
    bounded = math.isfinite(program.budget)
    most_usd = float(program.cost[row, model].max(initial=0.0)) or 1.0
    scale = program.budget / max(program.queries.sum(), 1.0) if bounded and program.budget > 0 else most_usd
    limits, at, values = program.capacity, model, ones
    if bounded:
        limits = np.append(limits, program.budget / scale)
        at, values = np.append(model, np.full(len(row), n_models)), np.append(ones, program.cost[row, model] / scale)
    columns = np.append(column, column) if bounded else column
    reward = program.reward[row, model]
    unit = float(np.abs(reward).max(initial=0.0)) or 1.0  # the solver's tolerances are absolute, and costs are tiny
    found = linprog(
        -reward / unit,
        A_ub=coo_array((values, (at, columns)), shape=(len(limits), len(row))).tocsr(),
        b_ub=limits,
        A_eq=coo_array((ones, (row, column)), shape=(n_rows, len(row))).tocsr(),
        b_eq=program.queries,
        method="highs-ds",
        options=_EXACT,
    )
    if found.status != 0:
        return None
    queries = np.zeros((n_rows, n_models))
    queries[row, model] = found.x
    duals = -found.ineqlin.marginals * unit
    return _Optimum(queries, float(duals[n_models] / scale) if bounded else 0.0, duals[:n_models])
