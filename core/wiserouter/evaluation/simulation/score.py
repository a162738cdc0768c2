"""The score of one run, in expected reward, so that the luck of single answers does not count."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.evaluation.outcome import NOT_SERVED
from wiserouter.evaluation.simulation.environment import Environment, Stream
from wiserouter.evaluation.simulation.episode import EpisodeTrace
from wiserouter.types import FloatArray, IntArray

CHECKPOINTS = 100


class RunScore(NamedTuple):
    """One method on one seed.

    Attributes
    ----------
    method : str
        Its name.
    seed, horizon : int
        Seed and number of the requests.
    oracle_reward : float
        Expected reward of the linear program at the true means for the whole budget.
    budget_usd : float, USD
        The budget.
    served : float
        Share of the requests that got an answer.
    steps : ndarray of int of shape (n,)
        Number of requests at about 100 checkpoints, the last of which is the horizon.
    reward_by_step, spend_by_step_usd : ndarray of shape (n,)
        Sums of the mean rewards of the choices and of the payments, up to each checkpoint.
    """

    method: str
    seed: int
    horizon: int
    oracle_reward: float
    budget_usd: float
    served: float
    steps: IntArray
    reward_by_step: FloatArray
    spend_by_step_usd: FloatArray

    @property
    def reward_ratio(self) -> float:
        """Reward over that of the oracle."""
        return float(self.reward_by_step[-1]) / self.oracle_reward

    @property
    def regret(self) -> float:
        """Reward of the oracle minus that of the method; negative if the requests happen to be favourable."""
        return self.oracle_reward - float(self.reward_by_step[-1])

    @property
    def spend_ratio(self) -> float:
        """Spend over budget."""
        return float(self.spend_by_step_usd[-1]) / self.budget_usd

    @property
    def amortized_regret(self) -> FloatArray:
        """Regret per request so far, at each checkpoint."""
        return self.oracle_reward / self.horizon - self.reward_by_step / self.steps


def score_of(method: str, seed: int, environment: Environment, stream: Stream, trace: EpisodeTrace) -> RunScore:
    """Return the score of a run."""
    served = trace.chosen != NOT_SERVED
    reward = np.where(served, environment.reward[stream.contexts, trace.chosen], 0.0)
    steps = checkpoints(environment.horizon)
    return RunScore(
        method=method,
        seed=seed,
        horizon=environment.horizon,
        oracle_reward=environment.oracle_reward,
        budget_usd=environment.budget_usd,
        served=float(served.mean()),
        steps=steps,
        reward_by_step=reward.cumsum()[steps - 1],
        spend_by_step_usd=trace.spend_usd.cumsum()[steps - 1],
    )


def checkpoints(horizon: int) -> IntArray:
    """Return about 100 evenly spaced numbers of requests up to the horizon.

    Examples
    --------
    >>> checkpoints(3).tolist(), checkpoints(1_500)[:3].tolist(), len(checkpoints(1_500))
    ([1, 2, 3], [15, 30, 45], 100)
    """
    return np.unique(np.linspace(0, horizon, CHECKPOINTS + 1)[1:].round().astype(np.int64).clip(1))
