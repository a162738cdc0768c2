r"""What the calls of a period would have cost with another model, from sums.

For a model :math:`k`, the calls that model :math:`m \neq k` served cost

.. math:: \sum_{t} T_{mt}\, p_{kt} + \sum_j n_{jm}\, \ell_{jk}\, o_k ,

where :math:`T_{mt}` are their prompt tokens of kind :math:`t` (plain, read from the provider's cache, written to it),
:math:`p_{kt}` is the price of :math:`k` for that kind, :math:`n_{jm}` their number in context :math:`j`,
:math:`\ell_{jk}` the mean length of the answers of :math:`k` there, and :math:`o_k` the price of an output token. The
calls that :math:`k` served itself cost what was charged. All of this is linear in the calls, so that sums per day
suffice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from wiserouter.pricing.prices import Price
from wiserouter.routing.pool_figures import PoolFigures
from wiserouter.stores.day_buckets import FIELDS, Cells
from wiserouter.types import FloatArray

LENGTH_CALLS = 4.0
"""Number of calls that a model's mean length over all contexts counts for, beside its calls in one."""


class CallTable(NamedTuple):
    """The sums of days, by model.

    Attributes
    ----------
    days : tuple of int
        Days since 1970.
    names : tuple of str
        The models of the pool, followed by those that are no longer in it; the last one is "", of costs without a call.
    sums : dict of str to ndarray of shape (n_days, n_names)
        By the names in `FIELDS`.
    compared : ndarray of shape (n_days, n_contexts + 1, n_names)
        Number of calls that can be compared, by context; the last one stands for those decided in other contexts.
    """

    days: tuple[int, ...]
    names: tuple[str, ...]
    sums: dict[str, FloatArray]
    compared: FloatArray


def call_table(cells: Mapping[int, Cells], figures: PoolFigures) -> CallTable:
    """Return the sums of days as arrays."""
    days = tuple(sorted(cells))
    found = dict.fromkeys(cell.partition("|")[2] for of_day in cells.values() for cell in of_day)
    names = (*figures.names, *[name for name in found if name and name not in figures.names], "")
    column = {name: at for at, name in enumerate(names)}
    n_contexts = len(figures.freq)
    sums = {field: np.zeros((len(days), len(names))) for field in FIELDS}
    compared = np.zeros((len(days), n_contexts + 1, len(names)))
    for row, day in enumerate(days):
        for cell, value in cells[day].items():
            field, _, name = cell.partition("|")
            if field in sums:
                sums[field][row, column[name]] += value
            else:
                compared[row, _context(field, figures.contexts, n_contexts), column[name]] += value
    return CallTable(days, names, sums, compared)


class Lengths(NamedTuple):
    """Mean lengths of answers.

    Attributes
    ----------
    tokens : ndarray of shape (n_contexts + 1, n_models)
        Output tokens; the last row is for calls decided in other contexts. NaN for a model without a call.
    calls : ndarray of shape (n_models,)
        Number of calls that they are learned from.
    """

    tokens: FloatArray
    calls: FloatArray


def lengths_of(figures: PoolFigures, table: CallTable) -> Lengths:
    """Return the mean lengths of a model's answers: those learned, else those of the period.

    The length in a context is the mean of the model's calls there, and of its mean over all contexts, which counts as
    `LENGTH_CALLS` calls.
    """
    metered, tokens = figures.sums["metered"], figures.sums["output_tokens"]
    calls, n_models = metered.sum(axis=0), len(figures.names)
    of_period = {field: table.sums[field].sum(axis=0)[:n_models] for field in ("output_tokens", "compared")}
    with np.errstate(invalid="ignore", divide="ignore"):
        overall = np.where(calls > 0, tokens.sum(axis=0) / calls, of_period["output_tokens"] / of_period["compared"])
    means = (tokens + LENGTH_CALLS * overall) / (metered + LENGTH_CALLS)
    return Lengths(np.vstack([means, figures.freq @ means]), np.where(calls > 0, calls, of_period["compared"]))


def costs_usd(table: CallTable, figures: PoolFigures, lengths: Lengths) -> FloatArray:
    """Return the cost of the compared calls of each day with each model, of shape (n_days, n_models).

    A model without a price costs its mean cost per call; NaN where that is not known either.
    """
    columns = [_cost_usd(k, table, figures, lengths) for k in range(len(figures.names))]
    return np.stack(columns, axis=1)


def _cost_usd(k: int, table: CallTable, figures: PoolFigures, lengths: Lengths) -> FloatArray:
    """Return the cost of each day with model `k`: what was charged where it served, else estimated."""
    price, others = figures.prices[k], np.arange(len(table.names)) != k
    if price is None:
        estimated = np.einsum("djm,j->dm", table.compared, _mean_costs_usd(k, figures))
    else:
        estimated = _input_usd(price, table.sums) + _output_tokens(k, table, lengths) * _output_price(k, price, table)
    total: FloatArray = table.sums["compared_usd"][:, k] + np.where(others, estimated, 0.0).sum(axis=1)
    return total


def _input_usd(price: Price, sums: Mapping[str, FloatArray]) -> FloatArray:
    """Return the cost of the prompts at a price, cached tokens as cached ones."""
    read, written = sums["cache_read_tokens"], sums["cache_write_tokens"]
    plain = sums["input_tokens"] - read - written
    return plain * price.input + read * price.cache_read_usd + written * price.cache_write_usd


def _output_tokens(k: int, table: CallTable, lengths: Lengths) -> FloatArray:
    """Return the tokens that a model would have answered; as many as were, where its length is not known."""
    if np.isnan(lengths.tokens[:, k]).any():
        return table.sums["output_tokens"]
    tokens: FloatArray = np.einsum("djm,j->dm", table.compared, lengths.tokens[:, k])
    return tokens


def _output_price(k: int, price: Price, table: CallTable) -> float:
    """Return the mean price of an output token of a model, at the share of reasoning tokens of its own answers."""
    output = float(table.sums["output_tokens"][:, k].sum())
    share = float(table.sums["reasoning_tokens"][:, k].sum()) / output if output else 0.0
    return (1.0 - share) * price.output + share * price.reasoning_usd


def _mean_costs_usd(k: int, figures: PoolFigures) -> FloatArray:
    """Return the mean cost of a call of a model in each context, and over all of them."""
    calls, cost = figures.sums["calls"][:, k], figures.sums["cost"][:, k]
    if not calls.sum():
        return np.full(len(calls) + 1, np.nan)
    mean = cost.sum() / calls.sum()
    return np.append(np.where(calls > 0, cost / np.maximum(calls, 1e-12), mean), mean)


def _context(place: str, contexts: str, n_contexts: int) -> int:
    """Return the present context of a cell; the last row where that is not known."""
    name, _, context = place.rpartition(".")
    known = name == contexts and context.isdigit() and int(context) < n_contexts
    return int(context) if known else n_contexts
