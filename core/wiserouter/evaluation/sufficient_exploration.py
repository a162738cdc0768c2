r"""The sufficient length of exploration (paper, Lemma "Sufficient exploration").

With the least cost gap :math:`\Delta^c` within a context, the least ratio separation :math:`\Delta^\xi`, the frequency
:math:`\pi` of the rarest context and :math:`L = (\Delta^c)^2 \Delta^\xi`, epsilon-first ranks all ratios correctly with
probability at least :math:`1 - (4KJ + J) T^{-2}` if it explores for

.. math::
    \Bigl\lceil \frac{K}{(1-\delta)\pi}
    + \log T \max\Bigl\{\frac{1}{\delta^2}, \frac{128 K}{(1-\delta)\pi L^2}\Bigr\} \Bigr\rceil

requests, for any :math:`0 < \delta < 1`. As :math:`L \le |Z| \le 2`, the length is least where the two terms of the
maximum are equal: beyond that `delta` both grow, and below it the first falls faster than the rest grows.

Departures: only unequal ratios need an order, so equal ones do not make the separation 0; contexts that never occur are
left out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.errors import InvalidInput
from wiserouter.planning.policies.marginal_ratios import ratios_of
from wiserouter.types import FloatArray
from wiserouter.validation import check_count, check_delta

_ROUNDING = 1e-12  # costs and ratios this close are equal


class SufficientLength(NamedTuple):
    """The sufficient number of requests, and the figures that determine it.

    Attributes
    ----------
    length : int
        Number of exploration requests.
    delta : float
        Share by which a context may fall short of its frequency.
    cost_gap : float
        Least difference of two costs in one context, as a share of the most expensive call.
    ratio_gap : float
        Least difference of two unequal ratios, with costs as shares of the most expensive call.
    min_freq : float
        Frequency of the rarest context.
    separation : float
        L of the paper, `cost_gap` squared x `ratio_gap`.
    """

    length: int
    delta: float
    cost_gap: float
    ratio_gap: float
    min_freq: float
    separation: float


def sufficient_length(
    reward: ArrayLike,
    cost_usd: ArrayLike,
    freq: ArrayLike,
    horizon: int,
    delta: float | None = 0.5,
    *,
    cost_scale_usd: float | None = None,
    allow_skip: bool = True,
) -> SufficientLength:
    """Return the number of requests that suffices to order all ratios of known statistics.

    Parameters
    ----------
    reward, cost_usd : array-like of shape (n_contexts, n_models)
        Mean reward and cost.
    freq : array-like of shape (n_contexts,)
        Frequency of each context.
    horizon : int
        Total number of requests T.
    delta : float, optional
        In (0, 1); None takes the value with the least length.
    cost_scale_usd : float, optional
        The most that a call can cost; costs are divided by it. At least, and by default, the largest mean.
    allow_skip : bool, default True
        Include the null action of reward and cost 0, as the paper does.

    Raises
    ------
    InvalidInput
        If two costs of one context or all ratios are equal, so that no length suffices, or a number is out of range.

    Examples
    --------
    >>> sufficient_length([[0.0, 1.0]], [[0.5, 1.0]], [1.0], horizon=100)
    SufficientLength(length=37730, delta=0.5, cost_gap=0.5, ratio_gap=1.0, min_freq=1.0, separation=0.25)
    """
    pi, u, c = (np.asarray(table, dtype=np.float64) for table in (freq, reward, cost_usd))
    occurs = pi > 0.0
    scale = max(cost_scale_usd or 0.0, float(c.max())) or 1.0
    u, c = u[occurs], c[occurs] / scale
    gaps = _cost_gap(c, allow_skip=allow_skip), _ratio_gap(u, c, allow_skip=allow_skip)
    return length_of_gaps(*gaps, min_freq=float(pi[occurs].min()), n_models=c.shape[1], horizon=horizon, delta=delta)


def length_of_gaps(
    cost_gap: float, ratio_gap: float, *, min_freq: float, n_models: int, horizon: int, delta: float | None = 0.5
) -> SufficientLength:
    """Return the number of requests that suffices at these gaps; the parameters are those of `SufficientLength`.

    Raises
    ------
    InvalidInput
        If a number is out of range, or the gaps are larger than rewards and costs in [0, 1] allow.

    Examples
    --------
    >>> length_of_gaps(0.1, 0.5, min_freq=0.05, n_models=5, horizon=10_000).length
    9431388741
    """
    check_count("n_models", n_models, least=1)
    log_t = math.log(check_count("horizon", horizon, least=2))
    _check_gaps(cost_gap, ratio_gap, min_freq)
    separation = cost_gap**2 * ratio_gap
    hardness = 128.0 * n_models / (min_freq * separation**2)
    chosen = _best_delta(hardness) if delta is None else check_delta("delta", delta)
    visits = n_models / ((1.0 - chosen) * min_freq)
    length = math.ceil(visits + log_t * max(1.0 / chosen**2, hardness / (1.0 - chosen)))
    return SufficientLength(length, chosen, cost_gap, ratio_gap, min_freq, separation)


def _best_delta(hardness: float) -> float:
    """Return the root of 1 / x^2 = hardness / (1 - x) between 0 and 1."""
    return 2.0 / (1.0 + math.sqrt(1.0 + 4.0 * hardness))


def _cost_gap(cost: FloatArray, *, allow_skip: bool) -> float:
    """Return the least difference of two costs in one context."""
    ordered = np.sort(np.pad(cost, ((0, 0), (0, int(allow_skip)))), axis=1)
    gaps = np.diff(ordered, axis=1)
    if not gaps.size:
        raise InvalidInput("there must be at least two models to order, got one")
    context, rank = np.unravel_index(int(gaps.argmin()), gaps.shape)
    if gaps[context, rank] <= _ROUNDING:
        null = " (the null action costs 0)" if ordered[context, rank] == 0.0 and allow_skip else ""
        raise InvalidInput(f"costs within a context must differ, got two equal ones{null}: no finite length suffices")
    return float(gaps[context, rank])


def _ratio_gap(reward: FloatArray, cost: FloatArray, *, allow_skip: bool) -> float:
    """Return the least difference of two unequal ratios: in sorted order, that of two neighbours."""
    xi = np.sort(ratios_of(reward, cost, np.zeros_like(cost), allow_skip=allow_skip).xi)
    gaps = np.diff(xi)[~np.isclose(xi[1:], xi[:-1], rtol=1e-9, atol=_ROUNDING)]
    if not gaps.size:
        raise InvalidInput("at least two ratios of reward to cost must differ, got none: there is no order to learn")
    return float(gaps.min())


def _check_gaps(cost_gap: float, ratio_gap: float, min_freq: float) -> None:
    for name, share in (("cost_gap", cost_gap), ("min_freq", min_freq)):
        if not _ROUNDING <= share <= 1.0:
            raise InvalidInput(f"{name} must lie in [{_ROUNDING:g}, 1], got {share!r}", value=share)
    if not _ROUNDING <= ratio_gap <= 2.0 / cost_gap**2:
        raise InvalidInput(
            f"ratio_gap must lie in [{_ROUNDING:g}, 2 / cost_gap^2 = {2.0 / cost_gap**2:g}], got {ratio_gap!r}: "
            "rewards and costs are numbers in [0, 1]",
            value=ratio_gap,
        )
