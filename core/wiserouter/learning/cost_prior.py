"""The prior of a call's cost: list price times tokens, corrected by the costs paid so far.

A price list orders models that were never tried, and makes a change of price act at once. Contexts differ in length
and models in how much they write, so a list cost is scaled by the ratio of paid to listed cost of its context and of
its model. Where no tokens were counted a typical call is assumed, and where there is no price the mean list cost.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wiserouter.learning.estimates import Estimates
from wiserouter.learning.shrinkage import PRIOR_COUNT
from wiserouter.pricing.pool import Model
from wiserouter.pricing.prices import Price
from wiserouter.types import FloatArray

TYPICAL_TOKENS = (500.0, 200.0)
"""Input and output tokens of a call where no usage was seen."""

PRIOR_SPREAD = 0.5
"""Prior standard deviation of the cost of a call, in list costs; it counts for `UNIDENTIFIED_STRENGTH` calls."""

_LEAST_RATIO = 1e-9  # of paid to listed cost: what is scaled by it, and divided by it, stays positive


def tokens_per_call(estimates: Estimates) -> tuple[FloatArray, FloatArray]:
    """Return the mean input and output tokens of each context, shared by its models; each of shape (n_contexts,)."""
    metered = estimates.metered.sum(axis=1)
    seen = metered.sum()
    means = []
    for tokens, typical in zip((estimates.input_tokens, estimates.output_tokens), TYPICAL_TOKENS, strict=True):
        overall = tokens.sum() / seen if seen else typical
        means.append((tokens.sum(axis=1) + PRIOR_COUNT * overall) / (metered + PRIOR_COUNT))
    return means[0], means[1]


def listed_usd(estimates: Estimates, *prices: Price | None) -> FloatArray:
    """Return the list cost of a mean call of each context at each price, of shape (n_contexts, n_prices); 0 for None.

    Examples
    --------
    >>> listed_usd(Estimates(1, 1), Price(input=1e-6, output=2e-6), None).round(9).tolist()
    [[0.0009, 0.0]]
    """
    pairs = [(0.0, 0.0) if price is None else (price.input, price.output) for price in prices]
    usd: FloatArray = np.einsum("tc,pt->cp", tokens_per_call(estimates), pairs)
    return usd


def list_costs_usd(estimates: Estimates, models: Sequence[Model]) -> FloatArray:
    """Return the list cost of a mean call of each (context, model); infinite for a model without a price.

    Examples
    --------
    >>> list_costs_usd(Estimates(1, 2), [Model("small", Price(1e-6, 2e-6)), Model("own")]).round(9).tolist()
    [[0.0009, inf]]
    """
    prices = [model.price for model in models]
    return np.where([price is None for price in prices], np.inf, listed_usd(estimates, *prices))


def log_prices(estimates: Estimates, prices: Sequence[Price | None]) -> FloatArray:
    """Return the centred logarithm of the list cost of a mean call at each price, of shape (n_models,).

    A model without a price, or a free one, is at the mean.

    Examples
    --------
    >>> log_prices(Estimates(1, 3), [Price(1e-6, 1e-6), Price(1e-5, 1e-5), None]).round(2).tolist()
    [-1.15, 1.15, 0.0]
    """
    input_tokens, output_tokens = (float(tokens.mean()) for tokens in tokens_per_call(estimates))
    listed = [0.0 if p is None else p.input * input_tokens + p.output * output_tokens for p in prices]
    return centred_logs(np.array(listed))


def centred_logs(usd: FloatArray) -> FloatArray:
    """Return the logarithms of costs less their mean; 0 for those that are 0.

    Examples
    --------
    >>> centred_logs(np.array([1.0, 100.0, 0.0])).round(2).tolist()
    [-2.3, 2.3, 0.0]
    """
    logs, positive = np.zeros(len(usd)), usd > 0
    if positive.any():
        of_positive = np.log(usd[positive])
        logs[positive] = of_positive - of_positive.mean()
    return logs


def price_change(estimates: Estimates, former: Price, new: Price) -> FloatArray:
    """Return the ratio of new to former list cost of a mean call of each context, of shape (n_contexts,).

    It is 1 where the former one was 0: `unlisted_usd` is for calls that were free.

    Examples
    --------
    >>> price_change(Estimates(1, 1), Price(1e-6, 2e-6), Price(1e-7, 2e-7)).round(9).tolist()
    [0.1]
    """
    was, becomes = listed_usd(estimates, former, new).T
    ratio: FloatArray = np.where(was > 0, becomes / np.where(was > 0, was, 1.0), 1.0)
    return ratio


def unlisted_usd(estimates: Estimates, model: int, former: Price, new: Price) -> FloatArray:
    """Return the list cost at the new price of a call that the former one made free, of shape (n_contexts,); else 0.

    It is that of the model's own tokens, where they were counted.

    Examples
    --------
    >>> unlisted_usd(Estimates(1, 1), 0, Price(0.0, 0.0), Price(1e-6, 2e-6)).round(9).tolist()
    [0.0009]
    """
    metered, tokens = estimates.metered[:, model], (estimates.input_tokens, estimates.output_tokens)
    usd = np.zeros(estimates.shape[0])
    for price, counted, mean in zip((new.input, new.output), tokens, tokens_per_call(estimates), strict=True):
        usd += price * (counted[:, model] + PRIOR_COUNT * mean) / (metered + PRIOR_COUNT)
    return np.where(listed_usd(estimates, former)[:, 0] > 0, 0.0, usd)


def prior_costs_usd(estimates: Estimates, models: Sequence[Model]) -> FloatArray:
    """Return the prior mean cost of a call of each (context, model).

    Parameters
    ----------
    estimates : Estimates
        Costs and tokens seen so far.
    models : sequence of Model
        The pool, for its prices; empty where none are known.

    Returns
    -------
    ndarray of shape (n_contexts, n_models)
        List cost x ratio of paid to listed cost of the context x that of the model. Positive. A model without price or
        call is assumed to cost a standard deviation less than any other: otherwise a budget that is scarce for these
        would never let it be tried. A model whose price is 0 costs next to nothing, unless its calls were paid for.
    """
    prices = [model.price for model in models] or [None] * estimates.shape[1]
    listed = _listed(estimates, prices)
    calls = estimates.calls
    least: FloatArray = 1e-12 * listed
    is_free = np.array([price is not None and not (price.input or price.output) for price in prices], dtype=bool)
    is_free &= ~estimates.cost.any(axis=0)
    if not calls.any():
        return np.where(is_free, least, listed)
    # paid over listed cost: of all calls, of each context, and of each model given its contexts
    paid = estimates.cost / listed
    paying = np.where(paid > 0, calls, 0.0)  # a free model does not show how expensive a context is
    overall = max(paid.sum() / paying.sum(), _LEAST_RATIO) if paying.any() else 1.0
    context = (paid.sum(axis=1) + PRIOR_COUNT * overall) / (paying.sum(axis=1) + PRIOR_COUNT)
    expected = calls * np.maximum(context, _LEAST_RATIO)[:, np.newaxis]
    has_price = np.array([price is not None for price in prices])
    trust = PRIOR_COUNT * overall * has_price + 1e-3 * overall
    model = (paid.sum(axis=0) + trust) / (expected.sum(axis=0) + trust)
    prior: FloatArray = listed * context[:, np.newaxis] * model
    called = calls.any(axis=0)
    prior[:, ~(called | has_price)] = (1.0 - PRIOR_SPREAD) * prior[:, called].min(axis=1, keepdims=True)
    return np.maximum(np.where(is_free, 0.0, prior), least)


def _listed(estimates: Estimates, prices: Sequence[Price | None]) -> FloatArray:
    """Return the list costs; a model without a price, or a free one, takes the mean of the others."""
    listed = listed_usd(estimates, *prices)
    priced = listed > 0
    return np.where(priced, listed, listed.sum() / priced.sum() if priced.any() else 1.0)
