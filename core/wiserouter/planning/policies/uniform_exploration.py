"""Uniform exploration: a small share of uniform draws, for off-policy evaluation of the journal."""

from __future__ import annotations

import numpy as np

from wiserouter.budgets.funds import Funds
from wiserouter.errors import InvalidInput
from wiserouter.planning.mixture import permitted, room_usd
from wiserouter.planning.policy import Allowed, Choice
from wiserouter.planning.shift import Shift


class ExploreShare:
    """Sends a share of the requests to a model drawn uniformly, among those that shares and reserve rule permit.

    Parameters
    ----------
    share : float, default 0.05
        Share of the requests, above 0 and at most 1.

    Raises
    ------
    InvalidInput
        If the share is not in that range.

    Notes
    -----
    A plan mixes at most two models in one context, and off-policy estimates of another budget, policy or pool need a
    positive probability of all models. The draws are paid out of the same budget, so that the plan's own rate falls;
    hard limits, largest shares of models and the reserve rule hold as without them. What they use of a mean or a total
    that `set_limits` bounds, the plan makes up for as far as it can.
    """

    def __init__(self, share: float = 0.05) -> None:
        if not (isinstance(share, int | float) and 0.0 < share <= 1.0):
            raise InvalidInput(f"share must lie above 0 and at most at 1, got {share!r}", value=share)
        self.share = float(share)

    def vary(
        self,
        choice: Choice,
        funds: Funds,
        rng: np.random.Generator,
        allowed: Allowed = None,
        shift: Shift | None = None,
    ) -> Choice:
        """Return the plan's choice, or in that share of the cases a uniform draw; the mix holds all probabilities.

        A choice of the exploration phase, or of an empty budget, stays as it is.
        """
        figures = choice.figures
        if choice.rule != "plan" or figures is None:
            return choice
        own = figures if shift is None else figures.shifted(shift)
        room = room_usd(funds, choice.floor_usd, own.drift_margin_usd)
        models = permitted(
            range(len(own.costs_usd)) if allowed is None else sorted(allowed), own.guarded_cost_usd, room
        )
        mix = {model: (1.0 - self.share) * chance for model, chance in choice.mix}
        for model in models:
            mix[model] = mix.get(model, 0.0) + self.share / len(models)
        if not models or len(mix) == 1:
            return choice
        drawn, cost, reward = choice.model, choice.expected_cost_usd, choice.expected_reward
        if rng.random() < self.share:
            drawn = models[int(rng.integers(len(models)))]
            reward, cost = own.means(drawn)
        return choice._replace(
            model=drawn,
            probability=mix[drawn],
            expected_cost_usd=cost,
            expected_reward=reward,
            mix=tuple(mix.items()),
        )
