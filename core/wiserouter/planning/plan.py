r"""The plan: the best mix of models for every budget at once.

The linear program of the paper (Section "Adaptive Linear Programming", Eqs. 1-4) is

.. math::
    \max_p \sum_j \pi_j \sum_k p_{jk} u_{jk}
    \quad\text{s.t.}\quad \sum_j \pi_j \sum_k p_{jk} c_{jk} \le \rho,\quad \sum_k p_{jk} = 1,\quad p \ge 0,

a linear multiple-choice knapsack. Its Appendix "Solution Formulation" removes the models that no optimum uses, which
leaves per context the upper concave envelope of (cost, reward), and takes the envelope's steps greedily by falling
reward per cost. The steps of all contexts are sorted once; every budget `rho` is then a bisection.

Departure: the paper may skip a query (`sum_k p_jk <= 1`). A service answers every query, so each envelope starts at
the cheapest model; `allow_skip=True` is the paper's program.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.errors import InfeasibleBudget, InvalidInput
from wiserouter.planning.envelope import SKIP, ContextEnvelope, EnvelopeStep, context_envelope, context_envelopes
from wiserouter.planning.solve_rate import SMALL_CELLS
from wiserouter.planning.step_order import StepOrder, steps_of
from wiserouter.planning.step_window import StepWindow
from wiserouter.types import FloatArray
from wiserouter.validation import check_amount

_INFINITE = float("inf")

_ROUNDING = 1e-12  # relative; a rate below the floor by no more than this is the floor


class Curve(NamedTuple):
    """The value of each rate: the breakpoints of the optimal value, a concave function of the spend.

    Attributes
    ----------
    spend_usd : ndarray of shape (n,)
        USD per request, strictly increasing.
    value : ndarray of shape (n,)
        Expected reward per request.
    shadow_price : ndarray of shape (n,)
        Reward per USD just above each breakpoint, falling; the last is 0.
    """

    spend_usd: FloatArray
    value: FloatArray
    shadow_price: FloatArray


class Split(NamedTuple):
    """The mix of one context at one rate: `high` with probability `share`, else `low` (`SKIP` is the null action)."""

    low: int
    high: int
    share: float
    shadow_price: float


class Plan:
    """The paper's linear program, solved exactly for all budgets.

    Parameters
    ----------
    freq : array-like of shape (n_contexts,)
        Share of each context; sums to 1.
    reward : array-like of shape (n_contexts, n_models)
        Mean reward in [0, 1].
    cost_usd : array-like of shape (n_contexts, n_models)
        Mean cost of a call in USD.
    allow_skip : bool, default False
        Allow the null action, which costs and yields nothing.
    revisable : bool, default False
        Whether contexts are revised often: of a large plan, only the steps near the shadow price are then kept in
        their order, and splits are those of the whole order up to rounding.

    Raises
    ------
    InvalidInput
        If shapes differ, a number is not finite, out of range, or the frequencies do not sum to 1.

    Examples
    --------
    >>> plan = Plan(freq=[1.0], reward=[[0.2, 0.9]], cost_usd=[[0.01, 0.03]])
    >>> plan.mix(0.02)
    array([[0.5, 0.5]])
    >>> plan.value(0.02), round(plan.shadow_price(0.02), 9)
    (0.55, 35.0)
    """

    def __init__(
        self,
        freq: ArrayLike,
        reward: ArrayLike,
        cost_usd: ArrayLike,
        *,
        allow_skip: bool = False,
        revisable: bool = False,
    ) -> None:
        self.freq, self.reward, self.cost_usd = _checked(freq, reward, cost_usd)
        self.allow_skip = allow_skip
        self._revisable, self._weights = revisable, self.freq.tolist()
        self._former: StepOrder | None = None
        self._changed: set[int] = set()

    @cached_property
    def rows(self) -> list[ContextEnvelope]:
        """The envelope and the means of each context; found when first asked for."""
        return context_envelopes(self._weights, self.cost_usd, self.reward, allow_skip=self.allow_skip)

    @cached_property
    def floor_usd(self) -> float:
        """The least mean spend per request: the cheapest model everywhere, or 0 where skipping is allowed."""
        return sum([row.base_usd for row in self.rows])

    @cached_property
    def _window(self) -> StepWindow | None:
        return StepWindow(self.rows) if self._revisable and self.reward.size > SMALL_CELLS else None

    def revise(self, context: int, reward: ArrayLike, cost_usd: ArrayLike) -> None:
        """Replace the means of one context; the others are not computed again.

        Parameters
        ----------
        context : int
            The row to replace.
        reward, cost_usd : array-like of shape (n_models,)
            Mean rewards in [0, 1] and mean costs in USD; not checked.

        Examples
        --------
        >>> plan = Plan(freq=[1.0], reward=[[0.2, 0.9]], cost_usd=[[0.01, 0.03]])
        >>> plan.revise(0, [0.2, 0.4], [0.01, 0.03])
        >>> plan.value(0.02)
        0.30000000000000004
        """
        window, old = self._window, self.rows[context]
        self.reward[context], self.cost_usd[context] = reward, cost_usd
        figures = self._weights[context], self.cost_usd[context].tolist(), self.reward[context].tolist()
        self.rows[context] = context_envelope(context, *figures, allow_skip=self.allow_skip)
        self._changed.add(context)
        self._former = self.__dict__.pop("_order", self._former)
        if window is None:
            self.floor_usd = sum([row.base_usd for row in self.rows])
        else:
            window.revise(context, old)
            self.floor_usd = window.floor_usd

    @cached_property
    def _order(self) -> StepOrder:
        """The steps of all contexts in their order; those of the contexts that have changed are merged into it."""
        former, changed = self._former, self.rows
        steps: list[EnvelopeStep] = []
        if former is not None:  # those that stay come first: a long run of a sort that finds runs
            steps = [step for step in former.steps if step[1] not in self._changed]
            changed = [self.rows[context] for context in self._changed]
        steps += steps_of(changed)
        self._changed.clear()
        return StepOrder(self.rows, sorted(steps), self.floor_usd)

    @property
    def n_contexts(self) -> int:
        """Number of contexts."""
        return len(self.rows)

    @property
    def n_models(self) -> int:
        """Number of models."""
        return int(self.reward.shape[1])

    @property
    def steps(self) -> list[EnvelopeStep]:
        """The steps of all contexts by falling slope; another list after each change."""
        return self._order.steps

    @property
    def ceiling_usd(self) -> float:
        """The mean spend per request beyond which more spend buys nothing."""
        return self._order.spend_usd[-1]

    def mix(self, rate_usd: float) -> FloatArray:
        """Return the best mix of models whose expected spend is at most `rate_usd`.

        Parameters
        ----------
        rate_usd : float, USD per request
            Budget left divided by requests left.

        Returns
        -------
        ndarray of shape (n_contexts, n_models)
            Probability of each model in each context; rows sum to 1, or to less where skipping is allowed.

        Raises
        ------
        InfeasibleBudget
            If even the cheapest model of every context costs more than `rate_usd`.

        Notes
        -----
        Linear multiple-choice knapsack: per context only the concave envelope matters; its steps are taken by falling
        slope, so at most one context is split (paper, Appendix "Solution Formulation").

        Examples
        --------
        >>> Plan(freq=[0.5, 0.5], reward=[[0.2, 0.9], [0.8, 0.9]], cost_usd=[[1, 3], [1, 3]]).mix(2.5)
        array([[0. , 1. ],
               [0.5, 0.5]])
        """
        mix = np.zeros((self.n_contexts, self.n_models + 1))  # the last column, index -1, is the null action
        for context in range(self.n_contexts):
            low, high, share, _ = self._split(context, rate_usd)
            mix[context, low] += 1.0 - share
            mix[context, high] += share
        return mix[:, :-1]

    def value(self, rate_usd: float) -> float:
        """Return the expected reward per request of the best mix at `rate_usd`; raise as `mix` does."""
        order = self._order
        taken, share = order.locate(self._bounded(rate_usd))
        return order.value[taken] + (share * order.steps[taken].gain if share else 0.0)

    def spend_usd(self, rate_usd: float) -> float:
        """Return the expected spend per request of the best mix: `rate_usd`, or less where more buys nothing."""
        order = self._order
        taken, share = order.locate(self._bounded(rate_usd))
        return order.spend_usd[taken] + (share * order.steps[taken].spend_usd if share else 0.0)

    def shadow_price(self, rate_usd: float) -> float:
        """Return the reward that one more USD buys at `rate_usd`; 0 where the budget no longer binds."""
        return self.split(0, rate_usd).shadow_price

    def curve(self) -> Curve:
        """Return all breakpoints of the optimal value as a function of the budget.

        Examples
        --------
        >>> Plan(freq=[1.0], reward=[[0.2, 0.9]], cost_usd=[[1, 3]]).curve()
        Curve(spend_usd=array([1., 3.]), value=array([0.2, 0.9]), shadow_price=array([0.35, 0.  ]))
        """
        order = self._order
        spend = np.array(order.spend_usd)
        price = np.array([-step.falling for step in order.steps] + [0.0])
        last = np.append(spend[1:] > spend[:-1], True)  # of equal spends, the last holds all zero-weight steps
        return Curve(spend[last], np.array(order.value)[last], price[last])

    def split(self, context: int, rate_usd: float) -> Split:
        """Return the one or two models of `context`, and the shadow price; raise as `mix` does."""
        return Split(*self._split(context, rate_usd))

    def split_from_floor(self, context: int, rate_usd: float) -> tuple[int, int, float, float, float]:
        """Return the fields of `split`, and `floor_usd`; below the floor the cheapest, at an infinite shadow price.

        Examples
        --------
        >>> Plan(freq=[1.0], reward=[[0.2, 0.9]], cost_usd=[[1, 3]]).split_from_floor(0, 0.5)
        (0, 0, 0.0, inf, 1.0)
        """
        floor = self.floor_usd
        if rate_usd >= floor:
            return *self._split(context, rate_usd), floor
        cheapest = self.rows[context].hull[0]
        return cheapest, cheapest, 0.0, _INFINITE, floor

    def _split(self, context: int, rate_usd: float) -> tuple[int, int, float, float]:
        return (self._window or self._order).split(context, self._bounded(rate_usd))

    def _bounded(self, rate_usd: float) -> float:
        """Return a rate if the plan has a mix for it; raise as `mix` does."""
        if self.floor_usd <= rate_usd < _INFINITE:
            return rate_usd
        check_amount("rate_usd", rate_usd)
        if rate_usd < self.floor_usd * (1.0 - _ROUNDING):
            raise InfeasibleBudget(rate_usd, self.floor_usd)
        return self.floor_usd

    def choose(self, context: int, rate_usd: float, rng: np.random.Generator) -> int | None:
        """Draw the model for a query of `context` at `rate_usd`; None is the null action.

        Examples
        --------
        >>> plan = Plan(freq=[1.0], reward=[[0.2, 0.9]], cost_usd=[[0.01, 0.03]])
        >>> plan.choose(0, 0.03, np.random.default_rng(0))
        1
        """
        low, high, share, _ = self._split(context, rate_usd)
        model = high if share and rng.random() < share else low
        return None if model == SKIP else model

    def without_context(self) -> Plan:
        """Return the plan of a query whose context is unknown: every model at its mean over all contexts.

        Examples
        --------
        >>> Plan(freq=[0.5, 0.5], reward=[[0.2, 0.9], [0.8, 0.9]], cost_usd=[[1, 3], [1, 3]]).without_context().reward
        array([[0.5, 0.9]])
        """
        means = (self.freq @ table for table in (self.reward, self.cost_usd))
        reward, cost = (mean[np.newaxis, :] for mean in means)
        return Plan([1.0], np.minimum(reward, 1.0), cost, allow_skip=self.allow_skip)


def _checked(freq: ArrayLike, reward: ArrayLike, cost_usd: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return private float copies of the three arrays; raise `InvalidInput` if they do not fit."""
    pi, u, c = (_finite(*named) for named in (("freq", freq), ("reward", reward), ("cost_usd", cost_usd)))
    if u.ndim != 2 or not u.size or u.shape != c.shape or pi.shape != u.shape[:1]:
        raise InvalidInput(
            f"freq, reward and cost_usd must have shapes (J,), (J, K) and (J, K) with J, K >= 1, "
            f"got {pi.shape}, {u.shape} and {c.shape}"
        )
    if u.max() > 1.0:
        raise InvalidInput(f"reward must lie in [0, 1], got {u.max()}: rescale the scores", value=float(u.max()))
    if abs(pi.sum() - 1.0) > 1e-6:
        raise InvalidInput(f"freq must sum to 1, got {pi.sum()}: divide by its sum", value=float(pi.sum()))
    return pi, u, c


def _finite(name: str, values: ArrayLike) -> FloatArray:
    try:
        array: np.ndarray[Any, np.dtype[np.float64]] = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} must be an array of numbers: {error}") from error
    if array.size and not (array.min() >= 0.0 and array.max() < _INFINITE):  # NaN compares false
        bad = array[~(np.isfinite(array) & (array >= 0))]
        raise InvalidInput(f"{name} must be finite and at least 0, got {bad[0]}", value=float(bad[0]))
    return array
