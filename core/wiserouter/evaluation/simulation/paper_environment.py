"""The environment of the paper's simulation (Appendix "Simulation Experiment").

The paper draws its means once; here each seed has its own, so that no result depends on one draw. The paper does not
specify the noise: here rewards are 0 or 1, and costs log-normal.
"""

from __future__ import annotations

import numpy as np

from wiserouter.evaluation.simulation.environment import Environment, budget_between_usd
from wiserouter.validation import check_count

SIGMA = 0.1
MIDWAY = 0.5


def paper_environment(
    seed: int, horizon: int, n_contexts: int = 11, n_models: int = 11, *, fraction: float = MIDWAY
) -> Environment:
    """Return an environment with power-law frequencies and means uniform on [0, 1].

    Parameters
    ----------
    seed : int
        Seed of the means.
    horizon : int
        Number of requests.
    n_contexts, n_models : int, default 11
        J and K.
    fraction : float, default 0.5
        Position of the budget between always the cheapest (0) and always the most expensive model (1).

    Raises
    ------
    InvalidInput
        If the fraction is outside [0, 1], or a count is not a whole number of at least 1.

    Examples
    --------
    >>> paper_environment(seed=0, horizon=100, n_contexts=2).freq.round(3)
    array([0.667, 0.333])
    """
    shape = check_count("n_contexts", n_contexts, least=1), check_count("n_models", n_models, least=1)
    rng = np.random.default_rng([seed, 1])
    weight = 1.0 / np.arange(1, n_contexts + 1)
    freq = weight / weight.sum()
    reward, cost = rng.random(shape), rng.random(shape)
    budget = budget_between_usd(freq, cost, horizon, fraction)
    return Environment(freq, reward, cost, budget, horizon, prices=None, sigma=SIGMA)
