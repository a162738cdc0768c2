"""An episode: the requests of a stream in order, each decided, paid and scored by one method.

`play` accounts for an expected budget as `Ledger` does, without its records; `play_hard` uses the router itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.budgets.budget import Budget, Debit
from wiserouter.budgets.funds import Funds
from wiserouter.errors import BudgetError, QuerySkipped
from wiserouter.evaluation.outcome import NOT_SERVED
from wiserouter.evaluation.simulation.environment import Environment, Stream
from wiserouter.evaluation.simulation.methods import SimulatedMethod
from wiserouter.planning.envelope import SKIP
from wiserouter.prompts.contexts import Contexts
from wiserouter.router import WiseRouter
from wiserouter.types import FloatArray, IntArray


class EpisodeTrace(NamedTuple):
    """The choice and the payment at each request.

    Attributes
    ----------
    chosen : ndarray of int of shape (horizon,)
        The model, or `NOT_SERVED`.
    spend_usd : ndarray of shape (horizon,)
        Amount paid.
    """

    chosen: IntArray
    spend_usd: FloatArray


def play(
    environment: Environment, stream: Stream, method: SimulatedMethod, seed: int, *, accounting: Debit = "actual"
) -> EpisodeTrace:
    """Serve a stream under an expected budget.

    Parameters
    ----------
    environment, stream : Environment, Stream
        The environment and its requests.
    method : SimulatedMethod
        The policy and its estimates, which the run updates.
    seed : int
        Seed of the policy's draws.
    accounting : {"actual", "paper"}, default "actual"
        "actual": calls are paid at their true cost, and planning debits the amount that the policy states. "paper":
        both are the mean cost of the pair, as in the paper's simulation.

    Notes
    -----
    As in `WiseRouter`, a request is not served if nothing is left, or less than the expected cost of the call.
    """
    policy, seen = method
    policy.bind(environment.freq, seen, environment.models() if environment.prices is not None else ())
    rng = np.random.default_rng(seed)
    rewards, costs = stream.rewards(environment), stream.costs_usd(environment)
    paid = environment.cost_usd[stream.contexts] if accounting == "paper" else costs
    budget, horizon = environment.budget_usd, environment.horizon
    chosen, debited, decided = [NOT_SERVED] * horizon, 0.0, 0
    for t, context in enumerate(stream.contexts.tolist()):
        left = budget - debited
        if left <= 0.0:
            break
        funds = Funds(left, horizon - decided, share=1.0 - decided / horizon)
        choice = policy.choose(context, funds, rng)
        model, debit = choice.model, choice.debit
        if debit == "actual" and choice.expected_cost_usd > left:
            continue
        decided += 1
        if model == SKIP:
            continue
        chosen[t] = model
        debited += choice.expected_cost_usd if debit == "paper" and accounting == "actual" else paid.item(t, model)
        seen.add_invoked(context, model)
        seen.add_cost(context, model, costs.item(t, model))
        seen.add_reward(context, model, rewards.item(t, model))
    return _trace(chosen, paid)


def play_hard(environment: Environment, stream: Stream, method: SimulatedMethod, seed: int) -> EpisodeTrace:
    """Serve a stream through a router with a hard budget, where each call has its own worst case."""
    models = environment.models()
    contexts = Contexts(np.eye(len(environment.freq)), environment.freq)
    router = WiseRouter(models, contexts, policy=method.policy, estimates=method.estimates, seed=seed)
    router.start(Budget(environment.budget_usd, environment.horizon, limit="hard"))
    worst = [dict(zip(router.pool.names, row, strict=True)) for row in environment.worst_usd().tolist()]
    rewards, costs = stream.rewards(environment), stream.costs_usd(environment)
    chosen = [NOT_SERVED] * environment.horizon
    for t, context in enumerate(stream.contexts.tolist()):
        try:
            decision = router.decide(context=context, worst_case_usd=worst[context])
        except (BudgetError, QuerySkipped):
            continue
        model = chosen[t] = router.pool.index(decision.model)
        router.charge(decision, costs.item(t, model))
        router.reward(decision, rewards.item(t, model))
    return _trace(chosen, costs)


def _trace(chosen: list[int], paid_usd: FloatArray) -> EpisodeTrace:
    """Return the trace of the chosen models; `paid_usd` is of shape (horizon, n_models)."""
    models = np.array(chosen, dtype=np.int64)
    picked = paid_usd[np.arange(len(models)), models]
    return EpisodeTrace(models, np.where(models == NOT_SERVED, 0.0, picked))
