"""Observations per (context, model) as counts and sums that add up, and the means that follow from them.

The running means of the paper (Algorithm 2) are `sum / count`. Departure: by default they are shrunk toward the model's
own mean over all contexts, by a strength estimated from the data (`wiserouter.learning.shrinkage`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import EllipsisType
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wiserouter.errors import InvalidInput
from wiserouter.learning.fading import ALL_LEFT, Left
from wiserouter.learning.possible_sums import TOTALS, are_possible, means_of, possible_sums
from wiserouter.learning.shrinkage import shrunk_means, spreads
from wiserouter.learning.smoothing import Smoothing
from wiserouter.pricing.prices import Usage
from wiserouter.types import FloatArray, IntArray
from wiserouter.validation import check_count

FIELDS = tuple(name for count, totals in TOTALS.items() for name in (count, *totals))
"""Names of the counts and sums, each an array of shape (n_contexts, n_models)."""


class Means(NamedTuple):
    """Mean reward and cost per (context, model), each an ndarray of shape (n_contexts, n_models)."""

    reward: FloatArray
    cost_usd: FloatArray


class Estimates:
    """Counts and sums of cost and reward per (context, model).

    Parameters
    ----------
    n_contexts, n_models : int
        Shape of every array.

    Attributes
    ----------
    shape : tuple of int
        (n_contexts, n_models).
    calls, cost, cost_sq : ndarray of shape (n_contexts, n_models)
        Number of calls with a known cost, their sum in USD and sum of squares.
    labels, reward, reward_sq : ndarray of shape (n_contexts, n_models)
        Number of rewards, their sum and sum of squares; a reward of weight w counts as w rewards.
    scored, delay_s : ndarray of shape (n_contexts, n_models)
        Number of calls decided that got a score, and the sum of the seconds from decision to score; drift does not
        fade them.
    invoked : ndarray of shape (n_contexts, n_models)
        Number of calls decided, settled or not: N of the paper's Algorithm 2.
    met : ndarray of shape (n_contexts, n_models)
        Number of queries, history included, from which the frequencies of the contexts follow; kept apart from
        `invoked` since frequencies may drift while the models do not.
    metered, input_tokens, output_tokens : ndarray of shape (n_contexts, n_models)
        Number of calls whose tokens are known, and the sums of their tokens.
    observed : list of int
        Number of costs and rewards added in each context, since these estimates were made.
    n_observations : int
        Number of costs and rewards added.
    pending : float
        Expected number of calls whose score may still come, which the router keeps up to date.
    smoothing : Smoothing or None
        What a regression on the log adds to the shrunk mean rewards.

    Examples
    --------
    >>> estimates = Estimates(n_contexts=1, n_models=2)
    >>> estimates.add_cost(0, 1, 0.5)
    >>> estimates.add_cost(0, 1, 1.5)
    >>> estimates.cost[0, 1] / estimates.calls[0, 1]
    np.float64(1.0)
    """

    def __init__(self, n_contexts: int, n_models: int) -> None:
        self.shape = shape = check_count("n_contexts", n_contexts, least=1), check_count("n_models", n_models, least=1)
        self.calls, self.cost, self.cost_sq = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.labels, self.reward, self.reward_sq = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.scored, self.delay_s = np.zeros(shape), np.zeros(shape)
        self.invoked, self.met = np.zeros(shape), np.zeros(shape)
        self.metered, self.input_tokens, self.output_tokens = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.observed = [0] * shape[0]
        self.n_invoked = 0
        self.n_observations = 0
        self.pending = 0.0
        self.smoothing: Smoothing | None = None
        self._cells = self._views()
        self._owed: dict[str, FloatArray] = {}  # what was taken back before it was there

    def add_cost(self, context: int, model: int, cost_usd: float, usage: Usage | None = None) -> None:
        """Count the true cost of one call, and its tokens where they are known."""
        cells, cell = self._cells, self._cell(context, model)
        cells["calls"][cell] += 1.0
        cells["cost"][cell] += cost_usd
        cells["cost_sq"][cell] += cost_usd * cost_usd
        if usage is not None:
            cells["metered"][cell] += 1.0
            cells["input_tokens"][cell] += usage.input_tokens
            cells["output_tokens"][cell] += usage.output_tokens
        self.n_observations += 1
        self.observed[context] += 1

    def amend_cost(self, context: int, model: int, cost_usd: float, *, replacing: float, left: float = 1.0) -> None:
        """Replace what is left of the cost of one call, or of a run that has gone on, by what it has come to."""
        more, more_sq = cost_usd - replacing, cost_usd * cost_usd - replacing * replacing
        self._change_cell(context, model, {"calls": 0.0, "cost": left * more, "cost_sq": left * more_sq})

    def reprice(self, model: int, factor: ArrayLike, unlisted_usd: ArrayLike = 0.0) -> None:
        """Restate the costs of a model at a new price, `factor` times the old one in each context.

        Where all calls so far were free, each of them counts `unlisted_usd`.
        """
        ratio, usd = np.asarray(factor, dtype=np.float64), np.asarray(unlisted_usd, dtype=np.float64)
        free = np.where(self.cost[:, model] == 0.0, self.calls[:, model], 0.0)
        self.cost[:, model] = ratio * self.cost[:, model] + usd * free
        self.cost_sq[:, model] = ratio**2 * self.cost_sq[:, model] + usd**2 * free

    def add_reward(
        self,
        context: int,
        model: int,
        reward: float,
        *,
        weight: float = 1.0,
        replacing: float | None = None,
        replaced_weight: float = 1.0,
        delay_s: float = 0.0,
        left: Left = ALL_LEFT,
    ) -> None:
        """Count one reward, `delay_s` after its decision, or in place of an earlier one where `replacing` is given.

        Where it weighs less than the earlier one, `delay_s` is that of the weight that is taken back. It counts for
        what is `left` of the earlier one.
        """
        cells, cell = self._cells, self._cell(context, model)
        if replacing is None:
            if weight:
                cells["scored"][cell] += weight
                if delay_s > 0.0:
                    cells["delay_s"][cell] += weight * delay_s
                cells["labels"][cell] += weight
            cells["reward"][cell] += weight * reward
            cells["reward_sq"][cell] += weight * reward * reward
        else:
            changes = reward_changes(reward, weight, replacing, replaced_weight, delay_s, left)
            self._change_cell(context, model, changes, reward)
        self.n_observations += 1
        self.observed[context] += 1

    def take_back(self, context: int, model: int, left: Left = ALL_LEFT) -> None:
        """Take back what is left of a decision."""
        self._change_cell(context, model, {"invoked": -left.others, "met": -left.met})
        self.n_invoked -= 1

    def add_invoked(self, context: int, model: int, count: int = 1) -> None:
        """Count decisions."""
        cells, cell = self._cells, self._cell(context, model)
        cells["invoked"][cell] += count
        cells["met"][cell] += count
        self.n_invoked += count

    def fade(self, factor: float) -> None:
        """Scale the weight of all observations so far by `factor`."""
        for field in FIELDS:
            getattr(self, field).__imul__(factor)
        self.smoothing = self.smoothing and self.smoothing.faded(factor)
        self._owed = {name: owed * factor for name, owed in self._owed.items()}

    def add_table(self, contexts: IntArray, reward: ArrayLike, cost_usd: ArrayLike) -> None:
        """Count a table of past calls.

        Parameters
        ----------
        contexts : ndarray of int of shape (n_queries,)
            The context of each query.
        reward, cost_usd : array-like of shape (n_queries, n_models)
            Score and cost of each model; NaN where it was not observed.
        """
        for values, count, total, square in (
            (cost_usd, self.calls, self.cost, self.cost_sq),
            (reward, self.labels, self.reward, self.reward_sq),
        ):
            table = np.asarray(values, dtype=np.float64)
            row, model = np.nonzero(~np.isnan(table))
            known, cell = table[row, model], contexts[row] * self.shape[1] + model
            for sums, weights in ((count, None), (total, known), (square, known * known)):
                np.add(sums, np.bincount(cell, weights, sums.size).reshape(sums.shape), out=sums)
            self.n_observations += len(known)

    def add_model(self, reward: ArrayLike, cost_usd: ArrayLike, labels: float, calls: float) -> None:
        """Append a column for a new model.

        Parameters
        ----------
        reward, cost_usd : array-like of shape (n_contexts,)
            Prior means.
        labels, calls : float
            Number of scores and of calls per context that they count for; 0 where there is no prior.
        """
        priors = (("reward", reward, "labels", labels), ("cost", cost_usd, "calls", calls))
        columns: dict[str, FloatArray] = {}
        for name, mean, count, weight in priors:
            means = np.asarray(mean, dtype=np.float64)
            columns |= {name: weight * means, f"{name}_sq": weight * means**2, count: np.full(self.shape[0], weight)}
        columns |= {name: np.zeros(self.shape[0]) for name in FIELDS if name not in columns}
        for field, column in columns.items():
            setattr(self, field, np.column_stack([getattr(self, field), column]))
        self.shape = self.shape[0], self.shape[1] + 1
        self.smoothing = self.smoothing and self.smoothing.with_model()
        self._cells = self._views()
        self.forgive()
        self.n_observations += round((labels + calls) * self.shape[0])

    def merge(self, other: Estimates) -> None:
        """Add the counts and sums of other estimates; the order of merges never matters.

        What these, or others before, take back beyond what is there is set against what later ones bring.
        """
        if other.shape != self.shape:
            raise InvalidInput(f"estimates to merge must have shape {self.shape}, got {other.shape}")
        changes = other.arrays()
        if self._owed or any(table.min() < 0.0 for table in changes.values()):
            owed, self._owed = self._owed, {}
            means = means_of(other.reward, other.labels)
            self._change(..., {name: table + owed.get(name, 0.0) for name, table in changes.items()}, means)
        else:
            for field in FIELDS:
                getattr(self, field).__iadd__(changes[field])
        self.observed = [mine + its for mine, its in zip(self.observed, other.observed, strict=True)]
        self.n_invoked += other.n_invoked
        self.n_observations += other.n_observations

    def forgive(self) -> None:
        """Set nothing that was taken back so far against what is merged later."""
        self._owed = {}

    def copy(self) -> Estimates:
        """Return an independent copy."""
        copied = Estimates.of_arrays(self.arrays())
        copied.smoothing = self.smoothing
        return copied

    def means(self, *, shrink: bool = True) -> Means:
        """Return the mean reward and cost of every (context, model).

        Parameters
        ----------
        shrink : bool, default True
            Shrink toward each model's own mean, and smooth the rewards; False gives the paper's plain means.

        Returns
        -------
        Means
            A cell never observed takes its model's mean. A model never observed takes the highest mean cost of the
            others, and one never rewarded takes reward 0, so that no plan prefers it.

        Raises
        ------
        InvalidInput
            If no cost was ever observed.
        """
        cost = shrunk_means(self.calls, self.cost, self.cost_sq, shrink=shrink)
        reward = shrunk_means(self.labels, self.reward, self.reward_sq, shrink=shrink)
        if shrink and self.smoothing is not None:
            reward = reward + self.smoothing.at(self.labels)
        if np.isnan(cost).all():
            raise InvalidInput("estimates must hold at least one cost, got none: fit on a log, or explore first")
        unknown = np.isnan(cost) | np.isnan(reward)
        return Means(
            reward=np.where(unknown, 0.0, np.clip(reward, 0.0, 1.0)),
            cost_usd=np.maximum(np.where(np.isnan(cost), np.nanmax(cost), cost), 0.0),
        )

    def cost_spread_usd(self) -> FloatArray:
        """Return the standard deviation of the cost of one call within a context, of shape (n_models,)."""
        spread: FloatArray = np.sqrt(spreads(self.calls, self.cost, self.cost_sq).within)
        return spread

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return the arrays by name, for an artifact."""
        return {field: getattr(self, field) for field in FIELDS}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[np.float64]]) -> Estimates:
        """Return the estimates whose `arrays()` these are."""
        estimates = cls(*arrays["calls"].shape)
        for field in FIELDS:
            getattr(estimates, field)[...] = arrays[field]
        estimates.n_invoked = round(estimates.invoked.sum())
        estimates.n_observations = round(estimates.calls.sum() + estimates.labels.sum())
        return estimates

    def _change_cell(self, context: int, model: int, changes: Mapping[str, float], reward: float = 0.0) -> None:
        """Add amounts that may be negative to one cell; nearly always all sums stay possible."""
        cells, cell = self._cells, self._cell(context, model)
        sums = {name: cells[name][cell] + change for name, change in changes.items()}
        if not are_possible(sums):
            self._change((context, model), changes, reward)
            return
        for name, total in sums.items():
            cells[name][cell] = total

    def _change(
        self,
        where: tuple[int, int] | EllipsisType,
        changes: Mapping[str, FloatArray] | Mapping[str, float],
        reward: FloatArray | float = 0.0,
    ) -> None:
        """Add amounts that may be negative, as far as sums remain possible; what is missing is owed."""
        former = {name: getattr(self, name)[where].copy() for name in changes}
        sums = {name: former[name] + change for name, change in changes.items()}
        for name, table in possible_sums(sums, former, reward).items():
            getattr(self, name)[where] = table
            if (sums[name] != table).any():
                self._owed.setdefault(name, np.zeros(self.shape))[where] += sums[name] - table

    def _views(self) -> dict[str, memoryview[float]]:
        """Return flat views of the arrays by name, in which adding to one cell takes 40 % of the time."""
        return {field: cast("memoryview[float]", getattr(self, field).data.cast("B").cast("d")) for field in FIELDS}

    def _cell(self, context: int, model: int) -> int:
        """Return the place of a cell in a flat view."""
        n_models = self.shape[1]
        if 0 <= model < n_models:
            return context * n_models + model
        raise IndexError(f"no cell ({context}, {model}) in estimates of shape {self.shape}")


def reward_changes(
    reward: float, weight: float, replacing: float, replaced_weight: float, delay_s: float, left: Left
) -> dict[str, float]:
    """Return by how much sums change where what is left of a reward is replaced."""
    more = weight - replaced_weight
    return {
        "labels": left.rewards * more,
        "reward": left.rewards * (weight * reward - replaced_weight * replacing),
        "reward_sq": left.rewards * (weight * reward * reward - replaced_weight * replacing * replacing),
        "scored": left.others * more,
        "delay_s": left.others * more * max(delay_s, 0.0),
    }
