r"""The plan under several constraints: the linear program with any number of means beside the mean cost.

The program of `planning.plan` with M constraints instead of one is

.. math::
    \max_x \sum_j \pi_j \sum_k u_{jk} x_{jk}
    \quad\text{s.t.}\quad \sum_j \pi_j \sum_k a_{mjk} x_{jk} \le b_m \;(m = 1..M),\quad \sum_k x_{jk} = 1,\quad x \ge 0.

Costs and resources have :math:`a_{mjk} \ge 0`; a floor is a constraint of negative use. With one constraint a greedy
order solves it; with more there is none, and HiGHS solves it exactly. At most M contexts are split in all. Its dual
prices :math:`y_m` give each model its worth, :math:`u_{jk} - \sum_m y_m a_{mjk}`: a context takes models of most worth.

Where no mix keeps all constraints, those that may give way are loosened first by the least sum of relative amounts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from wiserouter.types import FloatArray

LEAST_FREQ = 1e-6
"""A context counts with at least this share, so that one that has not been met yet has a plan, too."""

_INFEASIBLE = 2  # the status of `linprog`
_UNSOLVED = 4  # its status where rounding stands in the way
_TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
_NO_PRESOLVE = {**_TIGHT, "presolve": False}
_ROUNDING = 1e-9
_MORE_ROUNDING = (1.0, 10.0, 100.0)  # HiGHS may not find its own solution again
_LEAST_BOUND = 1e-3  # relative to the largest use; an amount beyond a smaller bound is compared with this


class Constraint(NamedTuple):
    """A bound on a mean per request.

    Attributes
    ----------
    name : str
        Names it in errors and figures.
    use : ndarray of shape (n_contexts, n_models)
        Mean use of a request of a context by a model.
    most : float
        The largest mean over all requests.
    elastic : bool
        Whether it gives way where no mix keeps all constraints.
    """

    name: str
    use: FloatArray
    most: float
    elastic: bool = True


class LimitedPlan(NamedTuple):
    """The solution of the program.

    Attributes
    ----------
    mix : ndarray of shape (n_contexts, n_models)
        Probability of each model in each context; rows sum to 1, or to less where skipping is allowed.
    worth : ndarray of shape (n_contexts, n_models)
        Reward less prices x uses.
    value : float
        Expected reward per request.
    prices : tuple of float
        Reward per unit of each constraint at the margin; 0 where it does not bind.
    uses : tuple of float
        Mean use of each constraint by the mix.
    bounds : tuple of float
        The bounds that the mix keeps: those of the constraints, loosened where no mix keeps them all.
    names : tuple of str
        The names of the constraints.
    """

    mix: FloatArray
    worth: FloatArray
    value: float
    prices: tuple[float, ...]
    uses: tuple[float, ...]
    bounds: tuple[float, ...]
    names: tuple[str, ...]


def limited_plan(
    freq: FloatArray,
    reward: FloatArray,
    constraints: Sequence[Constraint],
    *,
    allow_skip: bool = False,
    banned: Collection[int] = (),
) -> LimitedPlan:
    """Return the best mix of models under all constraints, or under the nearest that some mix keeps.

    Parameters
    ----------
    freq : ndarray of shape (n_contexts,)
        Share of each context.
    reward : ndarray of shape (n_contexts, n_models)
        Mean rewards.
    constraints : sequence of Constraint
        The budget and the limits.
    allow_skip : bool, default False
        Allow the null action, which uses and yields nothing.
    banned : collection of int
        Models that get no share; never all of them.

    Examples
    --------
    >>> cost = Constraint("usd", np.array([[1.0, 2.0, 3.0]]), 2.0)
    >>> latency = Constraint("latency_s", np.array([[1.0, 4.0, 2.0]]), 1.25)
    >>> plan = limited_plan(np.ones(1), np.array([[0.2, 0.7, 0.6]]), [cost, latency])
    >>> plan.mix.round(9).tolist(), [round(price, 9) for price in plan.prices]
    ([[0.75, 0.0, 0.25]], [0.0, 0.4])
    """
    weights = np.maximum(freq, LEAST_FREQ)
    weights = weights / weights.sum()
    kept = np.array([k for k in range(reward.shape[1]) if k not in banned])
    program = _LimitedProgram(
        weights, reward[:, kept], [one.use[:, kept] for one in constraints], allow_skip=allow_skip
    )
    bounds = np.array([one.most for one in constraints])
    solved = program.solve(bounds)
    if solved is None:
        elastic = np.array([one.elastic for one in constraints])
        rounding = _ROUNDING * program.scale  # the cheapest mix may exceed a budget that equals it by so much
        bounds = bounds + program.least_excess(bounds + 0.5 * rounding, elastic)
        for times in _MORE_ROUNDING:
            solved = program.solve(bounds + times * rounding)
            if solved is not None:
                break
    if solved is None:
        raise RuntimeError("HiGHS finds no mix under constraints that it has loosened itself")
    own, prices = solved
    mix = np.zeros(reward.shape)
    mix[:, kept] = own
    uses = [float(weights @ (mix * one.use).sum(axis=1)) for one in constraints]
    worth = reward - sum([price * one.use for price, one in zip(prices, constraints, strict=True)], np.zeros(()))
    value = float(weights @ (mix * reward).sum(axis=1))
    names = tuple([one.name for one in constraints])
    return LimitedPlan(mix, worth, value, tuple(prices.tolist()), tuple(uses), tuple(bounds.tolist()), names)


class _LimitedProgram:
    """The program in the shares of all requests, z = pi x, so that rare contexts are solved as exactly as others."""

    def __init__(
        self, weights: FloatArray, reward: FloatArray, uses: Sequence[FloatArray], *, allow_skip: bool
    ) -> None:
        from scipy.sparse import csr_array, identity, kron  # routers without limits do not pay for scipy

        self._shape, self._weights, self._reward = reward.shape, weights, reward
        self.scale = np.array([float(np.abs(use).max()) or 1.0 for use in uses])
        self._uses = np.array([use.ravel() for use in uses]) / self.scale[:, np.newaxis]
        self._once = csr_array(kron(identity(len(weights)), np.ones((1, reward.shape[1]))))
        self._allow_skip = allow_skip

    def solve(self, bounds: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """Return mix and prices; None where no mix keeps the bounds."""
        found = self._minimum(-self._reward.ravel(), self._uses, bounds / self.scale, self._once)
        if found is None:
            return None
        prices = np.maximum(-found.ineqlin.marginals[: len(self.scale)], 0.0)
        worth = self._reward - (prices @ self._uses).reshape(self._shape)
        return self._mix(found.x, worth), prices / self.scale

    def least_excess(self, bounds: FloatArray, elastic: FloatArray) -> FloatArray:
        """Return by how much to loosen the bounds: the least sum of amounts relative to them."""
        from scipy.sparse import csr_array, hstack

        n, each = len(bounds), np.maximum(np.abs(bounds) / self.scale, _LEAST_BOUND)
        cost = np.append(np.zeros(self._reward.size), 1.0 / each)
        once = hstack([self._once, csr_array((len(self._weights), n))])
        found = self._minimum(cost, np.hstack([self._uses, -np.diag(elastic.astype(float))]), bounds / self.scale, once)
        if found is None:
            raise ValueError("constraints that do not give way must have a mix that keeps them")
        excess: FloatArray = np.maximum(found.x[-n:], 0.0) * self.scale * elastic
        return excess

    def _minimum(self, cost: FloatArray, uses: FloatArray, bounds: FloatArray, once: Any) -> Any:
        from scipy.optimize import linprog
        from scipy.sparse import csr_array, vstack

        sums: dict[str, Any] = {"A_eq": once, "b_eq": self._weights, "A_ub": csr_array(uses), "b_ub": bounds}
        if self._allow_skip:
            sums = {"A_ub": vstack([csr_array(uses), once]), "b_ub": np.append(bounds, self._weights)}
        # with numbers of very different sizes HiGHS may give up
        for options in (_TIGHT, _NO_PRESOLVE, {}):
            found = linprog(cost, method="highs", options=options, **sums)
            if found.status in (0, _INFEASIBLE):
                break
        if found.status in (_INFEASIBLE, _UNSOLVED):  # of the latter, bounds loosened by rounding may have a solution
            return None
        if found.status:
            raise RuntimeError(f"HiGHS fails on a program of {self._shape} shares: {found.message}")
        return found

    def _mix(self, shares: FloatArray, worth: FloatArray) -> FloatArray:
        """Return the shares of each context; a rare one that rounding leaves without takes the best model."""
        mix: FloatArray = np.maximum(shares.reshape(self._shape), 0.0) / self._weights[:, np.newaxis]
        mix[mix < _ROUNDING] = 0.0
        if not self._allow_skip:
            unanswered = np.flatnonzero(~mix.any(axis=1))
            mix[unanswered, worth[unanswered].argmax(axis=1)] = 1.0
        total = mix.sum(axis=1, keepdims=True)
        mix /= np.maximum(total, 1.0) if self._allow_skip else total
        return mix
