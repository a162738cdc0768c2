"""The environment with the models of RouterBench: mean costs that span a factor of 57, and known prices.

Mean performance and cost of each model are those of the paper (Table "Average performance and cost per query across
different models on RouterBench"); their variation between contexts and calls is synthetic.
"""

from __future__ import annotations

import numpy as np

from wiserouter.evaluation.simulation.environment import Environment, budget_between_usd
from wiserouter.pricing.prices import Price
from wiserouter.validation import check_count

MODELS = {
    "gpt-4-1106-preview": (0.805, 7.943e-03),
    "mixtral-8x7b-chat": (0.650, 4.140e-04),
    "claude-v1": (0.648, 5.870e-03),
    "llama-2-70b-chat": (0.606, 1.337e-03),
    "claude-instant-v1": (0.590, 1.236e-03),
    "gpt-3.5-turbo-1106": (0.687, 7.086e-04),
    "WizardLM-13B-V1.2": (0.539, 1.417e-04),
    "code-llama-instruct-34b-chat": (0.504, 5.499e-04),
    "claude-v2": (0.512, 6.153e-03),
    "mistral-7b-chat": (0.500, 1.388e-04),
}
"""Mean performance, and mean cost of a query in USD."""

TOKENS = 1_000
"""Tokens of a call of mean cost, which determine the price of a token."""

SIGMA = 0.6
SCARCE = 0.02


def routerbench_like(seed: int, horizon: int, fraction: float = SCARCE, n_contexts: int = 16) -> Environment:
    """Return an environment of the ten models of RouterBench, with contexts that shift their reward and cost.

    Parameters
    ----------
    seed : int
        Seed of the contexts.
    horizon : int
        Number of requests.
    fraction : float, default 0.02
        Position of the budget between always the cheapest (0) and always the most expensive model (1).
    n_contexts : int, default 16
        J.

    Raises
    ------
    InvalidInput
        If the fraction is outside [0, 1], or a count is not a whole number of at least 1.

    Examples
    --------
    >>> routerbench_like(seed=0, horizon=100).cost_usd.shape
    (16, 10)
    """
    shape = check_count("n_contexts", n_contexts, least=1), len(MODELS)
    rng = np.random.default_rng([seed, 1])
    performance, model_usd = np.array(list(MODELS.values())).T
    freq = rng.dirichlet(np.full(n_contexts, 3.0))
    reward_shift, log_cost_shift = rng.normal(0.0, 0.15, (n_contexts, 1)), rng.normal(0.0, 0.4, (n_contexts, 1))
    reward = np.clip(performance + reward_shift + rng.normal(0.0, 0.08, shape), 0.0, 1.0)
    cost = model_usd * np.exp(log_cost_shift + rng.normal(0.0, 0.1, shape))
    budget = budget_between_usd(freq, cost, horizon, fraction)
    prices = tuple(Price(input=0.0, output=float(usd) / TOKENS) for usd in model_usd)
    return Environment(freq, reward, cost, budget, horizon, prices, sigma=SIGMA)
