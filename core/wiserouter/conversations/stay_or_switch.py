r"""The choice between the model that holds a conversation and the others: its worth less the price of what it costs.

.. math:: \arg\max_k\; u_k - \lambda\, (c_k + C_k),

where :math:`c_k` is the cost of the next call given what is warm at model :math:`k`, :math:`C_k` that of the calls
after it if :math:`k` serves them, and :math:`\lambda` the shadow price of the budget. With one decision per call,
:math:`C_k = 0`: the other models stay as warm as they are, and the next decision is made when it comes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

_ROUNDING = 1e-9
"""Worths this close are equal; the holder is then kept."""


def stay_or_switch(
    reward: Sequence[float],
    shadow_price: float,
    now_usd: Sequence[float],
    rest_usd: Sequence[float],
    holder: int | None = None,
    allowed: Collection[int] | None = None,
) -> int:
    """Return the model that is worth most to the rest of a conversation; the holder at a tie.

    Parameters
    ----------
    reward : sequence of float of length n_models
        Expected reward if the model serves the rest.
    shadow_price : float
        Reward that one more USD would buy; at infinity the cheapest model is taken.
    now_usd, rest_usd : sequence of float of length n_models
        Expected cost of the next call, and of the calls after it.
    holder : int, optional
        The model that serves the conversation.
    allowed : collection of int, optional
        The models that may be taken; all by default.

    Examples
    --------
    >>> stay_or_switch([0.8, 0.9], 1.0, now_usd=[0.1, 0.3], rest_usd=[0.2, 0.4], holder=1)
    0
    >>> stay_or_switch([0.8, 0.9], 1.0, now_usd=[0.3, 0.1], rest_usd=[0.2, 0.5], holder=1)
    1
    """
    models = list(range(len(reward)) if allowed is None else allowed)
    cost = [now + rest for now, rest in zip(now_usd, rest_usd, strict=True)]
    if shadow_price == float("inf"):
        worth = [-usd for usd in cost]
    else:
        worth = [u - shadow_price * usd for u, usd in zip(reward, cost, strict=True)]
    best = max(models, key=lambda k: (worth[k], -cost[k]))
    if holder in models and worth[holder] >= worth[best] - _ROUNDING * max(1.0, abs(worth[best])):
        return holder
    return best
